"""The deciders of a run: what stands in the offset of a round beside its input (`physical/decisions.py`).

Contract: the driver calls `Deciders.decide` once for each round, when it plans it; the result is written before the
round begins. A replay reads it, and decides nothing. So a decider may look at any clock and any measurement.

A new decider is a class with `decide`, and a line in `registry.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from penstock.figures.figure import FigureValues, put_together
from penstock.physical.decisions import Decisions
from penstock.physical.execution.meter import StepFigures
from penstock.physical.plan.plan import Plan
from penstock.runtime.monitoring.reports import IngestReport, ShardReport

Key = TypeVar("Key")


@dataclass(frozen=True)
class QueryPolicies:
    """The attributes of queries that decisions depend on, by name.

    Args:
        weights: importance; those left out weigh 1.
        latency_targets: seconds that a round may take; those left out have no target.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    latency_targets: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class DecidingOptions:
    """The settings and attributes of queries that decisions depend on.

    Args:
        state_limit: bytes of state that all queries that shed may hold together; 0 for no limit.
        policies: of queries.
        target_latency: seconds that a round may take, 0 for any.
        max_answers: about how many bytes of answers a round emits at most.
    """

    state_limit: int = 0
    policies: QueryPolicies = field(default_factory=QueryPolicies)
    target_latency: float = 0.0
    max_answers: int = 2 * 2**30


#: Nothing is limited.
NO_OPTIONS = DecidingOptions()


@dataclass(frozen=True)
class RoundMeasures:
    """What was measured since the decision before.

    Args:
        seconds: that have passed; None for the first decision of this process, which has measured nothing.
        cpu: by query, the seconds of CPU that its steps behind the ingest took; of a step of several queries, each
            has its part.
        elapsed: by query, the seconds that these steps have lasted: where tasks run side by side, less than `cpu`.
        busy: seconds that the rounds have taken, without waiting for input; None where they are not measured.
        state: by query, the bytes of state of its steps, divided alike.
        figures: by step, the figures of its operator, of all shards together.
    """

    seconds: float | None = None
    cpu: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, int] = field(default_factory=dict)
    figures: StepFigures = field(default_factory=dict)
    elapsed: Mapping[str, float] = field(default_factory=dict)
    busy: float | None = None


class Decider(Protocol):
    """Decides some kinds of decisions."""

    def decide(self, before: Decisions, measured: RoundMeasures) -> Decisions:
        """Return what stands in the offset of the next round. before: what stood in that of the last one, with what
        other deciders have decided already."""


T = TypeVar("T")

#: Returns a decider for a plan, None where the plan has nothing for it to decide.
DeciderMaker = Callable[[Plan, DecidingOptions], Decider | None]


