"""A control over crashes and full disks: whatever call power goes at or fails at, a command happens once or not at all.

Each step of a life is posted again with its key until it has been answered. What the results contain then is what they
contain without a fault.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from control_kit import STREAM, SUM, CommandFailed, Server
from mortal_storage import MortalStorage
from stepped_reading import SteppedReading

from penstock.control.engine import EngineVersion, NextVersion, Preparation
from penstock.control.transactions import applying
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError
from penstock.expressions.calls import user_functions
from penstock.expressions.user import UserFunction
from penstock.runtime.live import state_folder
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import KINDS, LOSSES, FailingCalls, PowerCut, PowerLost

Step = Callable[[Server], object]


def command(script: str) -> Step:
    return lambda system: system.done(script, key=f"{script} {system.attempt}")


def rows(number: int, *ticks: int) -> Step:
    table = pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(ticks, pa.int32())})
    return lambda system: system.control.insert("S", table, f"rows {number}")


def answer(system: Server) -> None:
    system.engine.round()


#: In the course of these steps the log is cut, a query changes in every way, and rows are inserted by statements.
LIFE: tuple[Step, ...] = (
    command(STREAM),
    rows(1, 1, 2, 3),
    answer,
    command(SUM + "CREATE QUERY r START WARM AS SELECT MAX(CAST(v AS BIGINT)) AS s FROM S [RANGE 4 SECONDS];"),
    rows(2, 4, 5),
    command("INSERT INTO S VALUES (6, 6); CREATE QUERY t AS SELECT v FROM S;"),
    answer,
    command("ALTER QUERY q SWAP WITH r;"),
    command("ALTER QUERY t PAUSE;"),
    rows(3, 7, 8),
    answer,
    command("ALTER QUERY t RESUME; ALTER QUERY r RENAME TO p;"),
    command("DROP QUERY q;"),
    rows(4, 9, 10),
    answer,
)


def contents(system: Server) -> dict[str, list[dict[str, Any]]]:
    return {one.name: system.answers(one.name) for one in system.control.stored.values() if one.query is not None}


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "CATALOG_EVERY", 4)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    system = Server(tmp_path_factory.mktemp("calm"))
    for step in LIFE:
        step(system)
    system.control.close()
    found = contents(system)
    assert all(found.values()) and sorted(found) == ["p", "t"]
    return found


def texts_of_log(system: Server) -> list[str]:
    """The texts of the log; every command must be finished, and none may be there twice."""
    found = [(text, one.state.value) for _, text, one in system.control.commands()]
    assert "PENDING" not in {state for _, state in found}
    texts = [text for text, state in found if state != "FAILED"]
    assert Counter(texts).most_common(1)[0][1] == 1
    return texts


def cut_life(
    folder: Path, number: int, how: str, life: tuple[Step, ...] = LIFE, opened: Callable[[Path], Server] = Server
) -> tuple[Server, bool]:
    """Live through LIFE with a loss of power at one call; return the system, and whether power went."""
    checkpoint, spare = folder / "checkpoint", folder / "spare"
    checkpoint.mkdir(parents=True, exist_ok=True)
    spare.mkdir()
    calls = PowerCut(spare, number)
    system: Server | None = None
    done = 0
    with MortalStorage(calls).living():
        system = opened(checkpoint)
        for done, step in enumerate(life):  # noqa: B007 - what was not finished is done again
            step(system)
        return system, False
    calls.lose(how, random.Random(number), [checkpoint])
    system = opened(checkpoint)
    for step in life[done:]:
        step(system)
    return system, True


def check_cuts(tmp_path: Path, expected: dict[str, list[dict[str, Any]]], first: int, every: int) -> int:
    number, cuts = first, 0
    while True:
        system, cut = cut_life(tmp_path / str(number), number, LOSSES[number % len(LOSSES)])
        found = contents(system)
        texts = texts_of_log(system)
        with suppress(PowerLost):  # at a call after the last step, where the lock is removed
            system.control.close()
        assert found == expected, f"power went at call {number}"
        assert len(texts) <= len(LIFE) + 3
        if not cut:
            return cuts
        cuts += 1
        number += every


@pytest.fixture(params=[state_folder.PAGE, 1], ids=["whole", "in pages"])
def pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the mappings of the state into pages."""
    monkeypatch.setattr(state_folder, "PAGE", request.param)


