"""What a query has read of its past stays when other commands change the plan meanwhile, on Spark without Spark."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_engine import InlineServer, without_spark

from penstock.runtime.spark.hydration.catch_up import CatchUp, Pause
from penstock.runtime.spark.hydration.past_input import PastRound

__all__ = ["without_spark"]
pytestmark = pytest.mark.usefixtures("without_spark")

STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 9999 SECONDS;"
ROUNDS = 6


class Parts:
    """Lets the past be read part by part, each a round. allowed: how many may be read now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[str] = []
        self.allowed = threading.Semaphore(0)
        original: Callable[..., Any] = CatchUp._run
        parts = self

        def run(reading: CatchUp, part: PastRound, pause: Pause | None) -> None:
            original(reading, part, None)
            if part.tasks or part.files:
                count = len(part.tasks) + len(part.files)
                parts.read += [",".join(sorted(reading.starts))] * count
            while pause is not None and (part.tasks or part.files):
                pause(0.0)
                if parts.allowed.acquire(timeout=0.001):
                    return

        monkeypatch.setattr(CatchUp, "_run", run)
        monkeypatch.setattr("penstock.runtime.spark.hydration.catch_up.merged", lambda parts, limit: iter(parts))


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    return Parts(monkeypatch)


@pytest.fixture
def server(tmp_path: Path, parts: Parts, without_spark: None) -> Iterator[InlineServer]:
    server = InlineServer(tmp_path / "checkpoint")
    server.post(STREAM + query("q", "NOW"))
    for n in range(1, ROUNDS):
        server.insert("S", [(n, n)])
    yield server
    parts.allowed.release(1000)
    server.close()


def query(name: str, start: str) -> str:
    return f"CREATE QUERY {name} START {start} AS SELECT SUM(v) AS s FROM S [RANGE 1000 SECONDS];"


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def hydrating(server: InlineServer, name: str = "w") -> int:
    """Post a query that reads its past; return the number of its command."""
    (one,) = server.control.submit(query(name, "WARM"))
    assert one.outcome is not None and one.outcome.state.value == "HYDRATING"
    return one.outcome.number


def state(server: InlineServer, number: int) -> str:
    return next(one.state.value for _, _, one in server.control.commands() if one.number == number)


def test_a_past_is_read_once_whatever_is_registered_meanwhile(server: InlineServer, parts: Parts) -> None:
    number = hydrating(server)
    for n in range(ROUNDS, ROUNDS + 4):
        until(lambda n=n: len(parts.read) == n - ROUNDS + 1)  # type: ignore[misc]
        server.post(query(f"other{n}", "NOW"))
        # The files of older epochs go with the second batch of one.
        server.insert("S", [(n, n)])
        server.insert("S", [(n, 0)])
        parts.allowed.release()
    server.post("DROP QUERY q; DROP QUERY other6;")
    assert state(server, number) == "HYDRATING"
    parts.allowed.release(1000)
    until(lambda: state(server, number) == "RUNNING")
    files = 5 + 2 * 4
    assert len(parts.read) == files, "each part of the past once"
    server.insert("S", [(20, 100)])
    server.insert("S", [(21, 0)])
    total = sum(range(1, 10))
    assert [row for row in server.emitted("w") if row[1] == "+"][-1][-1] == total + 100
    beginning = server.emitted("w")[0]
    assert beginning[1:] == ("+", total - 9)
    server.restart()
    server.insert("S", [(22, 1)])
    server.insert("S", [(23, 0)])
    assert [row for row in server.emitted("w") if row[1] == "+"][-1][-1] == total + 101


def test_two_queries_read_their_pasts_one_after_the_other(server: InlineServer, parts: Parts) -> None:
    first, second = hydrating(server), hydrating(server, "x")
    until(lambda: len(parts.read) == 1)
    server.post(query("other", "NOW"))
    parts.allowed.release(1000)
    until(lambda: state(server, second) == "RUNNING" and state(server, first) == "RUNNING")
    assert parts.read == [parts.read[0]] * 5 + [parts.read[-1]] * 5 and parts.read[0] != parts.read[-1]
    server.insert("S", [(20, 100)])
    server.insert("S", [(21, 0)])
    assert server.emitted("w") == server.emitted("x") and server.emitted("w")[-1][-1] == 115


def test_what_a_crash_leaves_of_a_reading_is_nobody_s_past(server: InlineServer, parts: Parts, tmp_path: Path) -> None:
    hydrating(server)
    until(lambda: len(parts.read) == 1)
    parts.allowed.release(4)
    until(lambda: len(parts.read) == 5)
    left = tmp_path / "left"
    shutil.copytree(server.folder, left)
    (left / "control" / "lock").unlink(missing_ok=True)
    other = InlineServer(left)
    try:
        other.control.submit("DROP QUERY w;")
        assert other.post(query("x", "NOW")) == ["RUNNING"]
        other.insert("S", [(20, 100)])
        other.insert("S", [(21, 0)])
        assert [row[-1] for row in other.emitted("x")] == [100]
    finally:
        other.close()


def test_a_query_that_begins_ahead_waits_and_survives_a_restart(server: InlineServer, parts: Parts) -> None:
    """Of a relation and of a stream; one that is dropped while it waits, and one that is paused, leave nothing."""
    parts.allowed.release(1000)
    server.post(query("w", "AT 8") + query("gone", "AT 8") + query("later", "AT 8"))
    server.post("CREATE QUERY n START AT 8 AS SELECT ISTREAM(v) FROM S [NOW] WHERE v > 0;")
    ahead = server.control.version().ahead
    assert {one.tick for _, text, one in server.control.commands() if " AT 8 " in text} == {8}
    assert {one.stored.name for one in server.control.queries() if one.query.place in ahead} == {
        "w",
        "gone",
        "later",
        "n",
    }
    server.insert("S", [(6, 6), (7, 7)])
    server.restart()
    assert len(server.control.version().ahead) == 4
    server.post("DROP QUERY gone; ALTER QUERY later PAUSE;")
    server.insert("S", [(8, 8), (9, 9)])
    assert server.emitted("w") == [(8, "+", 36)] and server.emitted("n") == []
    assert list(server.control.version().ahead) == [server.control.query("n")[1].place]
    server.insert("S", [(10, 10), (11, 0)])
    assert server.emitted("n") == [(9, 9), (10, 10)] and server.emitted("later") == []
    assert server.control.version().ahead == {}
    assert server.emitted("w")[-1] == (10, "+", 55)


def test_a_query_that_begins_with_its_source_begins_where_it_says(server: InlineServer) -> None:
    server.post(STREAM.replace(" S ", " T ") + query("own", "AT 3").replace("FROM S", "FROM T"))
    server.insert("T", [(1, 1), (2, 2)])
    assert server.emitted("own") == [] and len(server.control.version().ahead) == 1
    server.insert("T", [(3, 3), (4, 4), (5, 5)])
    assert server.emitted("own") == [(3, "+", 6), (4, "-", 6), (4, "+", 10)]
