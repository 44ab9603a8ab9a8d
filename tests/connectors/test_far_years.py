"""Dates and timestamps of all years: written by every text format, read again, and shown to people and to pandas."""

from __future__ import annotations

import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.algebra.nodes.query import Query
from penstock.connectors.formats import cells
from penstock.connectors.kafka.encode import Encoder
from penstock.connectors.sinks import open_sink
from penstock.connectors.sinks.files import read_result
from penstock.connectors.sinks.memory import MemorySink
from penstock.connectors.sinks.output import OutputFormat, output
from penstock.expressions.values.calendar import day_of, far_day, far_moment, moment_of
from penstock.expressions.values.casts import convert
from penstock.expressions.values.shown import shown_row, shown_value
from penstock.handles import Result
from penstock.language.scripts import bind_script
from penstock.types import TIMESTAMP

_DAY = 86_400_000_000
DAYS = [-(2**31), -12_687_429, -719_529, -719_528, -719_163, -719_162, 0, 2_932_896, 2_932_897, 11_248_738, 2**31 - 1]
MOMENTS = [-(2**63), *(day * _DAY - 1 for day in DAYS[1:-1]), 2**63 - 1]


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_date_is_read_as_it_is_written(days: int) -> None:
    text = far_day(days)
    assert day_of(text) == days and moment_of(text) == (days * _DAY if abs(days * _DAY) < 2**63 else None)
    assert np.datetime64(days, "D") == np.datetime64(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_timestamp_is_read_as_it_is_written(ticks: int) -> None:
    text = far_moment(ticks)
    assert moment_of(text) == ticks and day_of(text) is None


WRONG = [
    "12000-13-01", "12000-02-30", "12001-02-29", "12000-00-01", "12000-01-00", "5881581-01-01", "-5877642-01-01", "x",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_date_is_rejected(text: str) -> None:
    for type_ in (pa.date32(), TIMESTAMP):
        assert cells.convert(pa.array([text, "2024-01-01"]), type_).failed.tolist() == [True, False]


def test_zones_and_fractions_of_far_timestamps() -> None:
    texts = ["12000-01-01T01:00:00+01:00", "+12000-01-01 00:00", "-0001-12-31T23:30:00-0030", "12000-01-01 24:00:00"]
    found = cells.convert(pa.array(texts), TIMESTAMP)
    start = int(np.datetime64("12000-01-01", "us").astype(np.int64))
    assert found.values.cast(pa.int64()).to_pylist() == [start, start, -719_528 * _DAY, None]
    assert found.failed.tolist() == [False, False, False, True]


def query(into: str) -> Query:
    script = f"""CREATE STREAM s (ts BIGINT, d DATE, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts;
    CREATE QUERY q INTO {into} AS SELECT d, at, ARRAY_AGG(d) AS ds, ARRAY_AGG(at) AS ats FROM s [NOW] GROUP BY d, at;"""
    return bind_script(script).catalog.queries["q"]


def rows(schema: pa.Schema) -> pa.Table:
    count = len(DAYS)
    days, moments = pa.array(DAYS, pa.int32()).cast(pa.date32()), pa.array(MOMENTS, pa.int64()).cast(TIMESTAMP)
    starts = pa.array(range(count + 1), pa.int32())
    lists = (pa.ListArray.from_arrays(starts, values) for values in (days, moments))
    columns = [pa.array(range(count), pa.int64()), pa.array(["+"] * count), days, moments, *lists]
    return pa.table([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_a_result_reads_back_equal(tmp_path: Path, format_: str) -> None:
    asked = query(f"FILES (path '{tmp_path / 'out'}', format '{format_}')")
    written = rows(asked.output_schema)
    sink = open_sink(asked)
    sink.open(resume=False, overwrite=False)
    sink.write(0, written)
    assert read_result(str(tmp_path / "out")).equals(written)


class _Bytes(io.BytesIO):
    def close(self) -> None:
        """Keep what was written."""


@pytest.mark.parametrize("form", OutputFormat)
def test_standard_output_takes_them(form: OutputFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = query("CONSOLE ()")
    taken = _Bytes()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken, "utf-8"))
    out = output(form, [asked])
    out.write(asked, [rows(asked.output_schema)], None)
    out.close()
    sys.stdout.flush()
    if form is OutputFormat.ARROW:
        assert pa.ipc.open_stream(taken.getvalue()).read_all().equals(rows(asked.output_schema))
    else:
        assert all(far_day(day) in taken.getvalue().decode() for day in DAYS)


def test_records_of_a_topic_take_them() -> None:
    table = rows(query("CONSOLE ()").output_schema)
    for key, value, _ in Encoder("json", ("d",)).messages(table):
        assert key is not None and value is not None and key in value
    assert len(list(Encoder("arrow").messages(table))) == 1


def test_handles_give_them(capsys: pytest.CaptureFixture[str]) -> None:
    asked = query("MEMORY ()")
    sink = MemorySink(asked)
    sink.open(resume=False, overwrite=True)
    sink.write(0, rows(asked.output_schema))
    result = Result(sink)
    assert result.to_arrow().equals(rows(asked.output_schema))
    result.show(None)
    shown: Any = (capsys.readouterr().out, result._repr_html_())
    assert all(far_day(day) in text for day in DAYS for text in shown)
    frame = result.to_pandas()
    assert frame["d"].to_numpy().astype("M8[D]").astype(np.int64).tolist() == DAYS
    assert frame["at"].dt.tz_localize(None).to_numpy().astype("M8[us]").astype(np.int64).tolist()[1:] == MOMENTS[1:]


def test_dead_letters_show_them() -> None:
    table = rows(query("CONSOLE ()").output_schema)
    for position in (0, 9, 10):
        day, at = far_day(DAYS[position]), far_moment(MOMENTS[position])
        assert shown_row(table, position) == (
            f'{{"ts": {position}, "op": "+", "d": "{day}", "at": "{at}", "ds": ["{day}"], "ats": ["{at}"]}}'
        )
    nested = pa.array([{"a": DAYS[9], "b": None, "c": [0]}], pa.struct(
        [("a", pa.date32()), ("b", pa.date32()), ("c", pa.list_(pa.date32()))]))  # fmt: skip
    text = '{"a": "' + far_day(DAYS[9]) + '", "b": null, "c": ["1970-01-01"]}'
    assert shown_row(pa.table({"s": nested}), 0) == '{"s": ' + text + "}"


def test_dead_letters_are_json() -> None:
    values: dict[str, pa.Array] = {
        "i": pa.array([1]), "b": pa.array([True]), "x": pa.array([0.5]), "n": pa.array([float("nan")]),
        "m": pa.array([Decimal("0.0000001")]), "s": pa.array(['a "b" \\ é\n']), "y": pa.array([b"\x00\xff"]),
        "at": pa.array([0], pa.timestamp("us", "UTC")), "l": pa.array([90_000_000], pa.duration("us")),
        "z": pa.array([None], pa.int32()),
    }  # fmt: skip
    assert json.loads(shown_row(pa.table(values), 0)) == {
        "i": 1,
        "b": True,
        "x": 0.5,
        "n": "NaN",
        "m": 0.0000001,
        "s": 'a "b" \\ é\n',
        "y": "AP8=",
        "at": "1970-01-01T00:00:00Z",
        "l": "INTERVAL '0 00:01:30' DAY TO SECOND",
        "z": None,
    }


@pytest.mark.parametrize("type_", [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.date64()])
def test_messages_show_them_in_every_unit(type_: pa.DataType) -> None:
    start = {"s": 1, "ms": 1_000}[getattr(type_, "unit", "ms")] * 86_400 * 11_248_738
    text = far_day(11_248_738) + {"s": "T00:00:00", "ms": "T00:00:00Z"}.get(getattr(type_, "unit", ""), "")
    assert shown_value(pa.scalar(start, pa.int64()).cast(type_)) == text


def test_casts_to_text_say_them() -> None:
    moments = pa.array([2**62, None, 0, -(2**62)], pa.int64()).cast(TIMESTAMP)
    assert convert(moments, pa.string()).to_pylist() == [
        "148108-07-06 14:00:27.387904",
        None,
        "1970-01-01 00:00:00",
        "-144169-06-28 09:59:32.612096",
    ]
