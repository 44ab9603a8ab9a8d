"""A command whose query reads its past is answered when it is accepted; others pass it, and what concerns it waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from control_kit import STREAM, Server
from stepped_reading import SteppedReading

from penstock.control.engine import EngineVersion, NextVersion, Preparation
from penstock.control.outcomes import CommandOutcome
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError, ScriptErrors

WARM = "CREATE QUERY w START WARM AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];"


class ReadingEngine(InProcessEngine):
    """An engine that takes its time to read a past. prepared: with which each version was made."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.readings: list[SteppedReading] = []
        self.prepared: list[Preparation | None] = []

    def prepare(self, version: NextVersion) -> Preparation | None:
        self.readings.append(SteppedReading(version))
        return self.readings[-1]

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        self.prepared.append(prepared)
        return super().change(version, prepared)


@pytest.fixture
def system(tmp_path: Path) -> Server:
    return opened(tmp_path)


def opened(folder: Path) -> Server:
    return Server(folder, ReadingEngine(folder / "engine"))


def engine_of(system: Server) -> ReadingEngine:
    assert isinstance(system.engine, ReadingEngine)
    return system.engine


def with_rows(system: Server) -> None:
    system.done(STREAM + "INSERT INTO S VALUES (1, 1), (2, 2), (3, 3), (4, 4);")
    system.engine.round()


def outcome(system: Server, number: int) -> CommandOutcome:
    return next(one for _, _, one in system.control.commands() if one.number == number)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_query_that_reads_its_past_is_hydrating_and_others_pass_it(system: Server) -> None:
    with_rows(system)
    (told,) = system.run(WARM, key="w")
    assert told.outcome is not None and told.outcome.state.value == "HYDRATING"
    number = told.outcome.number
    (reading,) = engine_of(system).readings
    reading.share = 0.25
    assert outcome(system, number).share == 0.25
    other = "CREATE QUERY other AS SELECT v FROM S; INSERT INTO S VALUES (5, 5);"
    assert system.states(other) == ["RUNNING", "COMPLETED"]
    assert system.states(WARM, key="w") == ["HYDRATING"], "who asks again is told the same"
    with pytest.raises(ScriptErrors, match="P0206"):
        system.run("CREATE QUERY w AS SELECT v FROM S;")
    assert sorted(one.name for one in system.control.stored.values()) == ["S", "other"]
    (behind,) = system.run("ALTER QUERY w SET (comment 'behind');", wait=False)
    (stream,) = system.run("ALTER STREAM S SET (retain '2000 SECONDS');", wait=False)
    assert behind.outcome is not None and stream.outcome is not None
    system.done("SHOW QUERIES;")
    for each in (behind.outcome.number, stream.outcome.number):
        assert outcome(system, each).state.value == "PENDING"
    reading.over.set()
    until(lambda: outcome(system, stream.outcome.number).state.value == "COMPLETED")
    assert [outcome(system, n).state.value for n in (number, behind.outcome.number)] == ["RUNNING", "COMPLETED"]
    assert engine_of(system).prepared[-2:] == [reading, None], "it begins in a version of its own"
    assert system.control.query("w")[0].attributes == {"comment": "behind"}
    system.engine.round()
    assert system.answers("w")[0] == {"ts": 3, "op": "+", "s": 6}
    system.control.close()


@pytest.mark.parametrize("script", ["DROP QUERY w;", "DROP STREAM S CASCADE;", "ALTER QUERY w PAUSE;"])
def test_what_needs_no_past_any_more_ends_the_reading(system: Server, script: str) -> None:
    with_rows(system)
    system.run(WARM)
    (reading,) = engine_of(system).readings
    system.run("ALTER QUERY w SET (comment 'x');", wait=False)
    system.done(script)
    assert reading.ended and reading.discarded
    assert "HYDRATING" not in {one.state.value for _, _, one in system.control.commands()}
    assert engine_of(system).prepared[-1] is None
    if "PAUSE" not in script:
        assert "w" not in system.control.catalog.queries
        system.done("CREATE STREAM T (ts INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;")
        system.control.close()
        return
    assert system.status("w") == "PAUSED"
    assert system.states("ALTER QUERY w RESUME;") == ["HYDRATING"]
    engine_of(system).readings[-1].over.set()
    system.done("ALTER QUERY w SET (comment 'y');")
    assert system.status("w") == "RUNNING"
    system.control.close()


