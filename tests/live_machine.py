"""A random life of a live system: what happens, what its results should contain, and whether they do.

Queries are registered, dropped, paused, resumed, replaced and exchanged while rows come in; now and then the system
goes on from what it has saved. A failure prints the steps and the case.
"""

from __future__ import annotations

import pickle
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.algebra import Scan, leaves
from penstock.algebra.nodes.query import PlanChoice, Query, Start, StartMode
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.need import first_full_instant, is_mature
from penstock.algebra.properties.statistics import Statistics
from penstock.errors import PenstockError
from penstock.language.scripts import BoundScript, bind_script
from penstock.physical.execution.progress import timed_sources
from penstock.physical.operators.updates import REASONS
from penstock.physical.plan.plan import Step
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import Generation, grains_of, plan_part
from penstock.runtime.live import LiveEngine
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.choices import Choices
from penstock.testing.compare import check_shape, events_of, first_difference, show_events
from penstock.testing.live import Episode, heartbeat, held_of, run_live, takes_over
from penstock.testing.oracle import timely_rows
from penstock.testing.plan_choices import random_choices
from penstock.testing.random.worlds import FLAVOURS, random_case, seeded_choices
from penstock.testing.thresholds import lowered, small
from tests.random_heartbeats import add_heartbeats

NAMES = ("q0", "q1", "q2", "q3")
FLAVOURS_WITHOUT_CLOCK = [f for f in FLAVOURS if not f.clock]
SEEDS = st.integers(0, 10**6)
#: WAIT: WARM that may begin later.
WAIT = "WAIT"
Way = StartMode | str
STARTS = st.sampled_from([StartMode.WARM, WAIT, StartMode.NOW, StartMode.BEGINNING, StartMode.AT])
COMMANDS = ("register", "register", "resume", "resume", "replace", "pause", "pause", "drop", "swap", "swap", "restart")
#: With changes of plans, which change no answer.
EDITS = (*COMMANDS, "edit", "edit", "edit", "edit")
#: With queries that are to take the place of others.
REPLACEMENTS = ("register", "resume", "pause", "drop", "swap", "restart", "edit", *("supersede",) * 5)


@dataclass
class Life:
    """A result: what was emitted, and its episodes; open: the last one has not ended; alive: its query exists."""

    query: Query
    episodes: list[Episode] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    open: bool = False
    alive: bool = True

    def end(self, read: dict[str, int]) -> None:
        if self.open:
            self.episodes[-1] = replace(self.episodes[-1], ended=dict(read))
        self.open = False


@dataclass
class Coming:
    """A query that is computed beside one whose place it is to take. hidden: where; episode: it, as it began."""

    hidden: str
    query: Query
    episode: Episode


