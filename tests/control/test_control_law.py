"""A system behind its control keeps the law: the lives of `live_machine.py`, as statements that are posted.

Rows are posted as well, now and then a second time with the same key. Power goes in the middle of a command, a post or
a round; what was posted then is posted again. Nothing of that may change what the results contain.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from live_machine import EDITS, REPLACEMENTS, SEEDS, System, live_steps, random_life
from mortal_storage import MortalStorage

from penstock.algebra.nodes.query import PlanChoice, Query, Start, StartMode
from penstock.algebra.properties.need import awaited_rows, first_full_instant
from penstock.connectors.deadletters import DeadLetters
from penstock.control.live.control import Control
from penstock.control.outcomes import CommandState
from penstock.control.transactions import applying
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError
from penstock.language.plan_choices import as_choices, by_operator, choices_in
from penstock.language.printer import string_text
from penstock.language.scripts import BoundScript
from penstock.physical.execution.progress import timed_sources
from penstock.physical.plan.plan import Step
from penstock.physical.plan.step_choices import SHARED
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage, SystemCalls
from penstock.testing.choices import Choices
from penstock.testing.faults import LOSSES, PowerCut, PowerLost
from penstock.testing.plan_choices import random_choices
from penstock.testing.random.worlds import seeded_choices

T = TypeVar("T")
#: More than the ticks of any random case.
EVER = 10_000_000


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "CATALOG_EVERY", 3)


class PostedSystem:
    """What `LiveEngine` offers, through the statements and posts of a control."""

    def __init__(self, shards: int, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-control-"))
        self.shards = shards
        self.draw = random.Random(seed)
        self.posts = 0
        self.crash_at = 0
        self.crashes = 0
        self.shown: Counter[str] = Counter()
        self.open()

    def open(self) -> None:
        self.disk = MortalStorage(SystemCalls())
        with replaced_storage(self.disk):
            self.engine = InProcessEngine(self.folder / "checkpoint" / "engine", self.shards)
            self.control = Control(self.folder / "checkpoint", self.engine)

    def close(self) -> None:
        self.control.close()
        shutil.rmtree(self.folder)

    def restart(self) -> None:
        self.control.close()
        self.disk.die()
        self.open()
        self.settle()

    def settle(self) -> None:
        """Wait until the control has taken the steps of changes of plans that are due."""
        before, known = -1, 0
        while before != known:
            self.control.submit("")
            self.control._look()
            self.control.submit("")
            before, known = known, len(self.control.commands())

    def settled(self, action: Callable[[], T]) -> T:
        """Do something, and wait for what the control does about it by itself."""
        found = action()
        self.settle()
        return found

    def repeated(self, action: Callable[[], T]) -> T:
        """Do something; where power goes meanwhile, do it again after a restart."""
        action = partial(self.settled, action)
        if not self.crash_at:
            return action()
        spare = Path(tempfile.mkdtemp(dir=self.folder))
        calls = PowerCut(spare, self.crash_at)
        self.crash_at = 0
        with replaced_storage(LocalStorage(calls)):
            with suppress(PowerLost):
                return action()
            # Its threads have no power either.
            self.control.close()
        self.crashes += 1
        calls.lose(self.draw.choice(LOSSES), self.draw, [self.folder / "checkpoint"])
        self.open()
        return action()

    def submit(self, script: str) -> None:
        self.posts += 1
        key = f"statement {self.posts}"

        def post() -> None:
            for one in self.control.submit(script, key=key):
                if one.outcome is not None and one.outcome.state is CommandState.FAILED:
                    # Sent once more after a restart: what became of it is told, where it was raised before.
                    raise PenstockError(one.outcome.code, one.outcome.message)
                if one.outcome is not None:
                    assert one.outcome.state in (CommandState.RUNNING, CommandState.COMPLETED), one

        self.repeated(post)
        if self.draw.random() < 0.2:
            post()

    def insert(self, source: str, rows: pa.RecordBatch) -> None:
        self.posts += 1
        key, table = f"rows {self.posts}", pa.Table.from_batches([rows])
        self.repeated(lambda: self.control.insert(source, table, key))
        if self.draw.random() < 0.2:
            assert self.control.insert(source, table, key) is False

    def round(self) -> dict[str, pa.Table]:
        self.repeated(lambda: self.engine.round())
        names = [one.name for one in self.control.stored.values() if one.query is not None]
        return {name: table for name in names if (table := self.fresh(name)).num_rows}

    def fresh(self, name: str) -> pa.Table:
        """Return the answers that have not been shown."""
        query = self.control.query(name)[1]
        schema = self.control.catalog.queries[name].output_schema
        tables = [table.cast(schema) for table in self.engine.answers(query.place)]
        whole = pa.concat_tables([schema.empty_table(), *tables])
        before = self.shown[name]
        self.shown[name] = whole.num_rows
        return whole.slice(before)

    def register(self, query: Query, start: Start) -> pa.Table:
        self.submit(f"CREATE QUERY {query.name} {start_text(query, start)} AS {select_of(query)}")
        return self.fresh(query.name)

    def drop(self, name: str) -> None:
        self.submit(f"DROP QUERY {name}")

    def pause(self, name: str, with_state: bool) -> None:
        self.submit(f"ALTER QUERY {name} PAUSE{' WITH STATE' if with_state else ''}")

    def resume(self, name: str, start: Start) -> pa.Table:
        query = self.control.catalog.queries[name]
        self.submit(f"ALTER QUERY {name} RESUME {start_text(query, start)}")
        return self.fresh(name)

    def replace(self, name: str, query: Query, start: Start) -> pa.Table:
        self.submit(f"ALTER QUERY {name} AS {select_of(query)} {start_text(query, start)}")
        return self.fresh(name)

    def swap(self, one: str, other: str) -> dict[str, pa.Table]:
        self.submit(f"ALTER QUERY {one} SWAP WITH {other}")
        return {name: self.fresh(name) for name in (one, other)}

    def edit(self, name: str, draw: Choices) -> tuple[PlanChoice, ...]:
        """Choose something of the plan that a query is to have; return that."""
        one, query = self.control.query(name)[0], self.control.catalog.queries[name]
        wished = choices_in(one.wished_plan)

        def steps(chosen: tuple[PlanChoice, ...]) -> tuple[Step, ...]:
            return live_steps(query, as_choices({**wished, **{(c.operator, c.attribute): c.value for c in chosen}}))

        chosen = random_choices(draw, steps)
        # The step that answers belongs to its query alone.
        own = {step.choices.operator for step in steps(chosen) if step.spec.answered is not None}
        chosen = tuple(one for one in chosen if one.operator not in own or one.attribute != SHARED)
        self.submit(f"ALTER QUERY {name} SET (plan {string_text(json.dumps(by_operator(chosen)))})")
        return chosen

    def is_running(self, name: str) -> bool:
        query = self.control.query(name)[1]
        return query.phase.runs

    def lost(self) -> dict[str, int]:
        return self.engine._live.lost()

    def unseen(self, name: str) -> dict[str, int]:
        return self.engine._live.unseen(str(self.control.query(name)[1].place))

    @property
    def set_apart(self) -> dict[str, Counter[str]]:
        return self.engine._live.set_apart


def select_of(query: Query) -> str:
    found = re.match(r"CREATE QUERY \w+ AS (.*)", query.text, re.DOTALL)
    assert found is not None, query.text
    return found[1].rstrip(";")


def start_text(query: Query, start: Start) -> str:
    if start.mode is not StartMode.AT:
        return f"START {start.words}"
    assert start.at is not None
    if not query.domain.calendar:
        return f"START AT {start.at}"
    instant = pa.scalar(start.at, pa.timestamp("us")).cast(pa.string()).as_py()
    return f"START AT '{instant}'"


class PostedLives(System):
    """The machine, with crashes."""

    adopts = True

    def __init__(self) -> None:
        super().__init__()
        #: Queries that have waited for rows.
        self.waited: set[str] = set()
        #: Queries whose change waits for rows.
        self.waiting_changes: set[str] = set()

    def system(self, choices: Choices, bound: BoundScript) -> Any:
        system = PostedSystem(choices.integer(1, 3), choices.integer(0, 10**6))
        calendar = any(source.domain is not None and source.domain.calendar for source in self.sources.values())
        self.kept_ticks = None if self.retained is None else self.retained * (1_000_000 if calendar else 1)
        for statement in self.case.statements:
            if "CREATE STREAM" in statement:
                length = EVER if self.retained is None else self.retained
                retain = f" RETAIN {length} SECOND" if length else ""
                system.submit(statement.rstrip().rstrip(";") + retain)
            elif "CREATE QUERY" not in statement:
                system.submit(statement)
        for name, source in self.sources.items():
            if source.is_static:
                system.control.insert(name, self.inputs[name])
        return system

    @precondition(lambda self: self.living(open_=True))
    @rule(choice=SEEDS)
    def edit(self, choice: int) -> None:
        """The control itself lets the new plan take over."""
        # The plan of a query without time does not run any more.
        timed = [name for name in self.living(open_=True) if timed_sources(self.lives[name].query.root)]
        names = [name for name in timed if name not in self.coming]
        if not names:
            return
        name = names[choice % len(names)]
        self.steps.append(f"edit {name}")
        try:
            chosen = self.engine.edit(name, seeded_choices(choice))
        except PenstockError as error:
            # One that began behind elements that count for ever has not seen them, also where they are kept.
            is_never_mature = first_full_instant(self.lives[name].query.root.needs, self.engine.unseen(name), 0) is None
            assert error.code == "P0703" and (self.retained is not None or is_never_mature), error
            self.edited["refused"] += 1
            return
        self.edited["begun"] += bool(chosen)
        self.steps.append(f"chosen: {[(one.attribute, one.value) for one in chosen]}")
        self.lives[name].tables.append(self.engine.fresh(name))

    def changes_beside(self, choice: int, name: str, query: Query) -> bool:
        return super().changes_beside(1, name, query) and not self.waits(name)

    def replace_beside(self, name: str, query: Query, start: Start) -> None:
        """The control itself lets the new query take the place."""
        self.steps.append(f"{query.text} is to take the place of {name}")
        before = self.engine.control.query(name)[1]
        try:
            table = self.engine.replace(name, query, start)
        except PenstockError as error:
            if error.code == "P0701":
                # A change of its plan ends with the next instant.
                assert before.beside is not None and before.beside.until is not None, error
                self.replaced["refused"] += 1
                return
            self.refused(error, query, start)
            return
        self.lives[name].tables.append(table)
        self.give_up(name)
        self.comes(name, select_of(query), query, start)

    def take_the_place(self, name: str) -> None:
        one, stored = self.engine.control.query(name)
        awaits = stored.beside is not None and stored.beside.waits
        self.replaced["waited"] += awaits and name not in self.waiting_changes
        self.waiting_changes = {*self.waiting_changes, name} if awaits else self.waiting_changes - {name}
        assert (stored.coming is None) == self.is_due(name), [*self.steps, name, stored]
        if stored.coming is None:
            assert one.text == self.coming[name].hidden
            self.shows(name)

    def alike(self) -> list[tuple[str, str]]:
        left_out = self.coming.keys() | {name for name in self.living(open_=True) if self.waits(name)}
        return [pair for pair in super().alike() if not left_out & set(pair)]

    def waits(self, name: str) -> bool:
        """Return whether a query waits for rows before it begins."""
        waits = self.engine.control.query(name)[1].answer.waits
        self.waited |= {name} if waits else set()
        return waits

    def lost(self) -> dict[str, int]:
        """While a query waits for rows, its streams keep what others lose."""
        lost, found = super().lost(), self.engine.lost()
        assert all(tick <= lost[name] for name, tick in found.items()), (lost, found)
        return found

    @precondition(lambda self: self.living(open_=True))
    @rule(choice=SEEDS, with_state=st.booleans())
    def pause(self, choice: int, with_state: bool) -> None:
        names = self.living(open_=True)
        super().pause(choice, with_state and not self.waits(names[choice % len(names)]))

    def refused(self, error: PenstockError, query: Query, start: Start) -> None:
        super().refused(error, query, start)
        lost = {name: tick for name, tick in self.lost().items() if name in timed_sources(query.root)}
        beside = any("take the place" in step for step in self.steps[-2:])
        assert (
            not start.wait or beside or awaited_rows(query.root.needs, lost, lambda name: np.empty(0, np.int64)) is None
        )

    @rule(call=st.integers(1, 60))
    def crash(self, call: int) -> None:
        self.steps.append(f"power goes at call {call} of the next step")
        self.engine.crash_at = call

    @rule()
    def restart(self) -> None:
        self.steps.append("restart")
        self.engine.restart()

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "engine"):
            # Over all crashes each row that was kept out is one dead letter.
            letters = DeadLetters(str(self.engine.folder / "checkpoint" / "engine" / "dead-letters"))
            kept = {name: len(list(letters.read(name))) for name in getattr(self, "inserted", ())}
            assert kept == {name: sum(self.engine.set_apart[name].values()) for name in kept}
            self.engine.close()


def test_every_result_is_what_the_law_says(case_count: int | None) -> None:
    run_state_machine_as_test(
        PostedLives, settings=settings(max_examples=case_count or 6, stateful_step_count=20, derandomize=True)
    )


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_result_is_what_the_law_says_in_many_more_lives(case_count: int | None) -> None:
    run_state_machine_as_test(PostedLives, settings=settings(max_examples=case_count or 500, stateful_step_count=40))


LIVES = 16


def test_random_lives(case_count: int | None, case_seed: int | None) -> None:
    emitted = crashes = begun = 0
    for seed in range(case_count or LIVES):
        life = random_life(seed + 100_000 * (case_seed or 0), CrashingLives, EDITS)
        begun += life.edited["begun"]
        emitted += sum(table.num_rows for one in life.lives.values() for table in one.tables)
        crashes += life.engine.crashes
    assert emitted > 30 and crashes > 5 and begun > 5


#: At least so many, and as many as it takes to meet each way in which a change may end.
REPLACED_LIVES = 10


def test_random_lives_whose_queries_are_replaced(case_count: int | None, case_seed: int | None) -> None:
    replaced, lives = Counter[str](), case_count or REPLACED_LIVES

    def has_met() -> bool:
        return replaced["taken over"] > 5 and min(replaced["given up"], replaced["crashes"]) > 0

    for seed in range(5 * lives):
        if seed >= lives and has_met():
            break
        life = random_life(seed + 100_000 * (case_seed or 0), CrashingLives, REPLACEMENTS)
        replaced += life.replaced
        replaced["crashes"] += life.engine.crashes
    assert has_met(), replaced


class CrashingLives(PostedLives):
    """A life in which power goes every so often."""

    def advance(self) -> None:
        if self.engine.draw.random() < 0.3:
            self.crash(self.engine.draw.randint(1, 20))
        super().advance()

    def register(self, choice: int, mode: StartMode, ahead: int) -> None:
        if hasattr(self, "lives") and self.engine.draw.random() < 0.4:
            self.crash(self.engine.draw.randint(1, 40))
        super().register(choice, mode, ahead)