class Deciders:
    """All deciders of a run, and the measurements for them. Threads may share it.

    Args:
        timer: seconds.
        registry: makes the deciders.
    """

    def __init__(
        self,
        plan: Plan,
        options: DecidingOptions = NO_OPTIONS,
        timer: Callable[[], float] = time.monotonic,
        registry: tuple[DeciderMaker, ...] = (),
    ) -> None:
        self._timer = timer
        self._registry = registry
        self._lock = threading.Lock()
        self._decided_at: float | None = None
        self._state: dict[tuple[int, int], dict[int, int]] = {}
        self._figures: dict[tuple[int, int], StepFigures] = {}
        self._begin(plan, options)

    def _begin(self, plan: Plan, options: DecidingOptions) -> None:
        self._plan = plan
        made = (make(plan, options) for make in self._registry)
        self._deciders = [decider for decider in made if decider is not None]
        #: By stage and shard, the seconds of each step.
        self._seconds: dict[tuple[int, int], dict[int, float]] = {}
        self._busy: float | None = None
        self._tasks = 1

    def changed(self, plan: Plan, options: DecidingOptions) -> None:
        """Continue with another plan. Steps that it has too keep their numbers, and what was measured of them."""
        with self._lock:
            self._begin(plan, options)
            self._state = {place: _of_steps(plan, sizes) for place, sizes in self._state.items()}
            self._figures = {place: _of_steps(plan, figures) for place, figures in self._figures.items()}
            self._decided_at = None

    def report(self, report: IngestReport | ShardReport) -> None:
        """Add what a task has measured."""
        if isinstance(report, IngestReport):
            return
        with self._lock:
            if not self._deciders:
                return
            place = report.stage, report.shard
            seconds = self._seconds.setdefault(place, {})
            for step, spent in report.seconds.items():
                seconds[step] = seconds.get(step, 0.0) + spent
            if report.state is not None:
                held = self._state.setdefault(place, {})
                held.update((n, sum(size.bytes for size in sizes.values())) for n, sizes in report.state.items())
            if report.figures:
                self._figures[place] = report.figures

    def took(self, seconds: float, tasks: int = 1) -> None:
        """Add the duration of a round, without waiting for input. tasks: how many run at a time."""
        with self._lock:
            if not self._deciders:
                return
            self._busy, self._tasks = (self._busy or 0.0) + seconds, tasks

    def decide(self, before: Decisions) -> Decisions:
        """Return the decisions of the next round; those of queries that are gone are left out."""
        with self._lock:
            if not self._deciders:
                return before if not before else before.only(self._plan.queries)
            now = self._timer()
            measured = self._measured(None if self._decided_at is None else now - self._decided_at)
            self._decided_at, self._seconds, self._busy = now, {}, None
            for decider in self._deciders:
                before = decider.decide(before, measured)
            return before.only(self._plan.queries)

    def _measured(self, seconds: float | None) -> RoundMeasures:
        held: dict[int, float] = {}
        for sizes in self._state.values():
            _add(held, sizes)
        spent: dict[int, float] = {}
        elapsed: dict[str, float] = {}
        stages: dict[int, list[dict[str, float]]] = {}
        for (stage, _), by_step in self._seconds.items():
            _add(spent, by_step)
            stages.setdefault(stage, []).append(self._by_query(by_step))
        for shards in stages.values():
            _add(elapsed, _lasting(shards, self._tasks))
        state = {name: int(size) for name, size in self._by_query(held).items()}
        return RoundMeasures(seconds, self._by_query(spent), state, self._added_figures(), elapsed, self._busy)

    def _by_query(self, by_step: Mapping[int, float]) -> dict[str, float]:
        """Return a sum by query of a figure by step; of a step of several queries, each has its part."""
        found: dict[str, float] = {}
        for step in self._plan.steps:
            names = [name for name in step.queries if name]
            _add(found, dict.fromkeys(names, by_step.get(step.id, 0.0) / max(1, len(names))))
        return found

    def _added_figures(self) -> StepFigures:
        found: dict[int, list[FigureValues]] = {}
        for one in self._figures.values():
            for step, figures in one.items():
                found.setdefault(step, []).append(figures)
        return {step: put_together(parts) for step, parts in found.items()}


def _add(sums: dict[Key, float], more: Mapping[Key, float]) -> None:
    for key, value in more.items():
        sums[key] = sums.get(key, 0) + value


def _lasting(shards: Sequence[Mapping[str, float]], tasks: int) -> dict[str, float]:
    """Return by query how long a stage lasts. shards: of each shard, the seconds of its queries; tasks: how many shards
    run at a time. It is at least the slowest shard, and an equal part of all."""
    found: dict[str, float] = {}
    for name in shards[0]:
        seconds = [by_query[name] for by_query in shards]
        found[name] = max(max(seconds), sum(seconds) / max(1, tasks))
    return found


def _of_steps(plan: Plan, measured: Mapping[int, T]) -> dict[int, T]:
    """Return what was measured of the steps of a plan."""
    return {step: value for step, value in measured.items() if step in plan.by_id}
