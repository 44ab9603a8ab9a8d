"""The metrics of operators, added up over shards from the reports of tasks.

A report has what has changed: the steps that ran in a batch, and the sizes of synopses that may have changed. So a
batch costs as much as it concerns, however many queries stand. Steps go by their numbers, which stay when a plan
changes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from penstock.physical.plan.plan import Plan
from penstock.runtime.monitoring.metrics import OperatorMetrics
from penstock.runtime.monitoring.reports import ShardReport

#: Rows and bytes of state.
StateSum = tuple[int, int]
_NONE: StateSum = (0, 0)


class OperatorSums:
    """The metrics of the operators of `plan`. One thread adds; another one may read."""

    def __init__(self, plan: Plan) -> None:
        self._lock = threading.Lock()
        self._plan = plan
        self._seconds: dict[int, float] = {}
        #: By step, and by shard and stage.
        self._sizes: dict[int, dict[tuple[int, int], StateSum]] = {}
        self._by_step: dict[int, StateSum] = {}
        self._by_query: dict[str, StateSum] = {}
        self._state = _NONE
        self._metrics: dict[int, OperatorMetrics] = {}
        #: The steps whose metrics have to be made again, and those that changed in the batch in progress.
        self._stale: set[int] = set()
        self._touched: set[int] = set()
        self._operators: tuple[OperatorMetrics, ...] = ()

    def add(self, report: ShardReport) -> None:
        """Add the report of a shard. Steps that the plan does not have are left out."""
        with self._lock:
            known = self._plan.by_id
            touched = {step for step in (*report.seconds, *(report.state or ())) if step in known}
            self._touched |= touched
            self._stale |= touched
            for step, spent in report.seconds.items():
                if step in known:
                    self._seconds[step] = self._seconds.get(step, 0.0) + spent
            for step, parts in (report.state or {}).items():
                if step not in known:
                    continue
                place, sizes = (report.shard, report.stage), self._sizes.setdefault(step, {})
                size = sum(part.rows for part in parts.values()), sum(part.bytes for part in parts.values())
                before = sizes.get(place, _NONE)
                sizes[place] = size
                more = size[0] - before[0], size[1] - before[1]
                self._by_step[step] = _plus(self._by_step.get(step, _NONE), more)
                if more != _NONE:
                    self._state = _plus(self._state, more)
                    self._add_state(self._plan.by_id[step].queries, more)

    def _add_state(self, queries: Iterable[str], more: StateSum) -> None:
        for query in queries:
            self._by_query[query] = _plus(self._by_query.get(query, _NONE), more)

    def changed(self, plan: Plan, steps: Collection[int]) -> list[str]:
        """Continue with another plan: steps that it has too keep their sums. Return the names of the operators that
        it does not have. It costs what has changed.

        steps: the numbers of those in which it differs from the plan before (`changed_steps`).
        """
        with self._lock:
            former, known = self._plan.by_id, plan.by_id
            names = ((step, _name(self._plan, step)) for step in steps if step in former)
            gone = [name for step, name in names if step not in known or _name(plan, step) != name]
            for step in steps:
                was = former[step].queries if step in former else frozenset()
                now = known[step].queries if step in known else frozenset()
                size = self._by_step.get(step, _NONE)
                self._add_state(now - was, size)
                self._add_state(was - now, (-size[0], -size[1]))
                # It may have another number of queries.
                self._metrics.pop(step, None)
                if step not in known:
                    self._state = _plus(self._state, (-size[0], -size[1]))
                    for by_step in (self._seconds, self._sizes, self._by_step):
                        by_step.pop(step, None)
            for query in self._by_query.keys() - plan.queries.keys():
                del self._by_query[query]
            self._stale = {n for n in {*self._stale, *steps} if n in self._seconds or n in self._by_step}
            self._plan = plan
            self._touched &= known.keys()
            self._operators = ()
        return gone

    @property
    def state(self) -> StateSum:
        """Return the rows and bytes of state, each operator counted once."""
        return self._state

    def state_of(self, query: str) -> StateSum:
        """Return the rows and bytes of state of the operators of a query."""
        return self._by_query.get(query, _NONE)

    def operators(self) -> tuple[OperatorMetrics, ...]:
        """Return the metrics of the operators that have run or have state, in the order of the plan."""
        with self._lock:
            return self._made()

    def _made(self) -> tuple[OperatorMetrics, ...]:
        for step in self._stale:
            self._metrics[step] = self._of(step)
        if self._stale or not self._operators:
            made = self._metrics
            self._operators = tuple(made[step.id] for step in self._plan.steps if step.id in made)
        self._stale = set()
        return self._operators

    def _of(self, step: int) -> OperatorMetrics:
        plan_step = self._plan.by_id[step]
        rows, nbytes = self._by_step.get(step, _NONE)
        spent = self._seconds.get(step, 0.0)
        name = _name(self._plan, step)
        return OperatorMetrics(name, plan_step.stage, _queries(self._plan, step), spent, rows, nbytes)

    def take_touched(self) -> list[OperatorMetrics]:
        """Return the metrics of the operators that have changed since the last call."""
        with self._lock:
            self._made()
            touched, self._touched = self._touched, set()
            return [self._metrics[step] for step in sorted(touched)]


def _name(plan: Plan, step: int) -> str:
    return f"{step} {plan.by_id[step].spec.title}"


def _queries(plan: Plan, step: int) -> tuple[str, ...]:
    return tuple(sorted(filter(None, plan.by_id[step].queries)))


def _plus(one: StateSum, other: StateSum) -> StateSum:
    return one[0] + other[0], one[1] + other[1]
