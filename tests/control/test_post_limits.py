"""Rows that come too fast are refused for a while; what was accepted is never dropped."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from control_kit import Server, server

from penstock.algebra.nodes.scans import Source
from penstock.control.posted_rows import PostLimits
from penstock.control.registry import command_of
from penstock.errors import Busy, PenstockError
from penstock.language.catalog import Catalog
from penstock.language.commands import CreateSourceCommand
from penstock.server.http.problems import problem
from penstock.settings import Settings

STREAM = "CREATE STREAM H (ts INT, v INT) FROM HTTP ({}) TIMESTAMP BY ts UNIT SECOND;"


def declared(options: str = "") -> Source:
    command = command_of(STREAM.format(options), Catalog(), Settings())
    assert isinstance(command, CreateSourceCommand)
    return command.source


def rows(count: int, first: int = 0) -> pa.Table:
    numbers = pa.array(range(first, first + count), pa.int32())
    return pa.table({"ts": numbers, "v": numbers})


class Time:
    """A clock, and what a run has not read."""

    def __init__(self) -> None:
        self.now, self.bytes, self.looks = 100.0, 0, 0

    def __call__(self) -> float:
        return self.now

    def unread(self) -> int:
        self.looks += 1
        return self.bytes


def test_so_many_rows_a_second_are_accepted() -> None:
    clock = Time()
    limits = PostLimits(clock.unread, 0, clock)
    source = declared("rate_limit '10'")
    limits.admit(source, 1, rows(6))
    limits.admit(source, 1, rows(4))
    with pytest.raises(Busy, match="H takes 10 rows per second") as caught:
        limits.admit(source, 1, rows(5))
    assert caught.value.seconds == pytest.approx(0.5)
    limits.admit(source, 2, rows(10))  # another source
    clock.now += 0.5
    limits.admit(source, 1, rows(5))
    clock.now += 60
    limits.admit(source, 1, rows(35))  # as one post, and then nothing for as long as that takes
    clock.now += 2.4
    with pytest.raises(Busy) as caught:
        limits.admit(source, 1, rows(1))
    assert caught.value.seconds == pytest.approx(0.2)
    clock.now += 0.25
    limits.admit(source, 1, rows(1))
    response = problem(caught.value)
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert b'"code":"P0804"' in response.body
    assert clock.looks == 0


def test_rows_are_refused_while_too_many_have_not_been_read() -> None:
    clock = Time()
    source = declared()
    limits = PostLimits(clock.unread, 1000, clock)
    limits.admit(source, 1, rows(1000))  # one post that is larger than the limit comes when nothing else waits
    with pytest.raises(Busy, match="8,000 bytes of posted rows"):
        limits.admit(source, 1, rows(1))
    clock.now, clock.bytes = clock.now + 1, 900
    limits.admit(source, 1, rows(10))
    with pytest.raises(Busy, match="980 bytes"):
        limits.admit(source, 1, rows(10))
    limits.admit(source, 1, rows(2))
    assert clock.looks == 2


def test_the_limits_of_a_server(tmp_path: Path) -> None:
    with server(tmp_path, settings={"max_unread_bytes": "6 KB"}) as system:
        system.done(STREAM.format("rate_limit '300'") + "CREATE QUERY q AS SELECT v FROM H;")
        assert system.control.insert("H", rows(200), "first")
        with pytest.raises(Busy, match="rate_limit"):
            system.control.insert("H", rows(200, 200), "second")
        assert not system.control.insert("H", rows(200), "first"), "it is there already"
        system.done("INSERT INTO H VALUES (200, 200);")  # with its statement
        system.done("ALTER STREAM H SET (rate_limit 'none');")
        assert system.control.insert("H", rows(200, 201), "second")
        wait(system)
        with pytest.raises(Busy, match="max_unread_bytes"):
            system.control.insert("H", rows(200, 401), "third")
        assert issubclass(Busy, PenstockError)
        system.engine.round()
        wait(system)
        assert system.engine.unread() == 0
        assert system.control.insert("H", rows(200, 401), "third")
        system.engine.round()
        assert [row["v"] for row in system.answers("q")] == list(range(600))


def wait(system: Server) -> None:
    """Have the bytes that are unread looked at again."""
    limits = system.control._posted.limits
    assert limits is not None
    limits._looked_at = 0.0
