"""The log of batches: what alerts on the system read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Start
from penstock.connectors.sources.posted_files import rows_files
from penstock.control.engine import Activity, NextVersion, StandingQuery, StandingSource
from penstock.control.entities.batches import BATCH_LOG, LOG_ID, LOG_NAME, BatchLogWriter, is_logged, log_source
from penstock.control.posted_rows import PostedRows
from penstock.errors import ScriptErrors
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.runtime.monitoring.stopwatch import PHASES
from tests.control.control_kit import STREAM, SUM, Server, server

ALERT = "CREATE QUERY alert AS ISTREAM(SELECT number, seconds, rows_in, failed FROM penstock.batch_log [NOW]);"


def batch(number: int = 7, at: float = 1e9, **more: object) -> BatchFigures:
    empty = BatchFigures(number, at, 0.5, dict.fromkeys(PHASES, 0.0), {"S": 1}, {})
    return BatchFigures(**{**empty.__dict__, **more})  # type: ignore[arg-type]


def settle(system: Server) -> int:
    """Run rounds until nothing is left to read; return how many had something."""
    rounds = 0
    while system.engine.unread() and rounds < 20:
        system.engine.round()
        rounds += 1
    return rounds


def logged(system: Server, query: str = "alert") -> list[int]:
    return [row["number"] for row in system.answers(query)]


def test_an_alert_reads_the_batches_of_the_system(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + SUM)
        system.control.insert("S", rows(1, 3))
        system.engine.round()
        system.done(ALERT)
        system.control.insert("S", rows(2, 2))
        assert settle(system) == 2, "one of rows, and one of the row of the log"
        (row,) = system.answers("alert")
        assert (row["number"], row["rows_in"], row["failed"]) == (1, 2, 0) and row["seconds"] > 0
        (kept,) = [one for one in system.control.view().figures.run.batches if one.number == 1]
        assert row["seconds"] == kept.seconds


def rows(first: int, count: int) -> pa.Table:
    ticks = list(range(first * 100, first * 100 + count))
    return pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(ticks, pa.int32())})


def test_the_log_does_not_feed_itself(tmp_path: Path) -> None:
    """A query over the log with changes at every row of it answers in rounds of the log alone."""
    with server(tmp_path) as system:
        system.done(STREAM + ALERT)
        system.done("CREATE QUERY mean AS SELECT AVG(seconds) AS s, COUNT(*) AS n FROM penstock.batch_log [ROWS 5];")
        system.engine.round()
        assert settle(system) == 0, "a round without anything has no row"
        for number in range(1, 4):
            system.control.insert("S", rows(number, 2))
            assert settle(system) == 2
        assert logged(system) == [1, 3, 5]
        assert [one["n"] for one in system.answers("mean") if one["op"] == "+"] == [1, 2, 3]


def test_a_restart_neither_loses_nor_repeats_rows(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + ALERT)
        system.control.insert("S", rows(1, 2))
        system.engine.round()
        assert logged(system) == []
    with server(tmp_path) as system:
        settle(system)
        system.control.insert("S", rows(2, 2))
        settle(system)
        assert len(logged(system)) == len(set(logged(system))) == 2
        before = system.answers("alert")
    with server(tmp_path) as system:
        settle(system)
        assert system.answers("alert") == before


def test_nothing_is_kept_while_no_query_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / "control" / "kept" / str(LOG_ID)
    with server(tmp_path) as system:
        system.done(STREAM + SUM)
        system.control.insert("S", rows(1, 2))
        settle(system)
        assert not folder.exists()
        system.done(ALERT)
        system.control.insert("S", rows(2, 2))
        settle(system)
        assert folder.exists() and len(logged(system)) == 1
        system.done("DROP QUERY alert;")
        assert not folder.exists()
        system.control.insert("S", rows(3, 2))
        settle(system)
        assert not folder.exists()
        system.done(ALERT)
        system.control.insert("S", rows(4, 2))
        settle(system)
        assert len(logged(system)) == 1, "it begins again, without what was before"


def test_a_paused_query_keeps_the_position_of_the_log(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + ALERT)
        system.done("ALTER QUERY alert PAUSE;")
        system.control.insert("S", rows(1, 2))
        settle(system)
        system.done("ALTER QUERY alert RESUME START NOW;")
        system.control.insert("S", rows(2, 2))
        settle(system)
        assert len(logged(system)) == 1


@pytest.mark.parametrize("relation", ["batches", "queries", "entities", "attributes"])
def test_other_control_relations_name_the_log(tmp_path: Path, relation: str) -> None:
    with server(tmp_path) as system, pytest.raises(ScriptErrors) as refused:
        system.run(f"CREATE QUERY q AS SELECT COUNT(*) AS n FROM penstock.{relation};")
    (error,) = refused.value.errors
    assert error.code == "P0751" and LOG_NAME in (error.hint or "")


@pytest.mark.parametrize("text", ["START WARM", "START BEGINNING"])
def test_the_past_of_the_log_is_not_kept(tmp_path: Path, text: str) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + ALERT)
        system.control.insert("S", rows(1, 2))
        settle(system)
        query = "AS SELECT COUNT(*) AS n FROM penstock.batch_log [RANGE 1 HOUR]"
        try:
            found = system.run(f"CREATE QUERY later {text} {query};")
        except (ScriptErrors, Exception) as error:
            assert "P0703" in str(error)
        else:
            assert found[0].outcome is not None and found[0].outcome.code == "P0703"


def test_the_log_joins_with_a_relation_of_limits(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + "CREATE RELATION L (most DOUBLE) FROM MEMORY (); INSERT INTO L VALUES (0.0);")
        system.done(
            "CREATE QUERY slow AS ISTREAM(SELECT number FROM penstock.batch_log b [NOW], L WHERE seconds > most);"
        )
        system.control.insert("S", rows(1, 2))
        settle(system)
        assert len(logged(system, "slow")) == 1


def test_a_command_names_its_first_batch(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM)
        system.control.insert("S", rows(1, 2))
        system.engine.round()
        system.done(SUM)
        system.control.insert("S", rows(2, 2))
        system.engine.round()
        with pytest.raises(ScriptErrors):
            system.run("CREATE QUERY broken AS SELECT nothing FROM S;")
        assert [outcome.batch for _, _, outcome in system.control.commands()] == [0, 1]
    with server(tmp_path) as system:
        assert [outcome.batch for _, _, outcome in system.control.commands()] == [0, 1]


# -- the rows themselves


def log_of(folder: Path, heartbeat: int = 0) -> tuple[BatchLogWriter, PostedRows]:
    posted = PostedRows(folder, 3600.0)
    log = BatchLogWriter(posted)
    with log.during_change(version(), {LOG_NAME: heartbeat}):
        pass
    return log, posted


def version(reads: bool = True) -> NextVersion:
    source = log_source(PostedRows(Path("unused"), 0.0))
    sources = {LOG_ID: StandingSource(LOG_ID, source)} if reads else {}
    return NextVersion(1, sources, {1: StandingQuery(1, 1, None, Start(), Activity.PAUSED)})


def test_a_batch_that_is_repeated_has_one_row(tmp_path: Path) -> None:
    log, posted = log_of(tmp_path)
    assert log.note(batch(7), {}) and log.note(batch(7, seconds=9.0), {}) and log.note(batch(8, at=2e9), {})
    files = rows_files(posted.folder(LOG_ID))
    assert len(files) == 2


def test_a_clock_that_is_set_back_makes_no_row_late(tmp_path: Path) -> None:
    """Neither within a process nor over a restart."""
    log, posted = log_of(tmp_path, heartbeat=5_000_000_000_000_000)
    for number, at in enumerate((1e9, 6e9, 1e9, 1e9)):
        log.note(batch(number, at=at), {})
    ticks = stamps(posted)
    assert ticks == sorted(set(ticks)) and ticks[0] > 5_000_000_000_000_000 and ticks[1] == 6_000_000_000_000_000


def stamps(posted: PostedRows) -> list[int]:
    source = BATCH_LOG.declared.source
    table = posted.table(posted.kept(source, LOG_ID), LOG_ID)
    return table.column("at").cast(pa.int64()).to_pylist()


def test_rows_are_kept_between_versions_that_read_it_alone(tmp_path: Path) -> None:
    log, posted = log_of(tmp_path)
    with pytest.raises(RuntimeError), log.during_change(version(reads=False), {}):
        raise RuntimeError("it fails")
    assert log.note(batch(1), {}), "nothing has changed"
    with log.during_change(version(reads=False), {}):
        assert log.note(batch(2), {}), "rounds of the version before go on"
    assert not log.note(batch(3), {}) and not posted.folder(LOG_ID).exists()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, True),
        ({"rows_in": {}}, False),
        ({"rows_in": {LOG_NAME: 1}}, False),
        ({"rows_in": {LOG_NAME: 1, "S": 1}}, True),
        ({"rows_in": {LOG_NAME: 1}, "rows_out": {"alert": 5}}, False),
        ({"rows_in": {}, "rows_out": {"other": 1}}, True),
        ({"rows_in": {LOG_NAME: 1}, "failed": ("alert",)}, True),
    ],
)
def test_a_batch_of_the_log_alone_has_no_row(more: dict[str, object], expected: bool) -> None:
    assert is_logged(batch(**more), {"alert"}) is expected
