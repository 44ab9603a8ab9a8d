"""What control relations are read from: the declarations, the version that runs, its figures, and what the doors know.

A view is of one moment; figures that take time are computed when a relation reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from penstock.algebra.properties.need import is_mature
from penstock.control.command_log import BegunQuery, Transaction
from penstock.control.engine import EngineFigures, EngineVersion
from penstock.control.life.listed_query import ListedQuery
from penstock.control.outcomes import CommandOutcome
from penstock.control.registry import Registry
from penstock.physical.plan.plan import Step
from penstock.runtime.monitoring.figures import StepWork
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.settings import Settings
from penstock.types import BEGIN, TimeDomain

#: A command of the log: its transaction, its text, and its outcome so far.
LoggedCommand: TypeAlias = tuple[Transaction, str, CommandOutcome]


@dataclass(frozen=True)
class SessionFact:
    """A session at a door. began: in seconds since 1970."""

    id: str
    door: str
    who: str
    role: str
    began: float
    address: str = ""


@dataclass(frozen=True)
class StatementFact:
    """A one-time query or subscription that runs. began: in seconds since 1970; text: without secrets."""

    id: str
    kind: str
    who: str
    began: float
    text: str


@dataclass(frozen=True)
class TokenFact:
    """A token; what it opens the door with is not known here. created, expires: ISO-8601, expires empty for never."""

    name: str
    role: str
    created: str
    expires: str


@dataclass(frozen=True)
class DoorFacts:
    """What the doors of a server know."""

    sessions: Callable[[], Sequence[SessionFact]] = tuple
    statements: Callable[[], Sequence[StatementFact]] = tuple
    tokens: Callable[[], Sequence[TokenFact]] = tuple


@dataclass(frozen=True)
class SystemView:
    """The system at a moment.

    Args:
        registry: the declarations, those that have been accepted included where a command is bound.
        listed: the queries.
        find_version, find_figures, find_commands: called once, when they are needed.
        settings: those of the whole system.
        begun: where the query of a place began last.
    """

    registry: Registry
    listed: Sequence[ListedQuery]
    find_version: Callable[[], EngineVersion]
    find_figures: Callable[[], EngineFigures]
    find_commands: Callable[[], Sequence[LoggedCommand]]
    settings: Settings
    begun: Callable[[int], BegunQuery | None]
    doors: DoorFacts = field(default_factory=DoorFacts)

    @cached_property
    def version(self) -> EngineVersion:
        return self.find_version()

    @cached_property
    def figures(self) -> EngineFigures:
        return self.find_figures()

    @cached_property
    def now(self) -> float:
        """Return the moment of the view, in seconds since 1970."""
        return time.time()

    @cached_property
    def metrics(self) -> RunMetrics:
        """Return the metrics of the run, with the queries by their own names; what is to take the place of one is left
        out."""
        names = {one.query.place: one.stored.name for one in self.listed}
        return self.figures.metrics.renamed(
            {name: names[place] for name, place in self.figures.places.items() if place in names}
        )

    @cached_property
    def commands(self) -> Sequence[LoggedCommand]:
        return self.find_commands()

    def domain_of(self, readers: Sequence[str]) -> TimeDomain | None:
        """Return the time of queries that share an operator; None where it is not known."""
        return next((found for name in readers if (found := self._domains.get(name)) is not None), None)

    @cached_property
    def _domains(self) -> Mapping[str, TimeDomain | None]:
        return {one.stored.name: one.bound.root.domain for one in self.listed if one.bound is not None}

    # -- the plan ----------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> Sequence[Step]:
        """Return the steps of the plan that runs."""
        plan = self.figures.run.plan
        return () if plan is None else plan.steps

    @cached_property
    def readers(self) -> Mapping[int, tuple[str, ...]]:
        """Return by step the names of the queries that use it."""
        names = {each.place: one.stored.name for one in self.listed for each in one.query.computed}
        places = self.figures.places
        return {
            step.id: tuple(sorted({names[places[q]] for q in step.queries if q in places and places[q] in names}))
            for step in self.steps
        }

    def heartbeat(self, place: int) -> int | None:
        """Return the heartbeat of the query of a place, None where its time has not begun."""
        tick = self.version.heartbeats.get(place)
        return None if tick is None or tick < BEGIN else tick

    def of_plan(self, step: Step) -> tuple[ListedQuery, ...]:
        """Return the queries that use a step, by their present plans and by those that are to take their place."""
        readers = self.readers[step.id]
        return tuple(one for one in self.listed if one.stored.name in readers)

    def maturity(self, step: Step) -> tuple[bool, int | None] | None:
        """Return whether a step has the state of one that was always there, and the tick up to which it did not see
        elements, None where it has seen all; None where time has not begun for it.

        It has what the query has that uses it and has seen most.
        """
        found: list[tuple[bool, int | None]] = []
        places = self.figures.places
        bound = {each.place: one.bound for one in self.listed for each in one.query.computed}
        for place in (places[name] for name in step.queries if name in places):
            query, heartbeat = bound.get(place), self.version.heartbeats.get(place)
            if query is None or heartbeat is None:
                continue
            unseen = {n: tick for n, tick in self.version.unseen.get(place, {}).items() if n in step.sources}
            mature = is_mature(query.root.needs, unseen, heartbeat)
            found.append((mature, max(unseen.values(), default=None)))
        return max(found, key=lambda one: (one[0], -(one[1] or BEGIN)), default=None)

    @cached_property
    def state_of_steps(self) -> Mapping[str, tuple[int, int]]:
        """Return by key the rows and bytes of a step's state, of those with state."""
        found: dict[str, tuple[int, int]] = {}
        for (key, _), (rows, nbytes) in self.state_of_shards.items():
            before = found.get(key, (0, 0))
            found[key] = before[0] + rows, before[1] + nbytes
        return found

    @cached_property
    def state_of_shards(self) -> Mapping[tuple[str, int], tuple[int, int]]:
        """Return by key and shard the rows and bytes of a step's state, of those with state."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for (key, shard, _), size in self.figures.run.synopses.items():
            rows, nbytes = found.get((key, shard), (0, 0))
            found[key, shard] = rows + size.rows, nbytes + size.bytes
        return found

    @cached_property
    def seconds_of_steps(self) -> Mapping[str, float]:
        """Return by key the seconds of a step's work in all shards, where it is measured."""
        found: dict[str, float] = {}
        for (key, _), work in self.figures.run.work.items():
            if work.seconds is not None:
                found[key] = found.get(key, 0.0) + work.seconds
        return found

    @cached_property
    def work_of_steps(self) -> Mapping[str, list[StepWork]]:
        """Return by key the work of a step in each shard."""
        found: dict[str, list[StepWork]] = {}
        for (key, _), work in self.figures.run.work.items():
            found.setdefault(key, []).append(work)
        return found
