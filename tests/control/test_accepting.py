"""Commands are accepted while the engine changes; what was accepted meanwhile makes its next version."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from control_kit import STREAM, SUM, Server, server
from mortal_storage import MortalStorage

from penstock.control.drafting import script_drafting
from penstock.control.engine import ControlEnds, EngineVersion, NextVersion, Preparation
from penstock.control.outcomes import CommandState
from penstock.control.transactions.request import Request
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError, ScriptErrors
from penstock.storage import replaced_storage
from penstock.testing.faults import LOSSES, PowerCut, PowerLost


class SlowEngine(InProcessEngine):
    """An engine whose changes wait for a signal, and fail for queries with `bad` in their name."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.go, self.under_way = threading.Event(), threading.Event()
        self.go.set()
        #: The names of the queries of each version.
        self.versions: list[list[str]] = []

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        self.under_way.set()
        assert self.go.wait(60)
        names = sorted(one.query.name for one in version.queries.values() if one.query is not None)
        self.versions.append(names)
        if any("bad" in name for name in names):
            raise PenstockError("P0502", "its sink is gone")
        return super().change(version, prepared)


def stopped_in_a_change(folder: Path) -> Server:
    """A server whose engine waits within a change."""
    system = Server(folder, SlowEngine(folder / "engine"))
    system.done(STREAM)
    engine_of(system).under_way.clear()
    engine_of(system).go.clear()
    system.run("CREATE QUERY first AS SELECT v FROM S;", wait=False)
    assert engine_of(system).under_way.wait(60)
    return system


def engine_of(system: Server) -> SlowEngine:
    assert isinstance(system.engine, SlowEngine)
    return system.engine


def state(system: Server, number: int) -> CommandState:
    return next(one.state for _, _, one in system.control.commands() if one.number == number)


def settled(system: Server) -> dict[str, str]:
    """Let the engine go on; return the outcomes by the text of the command."""
    engine_of(system).go.set()
    system.done("SHOW QUERIES;")
    return {text: outcome.state.value for _, text, outcome in system.control.commands()}


def test_nothing_waits_for_a_change_to_be_accepted_and_all_of_it_is_the_next_version(tmp_path: Path) -> None:
    system = stopped_in_a_change(tmp_path)
    for number in range(30):
        (told,) = system.run(f"CREATE QUERY q{number} AS SELECT v FROM S;", wait=False)
        assert told.outcome is not None and told.outcome.state is CommandState.PENDING
    # Bound against what is accepted, not against what runs.
    with pytest.raises(ScriptErrors, match="P0206"):
        system.run("CREATE QUERY q7 AS SELECT v FROM S;")
    system.run("ALTER QUERY q7 RENAME TO seven; DROP QUERY q8;", wait=False)
    assert sorted(one.name for one in system.control.stored.values()) == ["S"]
    assert set(settled(system).values()) == {"COMPLETED", "RUNNING"}
    # The drop is a second change of its query, so it is in a version of its own.
    assert [len(names) for names in engine_of(system).versions] == [0, 0, 1, 31, 30]
    assert "seven" in engine_of(system).versions[-1]
    names = {one.name for one in system.control.stored.values()}
    system.control.close()
    with server(tmp_path) as again:
        assert {one.name for one in again.control.stored.values()} == names
        assert again.control.catalog.queries.keys() == system.control.catalog.queries.keys()


