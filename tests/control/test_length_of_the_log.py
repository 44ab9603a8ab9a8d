"""Many commands leave few files, and what is finished little in memory; all of them are known for their time."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_kit import STREAM, Server

from penstock.control import applying, command_log

CYCLES = 60


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "control").iterdir() if path.is_file())


def cycle(system: Server, number: int) -> None:
    system.done(f"CREATE QUERY q{number} AS SELECT v FROM S;", key=f"create {number}")
    system.done(f"DROP QUERY q{number};", key=f"drop {number}")


def test_registrations_and_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "CATALOG_EVERY", 10)
    system = Server(tmp_path)
    system.done(STREAM)
    for number in range(CYCLES):
        cycle(system, number)
    found = files(tmp_path)
    assert len([name for name in found if name.startswith("finished-")]) == 2 * CYCLES // 10
    assert len(found) < 2 * CYCLES // 10 + 25, found
    kept = [one for one in system.control._log.transactions.values() if one.change.objects or one.change.removed]
    assert len(kept) <= 10
    before = [(one.number, text, one.state) for _, text, one in system.control.commands()]
    assert [number for number, _, _ in before] == list(range(1, 2 * CYCLES + 2))
    system.control.close()
    # Another start knows all of them, and what comes with a key that was used is not done again.
    again = Server(tmp_path)
    assert [(one.number, text, one.state) for _, text, one in again.control.commands()] == before
    (outcome,) = again.run("CREATE QUERY q3 AS SELECT v FROM S;", key="create 3")
    assert outcome.outcome is not None and outcome.outcome.number == 8
    assert [one.name for one in again.control.stored.values()] == ["S"]
    again.control.close()


def test_what_is_too_old_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "CATALOG_EVERY", 10)
    now = [command_log._now()]
    monkeypatch.setattr(command_log, "_now", lambda: now[0])
    system = Server(tmp_path, retention=3600.0)
    system.done(STREAM)
    counts = []
    for number in range(CYCLES):
        cycle(system, number)
        now[0] += 200 * 1_000_000
        counts.append(len(files(tmp_path)))
    assert max(counts[CYCLES // 2 :]) <= max(counts[: CYCLES // 2])
    log = system.control._log
    assert max(map(len, (log.transactions, log.outcomes, log._keys, log._first_by_number))) < 80
    assert len(log._in_finished) < 10 and len(log._in_outcomes) < 25
    system.control.close()
    again = Server(tmp_path, retention=3600.0)
    assert {one.number for _, _, one in again.control.commands()} >= set(range(2 * CYCLES - 20, 2 * CYCLES + 2))
    again.control.close()
