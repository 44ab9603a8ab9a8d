"""Images of sketches are those of Spark: its CountMinSketch reads them, and its own functions agree with ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.expressions.sketches import count_min, hyperloglog
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

pytestmark = pytest.mark.spark

_VALUES = {
    "i": pa.array([*range(40), 7, 7, 7, -1, 2**63 - 1, -(2**63)], pa.int64()),
    "a": pa.array(["", "a", "bc", "def", "ghij", "klmno", "é" * 9, *["x"] * 39]),
}


def ours(items: str) -> dict[str, Any]:
    queries = bind_script(
        "CREATE STREAM S (i BIGINT, a STRING, ts INT) FROM MEMORY () TIMESTAMP BY ts;"
        f" CREATE QUERY q AS SELECT {items} FROM S [NOW];"
    ).queries
    rows = pa.table({**_VALUES, "ts": pa.array([1] * len(_VALUES["i"]), pa.int32())})
    return next(r for r in run_local(queries, {"S": rows}).tables["q"].to_pylist() if r["op"] == "+" and r["ts"] == 1)


def test_spark_reads_count_min_sketches(spark: Any) -> None:
    found = ours("COUNT_MIN_SKETCH(i, 0.05, 0.99, 7) AS i, COUNT_MIN_SKETCH(a, 0.05, 0.99, 7) AS a")
    rows = list(zip(*(values.to_pylist() for values in _VALUES.values()), strict=True))
    calls = [f"count_min_sketch({name}, 0.05d, 0.99d, 7) AS {name}" for name in _VALUES]
    theirs = spark.createDataFrame(rows, "i LONG, a STRING").selectExpr(*calls).first()
    reader = spark._jvm.org.apache.spark.util.sketch.CountMinSketch
    for name, values in _VALUES.items():
        assert bytes(theirs[name]) == found[name]
        read = reader.readFrom(bytearray(found[name]))
        assert read.totalCount() == len(values)
        mine = count_min.read_image(found[name]).counts(values).tolist()
        assert [read.estimateCount(v) for v in values.to_pylist()] == mine


def test_spark_reads_hll_sketches(spark: Any) -> None:
    found = ours("HLL_SKETCH_AGG(i, 12) AS i, HLL_SKETCH_AGG(i, 4) AS small")
    frame = spark.createDataFrame([(bytearray(found["i"]), bytearray(found["small"]))], "i BINARY, small BINARY")
    estimates = frame.selectExpr("hll_sketch_estimate(i)", "hll_sketch_estimate(hll_union(i, small, true))").first()
    assert estimates[0] == round(hyperloglog.deserialized(found["i"]).get_estimate())
    assert estimates[1] > 0
    values = spark.createDataFrame([(v,) for v in _VALUES["i"].to_pylist()], "i LONG")
    image = bytes(values.selectExpr("hll_sketch_agg(i, 12)").first()[0])
    theirs, mine = hyperloglog.registers_of(image), hyperloglog.registers_of(found["i"])
    assert np.array_equal(theirs.cells, mine.cells)