def test_what_was_accepted_against_a_command_that_failed_fails_with_it(tmp_path: Path) -> None:
    system = stopped_in_a_change(tmp_path)
    lost = (
        "CREATE VIEW w AS SELECT v FROM S; CREATE QUERY bad AS SELECT v FROM S",
        "CREATE QUERY over_the_view AS SELECT v FROM w",
        "ALTER QUERY over_the_view RENAME TO renamed",
        "DROP VIEW w CASCADE",
        "CREATE FUNCTION shout (STRING) RETURNS STRING AS 'penstock.testing.samples:shout'; "
        "CREATE QUERY bad2 AS SELECT v FROM S",
        "CREATE QUERY halves AS SELECT shout(CAST(v AS STRING)) AS h FROM S",
    )
    kept = ("CREATE QUERY good AS SELECT v FROM S", "INSERT INTO S VALUES (1, 1)", "CREATE VIEW x AS SELECT v FROM S")
    for script in (lost[0], kept[0], *lost[1:3], kept[1], lost[3], kept[2], *lost[4:]):
        system.run(f"{script};", wait=False)
    outcomes = settled(system)
    for text in lost:
        for one in text.split("; "):
            assert outcomes[one] == "FAILED", one
    assert [outcomes[text] for text in kept] == ["RUNNING", "COMPLETED", "COMPLETED"]
    messages = {text: one.message for _, text, one in system.control.commands() if one.code == "P0732"}
    assert set(messages.values()) == {"it depends on a command that failed"}
    names = {one.name for one in system.control.stored.values()}
    assert names == {"S", "first", "good", "x"}
    # Numbers of what failed are not given again, and its names are free.
    numbers = {one.id for one in system.control.stored.values()}
    system.done("CREATE VIEW w AS SELECT v FROM S; CREATE QUERY over_the_view AS SELECT v FROM w;")
    given = {one.id for one in system.control.stored.values()} - numbers
    failed = {
        one.id
        for each, _, outcome in system.control.commands()
        if outcome.state is CommandState.FAILED
        for one in each.change.objects
    }
    assert failed and not failed & given
    system.control.close()
    with server(tmp_path) as again:
        assert {one.name for one in again.control.stored.values()} == {*names, "w", "over_the_view"}
        again.done("CREATE QUERY later AS SELECT v FROM S;")
        assert not failed & {one.id for one in again.control.stored.values()}


def test_what_comes_after_a_failure_is_accepted_against_what_is_left(tmp_path: Path) -> None:
    system = stopped_in_a_change(tmp_path)
    system.run("CREATE QUERY bad AS SELECT v FROM S;", wait=False)
    system.run("CREATE QUERY q1 AS SELECT v FROM S;", wait=False)
    settled(system)
    with pytest.raises(ScriptErrors, match="P0201"):
        system.run("DROP QUERY bad;")
    system.done("ALTER QUERY q1 PAUSE;")
    assert system.status("q1") == "PAUSED"
    system.control.close()


@pytest.mark.parametrize("number", [1, 3, 5, 7, 9, 11, 13])
def test_power_that_goes_between_a_failure_and_what_depends_on_it(tmp_path: Path, number: int) -> None:
    """Whether the outcomes are written or not, a restart finds all of them or none."""
    (spare := tmp_path / "spare").mkdir()
    system = stopped_in_a_change(tmp_path / "checkpoint")
    stream = "CREATE STREAM T (ts INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    system.run(f"{stream} CREATE QUERY bad AS SELECT v FROM S;", wait=False)
    system.run("INSERT INTO T VALUES (1);", wait=False)
    system.run("CREATE QUERY after AS SELECT ts FROM T;", wait=False)
    system.run("CREATE QUERY good AS SELECT v FROM S;", wait=False)
    calls = PowerCut(spare, number)
    disk = MortalStorage(calls)
    with replaced_storage(disk):
        engine_of(system).go.set()
        for thread in system.control._threads[1:]:
            thread.join(2 if system.control.failure is None else 60)
        end = time.monotonic() + 20
        while system.control.failure is None and len(system.control.stored) < 3 and time.monotonic() < end:
            time.sleep(0.01)
    lost = isinstance(system.control.failure, PowerLost)
    if lost:
        calls.lose(LOSSES[number % len(LOSSES)], random.Random(number), [tmp_path / "checkpoint"])
    system.control.close()
    again = Server(tmp_path / "checkpoint", SlowEngine(tmp_path / "checkpoint" / "engine"))
    names = {one.name for one in again.control.stored.values()}
    states = [one.state.value for _, _, one in again.control.commands()]
    assert names == {"S", "first", "good"}, states
    assert states == ["COMPLETED", "RUNNING", "FAILED", "FAILED", "FAILED", "FAILED", "RUNNING"]
    again.control.close()


