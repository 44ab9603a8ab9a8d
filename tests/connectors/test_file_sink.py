"""INTO FILES: exactly-once parts, what the text looks like, what is never overwritten, and a disk that is full."""

from __future__ import annotations

import datetime as dt
import errno
import io
import json
import os
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_kit import EVERY_TYPE, SECONDS, query_over, schema_of, with_ts
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import RelationScan, Source
from penstock.connectors.sinks import open_sink
from penstock.connectors.sinks.files import FilesSink, Marker, _change, read_result
from penstock.connectors.text import csv_text, far_day, json_text
from penstock.errors import PenstockError
from penstock.types import TIMESTAMP

ROWS = pa.table({"word": ["a", None, "b c", 'd"e', "", "f,g"], "x": [1.5, None, 2.0, float("nan"), 0.1, -1e20]})


def sink_at(folder: Path, table: pa.Table = ROWS, **options: str) -> FilesSink:
    sink = open_sink(query_over(table, "FILES", path=str(folder), **options))
    assert isinstance(sink, FilesSink)
    return sink


def listing(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_csv_of_one_column_has_a_record_for_every_row() -> None:
    """Most readers skip an empty line, and read `""` of a number as NULL."""
    for values, type_ in (([1, None, 2], pa.int64()), (["x", None, "y"], pa.string())):
        text = csv_text(pa.table({"a": pa.array(values, type_)})).to_pybytes()
        assert text.split(b"\n") == [b"a", str(values[0]).encode(), b'""', str(values[2]).encode(), b""]
        frame = pd.read_csv(io.BytesIO(text))
        assert len(frame) == 3 and frame["a"].isna().tolist() == [False, True, False]


def test_csv_text() -> None:
    at = pa.array([0, 1, 1_000_000, 1_500_000, None, -1], TIMESTAMP)
    assert csv_text(ROWS.add_column(0, "ts", at)).to_pybytes().decode().split("\n") == [
        "ts,word,x",
        "1970-01-01T00:00:00Z,a,1.5",
        "1970-01-01T00:00:00.000001Z,,",
        "1970-01-01T00:00:01Z,b c,2",
        '1970-01-01T00:00:01.500000Z,"d""e",NaN',
        ',"",0.1',
        '1969-12-31T23:59:59.999999Z,"f,g",-1e+20',
        "",
    ]


def test_json_text() -> None:
    table = pa.table(
        {
            "ts": pa.array([0, 5]),
            'a "b"': ["x\n\x01\\", None],
            "ok": [True, None],
            "day": [dt.date(2013, 1, 1), None],
            "n": pa.array([Decimal("0.0000000010"), Decimal("-12")], pa.decimal128(20, 10)),
            "x": [float("inf"), 0.5],
        }
    )
    assert json_text(table).to_pybytes().decode() == (
        '{"ts":0,"a \\"b\\"":"x\\n\\u0001\\\\","ok":true,"day":"2013-01-01","n":0.0000000010,"x":"Infinity"}\n'
        '{"ts":5,"a \\"b\\"":null,"ok":null,"day":null,"n":-12.0000000000,"x":0.5}\n'
    )


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_every_type_comes_back_typed(tmp_path: Path, format_: str) -> None:
    sink = sink_at(tmp_path / "out", EVERY_TYPE, format=format_)
    sink.open(resume=False, overwrite=False)
    sink.write(7, with_ts(EVERY_TYPE))
    assert listing(tmp_path / "out") == ["_penstock.json", f"part-00000007.{format_}"]
    assert read_result(str(tmp_path / "out")).combine_chunks().equals(with_ts(EVERY_TYPE))


def test_a_relation_of_an_integer_domain(tmp_path: Path) -> None:
    columns = schema_of(pa.table({"n": [1]}))
    source = Source("r", False, columns, "MEMORY", (), 0, SECONDS)
    query = Query("q", RelationScan(source, (0,)), SinkSpec("FILES", (("path", str(tmp_path / "out")),)))
    sink = open_sink(query)
    sink.open(resume=False, overwrite=False)
    table = pa.table({"ts": pa.array([5, 6]), "op": ["+", "-"], "n": [1, 1]})
    sink.write(0, table)
    assert (tmp_path / "out" / "part-00000000.csv").read_text() == "ts,op,n\n5,+,1\n6,-,1\n"
    assert read_result(str(tmp_path / "out")).drop_columns("ts").equals(table.drop_columns("ts"))


def test_the_marker_tells_what_the_folder_holds(tmp_path: Path) -> None:
    sink_at(tmp_path / "a" / "out").open(resume=False, overwrite=False)
    marker = json.loads((tmp_path / "a" / "out" / "_penstock.json").read_text())
    run = marker.pop("run")
    assert run and marker == {
        "query": "q",
        "format": "csv",
        "columns": ["ts", "word", "x"],
        "types": ["TIMESTAMP", "STRING", "DOUBLE"],
        "version": 1,
    }


def test_a_result_that_exists_is_refused_overwritten_or_continued(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    sink.open(resume=False, overwrite=False)
    sink.write(0, with_ts(ROWS))
    with pytest.raises(PenstockError, match="not empty") as error:
        sink_at(tmp_path).open(resume=False, overwrite=False)
    assert error.value.code == "P0501" and "--overwrite" in (error.value.hint or "")
    run = json.loads((tmp_path / "_penstock.json").read_text())["run"]
    (tmp_path / ".part-00000001.csv.tmp").write_text("half a batch of a run that was killed")
    sink_at(tmp_path).open(resume=True, overwrite=False)
    assert listing(tmp_path) == ["_penstock.json", "part-00000000.csv"]
    assert json.loads((tmp_path / "_penstock.json").read_text())["run"] == run
    sink_at(tmp_path).open(resume=False, overwrite=True)
    assert listing(tmp_path) == ["_penstock.json"]


def test_a_run_killed_before_its_marker_stood_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "._penstock.json.tmp").write_text("{")
    sink_at(tmp_path).open(resume=False, overwrite=False)
    assert listing(tmp_path) == ["_penstock.json"]


def test_files_of_others_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "part-00000000.csv").write_text("x")
    with pytest.raises(PenstockError, match=r"thesis\.txt") as error:
        sink_at(tmp_path).open(resume=False, overwrite=True)
    assert error.value.code == "P0501"
    assert listing(tmp_path) == ["part-00000000.csv", "thesis.txt"]


