"""What every source and every sink keeps, by being registered: types, NULLs, columns, repetition, pickling."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_kit import EVERY_TYPE, declare, query_over, read, schema_of, with_ts
from deltalake import DeltaTable, write_deltalake

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import ResultPlace
from penstock.connectors.formats import FORMATS
from penstock.connectors.sinks import SINKS, open_sink
from penstock.connectors.sinks.files import read_result
from penstock.connectors.sinks.memory import collected
from penstock.connectors.sources import SOURCES, open_source
from penstock.connectors.sources.memory import spool
from penstock.connectors.sources.posted_files import append
from penstock.connectors.text import csv_text, json_text
from penstock.errors import PenstockError
from penstock.results.reader import ResultReader
from penstock.runtime.spark.output.batch_logs import commit_logs

#: connector or connector-format -> how a table gets there, and the source that reads it.
Write = Callable[[pa.Table, Path], Source]


def _files(suffix: str, write: Callable[[pa.Table, str], object]) -> Write:
    def put(table: pa.Table, folder: Path) -> Source:
        place = folder / f"data{suffix}"
        write(table, str(place))
        return declare(place, schema_of(table))

    return put


def _ipc(open_: Callable[..., pa.ipc.RecordBatchStreamWriter]) -> Callable[[pa.Table, str], None]:
    def write(table: pa.Table, path: str) -> None:
        with pa.OSFile(path, "wb") as file, open_(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)

    return write


def _spooled(table: pa.Table, folder: Path) -> Source:
    source = declare("", schema_of(table), connector="MEMORY", spool=str(folder / "rows.arrow"))
    spool(source, table, source.option("spool"))
    return source


def _posted(table: pa.Table, folder: Path) -> Source:
    half = table.num_rows // 2
    append(folder / "posts", table.slice(0, half), 1)
    append(folder / "posts", table.slice(half), 2)
    return declare("", schema_of(table), connector="POSTED", spool=str(folder / "posts"))


def _handed_over(table: pa.Table, folder: Path) -> Source:
    (folder / "table").mkdir()
    pq.write_table(table, folder / "table" / "part-0.parquet")
    return declare("", schema_of(table), connector="DATAFRAME", spool=str(folder / "table"))


def _in_delta(table: pa.Table, folder: Path) -> Source:
    write_deltalake(folder / "table", table)
    return replace(declare("", schema_of(table), connector="DELTA"), options=(("path", str(folder / "table")),))


WRITERS: dict[str, Write] = {
    "FILES csv": _files(".csv", lambda t, p: Path(p).write_bytes(csv_text(t))),
    "FILES csv gz": _files(".csv.gz", lambda t, p: Path(p).write_bytes(gzip.compress(csv_text(t)))),
    "FILES json": _files(".json", lambda t, p: Path(p).write_bytes(json_text(t))),
    "FILES parquet": _files(".parquet", lambda t, p: pq.write_table(t, p, row_group_size=3)),
    "FILES arrow": _files(".arrow", _ipc(pa.ipc.new_file)),
    "FILES arrow stream": _files(".arrows", _ipc(pa.ipc.new_stream)),
    "MEMORY": _spooled,
    "DATAFRAME": _handed_over,
    "HTTP": lambda table, folder: replace(_spooled(table, folder), connector="HTTP"),
    "POSTED": _posted,
    "DELTA": _in_delta,
}

#: Rows are added to these as long as a server runs.
GROWING = {"HTTP", "POSTED"}

#: Connectors to servers have suites of their own, for they need one.
SERVED = {"POSTGRES": "test_postgres.py", "KAFKA": "test_kafka_plans.py"}


def test_every_source_and_format_is_in_this_suite() -> None:
    assert {name.split()[0] for name in WRITERS} | set(SERVED) == set(SOURCES)
    assert all((Path(__file__).parent / name).exists() for name in SERVED.values())
    assert {name.split()[1] for name in WRITERS if " " in name} == set(FORMATS)


@pytest.fixture(params=WRITERS)
def put(request: pytest.FixtureRequest) -> Write:
    return WRITERS[request.param]


def test_all_types_and_nulls_come_back(put: Write, tmp_path: Path) -> None:
    source = open_source(put(EVERY_TYPE, tmp_path))
    source.check()
    table, rejected = read(source)
    assert rejected == []
    assert table.combine_chunks().equals(EVERY_TYPE.combine_chunks()), table.to_pylist()


def test_columns_come_in_the_asked_order(put: Write, tmp_path: Path) -> None:
    table, _ = read(put(EVERY_TYPE, tmp_path), (10, 0))
    assert table.equals(EVERY_TYPE.select(["word", "at"]))


def test_no_column_asked_still_counts_rows(put: Write, tmp_path: Path) -> None:
    source = open_source(put(EVERY_TYPE, tmp_path))
    parsed = [p for path in source.discover(frozenset()) for s in source.splits(path) for p in source.read(s, ())]
    assert sum(p.batch.num_rows for p in parsed) == EVERY_TYPE.num_rows


def test_an_empty_source_has_no_rows_and_no_complaints(put: Write, tmp_path: Path) -> None:
    source = open_source(put(EVERY_TYPE.slice(0, 0), tmp_path))
    source.check()
    table, rejected = read(source)
    assert (table.num_rows, rejected) == (0, [])
    assert table.schema.equals(EVERY_TYPE.schema)


def test_a_known_path_is_not_discovered_again(put: Write, tmp_path: Path) -> None:
    source = open_source(put(EVERY_TYPE, tmp_path))
    assert source.bounded is (source.source.connector not in GROWING)
    assert source.discover(frozenset(source.discover(frozenset()))) == []


def test_a_source_and_its_splits_pickle(put: Write, tmp_path: Path) -> None:
    source = open_source(put(EVERY_TYPE, tmp_path))
    path = source.discover(frozenset())[0]
    split = source.splits(path)[0]
    copy, again = pickle.loads(pickle.dumps((source, split)))
    assert list(copy.read(again, (0,))) == list(source.read(split, (0,)))


def test_splits_cover_the_rows_once(put: Write, tmp_path: Path) -> None:
    many = pa.concat_tables([EVERY_TYPE] * 5).combine_chunks()
    table, _ = read(put(many, tmp_path))
    assert table.combine_chunks().equals(many)


def _options(connector: str, folder: Path) -> dict[str, str]:
    return {"path": str(folder / "result")} if connector in ("FILES", "DELTA") else {}


def _result(query: Query, folder: Path) -> pa.Table | None:
    if query.sink.connector == "FILES":
        return read_result(query.sink.option("path"))
    if query.sink.connector == "DELTA":
        return DeltaTable(query.sink.option("path")).to_pyarrow_table().sort_by("ts")
    if query.sink.connector == "RESULTS":
        reader = ResultReader(folder / "kept", "q-1")
        found = [delivery.rows.remove_column(1) for delivery in reader.read(reader.first, until_now=True)]
        return pa.concat_tables([query.output_schema.empty_table(), *found])
    return collected(query.name) if query.sink.connector == "MEMORY" else None


@pytest.fixture(params=[name for name in SINKS if name not in SERVED])
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Query:
    return query_over(EVERY_TYPE, request.param, **_options(request.param, tmp_path))


class OfRun:
    """A sink as a run uses it: it knows where the run keeps results, and its batches are committed."""

    def __init__(self, query: Query, folder: Path) -> None:
        self._sink = open_sink(query)
        self._sink.own_place = ResultPlace(folder / "kept", "q-1", 2**30)
        self._sink.open(resume=False, overwrite=False)

    def write(self, batch: int, table: pa.Table) -> None:
        self._sink.write(batch, table)
        commit_logs({"q": self._sink}, batch, {})

    def withdraw(self) -> None:
        self._sink.withdraw()

    def close(self) -> None:
        self._sink.close()


def test_a_result_comes_back_in_batch_order(query: Query, tmp_path: Path) -> None:
    sink = OfRun(query, tmp_path)
    rows = with_ts(EVERY_TYPE)
    sink.write(0, rows.slice(0, 2))
    sink.write(1, rows.slice(2))
    sink.close()
    found = _result(query, tmp_path)
    assert found is None or found.combine_chunks().equals(rows.combine_chunks())


def test_a_batch_written_twice_is_there_once(query: Query, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = OfRun(query, tmp_path)
    rows = with_ts(EVERY_TYPE)
    sink.write(0, rows)
    shown = capsys.readouterr().out
    sink.write(0, rows)
    found = _result(query, tmp_path)
    assert (found is None and shown) or (found is not None and found.num_rows == rows.num_rows)
    assert capsys.readouterr().out == ""


def test_what_is_withdrawn_is_no_result_that_is_in_the_way(query: Query, tmp_path: Path) -> None:
    sink = OfRun(query, tmp_path)
    sink.write(0, with_ts(EVERY_TYPE))
    sink.withdraw()
    sink.close()
    again = OfRun(query, tmp_path)
    again.write(0, with_ts(EVERY_TYPE).slice(0, 1))
    if query.sink.connector in ("FILES", "DELTA"):
        found = _result(query, tmp_path)
        assert found is not None and found.num_rows == 1


def test_an_empty_result_is_empty(query: Query, tmp_path: Path) -> None:
    sink = OfRun(query, tmp_path)
    sink.write(0, with_ts(EVERY_TYPE).slice(0, 0))
    found = _result(query, tmp_path)
    assert found is None or (found.num_rows == 0 and found.column_names == list(query.output_names))


def test_a_sink_says_where_its_result_lies_and_pickles(query: Query) -> None:
    assert pickle.loads(pickle.dumps(open_sink(query))).place == open_sink(query).place != ""


@pytest.mark.parametrize("connector", ["FILE", "KAFKA"])
def test_an_unknown_connector_is_refused(connector: str) -> None:
    with pytest.raises(PenstockError, match=connector) as error:
        open_source(declare("", "a INT", connector=connector))
    assert error.value.code == "P0208"
    with pytest.raises(PenstockError, match=connector) as error:
        open_sink(query_over(EVERY_TYPE, connector))
    assert error.value.code == "P0208"


@pytest.mark.parametrize("connector", [name for name in SINKS if name not in SERVED])
def test_an_unknown_option_of_a_sink_is_refused(connector: str, tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="colour") as error:
        open_sink(query_over(EVERY_TYPE, connector, colour="red", **_options(connector, tmp_path)))
    assert error.value.code == "P0208"