def test_a_restart_applies_what_was_accepted_as_one_version(tmp_path: Path) -> None:
    system = stopped_in_a_change(tmp_path)
    for number in range(10):
        system.run(f"CREATE QUERY q{number} AS SELECT v FROM S;", wait=False, key=f"k{number}")
    system.run(f"{STREAM.replace(' S ', ' T ')} CREATE VIEW w AS SELECT v FROM T;", wait=False)
    system.run("CREATE QUERY over AS SELECT v FROM w; ALTER QUERY q3 PAUSE;", wait=False)

    def dying(version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        raise PowerLost

    system.engine.change = dying  # type: ignore[method-assign]
    engine_of(system).go.set()
    with pytest.raises((PowerLost, PenstockError)):
        system.done("SHOW QUERIES;")
        system.done("SHOW QUERIES;")
    system.control.close()
    engine = SlowEngine(tmp_path / "engine")
    again = Server(tmp_path, engine)
    assert len(engine.versions) <= 4, "they are not applied one by one"
    assert {"w", "over", "T", *(f"q{n}" for n in range(10))} <= {one.name for one in again.control.stored.values()}
    assert again.status("q3") == "PAUSED"
    assert "PENDING" not in {one.state.value for _, _, one in again.control.commands()}
    assert again.states("CREATE QUERY q5 AS SELECT v FROM S;", key="k5") == ["RUNNING"]
    again.control.close()


def test_the_control_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    system = stopped_in_a_change(tmp_path)
    errors: list[BaseException] = []

    def post(script: str) -> None:
        try:
            system.run(script)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=post, args=(script,)) for script in (SUM, "SHOW QUERIES;")]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while len(system.control._backlog.items) < 3:
        assert time.monotonic() < end
        time.sleep(0.005)
    system.engine._save = lambda: (_ for _ in ()).throw(ControlEnds("the run has ended"))  # type: ignore[method-assign]
    engine_of(system).go.set()
    for thread in threads:
        thread.join(60)
    assert [type(one) for one in errors] == [PenstockError] * 2
    with pytest.raises(PenstockError, match="the control has ended"):
        system.run("SHOW QUERIES;")
    assert isinstance(system.control.failure, ControlEnds)
    system.control.close()


@pytest.mark.timeout(60)
def test_the_control_is_closed_while_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends the accepting thread is not taken away by who refuses what waits."""
    system = stopped_in_a_change(tmp_path)
    control, taken, go_on = system.control, threading.Event(), threading.Event()
    accepting_thread, applying_thread = control._threads
    take = control._acceptor.take

    def held_up(request: Request) -> None:
        taken.set()
        assert go_on.wait(60)
        take(request)

    monkeypatch.setattr(control._acceptor, "take", held_up)
    control._look()
    assert taken.wait(60)
    closing = threading.Thread(target=control.close, daemon=True)
    closing.start()
    while control._requests.empty():
        time.sleep(0.001)
    system.engine._save = lambda: (_ for _ in ()).throw(ControlEnds("the run has ended"))  # type: ignore[method-assign]
    engine_of(system).go.set()
    applying_thread.join(30)
    assert isinstance(control.failure, ControlEnds)
    go_on.set()
    closing.join(30)
    assert not closing.is_alive() and not accepting_thread.is_alive()


def test_an_internal_error_of_a_statement_is_an_answer_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(tmp_path) as system:
        system.done(STREAM)
        before = system.control.commands()
        with monkeypatch.context() as broken:
            broken.setattr(script_drafting, "bind_one", lambda *rest: 1 // 0)
            with pytest.raises(
                PenstockError, match="P0601: the statement cannot be bound: ZeroDivisionError"
            ) as caught:
                system.run(SUM)
        assert "nothing has changed" in (caught.value.hint or "")
        assert system.control.commands() == before
        system.done(SUM)