class System(RuleBasedStateMachine):
    """An engine and what it should do."""

    #: A query that is paused without its state is the one that was to take its place.
    adopts = False

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        choices = seeded_choices(seed)
        flavour = choices.pick(FLAVOURS_WITHOUT_CLOCK)
        self.case = random_case(choices, flavour, NAMES)
        while self.case.origin:
            self.case = random_case(choices, flavour, NAMES)
        if choices.chance(30):
            add_heartbeats(self.case, choices, statements=False)
        text = "\n".join(self.case.statements)
        # The same queries with other windows, to replace them.
        varied = [re.sub(r"\b(RANGE|ROWS|LIMIT) (\d+)", _another, s) for s in self.case.statements if "QUERY" in s]
        varied = [s.replace("CREATE QUERY q", "CREATE QUERY r", 1) for s in varied]
        bound = bind_script(text + "\n" + "\n".join(varied))
        self.queries = [q for q in bound.queries if q.name in NAMES]
        self.others = {q.name: next(o for o in bound.queries if o.name == f"r{q.name[1:]}") for q in self.queries}
        self.inputs = case_inputs(parse_case(self.case.render()), bound)
        self.retained = choices.pick((None, None, 4, 0))
        self.thresholds = small(seed) if choices.chance(50) else {}
        scans = [leaf.source for q in bound.queries for leaf in leaves(q.root) if isinstance(leaf, Scan)]
        self.sources = {source.name: source for source in scans}
        self.inserted = {name: 0 for name, source in self.sources.items() if not source.is_static}
        self.engine = self.system(choices, bound)
        self.read = {name: self.inputs[name].num_rows if s.is_static else 0 for name, s in self.sources.items()}
        self.lives: dict[str, Life] = {}
        self.steps: list[str] = []
        #: By name of a query whose plan changes, that of the computation that is to take over.
        self.edits: dict[str, str] = {}
        #: How often a change began, was refused, was given up and took over.
        self.edited: Counter[str] = Counter()
        #: By name of a query, the one that is to take its place.
        self.coming: dict[str, Coming] = {}
        #: How often such a change began, was given up and took over.
        self.replaced: Counter[str] = Counter()
        for _ in range(choices.integer(1, 3)):
            self.register(choices.integer(0, 3), choices.pick((StartMode.NOW, StartMode.BEGINNING)), 0)

    def system(self, choices: Choices, bound: BoundScript) -> Any:
        """Return what runs the queries, with its sources declared."""
        engine = LiveEngine(choices.integer(1, 3), choices.pick((Strategy.PATTERN, *Strategy)))
        self.kept_ticks: int | None = None
        for name, source in self.sources.items():
            if source.is_static:
                engine.declare_static(source, self.inputs[name])
            else:
                unit = 1_000_000 if source.domain is not None and source.domain.calendar else 1
                retain = None if self.retained is None else self.retained * unit
                self.kept_ticks = retain
                engine.declare(source, retain)
        return engine

    # -- input -------------------------------------------------------------------------------------------------

    @rule(choice=SEEDS, count=st.integers(1, 4))
    def insert(self, choice: int, count: int) -> None:
        waiting = [name for name, n in self.inserted.items() if n < self.inputs[name].num_rows]
        if waiting:
            name = waiting[choice % len(waiting)]
            part = self.inputs[name].slice(self.inserted[name], count).combine_chunks()
            self.engine.insert(name, part.to_batches()[0])
            self.inserted[name] += part.num_rows
            self.steps.append(f"insert {name} {part.num_rows}")

    @rule(choices=st.lists(SEEDS, min_size=1, max_size=5))
    def insert_and_advance(self, choices: list[int]) -> None:
        for choice in choices:
            self.insert(choice, 1 + choice % 3)
        self.advance()

    @rule()
    def advance(self) -> None:
        self.steps.append("advance")
        with lowered(self.thresholds):
            answers = self.engine.round()
        self.read |= self.inserted
        for name, table in answers.items():
            if name in self.lives:
                self.lives[name].tables.append(table)
        for name in list(self.edits):
            self.take_over(name)
        for name in list(self.coming):
            self.take_the_place(name)

    # -- commands ----------------------------------------------------------------------------------------------

    def living(self, *, open_: bool) -> list[str]:
        return [name for name, life in self.lives.items() if life.alive and life.open is open_]

    def start(self, mode: Way, ahead: int) -> Start:
        """START AT lies near the largest timestamp read."""
        if mode == WAIT:
            return Start(StartMode.WARM, wait=True)
        if mode is not StartMode.AT:
            return Start(mode)
        stamps = [
            self.inputs[n].slice(0, self.read[n]).column(self.sources[n].timestamp).cast(pa.int64()).to_pylist()
            for n in self.inserted
        ]
        known = [ts for column in stamps for ts in column if ts is not None]
        step = 1_000_000 if any(s.domain is not None and s.domain.calendar for s in self.sources.values()) else 1
        return Start(mode, max(known, default=0) + ahead * step)

    def lost(self) -> dict[str, int]:
        """The last element of each stream that is gone; of relations, the engine tells up to where they are folded."""
        lost = {name: tick for name, tick in self.engine.lost().items() if not self.sources[name].is_stream}
        for name, source in self.sources.items():
            if source.is_static or not source.is_stream or self.kept_ticks is None:
                continue
            rows = timely_rows(source, self.inputs[name].slice(0, self.read[name]))
            until = heartbeat({name: source}, {name: rows}) - self.kept_ticks
            gone = [ts for ts, _ in rows if ts <= until]
            if gone:
                lost[name] = max(gone)
        return lost

    def refused(self, error: PenstockError, query: Query, start: Start) -> None:
        """A start is refused where something is gone; WAIT where that is not made up for by waiting."""
        assert error.code == "P0703" and start.mode is not StartMode.NOW and self.retained is not None
        if start.wait:
            lost = {name: tick for name, tick in self.lost().items() if name in declared_sources(query.root)}
            sources = {name: self.sources[name] for name in lost}
            rows = {n: timely_rows(source, self.inputs[n].slice(0, self.read[n])) for n, source in sources.items()}
            assert first_full_instant(query.root.needs, lost, 0, held_of(sources, rows, lost)) is None, error
            assert "for ever" in error.message or "fewer are kept" in error.message
        self.steps.append("refused")

    @rule(choice=SEEDS, mode=STARTS, ahead=st.integers(-6, 3))
    def register(self, choice: int, mode: Way, ahead: int) -> None:
        query = replace(self.queries[choice % len(NAMES)], name=f"n{len(self.lives)}")
        start = self.start(mode, ahead)
        self.steps.append(f"register {query.name} = {self.queries[choice % len(NAMES)].name} {start}")
        life = Life(query)
        with lowered(self.thresholds):
            try:
                life.tables.append(self.engine.register(query, start))
            except PenstockError as error:
                self.refused(error, query, start)
                return
        life.episodes.append(Episode(query, start, dict(self.read), lost=self.lost()))
        life.open = True
        self.lives[query.name] = life

    @precondition(lambda self: self.living(open_=True))
    @rule(choice=SEEDS)
    def drop(self, choice: int) -> None:
        names = self.living(open_=True) + self.living(open_=False)
        name = names[choice % len(names)]
        self.steps.append(f"drop {name}")
        self.give_up(name)
        self.engine.drop(name)
        self.lives[name].end(self.read)
        self.lives[name].alive = False

    @precondition(lambda self: self.living(open_=True))
    @rule(choice=SEEDS, with_state=st.booleans())
    def pause(self, choice: int, with_state: bool) -> None:
        names = self.living(open_=True)
        name = names[choice % len(names)]
        self.steps.append(f"pause {name} {with_state}")
        self.give_up(name, is_adopted=not with_state, stays=with_state)
        self.engine.pause(name, with_state)
        self.lives[name].end(self.read)

    @precondition(lambda self: self.living(open_=False))
    @rule(choice=SEEDS, mode=STARTS, ahead=st.integers(-6, 3))
    def resume(self, choice: int, mode: Way, ahead: int) -> None:
        names = self.living(open_=False)
        name = names[choice % len(names)]
        life = self.lives[name]
        running, query = self.engine.is_running(name), life.query
        start = self.start(mode, ahead)
        self.steps.append(f"resume {name} {start}")
        with lowered(self.thresholds):
            try:
                life.tables.append(self.engine.resume(name, start))
            except PenstockError as error:
                self.refused(error, query, start)
                return
        if running:
            life.episodes.append(replace(life.episodes[-1], ended=None, shown=dict(self.read)))
        else:
            life.episodes.append(Episode(life.query, start, dict(self.read), lost=self.lost()))
        life.open = True
        if name in self.coming:
            self.take_the_place(name)

    @precondition(lambda self: self.living(open_=True))
    @rule(choice=SEEDS, mode=STARTS, ahead=st.integers(-6, 3))
    def replace(self, choice: int, mode: Way, ahead: int) -> None:
        names = self.living(open_=True)
        name = names[choice % len(names)]
        life = self.lives[name]
        original = next(q for q in (*self.queries, *self.others.values()) if q.text == life.query.text)
        other = self.others.get(original.name, original)
        query = replace(other, name=name)
        start = self.start(mode, ahead)
        if start.wait and self.changes_beside(choice, name, query):
            self.replace_beside(name, query, start)
            return
        self.steps.append(f"replace {name} by {other.name} {start}")
        with lowered(self.thresholds):
            try:
                life.tables.append(self.engine.replace(name, query, start))
            except PenstockError as error:
                self.refused(error, query, start)
                return
        self.give_up(name)
        life.end(self.read)
        life.query, life.open = query, True
        life.episodes.append(Episode(query, start, dict(self.read), lost=self.lost()))

    def changes_beside(self, choice: int, name: str, query: Query) -> bool:
        """Return whether START WARM WAIT has the former query answer until the new one takes its place."""
        former = self.lives[name].query
        return choice % 3 > 0 and bool(timed_sources(former.root)) and bool(timed_sources(query.root))

    def replace_beside(self, name: str, query: Query, start: Start) -> None:
        hidden = f"{name}~{len(self.steps)}"
        self.steps.append(f"{query.text} is to take the place of {name}")
        with lowered(self.thresholds):
            try:
                self.engine.register(replace(query, name=hidden), start)
            except PenstockError as error:
                self.refused(error, query, start)
                return
        self.give_up(name)
        self.comes(name, hidden, query, start)

    def comes(self, name: str, hidden: str, query: Query, start: Start) -> None:
        """Note that a query is to take the place of another one."""
        self.replaced["begun"] += 1
        self.coming[name] = Coming(hidden, query, Episode(query, start, dict(self.read), lost=self.lost()))
        self.take_the_place(name)

    def take_the_place(self, name: str) -> None:
        """Let a new query take the place of one where nothing is missing, and no instant is left out."""
        coming, engine = self.coming[name], self.engine
        former, new = engine.heartbeat(name), engine.heartbeat(coming.hidden)
        is_due = former is not None and new is not None and new <= former
        if former is not None and (first := engine.first_ahead(coming.hidden)) is not None:
            is_due &= first <= max(former + 1, engine.first_ahead(name) or former + 1)
        assert is_due == self.is_due(name), [*self.steps, name]
        if not is_due:
            return
        self.lives[name].tables.append(engine.swap(name, coming.hidden)[name])
        engine.drop(coming.hidden)
        self.shows(name)

    def is_due(self, name: str) -> bool:
        """Return whether the law says that a query takes the place of another one now."""
        read = {source: self.inputs[source].slice(0, count) for source, count in self.read.items()}
        return takes_over(self.lives[name].episodes, self.coming[name].episode, read)

    def shows(self, name: str) -> None:
        """Note that a query has taken the place of another one."""
        life, coming = self.lives[name], self.coming.pop(name)
        self.steps.append(f"{coming.query.text} takes the place of {name}")
        self.replaced["taken over"] += 1
        life.end(self.read)
        life.query, life.open = coming.query, True
        life.episodes.append(replace(coming.episode, shown=dict(self.read)))

    @precondition(lambda self: self.alike())
    @rule(choice=SEEDS)
    def swap(self, choice: int) -> None:
        pairs = self.alike()
        one, other = pairs[choice % len(pairs)]
        self.steps.append(f"swap {one} {other}")
        self.give_up(one)
        self.give_up(other)
        for name, table in self.engine.swap(one, other).items():
            self.lives[name].tables.append(table)
        first, second = self.lives[one], self.lives[other]
        first.end(self.read), second.end(self.read)
        episodes = [replace(life.episodes[-1], ended=None, shown=dict(self.read)) for life in (second, first)]
        first.query, second.query = second.query, first.query
        for life, episode in zip((first, second), episodes, strict=True):
            life.episodes.append(episode)
            life.open = True

    def alike(self) -> list[tuple[str, str]]:
        names = self.living(open_=True)
        return [
            (a, b)
            for a in names
            for b in names
            if a < b and self.lives[a].query.output_schema == self.lives[b].query.output_schema
        ]

    @precondition(lambda self: self.living(open_=True))
    @rule(choice=SEEDS)
    def edit(self, choice: int) -> None:
        """Begin to change the plan of a query: the law knows nothing of it."""
        names = [name for name in self.living(open_=True) if name not in self.edits and name not in self.coming]
        if not names:
            return
        name = names[choice % len(names)]
        query = self.lives[name].query
        chosen = random_choices(seeded_choices(choice), lambda choices: live_steps(query, choices))
        hidden = f"{name}~{len(self.steps)}"
        self.steps.append(f"edit {name}: {[(one.attribute, one.value) for one in chosen]}")
        start = Start(StartMode.WARM, wait=True)
        unseen = self.engine.unseen(name)
        if first_full_instant(query.root.needs, unseen, 0) is None:
            self.edited["never mature"] += 1
            return
        with lowered(self.thresholds):
            try:
                self.engine.register(replace(query, name=hidden, choices=chosen), start)
            except PenstockError as error:
                self.edited["refused"] += 1
                self.refused(error, query, start)
                return
        self.edited["begun"] += 1
        self.edited["choices"] += len(chosen)
        self.edits[name] = hidden
        self.take_over(name)

    def give_up(self, name: str, is_adopted: bool = False, stays: bool = False) -> None:
        """End what is computed beside a query.

        Args:
            is_adopted: the query is paused, and is what it was to become where the system does so.
            stays: it is paused with its state, and still changes where the system does so.
        """
        hidden = self.edits.pop(name, None)
        if hidden is not None:
            self.edited["given up"] += 1
            self.engine.drop(hidden)
        if name not in self.coming or (stays and self.adopts):
            return
        coming = self.coming.pop(name)
        self.replaced["given up"] += 1
        if not self.adopts:
            self.engine.drop(coming.hidden)
        elif is_adopted:
            self.replaced["adopted"] += 1
            self.lives[name].query = coming.query

    def take_over(self, name: str) -> None:
        """Let the new plan of a query take over where both answer the same."""
        hidden, engine = self.edits[name], self.engine
        beats = {engine.heartbeat(name), engine.heartbeat(hidden)}
        (beat,) = beats if len(beats) == 1 else (None,)
        if beat is None or engine.first_ahead(name) is not None or engine.first_ahead(hidden) is not None:
            return
        if not is_mature(self.lives[name].query.root.needs, engine.unseen(name), beat):
            return
        self.steps.append(f"the new plan of {name} takes over at {beat}")
        self.lives[name].tables.append(engine.swap(name, hidden)[name])
        engine.drop(hidden)
        del self.edits[name]
        self.edited["taken over"] += 1

    @rule()
    def restart(self) -> None:
        self.steps.append("restart")
        waiting = [(n, self.inputs[n].slice(self.read[n], self.inserted[n] - self.read[n])) for n in self.inserted]
        with lowered(self.thresholds):
            self.engine = LiveEngine.restored(pickle.loads(pickle.dumps(self.engine.snapshot())))
        for name, rows in waiting:
            for batch in rows.to_batches():
                self.engine.insert(name, batch)

    # -- the law -----------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "lives"):
            return
        for number in range(3 * len(self.inserted)):
            self.insert(number, 4)
            if number % 2:
                self.advance()
        self.advance()
        read = {name: self.inputs[name].slice(0, count) for name, count in self.read.items()}
        for name in self.inserted:
            reasons = self.engine.set_apart[name].items()
            lost = sum(count for reason, count in reasons if reason not in REASONS.values())
            timely = timely_rows(self.sources[name], read[name])
            assert lost == self.read[name] - len(timely) - timely.heartbeats
        for name, life in self.lives.items():
            found = [event for table in life.tables for event in events_of(life.query, table)]
            try:
                check_shape(found)
                expected = run_live(life.episodes, read)
                ts = first_difference(expected, found)
                shown = [show_events(events, life.query.domain) for events in (expected, found)]
                assert ts is None, "\n".join([f"{name} differs at {ts}; the law:", *shown[0], "emitted:", *shown[1]])
            except Exception as error:
                raise AssertionError("\n".join([self.case.render(), *self.steps, str(error)])) from error


