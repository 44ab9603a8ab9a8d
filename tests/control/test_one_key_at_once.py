"""Many requests with one idempotency key at the same time: one is carried out, and all have its outcome, also after a
restart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from tests.control.control_kit import STREAM, Server, server

T = TypeVar("T")
COUNT = 20
SCRIPT = "CREATE QUERY q AS SELECT v FROM S; INSERT INTO S VALUES (1, 1);"


def at_once(action: Callable[[int], T]) -> list[T]:
    barrier = threading.Barrier(COUNT)

    def one(number: int) -> T:
        barrier.wait()
        return action(number)

    with ThreadPoolExecutor(COUNT) as pool:
        return list(pool.map(one, range(COUNT)))


def rows(ts: int, v: int) -> pa.Table:
    return pa.table({"ts": pa.array([ts], pa.int32()), "v": pa.array([v], pa.int32())})


def numbers(system: Server) -> set[tuple[int, ...]]:
    found = at_once(lambda _: system.run(SCRIPT, key="k"))
    return {tuple(one.outcome.number for one in outcomes if one.outcome is not None) for outcomes in found}


def refused_but_one(system: Server) -> int:
    def insert(number: int) -> bool:
        try:
            return system.control.insert("S", rows(3, number), "other")
        except PenstockError as error:
            assert error.code == "P0731"
            return False

    return sum(at_once(insert))


def test_one_of_many_is_carried_out(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM)
        first = numbers(system)
        assert len(first) == 1
        assert sum(at_once(lambda _: system.control.insert("S", rows(2, 2), "same"))) == 1
        assert refused_but_one(system) == 1
        # The instant 3 is final when a later one has come.
        system.control.insert("S", rows(4, 4))
        system.engine.round()
        answers = system.answers("q")
        assert [one["ts"] for one in answers] == [1, 2, 3]
    with server(tmp_path) as system:
        assert numbers(system) == first
        assert not any(at_once(lambda _: system.control.insert("S", rows(2, 2), "same")))
        with pytest.raises(PenstockError, match="P0731"):
            system.run("CREATE QUERY other AS SELECT v FROM S;", key="k")
        system.engine.round()
        assert system.answers("q") == answers
