"""An exception that nobody has foreseen at steps of a command's life, where queries run on Spark: the command fails
alone, the other queries go on, and so does a restart.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from control_on_spark_kit import opened, result, rows, until
from injected_faults import FLAGS, Faults, Step, logged

from penstock.control.live.control import Control
from penstock.control.outcomes import CommandOutcome, CommandState
from penstock.errors import PenstockError
from penstock.physical.planning import planner

#: Statements, each with one that takes it back.
STATEMENTS = {
    "CREATE QUERY START NOW": ("CREATE QUERY u {into} START NOW AS SELECT v + 1 AS v FROM S", "DROP QUERY u"),
    "CREATE QUERY START BEGINNING": (
        "CREATE QUERY u {into} START BEGINNING AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS]",
        "DROP QUERY u",
    ),
    "CREATE STREAM": ("CREATE STREAM U (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND", "DROP STREAM U"),
    "DROP STREAM": ("DROP STREAM N", "CREATE STREAM N (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND"),
    "PAUSE": ("ALTER QUERY q PAUSE", "ALTER QUERY q RESUME START NOW"),
    "PAUSE WITH STATE": ("ALTER QUERY q PAUSE WITH STATE", "ALTER QUERY q RESUME"),
    "RENAME": ("ALTER QUERY q RENAME TO r", "ALTER QUERY r RENAME TO q"),
    "SWAP": ("ALTER QUERY q SWAP WITH p", "ALTER QUERY q SWAP WITH p"),
    "ALTER QUERY AS": (
        "ALTER QUERY q AS SELECT CAST(v + 2 AS INT) AS v FROM S START NOW",
        "ALTER QUERY q AS SELECT v FROM S START NOW",
    ),
    "ALTER STREAM": ("ALTER STREAM S SET (retain '900 SECONDS')", "ALTER STREAM S SET (retain '1000 SECONDS')"),
    "INSERT": ("INSERT INTO N VALUES (1, 1)", ""),
}
#: Where the control and the engine are changed; what the rounds do meanwhile is no step of a command.
THREADS = ("penstock-accept", "penstock-apply", "penstock-past")


class Life:
    """A control on Spark whose query `other` answers every row once. tick: of the last row."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self._folder, self._spark = folder, spark
        self.tick = self.made = 0
        self.engine, self.control = opened(folder / "checkpoint", spark)
        self.done("CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS")
        self.done("CREATE STREAM N (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND")
        for name in ("other", "q", "p"):
            self.done(self.statement(f"CREATE QUERY {name} {{into}} AS SELECT v FROM S", name))

    def statement(self, text: str, name: str = "") -> str:
        self.made += 1
        path = self._folder / "out" / (name or str(self.made))
        return text.replace("{into}", f"INTO FILES (path '{path}', format 'json')")

    def outcomes(self, text: str) -> list[CommandOutcome]:
        """Execute a script; return the outcomes when they are known."""
        outcomes = [one.outcome for one in self.control.submit(text) if one.outcome is not None]
        found = [self.control.outcome(one.number) for one in outcomes]
        while any(one.state in (CommandState.HYDRATING, CommandState.PENDING) for one in found):
            assert self.control.failure is None, self.control.failure
            time.sleep(0.02)
            found = [self.control.outcome(one.number) for one in outcomes]
        return found

    def done(self, text: str) -> None:
        found = self.outcomes(text)
        assert all(one.state is not CommandState.FAILED for one in found), (text, found)

    def go_on(self) -> None:
        """Post a row, and wait until the query `other` has answered those before it."""
        self.tick += 1
        self.control.insert("S", rows(self.tick))
        wanted = list(range(1, self.tick))
        path = self._folder / "out" / "other"
        until(lambda: len(result(path)) >= len(wanted), self.control, lambda: result(path))
        assert [one[-1] for one in result(path)][: len(wanted)] == wanted

    def close(self) -> None:
        self.control.close()
        self.engine.close()

    def again(self) -> None:
        self.close()
        self.engine, self.control = opened(self._folder / "checkpoint", self._spark)


def catalog(control: Control) -> tuple[Any, ...]:
    stored = sorted(control.stored.values(), key=lambda one: one.name)
    return tuple((one.name, one.text, dict(one.attributes), one.query and one.query.status) for one in stored)


