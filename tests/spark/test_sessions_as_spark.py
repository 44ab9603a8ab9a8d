"""A second opinion on session windows: Spark's own, over the same rows as a batch."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from penstock.language import bind_script
from penstock.runtime.local.runtime import run_local

GROUPED = "GROUP BY usr, session_window(at, '5 seconds')"
ITEMS = "usr, session_window.start, session_window.end, COUNT(*) AS n, SUM(amount) AS total"
SECOND = 1_000_000


@pytest.mark.spark
def test_the_same_text_has_the_same_sessions(spark: Any) -> None:
    draw = random.Random(7)
    times = sorted(draw.randrange(1_500) for _ in range(600))
    rows = pa.table({
        "at": pa.array([t * SECOND for t in times], pa.timestamp("us", "UTC")),
        "usr": [draw.choice(("ann", "bob", "eve", None)) for _ in times],
        "amount": pa.array([draw.randrange(9) for _ in times], pa.int32()),
    })  # fmt: skip
    spark.createDataFrame(rows.to_pandas(), "at timestamp, usr string, amount int").createOrReplaceTempView("actions")
    asked = "SELECT usr, UNIX_MICROS(session_window.start), UNIX_MICROS(session_window.end), n, total FROM ({})"
    inner = f"SELECT usr, session_window, COUNT(*) AS n, SUM(amount) AS total FROM actions {GROUPED}"
    expected = [tuple(row) for row in spark.sql(asked.format(inner)).collect()]
    script = "CREATE STREAM actions (at TIMESTAMP, usr STRING, amount INT) FROM MEMORY () TIMESTAMP BY at;"
    bound = bind_script(f"{script}CREATE QUERY q AS RSTREAM(SELECT {ITEMS} FROM actions {GROUPED});")
    answer = run_local(bound.queries, {"actions": rows}, drain=True).tables["q"]
    columns = [answer["usr"], *(answer[c].cast(pa.int64()) for c in ("start", "end", "n", "total"))]
    found = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert len(found) > 100 and max(n for *_, n, _ in found) > 3