def live_steps(query: Query, chosen: tuple[PlanChoice, ...]) -> tuple[Step, ...]:
    """Return the steps of a query as a live engine plans it."""
    ready = replace(query, root=optimize(query.root), choices=chosen)
    generation = Generation(1, [ready], Statistics(), grains_of([ready], Statistics(), Strategy.PATTERN, live=True))
    return plan_part(generation, Strategy.PATTERN).plan.steps


def _another(match: re.Match[str]) -> str:
    return f"{match[1]} {int(match[2]) + 3}"


def random_life(seed: int, kind: type[System] = System, commands: Sequence[str] = COMMANDS) -> System:
    """A life with as many steps as the input lasts, drawn evenly."""
    draw = random.Random(seed)
    system = kind()
    system.begin(draw.randrange(10**9))
    modes = (StartMode.WARM, StartMode.WARM, WAIT, WAIT, StartMode.NOW, StartMode.BEGINNING, StartMode.AT)
    while any(n < system.inputs[name].num_rows for name, n in system.inserted.items()):
        if draw.random() < 0.5:
            system.insert(draw.randrange(10**6), draw.randint(1, 2))
            if draw.random() < 0.7:
                system.advance()
            continue
        command, choice = draw.choice(commands), draw.randrange(10**6)
        if command in ("register", "resume", "replace"):
            if command == "register" or system.living(open_=command == "replace"):
                getattr(system, command)(choice, draw.choice(modes), draw.randint(-6, 3))
        elif command == "pause":
            if system.living(open_=True):
                system.pause(choice, draw.random() < 0.5)
        elif command == "restart":
            system.restart()
        elif command == "supersede":
            if system.living(open_=True):
                system.replace(choice, WAIT, 0)
        elif command == "edit":
            if system.living(open_=True):
                system.edit(choice)
        elif system.alike() if command == "swap" else system.living(open_=True):
            getattr(system, command)(choice)
    system.teardown()
    return system
