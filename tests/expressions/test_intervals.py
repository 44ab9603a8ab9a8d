"""Intervals as text and back, in results of every format, and in what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.sinks.files import FilesSink, read_result
from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.coercion import DURATION, STRING
from penstock.expressions.values.intervals import from_text, to_text
from penstock.language.scripts import bind_script
from penstock.types import parse_result_type, type_name

TICKS = [0, 1, -1, 999_999, 60_000_000, 86_400_000_000, -86_400_000_001, 2**63 - 1, -(2**63), None]
SCRIPT = "CREATE STREAM S (ts TIMESTAMP, k INT) FROM MEMORY () TIMESTAMP BY ts; CREATE QUERY q {} AS SELECT {} FROM S;"


def test_text_and_back() -> None:
    lengths = pa.array(TICKS, pa.int64()).view(DURATION)
    texts = to_text(lengths)
    assert texts.to_pylist() == [
        "INTERVAL '0 00:00:00' DAY TO SECOND",
        "INTERVAL '0 00:00:00.000001' DAY TO SECOND",
        "INTERVAL '-0 00:00:00.000001' DAY TO SECOND",
        "INTERVAL '0 00:00:00.999999' DAY TO SECOND",
        "INTERVAL '0 00:01:00' DAY TO SECOND",
        "INTERVAL '1 00:00:00' DAY TO SECOND",
        "INTERVAL '-1 00:00:00.000001' DAY TO SECOND",
        "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND",
        "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND",
        None,
    ]
    assert from_text(texts).equals(lengths)
    assert to_text(lengths[3:5]).equals(texts[3:5])
    wrong = ["", "5", "0 24:00:00", "0 00:60:00", "106751991 04:00:54.775808", "INTERVAL '1' DAY", "x"]
    assert from_text(pa.array(wrong, STRING)).null_count == len(wrong)


def test_its_name_is_that_of_spark() -> None:
    assert type_name(DURATION) == "INTERVAL DAY TO SECOND"
    assert parse_result_type(type_name(pa.list_(DURATION))) == pa.list_(DURATION)


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_results_hold_intervals(format_: str, tmp_path: Path) -> None:
    into = f"INTO FILES (path '{tmp_path / 'r'}', format '{format_}')"
    (query,) = bind_script(SCRIPT.format(into, "k, ts - TIMESTAMP '2020-01-01' AS length")).queries
    sink = FilesSink(query)
    sink.open(resume=False, overwrite=False)
    lengths = pa.array(TICKS, pa.int64()).view(DURATION)
    stamps = pa.array(range(len(TICKS)), pa.int64()).cast(query.output_schema.field(0).type)
    table = pa.table([stamps, pa.array([1] * len(TICKS), pa.int32()), lengths], schema=query.output_schema)
    sink.write(0, table)
    assert read_result(str(tmp_path / "r")).column("length").combine_chunks().equals(lengths)
    text = (tmp_path / "r" / f"part-00000000.{format_}").read_bytes()
    assert format_ == "parquet" or b"INTERVAL '1 00:00:00' DAY TO SECOND" in text


@pytest.mark.parametrize("item", ["MEDIAN({})", "STDDEV({})", "QUANTILE({}, 0.5)", "SQRT({})", "{} > 5"])
def test_what_intervals_do_not_have_is_refused_by_the_types_name(item: str) -> None:
    with pytest.raises(ScriptErrors, match="INTERVAL DAY TO SECOND"):
        bind_script(SCRIPT.format("", item.format("(ts - TIMESTAMP '2020-01-01')") + " AS x"))


def test_a_column_cannot_be_declared_an_interval() -> None:
    with pytest.raises(ScriptErrors) as caught:
        bind_script("CREATE STREAM S (ts TIMESTAMP, k INTERVAL) FROM MEMORY () TIMESTAMP BY ts;")
    assert "difference of two times" in str(caught.value)


def test_delta_and_avro_have_none() -> None:
    from penstock.connectors.kafka.encode import _avro
    from penstock.connectors.options import Options
    from penstock.connectors.sinks.delta import DeltaSink

    with pytest.raises((PenstockError, ScriptErrors), match="Delta has no INTERVAL DAY TO SECOND"):
        (query,) = bind_script(SCRIPT.format("INTO DELTA (path 'x')", "ts - ts AS length")).queries
        DeltaSink(query)
    with pytest.raises(PenstockError, match="avro writes no INTERVAL DAY TO SECOND"):
        _avro("x", DURATION, Options("INTO KAFKA", ()))
