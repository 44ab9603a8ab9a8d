"""Many commands leave few files and hardly anything in memory; all of them are known for their time."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest
from control_kit import STREAM, Server

from penstock.control import command_log
from penstock.control.sealed_files import SealedFiles
from penstock.control.transactions import applying
from penstock.errors import PenstockError

CYCLES = 60


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "control").iterdir() if path.is_file())


def cycle(system: Server, number: int) -> None:
    system.done(f"CREATE QUERY q{number} AS SELECT v FROM S;", key=f"create {number}")
    system.done(f"DROP QUERY q{number};", key=f"drop {number}")


def listed(system: Server, after: int = 0, limit: int | None = None) -> list[tuple[int, str, str]]:
    return [(one.number, text, one.state.value) for _, text, one in system.control.commands(after, limit)]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is stored often."""
    monkeypatch.setattr(applying, "CATALOG_EVERY", 10)


def test_registrations_and_drops(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(STREAM)
    for number in range(CYCLES):
        cycle(system, number)
    found = files(tmp_path)
    assert len([name for name in found if name.startswith("finished-")]) == 2 * CYCLES // 10
    assert len(found) < 2 * CYCLES // 10 + 25, found
    log = system.control._log
    assert max(map(len, (log.transactions, log.outcomes, log._keys, log._first_by_number))) <= 10
    # What the latest catalog does not contain yet is known until the next one.
    assert len(log._begun) <= 5
    before = listed(system)
    assert [number for number, _, _ in before] == list(range(1, 2 * CYCLES + 2))
    assert before[7][1:] == ("CREATE QUERY q3 AS SELECT v FROM S", "RUNNING")
    for after, limit in ((0, 3), (7, 1), (9, 10), (10, 11), (100, 50), (118, 2), (2 * CYCLES + 1, 5)):
        assert listed(system, after, limit) == before[after:][:limit]
    # Each is found by its number and by its key.
    for number in (1, 8, 60, 2 * CYCLES + 1):
        one = system.control.command(number)
        assert one is not None and (one[2].number, one[1], one[2].state.value) == before[number - 1]
    assert system.control.command(0) is system.control.command(2 * CYCLES + 2) is None
    system.done("CREATE QUERY q3 AS SELECT v FROM S;", key="create 3")
    with pytest.raises(PenstockError, match=r"P0731|key"):
        system.run("CREATE QUERY q3 AS SELECT ts FROM S;", key="create 3")
    assert listed(system) == before
    system.control.close()
    # Another start knows all of them, and what comes with a key that was used is not done again.
    again = Server(tmp_path)
    assert listed(again) == before
    (outcome,) = again.run("CREATE QUERY q3 AS SELECT v FROM S;", key="create 3")
    assert outcome.outcome is not None and outcome.outcome.number == 8
    assert outcome.outcome.state.value == "RUNNING"
    assert [one.name for one in again.control.stored.values()] == ["S"]
    again.control.close()


def test_a_reply_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many commands a script has."""
    system = Server(tmp_path)
    system.done(STREAM)
    script = "".join(f"CREATE QUERY q{number} AS SELECT v FROM S;" for number in range(CYCLES))
    read: list[str] = []
    before = SealedFiles.read
    monkeypatch.setattr(SealedFiles, "read", lambda files, name: (read.append(name), before(files, name))[1])
    for _ in range(2):
        outcomes = system.run(script, key="all")
        assert [one.outcome.number for one in outcomes if one.outcome] == list(range(2, CYCLES + 2))
        assert len(read) < 6
    system.control.close()


def test_memory_and_objects_are_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a command that is finished there are its number and the hash of its key, 16 bytes, beside a file for some of
    them."""
    monkeypatch.setattr(applying, "CATALOG_EVERY", 40)
    system = Server(tmp_path)
    system.done(STREAM)

    def held(begin: int) -> tuple[int, int]:
        for number in range(begin, begin + CYCLES):
            cycle(system, number)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
        return len(gc.get_objects()), used

    held(0)
    tracemalloc.start()
    try:
        first = held(CYCLES)
        second = held(2 * CYCLES)
    finally:
        tracemalloc.stop()
    # Three files for 120 commands. Kept as they were posted, they are 10 objects and 3 kB a cycle.
    assert second[0] - first[0] < CYCLES
    assert second[1] - first[1] < 500 * CYCLES
    system.control.close()


def test_where_a_query_began_outlasts_its_command(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(STREAM + "CREATE QUERY kept AS SELECT v FROM S;")
    place = system.control.query("kept")[1].place
    for number in range(CYCLES):
        cycle(system, number)
    began = system.control._log.begun(place)
    assert began is not None and began.number == 2
    assert len(system.control._log._begun) <= 6
    view = system.control.view()
    assert view.begun(place) == began
    system.control.close()
    again = Server(tmp_path)
    assert again.control._log.begun(place) == began
    again.control.close()


def test_what_is_too_old_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert len(log._finished) < 10 and len(log._in_outcomes) < 25
    assert len(system.control.commands()) < 80
    # A key that is too old is forgotten, also where its file is still there.
    assert log.with_key("system", f"create {CYCLES - 1}") is not None
    assert log.with_key("system", "create 0") is None
    oldest = min(transaction.at for transaction, _, _ in system.control.commands())
    assert oldest > now[0] - 2 * 3600 * 1_000_000
    system.control.close()
    again = Server(tmp_path, retention=3600.0)
    assert {one.number for _, _, one in again.control.commands()} >= set(range(2 * CYCLES - 20, 2 * CYCLES + 2))
    again.control.close()


def test_a_crash_between_a_file_and_what_it_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in both is known once, and the single files go."""
    system = Server(tmp_path)
    system.done(STREAM)
    with monkeypatch.context() as crashing:
        crashing.setattr(type(system.control._log.files), "remove", lambda self, name: None)
        for number in range(10):
            cycle(system, number)
        before = listed(system)
        system.control.close()
    assert {"2.json", "3.json", "outcomes-3.json"} <= set(files(tmp_path))
    again = Server(tmp_path)
    assert listed(again) == before
    for number in range(10, 20):
        cycle(again, number)
    assert not {"2.json", "3.json", "outcomes-3.json"} & set(files(tmp_path))
    assert listed(again)[:21] == before
    again.control.close()


def test_a_file_that_goes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands are forgotten; one that cannot be read otherwise is an error."""
    system = Server(tmp_path)
    system.done(STREAM)
    for number in range(10):
        cycle(system, number)
    log = system.control._log
    before, finished = listed(system), dict(log._finished)
    (first, *_) = finished
    content = (tmp_path / "control" / f"finished-{first}.json").read_bytes()
    (tmp_path / "control" / f"finished-{first}.json").unlink()
    with pytest.raises(PenstockError, match="finished"):
        listed(system)

    def removed(number: int) -> object:
        log._finished.pop(first, None)
        return read(number)

    read = log._read_finished
    monkeypatch.setattr(log, "_read_finished", removed)
    assert listed(system) == [one for one in before if one[0] > first]
    monkeypatch.undo()
    log._finished = finished
    (tmp_path / "control" / f"finished-{first}.json").write_bytes(content)
    assert listed(system) == before
    system.control.close()