def test_a_result_of_other_columns_is_not_continued(tmp_path: Path) -> None:
    sink_at(tmp_path).open(resume=False, overwrite=False)
    named = "holds a result of another form: .* is a new column; .*; and [0-9]+ more"
    with pytest.raises(PenstockError, match=named) as error:
        sink_at(tmp_path, EVERY_TYPE).open(resume=True, overwrite=False)
    assert error.value.code == "P0501"


@pytest.mark.parametrize(
    ("format_", "columns", "types", "change"),
    [
        ("json", ["a", "b"], ["INT", "STRING"], "its format was csv and is json"),
        ("csv", ["a", "c"], ["INT", "STRING"], "c is a new column; b is no column any more"),
        ("csv", ["a", "b"], ["BIGINT", "STRING"], "a was INT and is BIGINT"),
        ("csv", ["b", "a"], ["STRING", "INT"], "its columns were in the order a, b"),
        ("json", ["a", "b", "c"], ["INT", "INT", "INT"],
         "its format was csv and is json; c is a new column; b was STRING and is INT"),
    ],
)  # fmt: skip
def test_what_changed_is_named(format_: str, columns: list[str], types: list[str], change: str) -> None:
    before = Marker("q", "csv", ["a", "b"], ["INT", "STRING"], "")
    assert _change(before, Marker("q", format_, columns, types, "")) == change


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_a_full_disk_leaves_nothing_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
    sink = sink_at(tmp_path, format=format_)
    sink.open(resume=False, overwrite=False)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PenstockError, match="No space left") as error:
        sink.write(0, with_ts(ROWS))
    assert error.value.code == "P0502"
    assert listing(tmp_path) == ["_penstock.json"]
    monkeypatch.undo()
    sink.write(0, with_ts(ROWS))
    assert read_result(str(tmp_path)).num_rows == ROWS.num_rows


def test_a_place_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PenstockError) as error:
        sink_at(tmp_path / "file" / "out").open(resume=False, overwrite=False)
    assert error.value.code == "P0502" and str(tmp_path / "file" / "out") in error.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    sink.open(resume=False, overwrite=False)
    tmp_path.chmod(0o500)
    with pytest.raises(PenstockError) as error:
        sink.write(0, with_ts(ROWS))
    tmp_path.chmod(0o700)
    assert error.value.code == "P0502" and listing(tmp_path) == ["_penstock.json"]


def test_no_result_to_read(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="holds no result") as error:
        read_result(str(tmp_path))
    assert error.value.code == "P0401"


