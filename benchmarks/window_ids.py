"""The peer of the frequency operator: windows told apart by identifiers (Li et al., SIGMOD 2005; `[csql 10]`).

Every tuple is copied into each window that it belongs to, and the copies are grouped by window identifier and GROUP BY.
Window j is what FREQUENCY n TUPLES evaluates as its j-th: the tuples number jF-W+1 to jF. A tuple of no window is
dropped at once. It stands in the very plan of Penstock's query, in the place of the frequency operator and all that is
evaluated inside it, so both sides read, stamp and order the stream alike; and it is made of the engine's own kernels:
copies by `np.repeat` and Arrow's `take`, groups by the hash table and the exact sums of `lanes.pre_aggregate`, results
by `finish`. What it keeps between rounds is one partial sum for each open window and group, never a tuple.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.algebra import Aggregate, FrequencyWindow, Project
from penstock.algebra.nodes.query import Query
from penstock.expressions.evaluation.evaluate import evaluate_all
from penstock.expressions.nodes import Column, Expression
from penstock.physical.elements import Elements, concat, int64s
from penstock.physical.kernels.compiled import repeat
from penstock.physical.operators import OPERATORS
from penstock.physical.operators.aggregates.accumulators import pre_aggregate, to_lanes
from penstock.physical.operators.aggregates.groups.finalize import finish
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ArrivalOrderBuffer, ReorderingOperator
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.sequence import CountTimeSpec
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.state.aggregate_layout import AggregateLayout, plan_lanes
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.materialized import MaterializedElements
from penstock.tree import walk
from penstock.types import END


@dataclass(frozen=True)
class WindowIdsSpec(Spec):
    """Windows of `rows` tuples, one at every `every`-th. read: what is copied, expressions over the stream; `lanes` is
    over those."""

    rows: int
    every: int
    read: tuple[Expression, ...]
    lanes: AggregateLayout
    arrival: bool


class WindowIds(ReorderingOperator):
    """State: by window that is open and group the partial sums; elements ahead of the heartbeat."""

    def __init__(self, spec: WindowIdsSpec) -> None:
        super().__init__(ArrivalOrderBuffer(spec.arrival))
        self._spec = spec
        self._open = MaterializedElements()
        self._count = 0

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "open": self._open}

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        spec = self._spec
        number = np.arange(self._count + 1, self._count + 1 + len(arrived))
        self._count += len(arrived)
        # Tuple i is in window j where jF - W < i <= jF.
        first = -(-number // spec.every)
        copies = (number + spec.rows - 1) // spec.every - first + 1
        rows, nth = repeat(copies)
        window = first[rows] + nth
        chosen = pa.array(rows)
        read = evaluate_all(spec.read, arrived.columns, len(arrived))
        copied = Elements(tuple(column.take(chosen) for column in read), window, window + 1)
        sums = pre_aggregate(spec.lanes, concat(to_lanes(spec.lanes, copied))) if len(copied) else None
        parts = [part for part in (self._open.elements, sums) if part is not None and len(part)]
        if not parts:
            return []
        sums = pre_aggregate(spec.lanes, concat(parts)) if len(parts) > 1 else parts[0]
        over = sums.ts * spec.every <= self._count
        self._open.replace(sums.filter(~over))
        done = sums.filter(over)
        if not len(done):
            return []
        # The answers carry the timestamp of the last tuple of their window.
        stamps = arrived.ts[done.ts * spec.every - int(number[0])]
        return [Elements(self._results(done), stamps, np.full(len(done), END))]

    def _results(self, sums: Elements) -> tuple[pa.Array, ...]:
        plan = self._spec.lanes
        lanes = sums.columns[len(plan.group) :]
        integers = np.stack([int64s(lane) for lane in lanes[: plan.integers]])
        floats = np.stack([lane.to_numpy() for lane in lanes[plan.integers :]] or [np.empty(len(sums))])
        return (*sums.columns[: len(plan.group)], *finish(plan, integers, floats, {}))


OPERATORS[WindowIdsSpec] = lambda spec, context: WindowIds(spec)


def by_window_ids(plan: Plan, query: Query) -> Plan:
    """The plan of `query`, an aggregate over a window with RANGE and FREQUENCY in tuples, by this approach."""
    (aggregate,) = (node for node in walk(query.root) if isinstance(node, Aggregate))
    (window,) = (node for node in walk(query.root) if isinstance(node, FrequencyWindow))
    assert window.rows is not None and window.every is not None
    lanes = plan_lanes(aggregate.group, aggregate.aggregates, strict=False)
    below = aggregate.input
    if isinstance(below, Project):
        read = below.expressions
    else:
        assert below is window
        read = tuple(Column(field.type, i, field.name) for i, field in enumerate(window.schema))
    steps = [
        replace(step, spec=WindowIdsSpec(window.rows, window.every, read, lanes, step.spec.arrival))
        if isinstance(step.spec, CountTimeSpec)
        else step
        for step in plan.steps
    ]
    return replace(plan, steps=tuple(steps))
