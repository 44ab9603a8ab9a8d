"""The clock of the machine is set back and forward: keys are kept for their time, and not for ever."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from control_kit import STREAM, Server

from penstock.control import command_log, posted_rows
from penstock.control.transactions import applying
from penstock.storage.stamps import StampRetention

HOUR = 3600 * 1_000_000
YEARS = 3 * 365 * 24 * HOUR


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(command_log, "_now", made)
    monkeypatch.setattr(posted_rows, "_now", made)
    monkeypatch.setattr(time, "time_ns", lambda: made.now * 1000)
    monkeypatch.setattr(applying, "CATALOG_EVERY", 3)
    return made


def post(system: Server, key: str) -> bool:
    values = pa.array([1], pa.int32())
    return system.control.insert("S", pa.table({"ts": values, "v": values}), key)


def is_known(system: Server, key: str) -> bool:
    return system.control._log.with_key("system", key) is not None


def cycle(system: Server, number: int) -> None:
    for script in (f"CREATE QUERY c{number} AS SELECT v FROM S;", f"DROP QUERY c{number};"):
        system.done(script, key=f"{script} {number}")


def test_a_clock_that_was_ahead_keeps_no_key_for_ever(tmp_path: Path, clock: Clock) -> None:
    system = Server(tmp_path, retention=24 * 3600.0)
    clock.now += YEARS
    system.done(STREAM, key="stream")
    for number in range(4):
        cycle(system, number)
    assert post(system, "k")
    system.engine.round()
    clock.now -= YEARS
    for _ in range(23):
        clock.now += HOUR
        assert is_known(system, "stream") and not post(system, "k")
    clock.now += 3 * HOUR
    cycle(system, 4)
    assert not is_known(system, "stream")
    assert post(system, "k") and not post(system, "k")
    for number in range(5, 8):
        cycle(system, number)
    assert all(transaction.at <= clock.now for transaction, _, _ in system.control.commands())
    system.control.close()


@pytest.mark.parametrize("hours", [1, 5, 23])
def test_a_clock_that_is_set_back_by_hours_forgets_nothing_early(tmp_path: Path, clock: Clock, hours: int) -> None:
    system = Server(tmp_path, retention=24 * 3600.0)
    system.done(STREAM, key="stream")
    assert post(system, "k")
    clock.now -= hours * HOUR
    for number in range(3):
        cycle(system, number)
        assert is_known(system, "stream") and not post(system, "k")
    system.control.close()
    again = Server(tmp_path, retention=24 * 3600.0)
    clock.now += 23 * HOUR
    assert is_known(again, "stream") and not post(again, "k")
    clock.now += 26 * HOUR
    assert not is_known(again, "stream") and post(again, "k")
    again.control.close()


def test_stamps_ahead_count_from_when_they_are_noticed() -> None:
    clock = Clock()
    stamps = StampRetention(3600.0, clock)
    ahead = clock.now + YEARS
    assert stamps.keeps(clock.now) and stamps.keeps(clock.now - HOUR) and not stamps.keeps(clock.now - HOUR - 1)
    assert stamps.keeps(ahead)
    clock.now += HOUR
    assert stamps.keeps(ahead) and stamps.keeps(ahead - 1)
    clock.now += 1
    assert not stamps.keeps(ahead) and not stamps.keeps(ahead - 1) and not stamps.keeps(clock.now + 1)
    # Another one that is noticed later has its time, too; and a clock that is set back again prolongs nothing for ever.
    assert stamps.keeps(ahead + 1)
    clock.now -= YEARS
    assert stamps.keeps(ahead + 1)
    clock.now += HOUR + 1
    assert not stamps.keeps(ahead + 1)