def test_power_that_goes(pages: None, tmp_path: Path, expected: dict[str, list[dict[str, Any]]]) -> None:
    assert check_cuts(tmp_path, expected, 3, 17) > 5


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_power_that_goes_at_every_call(pages: None, tmp_path: Path, expected: dict[str, list[dict[str, Any]]]) -> None:
    assert check_cuts(tmp_path, expected, 1, 1) > 100


class ReadingEngine(InProcessEngine):
    """An engine whose queries read their past until a test says that it has been read."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.readings: list[SteppedReading] = []

    def prepare(self, version: NextVersion) -> Preparation | None:
        self.readings.append(SteppedReading(version))
        return self.readings[-1]


def caught_up(system: Server) -> None:
    """Let the past be read, and wait until the query answers."""
    assert isinstance(system.engine, ReadingEngine)
    end = time.monotonic() + 20
    while system.control.commands()[-1][2].state.value != "RUNNING":
        for reading in system.engine.readings:
            reading.over.set()
        if system.control.failure is not None:
            raise system.control.failure
        assert time.monotonic() < end
        time.sleep(0.001)


HYDRATING = "CREATE QUERY w START WARM AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];"
HYDRATING_LIFE: tuple[Step, ...] = (
    command(STREAM),
    rows(1, 1, 2, 3),
    answer,
    lambda system: system.run(HYDRATING, key="w"),
    command("CREATE QUERY t AS SELECT v FROM S;"),
    command("DROP QUERY w;"),
    lambda system: system.run(HYDRATING, key="again"),
    caught_up,
    rows(2, 4, 5),
    answer,
)


def test_a_query_that_reads_its_past_is_dropped_once(tmp_path: Path) -> None:
    expected: dict[str, list[dict[str, Any]]] = {}
    number, cuts, was_cut = 10_000, 0, True
    while was_cut or not cuts:
        folder = tmp_path / str(number)
        how = LOSSES[number % len(LOSSES)]
        system, was_cut = cut_life(
            folder, number, how, HYDRATING_LIFE, lambda path: Server(path, ReadingEngine(path / "engine"))
        )
        found = contents(system)
        texts = sorted(text for _, text, one in system.control.commands() if one.state.value != "FAILED")
        listed = [(one.stored.name, one.status.value) for one in system.control.queries()]
        with suppress(PowerLost):
            system.control.close()
        expected = expected or found
        assert found == expected and found["w"] and found["t"], f"power went at call {number}"
        assert listed == [("t", "RUNNING"), ("w", "RUNNING")]
        assert [text.split(" ")[0] for text in texts] == ["CREATE"] * 4 + ["DROP"]
        # The first life is not cut.
        number, cuts = (3 if number == 10_000 else number + 7), cuts + was_cut
        was_cut = was_cut or number == 3
    assert cuts > 8


def failing_life(folder: Path, kind: str, number: int) -> tuple[Server, FailingCalls]:
    """Live through LIFE with one call that fails; what is refused is posted again, to a new control if this has
    ended."""
    calls = FailingCalls(kind, number)
    with replaced_storage(LocalStorage(calls)):
        system = None
        todo, attempt = list(LIFE), 0
        while todo:
            try:
                system = system or Server(folder)
                system.attempt = attempt
                todo[0](system)
            except CommandFailed:
                assert calls.failed
                attempt += 1
            except (PenstockError, OSError):
                assert calls.failed
            else:
                todo.pop(0)
            if system is not None and system.control.failure is not None:
                system.control.close()
                system = None
        assert system is not None
        return system, calls


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_fail(tmp_path: Path, kind: str, expected: dict[str, list[dict[str, Any]]]) -> None:
    for number in range(2, 400, 23):
        system, calls = failing_life(tmp_path / str(number), kind, number)
        assert contents(system) == expected, f"{kind} {number}"
        texts_of_log(system)
        system.control.close()
        if not calls.failed:
            return


class CrashingEngine(InProcessEngine):
    """An engine that dies before or after it goes over to a version."""

    def __init__(self, folder: Path, after: bool) -> None:
        super().__init__(folder)
        self._after = after
        self.armed = False

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        if self.armed and not self._after:
            raise PowerLost
        found = super().change(version, prepared)
        if self.armed:
            raise PowerLost
        return found


@pytest.mark.parametrize("after", [False, True])
def test_a_command_that_was_accepted_happens_after_a_crash_whoever_asks(tmp_path: Path, after: bool) -> None:
    engine = CrashingEngine(tmp_path / "engine", after)
    system = Server(tmp_path, engine)
    system.done(STREAM)
    engine.armed = True
    with pytest.raises(PowerLost):
        system.run(SUM + "INSERT INTO S VALUES (1, 1), (2, 2);", key="k")
    with pytest.raises(PowerLost):
        system.run("SHOW QUERIES;")
    system.control.close()
    again = Server(tmp_path)
    found = [(one.number, one.state.value) for _, _, one in again.control.commands()]
    assert found == [(1, "COMPLETED"), (2, "RUNNING"), (3, "COMPLETED")]
    again.engine.round()
    assert again.answers("q") == [{"ts": 1, "op": "+", "s": 1}]
    assert again.states(SUM + "INSERT INTO S VALUES (1, 1), (2, 2);", key="k") == ["RUNNING", "COMPLETED"]
    again.control.close()


def test_a_full_disk_refuses_a_command_and_leaves_nothing(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(STREAM)
    before = sorted(path.name for path in (tmp_path / "control").iterdir())
    with replaced_storage(LocalStorage(FailingCalls("write", 1))), pytest.raises(PenstockError, match="P0601"):
        system.run(SUM)
    assert sorted(path.name for path in (tmp_path / "control").iterdir()) == before
    assert "q" not in system.control.catalog.queries
    system.done(SUM)
    system.control.close()


def test_a_damaged_log_is_told(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(STREAM)
    system.control.close()
    path = tmp_path / "control" / "1.json"
    path.write_bytes(path.read_bytes().replace(b"RETAIN", b"RETAIM"))
    with pytest.raises(PenstockError, match="P0605"):
        Server(tmp_path)


#: Each of these changes what the one before has left, so that one that happens twice, or not at all, is seen.
UPDATES = (
    "UPDATE penstock.queries SET weight = weight + 1 WHERE name = 'q';",
    "UPDATE penstock.queries SET weight = weight + 2, latency_target = '2 s' WHERE name = 'q';",
    "UPDATE penstock.queries SET weight = weight * 2 WHERE name = 'q';",
)
UPDATED_LIFE: tuple[Step, ...] = (
    command(STREAM),
    command(SUM + "CREATE QUERY r AS SELECT v FROM S;"),
    command(UPDATES[0]),
    rows(1, 1, 2, 3),
    answer,
    command(UPDATES[1]),
    command("UPDATE penstock.queries SET state = 'PAUSED' WHERE name = 'r';"),
    rows(2, 4, 5),
    command(UPDATES[2]),
    answer,
)  # fmt: skip


def attributes(system: Server) -> Mapping[str, str]:
    return next(one.attributes for one in system.control.stored.values() if one.name == "q")


def updated(system: Server) -> tuple[object, ...]:
    """What the updates have made: the weight and pace of q, and the state of r. None is in the log twice."""
    texts_of_log(system)
    found = attributes(system)
    return float(found["weight"]), found["latency_target"], system.status("r")


def test_an_update_of_a_control_relation_happens_once_wherever_power_goes(tmp_path: Path) -> None:
    number, cuts = 2, 0
    while True:
        system, cut = cut_life(tmp_path / str(number), number, LOSSES[number % len(LOSSES)], UPDATED_LIFE)
        found = updated(system)
        with suppress(PowerLost):
            system.control.close()
        assert found == (8.0, "2 SECOND", "PAUSED"), f"power went at call {number}"
        if not cut:
            break
        cuts += 1
        number += 5
    assert cuts > 8


@pytest.mark.parametrize("point", ["bound", "accepted", "applied", "running"])
def test_an_update_at_each_point_of_a_command(tmp_path: Path, point: str) -> None:
    """Power goes before the log has it, before the engine goes over, after it has, and before the answer is out."""
    engine = CrashingEngine(tmp_path / "engine", after=point == "applied")
    system = Server(tmp_path, engine)
    system.done(STREAM + SUM)
    if point == "bound":
        with replaced_storage(LocalStorage(FailingCalls("write", 1))), pytest.raises((PenstockError, OSError)):
            system.run(UPDATES[0], key="k")
    elif point == "running":
        system.run(UPDATES[0], key="k")
    else:
        engine.armed = True
        with pytest.raises(PowerLost):
            system.run(UPDATES[0], key="k")
    system.control.close()
    again = Server(tmp_path)
    assert float(attributes(again).get("weight", "1")) == (1 if point == "bound" else 2)
    # The client asks again with its key.
    again.run(UPDATES[0], key="k")
    again.run(UPDATES[0], key="k")
    assert float(attributes(again)["weight"]) == 2
    assert texts_of_log(again).count(UPDATES[0].rstrip(";")) == 1
    again.control.close()
    third = Server(tmp_path)
    assert float(attributes(third)["weight"]) == 2
    third.control.close()


#: The number of a call that no life gets to.
UNCUT = 1_000_000
#: Several changes in one transaction, an exchange, what is dropped with all that depends on it.
EXCHANGING_LIFE: tuple[Step, ...] = (
    command(STREAM),
    command(SUM + "CREATE VIEW w AS SELECT v + 1 AS v FROM S; CREATE QUERY t AS SELECT v FROM w;"),
    rows(1, 1, 2, 3),
    answer,
    command(
        "BEGIN; ALTER QUERY q RENAME TO p; ALTER QUERY p AS SELECT SUM(v) + 1 AS s FROM S [RANGE 5 SECONDS]; COMMIT;"
    ),
    rows(2, 4, 5),
    answer,
    command("CREATE QUERY r AS SELECT MAX(CAST(v AS BIGINT)) AS s FROM S [RANGE 4 SECONDS];"),
    command("ALTER QUERY p SWAP WITH r;"),
    rows(3, 6, 7),
    answer,
    command("DROP VIEW w CASCADE;"),
    rows(4, 8, 9),
    answer,
)


def check_lives(
    folder: Path, life: tuple[Step, ...], names: list[str], every: int, prepare: Callable[[Path], None] | None = None
) -> int:
    """Cut a life at every n-th call; return how often. What is left is what a life without a cut leaves.

    Args:
        names: of what is declared at the end.
        prepare: makes the checkpoint that a life begins with.
    """
    expected: dict[str, list[dict[str, Any]]] = {}
    number, cuts, was_cut = UNCUT, 0, True
    while was_cut or not cuts:
        place = folder / str(number)
        (place / "checkpoint").mkdir(parents=True)
        if prepare is not None:
            prepare(place / "checkpoint")
        system, was_cut = cut_life(place, number, LOSSES[number % len(LOSSES)], life)
        found = contents(system)
        texts_of_log(system)
        declared = sorted(one.name for one in system.control.stored.values())
        statuses = {one.status.value for one in system.control.queries()}
        with suppress(PowerLost):
            system.control.close()
        expected = expected or found
        assert found == expected and all(found.values()), f"power went at call {number}"
        assert declared == names and statuses == {"RUNNING"}, f"power went at call {number}"
        number, cuts = (1 if number == UNCUT else number + every), cuts + was_cut
        was_cut = was_cut or number == 1
    return cuts


def test_several_changes_at_once_an_exchange_and_a_cascade_happen_once(tmp_path: Path) -> None:
    assert check_lives(tmp_path, EXCHANGING_LIFE, ["S", "p", "r"], 11) > 8


def doubled(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 2)


MENDING_LIFE: tuple[Step, ...] = (
    command("ALTER QUERY t AS SELECT v AS d FROM S;"),
    command("BEGIN; CREATE OR REPLACE VIEW w AS SELECT v + 1 AS d FROM S; ALTER QUERY q RESUME; COMMIT;"),
    rows(2, 3, 4),
    answer,
)


def test_the_mending_of_what_cannot_be_bound_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = user_functions.make(UserFunction, doubled, "INT", "doubled", ["INT"])

    def leave(folder: Path) -> None:
        """Leave queries and a view of a function that a later program does not have."""
        monkeypatch.setitem(user_functions.REGISTERED, made.key, made)
        system = Server(folder)
        system.done(STREAM + "CREATE VIEW w AS SELECT doubled(v) AS d FROM S; CREATE QUERY q AS SELECT d FROM w;")
        system.done("CREATE QUERY t AS SELECT doubled(v) AS d FROM S;")
        rows(1, 1, 2)(system)
        answer(system)
        system.control.close()
        monkeypatch.delitem(user_functions.REGISTERED, made.key)

    assert check_lives(tmp_path, MENDING_LIFE, ["S", "q", "t", "w"], 5, leave) > 4
