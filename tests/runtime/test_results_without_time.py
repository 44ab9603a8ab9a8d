"""Subscriptions to queries over static relations alone: all their answers are known at once, so each UP TO ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from inline_engine import InlineServer, without_spark

from penstock.results.reader import ResultReader

__all__ = ["without_spark"]

DECLARED = """
CREATE RELATION R (k INT, w INT) FROM MEMORY ();
CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;
INSERT INTO R (k, w) VALUES (1, 10), (2, 20);
"""


@pytest.fixture
def server(tmp_path: Path, without_spark: None) -> Iterator[InlineServer]:
    made = InlineServer(tmp_path / "checkpoint")
    yield made
    made.close()


def reader(server: InlineServer, name: str) -> ResultReader:
    place = server.control.query(name)[1].place
    return ResultReader(server.folder / "results", server.run.version().results[f"q{place}"])


def read(
    server: InlineServer, name: str, up_to: int, *, snapshot: bool = False, progress: bool = False
) -> list[object]:
    """Return the rows up to a tick, without their columns; fails where the subscription does not end."""
    known = reader(server, name)
    cursor = None if snapshot else known.first
    subscription = known.read(cursor, snapshot=snapshot, progress=progress, up_to=up_to)
    found = [row for part in iter(lambda: subscription.next(0.2), None) for row in part.rows.to_pylist()]
    assert subscription.ended, "it waits for rows that never come"
    return [(seconds(row.pop("ts")), *row.values()) for row in found]


def seconds(ts: datetime | int) -> int:
    return int(ts.timestamp()) if isinstance(ts, datetime) else ts


@pytest.mark.parametrize("start", ["NOW", "WARM", "WARM WAIT", "BEGINNING"])
@pytest.mark.parametrize("restarts", [False, True])
def test_up_to_ends_at_once(server: InlineServer, start: str, restarts: bool) -> None:
    server.post(DECLARED + f"CREATE QUERY q START {start} AS SELECT k FROM R WHERE w > 10;")
    server.run.round()
    if restarts:
        server.restart()
    for up_to in (0, 1, 10**9):
        assert read(server, "q", up_to) == [(0, "+", 2)]
        assert read(server, "q", up_to, snapshot=True) == [(0, "+", 2)]
        assert read(server, "q", up_to, snapshot=True, progress=True) == [(0, "+", 2), (0, "p", None)]


@pytest.mark.parametrize("select", ["SELECT k FROM R WHERE w > 99", "SELECT ISTREAM(k) FROM R WHERE w > 99"])
def test_an_empty_answer_is_known_too(server: InlineServer, select: str) -> None:
    server.post(DECLARED + f"CREATE QUERY q AS {select};")
    server.run.round()
    assert read(server, "q", 7) == [] and read(server, "q", 7, progress=True) == [(0, "p", None)]
    if "ISTREAM" not in select:
        assert read(server, "q", 7, snapshot=True) == []


def test_a_query_that_mixes_them_waits_for_its_stream(server: InlineServer) -> None:
    server.post(DECLARED + "CREATE QUERY q AS SELECT k, v FROM R, S [NOW] WHERE k = v;")
    server.post("CREATE QUERY still AS SELECT k FROM R;")
    server.insert("S", [(1, 1), (4, 2)])
    known = reader(server, "q")
    subscription = known.read(known.first, up_to=5)
    while subscription.next(0.05) is not None:
        pass
    assert not subscription.ended
    server.insert("S", [(9, 1)])
    assert subscription.next(5) is not None
    while subscription.next(0.05) is not None:
        pass
    assert subscription.ended
    assert len(read(server, "still", 5)) == 2
