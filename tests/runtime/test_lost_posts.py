"""A post whose file somebody has removed or damaged: every reader says so, with a code and what to do, and nobody takes
it for rows that were not there."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from compaction_kit import compacted_of, compacting, posts, selected
from inline_engine import InlineServer, without_spark

from penstock.connectors.sources import posted_files
from penstock.errors import PenstockError
from penstock.runtime.spark.hydration import compaction

__all__ = ["without_spark"]

DECLARED = "CREATE RELATION R (ts INT, k INT, v INT, PRIMARY KEY (k)) FROM {} () TIMESTAMP BY ts UNIT SECOND;"
STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200] + random.Random(1).randbytes(path.stat().st_size - 200))


DAMAGE: dict[str, Callable[[Path], object]] = {"removed": Path.unlink, "cut": cut, "changed": changed}


@pytest.fixture
def server(tmp_path: Path, without_spark: None) -> InlineServer:
    """Of a relation with four posts that have been read."""
    found = InlineServer(tmp_path)
    found.post(DECLARED.format("HTTP"))
    for tick in range(1, 5):
        found.post(f"INSERT INTO R VALUES ({tick}, {tick}, 0);")
        found.run.round()
    return found


def says_lost(error: PenstockError, path: Path) -> None:
    assert error.code == "P0605" and path.name in error.message, error


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_post_that_has_been_read(server: InlineServer, tmp_path: Path, damage: str) -> None:
    lost = posts(tmp_path)[1]
    DAMAGE[damage](lost)
    readers: list[Callable[[], object]] = [
        lambda: server.post("UPDATE R SET v = 1, ts = 9;"),
        lambda: selected(server, "SELECT * FROM R", DECLARED.format("MEMORY")),
        lambda: server.post("CREATE QUERY q AS SELECT * FROM R;"),
    ]
    for read in readers:
        with pytest.raises(PenstockError) as refused:
            read()
        says_lost(refused.value, lost)
    assert refused.value.hint is None or "restore" in refused.value.hint
    # The rounds need nothing of it.
    server.post("INSERT INTO R VALUES (6, 6, 0);")
    server.run.round()
    server.close()


@pytest.mark.spread(2)
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("source", ["R", "S"])
def test_a_post_that_has_not_been_read(server: InlineServer, tmp_path: Path, damage: str, source: str) -> None:
    """It is no malformed row: the run ends, and goes on when the file is back."""
    server.post(f"{STREAM} CREATE QUERY q AS SELECT * FROM {source};")
    row = "({}, 0)" if source == "S" else "({}, 9, 0)"
    for tick in range(7, 27):
        server.post(f"INSERT INTO {source} VALUES {row.format(tick)};")
        *_, lost, last = posts(tmp_path)
        if server.engine.unread() >= lost.stat().st_size + last.stat().st_size:
            break  # now and then the end of a command has a round that reads what is there
    before = lost.read_bytes()
    DAMAGE[damage](lost)
    with pytest.raises(PenstockError) as failed:
        server.run.round()
    says_lost(failed.value, lost)
    assert "restore" in (failed.value.hint or "")
    server.close()
    lost.write_bytes(before)
    server.open()
    server.run.round()
    assert len(server.emitted("q")) >= 1
    server.close()


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_stands_for_posts(
    server: InlineServer, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "FEW", 1)
    for tick in range(11, 17):
        server.post(f"INSERT INTO R VALUES ({tick}, {tick}, 0);")
        server.run.round()
        compacting(server).compact()
    assert len(posts(tmp_path)) < 8
    place = compacted_of(server).place
    for lost in (place / "updates.json", next(place.glob("*.arrow"))):
        before = lost.read_bytes()
        DAMAGE[damage](lost)
        server.close()
        server.open()
        for read in (
            lambda: server.post("UPDATE R SET v = 1, ts = 29;"),
            lambda: selected(server, "SELECT * FROM R", DECLARED.format("MEMORY")),
        ):
            with pytest.raises(PenstockError) as refused:
                read()
            assert refused.value.code == "P0605" and "compacted" in refused.value.message
        lost.write_bytes(before)
    server.post("UPDATE R SET v = 1, ts = 29;")
    server.close()


def test_a_post_that_was_taken_back_is_not_lost(server: InlineServer, tmp_path: Path) -> None:
    """Its number stays."""
    applier = server.control._applier
    (number,) = (n for n, one in applier.current.stored.objects.items() if one.name == "R")
    source, posted = applier.current.bound.sources["r"], applier._posted
    row = selected(server, "SELECT * FROM R", DECLARED.format("MEMORY")).answer.table
    assert posted.post(source, number, row, "taken back")
    posted.withdraw(number, "taken back")
    assert not posted.has(number, "taken back") and len(posts(tmp_path)) == 5
    server.post("INSERT INTO R VALUES (30, 30, 0);")
    server.run.round()
    server.post("INSERT INTO R VALUES (31, 31, 0);")
    server.run.round()
    rows = selected(server, "SELECT k FROM R", DECLARED.format("MEMORY")).answer.table.to_pylist()
    assert sorted(row["k"] for row in rows) == [1, 2, 3, 4, 30]
    server.close()


def test_a_list_that_lacks_a_file_is_no_loss(
    server: InlineServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are added while a folder is listed: the list may have the last one, but not the one before."""
    for tick in (11, 12, 13):
        server.post(f"INSERT INTO R VALUES ({tick}, {tick}, 0);")
    every = posts(tmp_path)
    monkeypatch.setattr(posted_files, "_files", lambda folder: [*every[:4], every[-1]])
    server.run.round()
    monkeypatch.undo()
    rows = selected(server, "SELECT k FROM R", DECLARED.format("MEMORY")).answer.table.to_pylist()
    assert sorted(row["k"] for row in rows) == [1, 2, 3, 4, 11, 12]
    server.run.rounds.stop()