def counted(type_: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([("value", type_), ("count", pa.int64())]))


NESTED = pa.table(
    {
        "reals": pa.array([[1.5, None, float("inf")], None, []], pa.list_(pa.float64())),
        "texts": pa.array(
            [[{"value": 'it\'s, "x"\n', "count": 2}], None, [{"value": "", "count": 1}]], counted(pa.string())
        ),
        "sums": pa.array([[Decimal("1.50"), None], None, [Decimal("0.00")]], pa.list_(pa.decimal128(10, 2))),
        "top": pa.array([None, [{"value": Decimal("-2.5"), "count": 1}], []], counted(pa.decimal128(5, 1))),
        "days": pa.array([[dt.date(2013, 1, 1)], None, []], pa.list_(pa.date32())),
        "times": pa.array([[dt.datetime(2013, 1, 1, 1, 1, 1, 5, tzinfo=dt.UTC)], None, []], pa.list_(TIMESTAMP)),
        "bytes": pa.array([[b"\xff"], None, [b""]], pa.list_(pa.binary())),
        "flags": pa.array([[True, False], None, []], pa.list_(pa.bool_())),
    }
)


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_arrays_read_back(tmp_path: Path, format_: str) -> None:
    sink, rows = sink_at(tmp_path / "out", NESTED, format=format_), with_ts(NESTED)
    sink.open(False, False)
    sink.write(0, rows)
    sink.write(1, rows.slice(1))
    assert read_result(str(tmp_path / "out")).equals(pa.concat_tables([rows, rows.slice(1)]))


def test_arrays_as_text() -> None:
    table = NESTED.select(["texts", "top"])
    assert csv_text(table).to_pybytes().decode().splitlines()[2] == ',"[{""value"":-2.5,""count"":1}]"'
    assert json_text(table).to_pybytes().decode().splitlines()[1] == '{"texts":null,"top":[{"value":-2.5,"count":1}]}'


def test_a_dictionary_is_made_of_what_is_repeated(tmp_path: Path) -> None:
    rows = 20_000
    table = pa.table(
        {
            "ts": pa.array([7 + n // 5000 for n in range(rows)], SECONDS.type()),
            "key": pa.array([n % 5000 for n in range(rows)], pa.int32()),
            "few": pa.array([float(n % 3) for n in range(rows)]),
            "sum": pa.array([n / 7 for n in range(rows)]),
            "text": pa.array([f"row {n}" for n in range(rows)]),
        }
    )
    sink = sink_at(tmp_path / "out", table.drop_columns("ts"), format="parquet")
    sink.open(resume=False, overwrite=False)
    sink.write(0, table)
    group = pq.ParquetFile(tmp_path / "out" / "part-00000000.parquet").metadata.row_group(0)
    found = {group.column(i).path_in_schema for i in range(5) if group.column(i).has_dictionary_page}
    assert found == {"ts", "few", "text"}
    assert read_result(str(tmp_path / "out")).drop_columns("ts").equals(table.drop_columns("ts"))


def test_dates_and_timestamps_of_any_year_are_written() -> None:
    """Arrow writes the years -32767 to 32767 alone."""
    limits = [2**63 - 1, -(2**63), 0, None, 11_248_738 * 86_400_000_000, -12_687_428 * 86_400_000_000 - 1]
    moments = pa.table({"at": pa.array(limits, pa.int64()).cast(TIMESTAMP)})
    assert csv_text(moments).to_pybytes().decode().split("\n")[1:-1] == [
        "294247-01-10T04:00:54.775807Z",
        "-290308-12-21T19:59:05.224192Z",
        "1970-01-01T00:00:00Z",
        '""',
        "32768-01-01T00:00:00Z",
        "-32768-12-31T23:59:59.999999Z",
    ]
    days = pa.table({"d": pa.array([2**31 - 1, -(2**31), 11_248_737, None], pa.int32()).cast(pa.date32())})
    assert json_text(days).to_pybytes().decode().split("\n")[:-1] == [
        '{"d":"5881580-07-11"}',
        '{"d":"-5877641-06-23"}',
        '{"d":"32767-12-31"}',
        '{"d":null}',
    ]


@settings(max_examples=300)
@given(st.integers(-12_687_428, 11_248_737))
def test_days_are_those_of_arrow(days: int) -> None:
    assert far_day(days) == pa.scalar(days, pa.int32()).cast(pa.date32()).cast(pa.string()).as_py()