def inject(life: Life, kind: str, step: Step | None, faults: Faults) -> tuple[str, list[Step]]:
    """Execute a statement with an exception at a step, or find its steps; take it back. Return what became of it."""
    text, back = STATEMENTS[kind]
    text, before, steps = life.statement(text), catalog(life.control), list[Step]()
    became, outcomes = "applied", list[CommandOutcome]()
    with logged() as log:
        try:
            if step is None:
                steps = faults.steps(lambda: life.done(text))
            else:
                with faults.raised_at(step):
                    outcomes = life.outcomes(text)
        except PenstockError as error:
            assert error.code == "P0601" and log.has(error.message) and "Traceback" not in error.message, error
            became = "failed"
        lost = [one for one in outcomes if one.state is CommandState.FAILED]
        assert all(one.code == "P0601" and log.has(one.message) for one in lost), lost
        became = "failed" if lost else became
    if step is not None and not faults.has_raised:
        became = "not reached"
    assert life.control.failure is None, life.control.failure
    if became == "failed":
        assert catalog(life.control) == before
        life.done(text)
    assert catalog(life.control) != before or kind in ("INSERT", "SWAP")
    if back:
        life.done(back)
    life.go_on()
    return became, steps


@pytest.fixture
def faults() -> Iterator[Faults]:
    with Faults(THREADS).installed() as made:
        yield made


def lived(spark: Any, folder: Path, faults: Faults, kinds: Sequence[str], count: int, seed: int) -> Counter[str]:
    """Inject exceptions at so many steps of each statement, with a restart behind each; return how often became what
    of them. A step that is not reached the second time, as of waiting for what was there at once, is none of them. A
    thread in which one was raised is watched no more."""
    life, found, random_ = Life(folder, spark), Counter[str](), random.Random(seed)
    life.go_on()
    steps = {kind: inject(life, kind, None, faults)[1] for kind in kinds}
    for kind in kinds:
        own = [one for one in steps[kind] if one.file.startswith(("control/", "engines/", "runtime/", "storage/"))]
        own = [one for one in own if not str(one).startswith(FLAGS)]
        reached, others = 0, random_.sample(own, len(own))
        while reached < min(count, len(own)) and others:
            step = others.pop()
            try:
                became, _ = inject(life, kind, step, faults)
                life.again()
                life.go_on()
            except BaseException as error:
                error.add_note(f"{kind}: {step}")
                raise
            found[became] += 1
            reached += became != "not reached"
    assert "PENDING" not in {one.state.value for _, _, one in life.control.commands()}
    life.close()
    return found


def test_exceptions_at_some_steps_on_spark(spark: Any, tmp_path: Path, faults: Faults) -> None:
    kinds = ("CREATE QUERY START BEGINNING", "ALTER QUERY AS", "DROP STREAM")
    found = lived(spark, tmp_path, faults, kinds, 2, 1)
    assert found["failed"] + found["applied"] == 6


def test_exceptions_behind_the_answers_of_the_past(spark: Any, tmp_path: Path, faults: Faults) -> None:
    """What the query has answered is withdrawn, so that the command can be tried again; or the change has happened."""
    life, kind = Life(tmp_path, spark), "CREATE QUERY START BEGINNING"
    life.go_on()
    for step, wanted in (
        (Step("runtime/spark/output/totals.py", "TotalsMark.write"), {"failed"}),
        (Step("runtime/spark/input/input_planner.py", "InputPlanner._take_over", "return"), {"failed"}),
        (Step("runtime/spark/start.py", "keep_results", "return"), {"applied"}),
        (Step("runtime/spark/retention/retained_log.py", "RetainedLog.begin"), {"applied"}),
        # Where no row waits, no round is published in a thread that is watched.
        (Step("runtime/spark/input/source_log.py", "stamp"), {"applied", "not reached"}),
    ):
        became, _ = inject(life, kind, step, faults)
        assert became in wanted, step
        life.again()
        life.go_on()
    life.close()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_exceptions_at_many_steps_on_spark(spark: Any, tmp_path: Path, faults: Faults) -> None:
    lived(spark, tmp_path, faults, tuple(STATEMENTS), 50, 2)


def test_a_start_leaves_out_what_it_cannot_plan(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life, lower = Life(tmp_path, spark), planner._lower_query
    life.done(life.statement("CREATE QUERY odd {into} AS SELECT v AS odd FROM S"))
    life.go_on()

    def broken(builder: Any, query: Any) -> None:
        if "odd" in query.output_names:
            raise StopIteration
        lower(builder, query)

    with monkeypatch.context() as patch:
        patch.setattr(planner, "_lower_query", broken)
        for _ in range(2):
            life.again()
            status = {one.name: one.query.status.value for one in life.control.stored.values() if one.query is not None}
            assert status == {"other": "RUNNING", "q": "RUNNING", "p": "RUNNING", "odd": "NEEDS ATTENTION"}
            life.go_on()
        (outcome,) = life.outcomes("ALTER QUERY odd RESUME START NOW")
        assert (outcome.state, outcome.code) == (CommandState.FAILED, "P0601")
        life.go_on()
    life.done("ALTER QUERY odd RESUME START NOW")
    life.go_on()
    life.done("DROP QUERY odd")
    life.close()
