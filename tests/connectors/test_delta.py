"""DELTA: snapshots, commits and the change feed as sources, and tables as results."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from penstock.algebra.optimizer.optimizer import optimize
from penstock.connectors.contract import SourceConnector
from penstock.connectors.sinks import open_sink
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.inprocess import answer_here
from penstock.runtime.skipped_records import count_rows
from penstock.session import Session

SCHEMA = pa.schema([("at", pa.int64()), ("k", pa.int32()), ("v", pa.string())])
STREAM = "CREATE STREAM s (at BIGINT, k INT, v STRING) FROM DELTA (path '{path}'{options}) TIMESTAMP BY at;"
RELATION = "CREATE RELATION r (k INT, v STRING) FROM DELTA (path '{path}'{options});"


def put(path: Path, *rows: tuple[int, int, str | None], mode: Any = "append", **options: Any) -> None:
    table = pa.table([pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)], SCHEMA)
    write_deltalake(path, table, mode=mode, **options)


def source(text: str, path: Path, options: str = "") -> SourceConnector:
    bound = bind_script(text.format(path=path, options=options and ", " + options))
    return open_source(next(iter(bound.catalog.sources.values())))


def rows(connector: SourceConnector, columns: tuple[int, ...] | None = None) -> list[tuple[Any, ...]]:
    columns = tuple(range(len(connector.source.columns))) if columns is None else columns
    found: list[tuple[Any, ...]] = []
    for path in connector.discover(frozenset()):
        for split in connector.splits(path):
            for parsed in connector.read(split, columns):
                assert not parsed.rejected
                found += [tuple(row.values()) for row in parsed.batch.to_pylist()]
    return found


def refused(code: str, text: str, path: Path, options: str = "") -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        found = source(text, path, options)
        found.check()
        rows(found)
    assert caught.value.code == code, caught.value
    return caught.value


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    put(path, (1, 1, "a"), (2, 2, "b"), partition_by=["v"])
    put(path, (3, 1, "c"), (4, 3, None))
    put(path, (5, 2, "a"))
    return path


# --- snapshots


def test_a_relation_is_a_snapshot(table: Path) -> None:
    connector = source(RELATION, table)
    connector.check()
    assert connector.bounded
    assert sorted(rows(connector), key=str) == [(1, "a"), (1, "c"), (2, "a"), (2, "b"), (3, None)]
    assert sorted(rows(connector, (1,)), key=str) == [("a",), ("a",), ("b",), ("c",), (None,)]


@pytest.mark.parametrize(
    ("condition", "read", "passed"),
    [
        ("v = 'a'", [(1, "a"), (2, "a")], 3),  # by partition
        ("v IS NULL", [(3, None)], 4),
        ("k > 2", [(3, None)], 4),  # by the statistics of the files
        ("k = 1 AND v IN ('b', 'c')", [(1, "c")], 4),
        ("k < 2 OR v = 'b'", [(1, "a"), (1, "c"), (2, "b")], 2),
        ("v < 'zz'", [(1, "a"), (1, "c"), (2, "a"), (2, "b")], 1),
        ("k + 0 = 9", [(1, "a"), (1, "c"), (2, "a"), (2, "b"), (3, None)], 0),  # computed, hence not known
    ],
)
def test_files_that_hold_no_wanted_row_are_passed_over(
    table: Path, condition: str, read: list[tuple[Any, ...]], passed: int
) -> None:
    query = f"CREATE QUERY q AS SELECT k FROM r WHERE {condition};"
    (bound,) = bind_script(RELATION.format(path=table, options="") + query).queries
    (static,) = plan_queries([replace(bound, root=optimize(bound.root))]).statics.values()
    connector = open_source(static.sources["r"], static.source_predicates["r"])
    found: list[tuple[Any, ...]] = []
    counted: list[int] = []
    for path in connector.discover(frozenset()):
        for split in connector.splits(path):
            for parsed in connector.read(split, (0, 1)):
                found += [tuple(row.values()) for row in parsed.batch.to_pylist()]
                if parsed.skipped is not None:
                    counted.append(count_rows(parsed.skipped) or 0)
                    assert counted[-1] == sum(p.batch.num_rows for p in parsed.skipped.read(()))
    assert (sorted(found, key=str), sum(counted)) == (read, passed)


def test_time_travel(table: Path) -> None:
    assert sorted(rows(source(RELATION, table, "version '0'"))) == [(1, "a"), (2, "b")]
    for version in range(3):
        os.utime(table / "_delta_log" / f"{version:020d}.json", (1e9 + version, 1e9 + version))
    assert len(rows(source(RELATION, table, "timestamp '2001-09-09T01:46:41.5Z'"))) == 4
    assert "99" in refused("P0401", RELATION, table, "version '99'").message
    assert "2001" in refused("P0401", RELATION, table, "timestamp '2001-01-01'").message
    refused("P0208", RELATION, table, "timestamp 'soon'")
    refused("P0208", RELATION, table, "version '1', timestamp '2001-01-01'")


def test_a_column_that_was_added_later_is_null_before(table: Path) -> None:
    extra = pa.table({"at": pa.array([9]), "k": pa.array([9], pa.int32()), "v": ["z"], "w": [1.5]})
    write_deltalake(table, extra, mode="append", schema_mode="merge")
    wider = STREAM.replace("v STRING", "w DOUBLE")
    assert rows(source(wider, table)) == [
        (1, 1, None),
        (2, 2, None),
        (3, 1, None),
        (4, 3, None),
        (5, 2, None),
        (9, 9, 1.5),
    ]
    assert (9, "z") in rows(source(RELATION, table))


# --- commits


def test_a_stream_has_the_rows_of_commits_in_order(table: Path) -> None:
    connector = source(STREAM, table)
    connector.check()
    assert [row[0] for row in rows(connector)] == [1, 2, 3, 4, 5]
    assert [row[0] for row in rows(source(STREAM, table, "starting '1'"))] == [3, 4, 5]
    assert rows(source(STREAM, table, "starting 'latest'")) == []
    assert "version 2" in refused("P0401", STREAM, table, "starting '7'").message


def test_a_watched_table_goes_on(table: Path) -> None:
    connector = source(STREAM, table, "watch 'true', starting 'latest'")
    assert not connector.bounded
    known = [s.path for p in connector.discover(frozenset()) for s in connector.splits(p)]
    assert connector.discover(frozenset(known)) == []
    put(table, (6, 1, "a"))
    put(table, (7, 1, "a"))
    for again in (connector, source(STREAM, table, "watch 'true', starting 'latest'")):
        fresh = [s for p in again.discover(frozenset(known)) for s in again.splits(p)]
        assert [row["at"] for s in fresh for b in again.read(s, (0,)) for row in b.batch.to_pylist()] == [6, 7]
    assert connector.discover(frozenset([*known, *(s.path for s in fresh)])) == []


def test_timestamps_of_splits_come_from_the_files(table: Path) -> None:
    connector = source(STREAM, table)
    splits = [s for p in connector.discover(frozenset()) for s in connector.splits(p)]
    assert sorted((s.low, s.high, s.rows) for s in splits) == [(i, i, 1) for i in range(1, 6)]


def test_a_commit_that_takes_rows_away_is_refused_or_passed_over(table: Path) -> None:
    DeltaTable(table).delete("at = 5")
    error = refused("P0401", STREAM, table)
    assert "version 3" in error.message and "deletes" in error.message and "ignore_deletes" in (error.hint or "")
    assert [r[0] for r in rows(source(STREAM, table, "ignore_deletes 'true'"))] == [1, 2, 3, 4, 5]
    DeltaTable(table).update(predicate="k = 1", updates={"k": "7"})
    assert "rewrites" in refused("P0401", STREAM, table, "ignore_deletes 'true'").message
    assert [r[0] for r in rows(source(STREAM, table, "skip_changes 'true'"))] == [1, 2, 3, 4, 5]
    DeltaTable(table).optimize.compact()
    assert [r[0] for r in rows(source(STREAM, table, "skip_changes 'true'"))] == [1, 2, 3, 4, 5]


# --- the change data feed

FEED = """CREATE RELATION c (k INT, v STRING, n BIGINT, _change_type STRING, _commit_version BIGINT)
  FROM DELTA (path '{path}', changes 'true') TIMESTAMP BY _commit_version OPERATION BY _change_type;"""


def test_the_change_feed_is_the_updates_of_a_relation(tmp_path: Path) -> None:
    path = tmp_path / "t"
    start = pa.table({"k": pa.array([1, 2, 3], pa.int32()), "v": ["a", "b", "c"], "n": [10, 20, 30]})
    write_deltalake(path, start, configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(path).update(predicate="k = 2", updates={"v": "'B'"})
    DeltaTable(path).delete("k = 3")
    source(FEED, path).check()
    script = FEED.format(path=path) + f"CREATE QUERY q INTO DELTA (path '{tmp_path}/out') AS SELECT k, v FROM c;"
    answer = answer_here(bind_script(script).catalog.queries.values()).tables["q"]
    session = Session()
    session.execute(script)
    assert "rows in 6  rows out 6" in session.explain("q", analyze=True)
    assert answer.to_pydict() == {
        "ts": [0, 0, 0, 1, 1, 2],
        "op": ["+", "+", "+", "-", "+", "-"],
        "k": [1, 2, 3, 2, 2, 3],
        "v": ["a", "b", "c", "b", "B", "c"],
    }


def test_a_table_without_a_change_feed_is_refused(table: Path) -> None:
    assert "enableChangeDataFeed" in (refused("P0401", FEED.replace("n BIGINT, ", ""), table).hint or "")


# --- what cannot be read


def test_no_table_and_no_permission(tmp_path: Path, table: Path) -> None:
    refused("P0404", RELATION, tmp_path / "nothing")
    (table / "_delta_log" / f"{1:020d}.json").write_text("{broken")
    refused("P0401", STREAM, table)


def test_columns_that_do_not_fit(table: Path) -> None:
    assert "missing" in refused("P0402", RELATION.replace("v STRING", "w STRING"), table).message
    assert "INT" in refused("P0402", RELATION.replace("k INT", "k TINYINT"), table).message


def test_a_table_that_drifts_midway_is_refused(table: Path) -> None:
    connector = source(STREAM, table, "watch 'true', skip_changes 'true'")
    known = frozenset(s.path for p in connector.discover(frozenset()) for s in connector.splits(p))
    other = pa.table({"at": [6], "k": ["not a number"], "v": ["x"]})
    write_deltalake(table, other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(PenstockError, match="version 3") as caught:
        [connector.splits(p) for p in connector.discover(known)]
    assert caught.value.code == "P0402"


def test_files_that_are_gone(table: Path) -> None:
    connector = source(STREAM, table)
    splits = [s for p in connector.discover(frozenset()) for s in connector.splits(p)]
    DeltaTable(table).create_checkpoint()
    for file in table.glob("v=*/*.parquet"):
        file.unlink()
    with pytest.raises(PenstockError, match="gone") as caught:
        list(connector.read(splits[0], (0,)))
    assert caught.value.code == "P0401"
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    assert "starting '1'" in (refused("P0401", STREAM, table).hint or "")


def _log(table: Path, version: int, *actions: dict[str, Any]) -> None:
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (table / "_delta_log" / f"{version:020d}.json").write_text(text)


def test_a_table_that_could_have_deletion_vectors_but_has_none_is_read(tmp_path: Path) -> None:
    put(tmp_path / "t", (1, 1, "a"), configuration={"delta.enableDeletionVectors": "true"})
    connector = source(RELATION, tmp_path / "t")
    connector.check()
    assert "deletionVectors" in (DeltaTable(tmp_path / "t").protocol().reader_features or [])
    assert rows(connector) == [(1, "a")]


def test_deletion_vectors_and_column_mapping_are_refused(table: Path) -> None:
    add = {
        "path": "x.parquet",
        "partitionValues": {},
        "size": 1,
        "dataChange": True,
        "deletionVector": {"cardinality": 1},
    }
    _log(table, 3, {"add": add})
    connector = source(STREAM, table)
    with pytest.raises(PenstockError, match="deletion vectors") as caught:
        connector.splits(f"{table}@v3")
    assert caught.value.code == "P0401"
    _log(table, 3, {"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}})
    with pytest.raises(PenstockError, match="maps its columns"):
        connector.splits(f"{table}@v3")
    _log(table, 3, {"protocol": {"readerFeatures": ["timestampNtz", "hiddenRows"]}})
    with pytest.raises(PenstockError, match="supports hiddenRows"):
        connector.splits(f"{table}@v3")


@pytest.mark.parametrize(
    ("text", "options"),
    [(RELATION, "starting '1'"), (RELATION, "watch 'true'"), (STREAM, "version '1'"), (STREAM, "starting 'x'")],
)
def test_options_that_do_not_fit_are_refused_by_the_script(text: str, options: str, tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        bind_script(text.format(path=tmp_path, options=", " + options))
    assert caught.value.code == "P0208"


# --- results

IN = """CREATE STREAM s (at BIGINT, k INT, v STRING) FROM MEMORY () TIMESTAMP BY at;
CREATE STREAM u (at BIGINT, k INT, v STRING) FROM MEMORY () TIMESTAMP BY at;"""
CHANGES = "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k"
TWO = "SELECT k, v FROM s [RANGE 10 SECONDS]"


def sink(path: Path, query: str, options: str = "") -> Any:
    bound = bind_script(f"{IN} CREATE QUERY q INTO DELTA (path '{path}'{options and ', ' + options}) AS {query};")
    return open_sink(bound.catalog.queries["q"])


def changes(*rows: tuple[int, str, int | None, int]) -> pa.Table:
    names, types = ["ts", "op", "k", "n"], [pa.int64(), pa.string(), pa.int32(), pa.int64()]
    return pa.table([pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)], names)


def stored(path: Path) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist()), key=str)


def test_changes_are_appended_once(tmp_path: Path) -> None:
    path = tmp_path / "out"
    target = sink(path, CHANGES, "partition_by 'k'")
    target.open(resume=False, overwrite=False)
    target.write(0, changes((1, "+", 1, 1)))
    second = changes((2, "-", 1, 1), (2, "+", 1, 2))
    target.write(1, second)
    again = sink(path, CHANGES, "partition_by 'k'")
    again.open(resume=True, overwrite=False)
    again.write(1, second)
    again.write(2, second.slice(0, 0))
    assert stored(path) == [(1, "+", 1, 1), (2, "+", 1, 2), (2, "-", 1, 1)]
    again.write(3, changes((3, "-", 1, 2)))
    assert len(stored(path)) == 4
    assert DeltaTable(path).metadata().partition_columns == ["k"]


def test_a_key_keeps_the_relation_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "out"
    target = sink(path, CHANGES, "key 'K'")
    target.open(resume=False, overwrite=False)
    first = changes((1, "+", 1, 1), (1, "+", None, 1), (2, "+", 2, 1), (2, "-", 1, 1), (2, "+", 1, 2))
    target.write(0, first)
    target.write(0, first)
    assert stored(path) == [(1, 2), (2, 1), (None, 1)]
    target.write(1, changes((3, "-", 2, 1), (3, "-", None, 1), (3, "+", 4, 1), (4, "-", 4, 1)))
    assert stored(path) == [(1, 2)]


def test_two_rows_of_one_key_are_refused(tmp_path: Path) -> None:
    target = sink(tmp_path / "out", TWO, "key 'k'")
    target.open(resume=False, overwrite=False)
    rows = pa.table({"ts": [1, 2], "op": ["+", "+"], "k": pa.array([1, 1], pa.int32()), "v": ["a", "b"]})
    with pytest.raises(PenstockError, match="k = 1") as caught:
        target.write(0, rows)
    assert caught.value.code == "P0502"
    target.write(0, rows.slice(0, 1))
    with pytest.raises(PenstockError, match="share the key"):
        target.write(1, rows.slice(1))
    assert stored(tmp_path / "out") == [(1, "a")]


def test_a_commit_that_another_writer_beat_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sink(tmp_path / "out", CHANGES, "key 'k'")
    target.open(resume=False, overwrite=False)
    merge, failures = DeltaTable.merge, [CommitFailedError("somebody was faster")] * 7

    def beaten(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return merge(*arguments, **named)

    monkeypatch.setattr(DeltaTable, "merge", beaten)
    with pytest.raises(PenstockError, match="faster") as caught:
        target.write(0, changes((1, "+", 1, 1)))
    assert caught.value.code == "P0502"
    target.write(0, changes((1, "+", 1, 1)))
    assert stored(tmp_path / "out") == [(1, 1)]


def test_what_is_there_is_not_overwritten_unasked(tmp_path: Path, table: Path) -> None:
    path = tmp_path / "out"
    for _ in range(2):
        target = sink(path, CHANGES)
        target.open(resume=False, overwrite=False)
    target.write(0, changes((1, "+", 1, 1)))
    with pytest.raises(PenstockError, match="has rows") as caught:
        sink(path, CHANGES).open(resume=False, overwrite=False)
    assert caught.value.code == "P0501"
    fresh = sink(path, CHANGES)
    fresh.open(resume=False, overwrite=True)
    assert stored(path) == []
    with pytest.raises(PenstockError, match="is not the table that this run writes") as caught:
        target.write(1, changes((1, "+", 1, 1)))
    assert caught.value.code == "P0502"
    with pytest.raises(PenstockError, match="did not write") as caught:
        sink(table, CHANGES).open(resume=False, overwrite=True)
    assert caught.value.code == "P0501"


def test_appending_to_a_table_that_is_there(tmp_path: Path) -> None:
    table = tmp_path / "t"
    put(table, (1, 1, "a"))
    script = f"{IN} CREATE QUERY q INTO DELTA (path '{table}', mode 'append') AS SELECT k FROM s;"
    with pytest.raises(PenstockError, match="no column ts") as caught:
        open_sink(bind_script(script).catalog.queries["q"]).open(resume=False, overwrite=False)
    assert caught.value.code == "P0502"
    write_deltalake(
        table, pa.table({"ts": [1], "k": pa.array([1], pa.int32())}), mode="overwrite", schema_mode="overwrite"
    )
    target = open_sink(bind_script(script).catalog.queries["q"])
    target.open(resume=False, overwrite=False)
    target.write(0, pa.table({"ts": [2], "k": pa.array([5], pa.int32())}))
    assert stored(table) == [(1, 1), (2, 5)]
    wrong = sink(table, "SELECT v AS k FROM s", "mode 'append'")
    with pytest.raises(PenstockError, match="is INT, the result's is STRING") as caught:
        wrong.open(resume=False, overwrite=False)
    assert caught.value.code == "P0502"


@pytest.mark.parametrize(
    ("query", "options", "part"),
    [
        (TWO, "key 'x'", "no column x"),
        ("SELECT k FROM s", "key 'k'", "for relations"),
        (TWO, "key 'k, k'", "twice"),
        (TWO, "partition_by 'x'", "no column x"),
    ],
)
def test_options_of_results(query: str, options: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=part) as caught:
        sink(tmp_path / "out", query, options)
    assert caught.value.code == "P0208"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(PenstockError) as caught:
        sink(tmp_path / "file" / "t", CHANGES).open(resume=False, overwrite=False)
    assert caught.value.code == "P0502"


def test_the_table_of_another_run_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "out"
    target = sink(path, CHANGES)
    with pytest.raises(PenstockError, match="is not the table that this run writes") as caught:
        target.open(resume=True, overwrite=False)
    assert caught.value.code == "P0502"
    put(path, (1, 1, "a"), commit_properties=CommitProperties(app_transactions=[Transaction("other", 3)]))
    with pytest.raises(PenstockError, match="is not the table that this run writes"):
        target.open(resume=True, overwrite=False)


FAR = ([5_000_000, -5_000_000, 0, None], [2**62, -(2**62), 0, None])
NEAR = ([1, -1, 0, None], [1_000_001, -1, 0, None])


@pytest.mark.parametrize(
    ("values", "partition"), [(FAR, ""), (NEAR, ", partition_by 'd'"), (NEAR, ", partition_by 'at'")]
)
def test_days_and_moments_of_all_years_are_written_and_read(
    tmp_path: Path, values: tuple[list[int | None], list[int | None]], partition: str
) -> None:
    """Partitions too, whose folders and values are texts: of the years that texts are read of."""
    declared = "CREATE STREAM s (ts BIGINT, k INT, d DATE, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts;"
    into = f"INTO DELTA (path '{tmp_path / 'far'}', key 'd, k'{partition})"
    query = f"{declared} CREATE QUERY q {into} AS SELECT k, d, at FROM s [RANGE 1 HOUR];"
    target = open_sink(bind_script(query).catalog.queries["q"])
    target.open(resume=False, overwrite=False)
    days = pa.array(values[0], pa.int32()).cast(pa.date32())
    moments = pa.array(values[1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    ticks = pa.array(range(4), pa.int64())
    names = ["ts", "op", "k", "d", "at"]
    for batch in range(2):
        # The second batch looks up in the table whether its keys are there.
        keys = pa.array([4 * batch + i for i in range(4)], pa.int32())
        target.write(batch, pa.table([ticks, pa.array(["+"] * 4), keys, days, moments], names))
    again = pa.table([ticks, pa.array(["+"] * 4), pa.array(range(4), pa.int32()), days, moments], names)
    with pytest.raises(PenstockError, match=r"two rows share the key .*k = [0-3]"):
        target.write(2, again)
    read = source("CREATE RELATION r (k INT, d DATE, at TIMESTAMP) FROM DELTA (path '{path}');", tmp_path / "far")
    found = sorted(
        (k, d, at)
        for path in read.discover(frozenset())
        for split in read.splits(path)
        for parsed in read.read(split, (0, 1, 2))
        for k, d, at in zip(
            parsed.batch["k"].to_pylist(),
            parsed.batch["d"].cast(pa.int32()).to_pylist(),
            parsed.batch["at"].cast(pa.int64()).to_pylist(),
            strict=True,
        )
    )
    assert found == [(k, values[0][k % 4], values[1][k % 4]) for k in range(8)]
