"""Relations that are paused, replaced and exchanged while power goes: what their sinks receive is what they receive
without a loss."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inline_engine import InlineServer, without_spark
from mortal_storage import MortalStorage

from penstock.testing.faults import LOSSES, PowerCut

__all__ = ["without_spark"]

GROUPS = "SELECT v % 3 AS k, COUNT(*) AS n FROM S [RANGE {} SECONDS] GROUP BY v % 3"
Step = Callable[[InlineServer], object]


def command(script: str) -> Step:
    return lambda server: server.post(script, key=script)


def rows(*ticks: int) -> Step:
    return lambda server: server.insert("S", [(tick, tick) for tick in ticks], key=str(ticks))


BEFORE: tuple[Step, ...] = (
    command("CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;"),
    command(f"CREATE QUERY q AS {GROUPS.format(2)}; CREATE QUERY r AS {GROUPS.format(5)};"),
    rows(1, 2, 3, 4),
)
#: Everything that has a result continue.
LIFE: tuple[Step, ...] = (
    command("ALTER QUERY q PAUSE; ALTER QUERY r PAUSE WITH STATE;"),
    rows(5, 6),
    command("ALTER QUERY q RESUME; ALTER QUERY r RESUME;"),
    rows(7, 8),
    command("ALTER QUERY q SWAP WITH r;"),
    rows(9, 10),
    command(f"ALTER QUERY r AS {GROUPS.format(3)};"),
    command("ALTER QUERY q SWAP WITH r"),
    rows(11, 12),
)


def emitted(server: InlineServer) -> dict[str, list[Any]]:
    return {name: sorted(server.emitted(name)) for name in ("q", "r")}


def life(folder: Path, number: int) -> tuple[dict[str, list[Any]], bool]:
    """Live through LIFE with a loss of power at one call; return what has been emitted, and whether power went."""
    checkpoint, spare = folder / "checkpoint", folder / "spare"
    spare.mkdir(parents=True)
    server = InlineServer(checkpoint)
    for step in BEFORE:
        step(server)
    server.close()
    calls = PowerCut(spare, number)
    done = 0
    with MortalStorage(calls).living():
        server = InlineServer(checkpoint)
        for done, step in enumerate(LIFE):  # noqa: B007 - what was not finished is done again
            step(server)
        found = emitted(server)
        server.close()
        return found, False
    calls.lose(LOSSES[number % len(LOSSES)], random.Random(number), [checkpoint])
    server = InlineServer(checkpoint)
    for step in LIFE[done:]:
        step(server)
    found = emitted(server)
    server.close()
    return found, True


def check(tmp_path: Path, first: int, every: int, most: int = 10**6) -> int:
    expected, _ = life(tmp_path / "calm", 0)
    assert all(len(events) > 10 for events in expected.values())
    number = first
    for cuts in range(most):
        found, cut = life(tmp_path / str(number), number)
        assert found == expected, f"power went at call {number}"
        if not cut:
            return cuts
        number += every
    return most


def test_power_that_goes_while_results_continue(tmp_path: Path, without_spark: None) -> None:
    assert check(tmp_path, 150, 211, 6) > 3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_power_that_goes_at_every_call_while_results_continue(tmp_path: Path, without_spark: None) -> None:
    assert check(tmp_path, 1, 1) > 100
