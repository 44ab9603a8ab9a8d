"""An exception that nobody has foreseen at any step of a command's life: the command fails alone, with P0601 and a
reference into the log. Other queries go on with right answers, the next command works, and so does a restart.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from control_kit import Server
from injected_faults import FLAGS, Faults, Step, Unforeseen, logged

from penstock.control.outcomes import CommandState
from penstock.errors import PenstockError

DECLARED = """
CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;
CREATE STREAM N (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R (ts INT, op STRING, k INT, x INT, PRIMARY KEY (k))
  FROM MEMORY () TIMESTAMP BY ts UNIT SECOND OPERATION BY op;
CREATE RELATION T (k INT, x INT) FROM MEMORY ();
CREATE VIEW w AS SELECT v + 1 AS v FROM S;
INSERT INTO T VALUES (1, 10), (2, 20);
CREATE QUERY other AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];
CREATE QUERY joined AS SELECT S.v, R.x FROM S [RANGE 5 SECONDS], R WHERE S.v = R.k;
CREATE QUERY q AS SELECT MAX(v) AS m FROM S [RANGE 4 SECONDS];
CREATE QUERY p AS SELECT MIN(v) AS m FROM S [RANGE 4 SECONDS];
CREATE QUERY z AS SELECT v FROM S;
ALTER QUERY z PAUSE;
CREATE QUERY y AS SELECT v FROM w;
ALTER QUERY y PAUSE WITH STATE;
"""
ROWS = (
    "INSERT INTO S VALUES (1, 1), (2, 2), (3, 3); INSERT INTO R VALUES (1, '+', 1, 100), (1, '+', 2, 200);",
    "INSERT INTO S VALUES (4, 1), (5, 2); INSERT INTO R VALUES (5, '+', 3, 300);",
    "INSERT INTO S VALUES (8, 3), (9, 4); INSERT INTO R VALUES (9, '+', 4, 400);",
)
#: What goes on whatever becomes of the command.
OTHERS = ("other", "joined")

STATEMENTS = {
    "CREATE STREAM": "CREATE STREAM U (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND",
    "CREATE RELATION": "CREATE RELATION U (ts INT, k INT PRIMARY KEY) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND",
    "CREATE VIEW": "CREATE VIEW u AS SELECT v * 2 AS v FROM S",
    "CREATE OR REPLACE VIEW": "CREATE OR REPLACE VIEW u AS SELECT v * 2 AS v FROM S",
    "CREATE QUERY": "CREATE QUERY u AS SELECT COUNT(*) AS n FROM S [RANGE 3 SECONDS]",
    "CREATE QUERY START NOW": "CREATE QUERY u START NOW AS SELECT COUNT(*) AS n FROM S [RANGE 3 SECONDS]",
    "CREATE QUERY START BEGINNING": "CREATE QUERY u START BEGINNING AS SELECT v FROM S",
    "CREATE QUERY over a join": "CREATE QUERY u START WARM AS SELECT R.x FROM S [RANGE 9 SECONDS], R WHERE S.v = R.k",
    "CREATE QUERY over static": "CREATE QUERY u AS SELECT S.v, T.x FROM S [NOW], T WHERE S.v = T.k",
    "CREATE QUERY over a view": "CREATE QUERY u AS SELECT v FROM w",
    "CREATE OR REPLACE QUERY": "CREATE OR REPLACE QUERY q AS SELECT MAX(v) AS m FROM S [RANGE 2 SECONDS]",
    "ALTER QUERY AS": "ALTER QUERY q AS SELECT MAX(v) AS m FROM S [RANGE 2 SECONDS]",
    "ALTER QUERY AS START NOW": "ALTER QUERY q AS SELECT MAX(v) AS m FROM S [RANGE 2 SECONDS] START NOW",
    "PAUSE": "ALTER QUERY q PAUSE",
    "PAUSE WITH STATE": "ALTER QUERY q PAUSE WITH STATE",
    "RESUME": "ALTER QUERY z RESUME",
    "RESUME of state": "ALTER QUERY y RESUME",
    "RENAME": "ALTER QUERY q RENAME TO u",
    "SWAP": "ALTER QUERY q SWAP WITH p",
    "ALTER QUERY SET": "ALTER QUERY q SET (comment 'x', weight 2)",
    "ALTER QUERY INTO": "ALTER QUERY q INTO MEMORY ()",
    "ALTER STREAM": "ALTER STREAM S SET (retain '2000 SECONDS')",
    "ALTER SYSTEM": "ALTER SYSTEM SET integer_division = 'true'",
    "DROP QUERY": "DROP QUERY q",
    "DROP STREAM": "DROP STREAM N",
    "DROP VIEW CASCADE": "DROP VIEW w CASCADE",
    "INSERT": "INSERT INTO S VALUES (3, 7)",
    "INSERT into a static relation": "INSERT INTO T VALUES (3, 30)",
    "UPDATE": "UPDATE R SET x = x + 1, ts = 4 WHERE k = 1",
    "BEGIN .. COMMIT": (
        "BEGIN; CREATE STREAM U (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
        "CREATE QUERY v AS SELECT v FROM U; INSERT INTO U VALUES (1, 1); ALTER QUERY q PAUSE; COMMIT"
    ),
    "UPDATE of a control relation": "UPDATE penstock.queries SET state = 'PAUSED' WHERE name = 'q'",
    "SELECT": "SELECT COUNT(*) FROM T",
    "SHOW": "SHOW QUERIES",
    "DESCRIBE": "DESCRIBE q",
    "EXPLAIN": "EXPLAIN QUERY q",
    "EXPORT": "EXPORT PLAN OF q",
    "SET": "SET integer_division = 'true'",
}


def signature(system: Server) -> tuple[Any, ...]:
    """What is declared, and what its queries do."""
    stored = sorted(system.control.stored.values(), key=lambda one: one.key)
    queries = [
        (one.name, one.text, one.query.phase, dict(one.attributes), one.query.beside is not None)
        for one in stored
        if one.query is not None
    ]
    settings = dict(system.control._applier.current.stored.settings)
    return [(one.kind, one.name, one.text, dict(one.attributes)) for one in stored], queries, settings


def rows_of(system: Server, number: int) -> None:
    system.done(ROWS[number])
    system.engine.round()


def answers(system: Server) -> dict[str, list[dict[str, Any]]]:
    return {name: sorted(system.answers(name), key=repr) for name in OTHERS}


@dataclass(frozen=True)
class Expected:
    """What is right for one statement, by whether it has been applied: what is declared, the answers after more rows,
    and after a restart and more rows."""

    steps: tuple[Step, ...]
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    not_applied: list[dict[str, Any]]
    applied: list[dict[str, Any]]


class World:
    """A checkpoint from which each attempt begins anew."""

    def __init__(self, folder: Path) -> None:
        #: Posts are found by their whole path, so it is the same in each attempt.
        self._origin, self._present = folder / "origin", folder / "present"
        self._expected: dict[str, Expected] = {}
        system = Server(self._present)
        for text in filter(str.strip, DECLARED.split(";")):
            system.done(text)
        rows_of(system, 0)
        system.control.close()
        shutil.copytree(self._present, self._origin)

    def begin(self) -> Path:
        """Return the checkpoint as it was first."""
        shutil.rmtree(self._present)
        shutil.copytree(self._origin, self._present)
        return self._present

    def expected(self, statement: str, faults: Faults) -> Expected:
        if statement not in self._expected:
            known = [self._life(""), self._life(statement)]
            folder = self.begin()
            system = Server(folder)
            steps = faults.steps(lambda: system.run(statement))
            system.control.close()
            (before, not_applied), (after, applied) = known
            self._expected[statement] = Expected(tuple(steps), before, after, not_applied, applied)
        return self._expected[statement]

    def _life(self, statement: str) -> tuple[tuple[Any, ...], list[dict[str, Any]]]:
        folder = self.begin()
        system = Server(folder)
        if statement:
            system.done(statement)
        declared, found = signature(system), []
        rows_of(system, 1)
        found.append(answers(system))
        system.control.close()
        system = Server(folder)
        rows_of(system, 2)
        found.append(answers(system))
        system.control.close()
        return declared, found


@pytest.fixture(scope="module")
def faults() -> Iterator[Faults]:
    with Faults().installed() as made:
        yield made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, faults: Faults) -> World:
    return World(tmp_path_factory.mktemp("faults"))


def failing(system: Server, statement: str, step: Step, faults: Faults) -> str:
    """Run a statement with an exception at a step; return what became of it: `applied`, `failed`, or `unknown` where
    the exception reached the caller, after the command had been handed over or before."""
    with logged() as log:
        try:
            with faults.raised_at(step):
                outcomes = system.run(statement)
        except PenstockError as error:
            if "the control has ended" in error.message:
                return "ended"
            assert error.code == "P0601" and log.has(error.message), error.message
            assert "Traceback" not in f"{error.message} {error.hint}"
            return "failed"
        except Unforeseen:
            assert faults.in_thread == "MainThread"
            # What the caller had handed over by then is carried out.
            system.run("SHOW QUERIES;")
            return "unknown"
        failed = [
            one.outcome for one in outcomes if one.outcome is not None and one.outcome.state is CommandState.FAILED
        ]
        if not failed:
            return "applied"
        assert all(one.code in ("P0601", "P0732") for one in failed)
        assert all("Traceback" not in one.message for one in failed)
        assert any(log.has(one.message) for one in failed), failed
        return "failed"


def check(world: World, statement: str, step: Step, faults: Faults) -> str:
    """Inject an exception, and look at everything; return what became of the command."""
    expected = world.expected(statement, faults)
    folder = world.begin()
    opened = [Server(folder)]
    try:
        return checked(opened, expected, statement, step, faults)
    finally:
        opened[-1].control.close()


def checked(opened: list[Server], expected: Expected, statement: str, step: Step, faults: Faults) -> str:
    """Do what `check` says. opened: has the server, and gets those that are started after it."""
    system = opened[-1]

    def again() -> Server:
        system.control.close()
        opened.append(Server(system.control._log.files.root.parent))
        return opened[-1]

    became = failing(system, statement, step, faults)
    if not faults.has_raised:
        became = "not reached"
    settle(system)
    if system.control.failure is not None:
        # What was accepted happens at the next start.
        assert str(step).startswith(FLAGS), "the control goes on"
        system, became = again(), "unknown"
    found = signature(system)
    if became == "failed":
        assert found == expected.before
    elif became != "unknown":
        assert found == expected.after
    else:
        assert found in (expected.before, expected.after)
    if became == "failed" or (became == "unknown" and found != expected.after):
        # The next command works, such as the same one again.
        system.done(statement)
        assert signature(system) == expected.after
    is_applied = became != "unknown" or expected.after != expected.before
    rows_of(system, 1)
    right = [expected.applied] if is_applied else [expected.applied, expected.not_applied]
    assert answers(system) in [one[0] for one in right]
    system = again()
    assert signature(system) == expected.after or not is_applied
    rows_of(system, 2)
    assert answers(system) in [one[1] for one in right]
    assert "PENDING" not in states(system)
    return became


def settle(system: Server) -> None:
    """Wait until each command has its outcome, or the control has ended by what was raised in one of its threads."""
    deadline = time.monotonic() + 20
    while "PENDING" in states(system) and system.control.failure is None:
        assert time.monotonic() < deadline, "who waits for it waits without an end"
        time.sleep(0.005)


def states(system: Server) -> set[str]:
    return {one.state.value for _, _, one in system.control.commands()}


def both(steps: tuple[Step, ...]) -> list[Step]:
    return [Step(one.file, one.function, event) for one in steps if one.event == "call" for event in ("call", "return")]


def own_steps(world: World, statement: str, faults: Faults) -> list[Step]:
    """Those of the control, of the engine, and of the files."""
    steps = both(world.expected(statement, faults).steps)
    own = ("control/", "engines/", "runtime/live/", "runtime/state/", "storage/")
    return [one for one in steps if one.file.startswith(own)]


@pytest.mark.spread(6)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_an_exception_at_some_steps(world: World, faults: Faults, kind: str) -> None:
    statement = STATEMENTS[kind]
    for step in random.Random(kind).sample(own_steps(world, statement, faults), 5):
        check(world, statement, step, faults)


@pytest.mark.parametrize("function", ["_follow_version", "_carried_out", "_write_outcomes", "_drop_rows"])
@pytest.mark.parametrize("event", ["call", "return"])
def test_an_exception_behind_the_change_of_the_engine(world: World, faults: Faults, function: str, event: str) -> None:
    for kind in ("ALTER QUERY AS", "UPDATE", "DROP STREAM"):
        step = Step("control/transactions/applying.py", f"Applier.{function}", event)
        assert check(world, STATEMENTS[kind], step, faults) == "applied"


@pytest.mark.parametrize("function", ["finish", "note"])
@pytest.mark.parametrize("event", ["call", "return"])
def test_an_exception_where_outcomes_are_written(world: World, faults: Faults, function: str, event: str) -> None:
    for kind in ("CREATE VIEW", "UPDATE"):
        step = Step("control/command_log.py", f"CommandLog.{function}", event)
        assert check(world, STATEMENTS[kind], step, faults) == "applied"


@pytest.mark.parametrize("event", ["call", "return"])
def test_an_exception_where_rows_of_a_transaction_are_posted(world: World, faults: Faults, event: str) -> None:
    """What else the transaction has done stands already."""
    step = Step("control/row_changes.py", "post_rows", event)
    assert check(world, STATEMENTS["BEGIN .. COMMIT"], step, faults) == "applied"


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_an_exception_at_every_step(world: World, faults: Faults, kind: str) -> None:
    """Those of the control, of the engine and of the files, and a part of all others that the command calls."""
    statement = STATEMENTS[kind]
    own = own_steps(world, statement, faults)
    others = sorted({*both(world.expected(statement, faults).steps)} - {*own})
    for step in [*own, *random.Random(kind).sample(others, min(len(others), 100))]:
        check(world, statement, step, faults)