def test_a_query_answers_until_what_takes_its_place_has_caught_up(system: Server) -> None:
    with_rows(system)
    system.done("CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];")
    system.done("INSERT INTO S VALUES (5, 5);")
    largest = "SELECT MAX(CAST(v AS BIGINT)) AS s FROM S [RANGE 5 SECONDS]"
    assert system.states(f"ALTER QUERY q AS {largest};") == ["HYDRATING"]
    system.engine.round()
    before = len(system.answers("q"))
    system.done("INSERT INTO S VALUES (6, 6);")
    system.engine.round()
    assert len(system.answers("q")) > before
    engine_of(system).readings[0].over.set()
    until(lambda: "MAX" in system.control.query("q")[0].text)
    system.control.close()


@pytest.mark.parametrize(("error", "code"), [(PenstockError("P0703", "it is gone"), "P0703"), (OSError("x"), "P0601")])
def test_a_past_that_cannot_be_read_fails_its_command_and_what_depends_on_it(
    system: Server, error: Exception, code: str
) -> None:
    with_rows(system)
    told = system.run(WARM + "CREATE VIEW x AS SELECT v FROM S;")
    behind = system.run("CREATE QUERY over AS SELECT v FROM x;", wait=False)
    (reading,) = engine_of(system).readings
    reading.error = error
    reading.over.set()
    numbers = [one.outcome.number for one in (*told, *behind) if one.outcome is not None]
    until(lambda: outcome(system, numbers[-1]).state.value == "FAILED")
    assert [outcome(system, number).code for number in numbers] == [code, code, "P0732"]
    assert sorted(one.name for one in system.control.stored.values()) == ["S"]
    until(lambda: reading.discarded)
    system.done("CREATE VIEW x AS SELECT v FROM S; CREATE QUERY over AS SELECT v FROM x;")
    system.control.close()


def test_a_restart_reads_the_past_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.transactions.applying.CATALOG_EVERY", 3)
    system = opened(tmp_path)
    with_rows(system)
    (told,) = system.run(WARM, key="w")
    assert told.outcome is not None
    for number in range(4):
        system.done(f"CREATE QUERY q{number} AS SELECT v FROM S;")
    system.run("ALTER QUERY w SET (comment 'behind');", wait=False)
    system.control.close()
    assert engine_of(system).readings[0].ended
    for _ in range(2):
        again = opened(tmp_path)
        (reading,) = engine_of(again).readings
        assert outcome(again, told.outcome.number).state.value == "HYDRATING"
        assert sorted(one.name for one in again.control.stored.values()) == ["S", "q0", "q1", "q2", "q3"]
        again.done("CREATE OR REPLACE QUERY q0 AS SELECT v FROM S WHERE v > 1;")
        again.control.close()
        assert reading.ended
    again = opened(tmp_path)
    engine_of(again).readings[0].over.set()
    until(lambda: "w" in again.control.catalog.queries)
    again.done("SHOW QUERIES;")
    again.control.close()
    again = opened(tmp_path)
    assert engine_of(again).readings == [], "it is there"
    assert again.states(WARM, key="w") == ["RUNNING"]
    assert again.control.query("w")[0].attributes == {"comment": "behind"}
    assert {one.state.value for _, _, one in again.control.commands()} <= {"RUNNING", "COMPLETED"}
    again.control.close()


def test_two_pasts_are_read_side_by_side(system: Server) -> None:
    with_rows(system)
    system.run(WARM)
    system.run(WARM.replace("w START", "x START"))
    first, second = engine_of(system).readings
    second.over.set()
    until(lambda: "x" in system.control.catalog.queries)
    assert "w" not in system.control.catalog.queries
    first.over.set()
    until(lambda: "w" in system.control.catalog.queries)
    assert [one for one in engine_of(system).prepared if one is not None] == [second, first]
    system.control.close()


def test_a_failure_of_what_is_replaced_does_not_concern_what_takes_its_place(system: Server) -> None:
    with_rows(system)
    system.done("CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];")
    place = system.control.query("q")[1].place
    system.run("ALTER QUERY q AS SELECT MAX(CAST(v AS BIGINT)) AS s FROM S [RANGE 5 SECONDS];")
    system.control._on_failed(place, PenstockError("P0621", "a function failed"))
    system.done("SHOW QUERIES;")
    engine_of(system).readings[0].over.set()
    until(lambda: "MAX" in system.control.query("q")[0].text)
    assert system.status("q") == "RUNNING"
    system.control._on_failed(place, PenstockError("P0621", "a function failed"))
    until(lambda: system.status("q") == "FAILED")
    system.control.close()
