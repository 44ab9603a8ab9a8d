"""The candidates of a pane: the items of this shard that may be in its list, once the pane is complete.

Exact counts are kept of panes ahead of the heartbeat alone. The k + 1 first items of all shards are among those of
each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Float64s
from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.kernels.compiled import sum_by_code
from penstock.physical.kernels.wide import split
from penstock.physical.operators.aggregates.accumulators import early_added_up, pre_aggregate
from penstock.physical.operators.aggregates.cells.cutting import codes_of_panes, ranked
from penstock.physical.operators.aggregates.groups.finalize import finish
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.panes import FrequentCandidatesSpec
from penstock.physical.synopses.contract import Synopsis


class FrequentCandidates(Operator):
    """State: the accumulator rows of panes ahead of the heartbeat.

    Emits, valid as their panes: the group columns, the count (high, low), and, on the first row of a pane and value of
    the PER columns, the sum of all counts (high, low), else 0."""

    def __init__(self, spec: FrequentCandidatesSpec) -> None:
        self._spec = spec
        # The same items come in every batch of a pane.
        self._early = ReorderBuffer(partial(early_added_up, spec.plan))

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        due = self._early.until(moment.heartbeat)
        if due is None:
            return []
        plan = self._spec.plan
        width = len(plan.group)
        rows = pre_aggregate(plan, due)
        high, low = split(finish(plan, *self._lanes(rows), {})[0])
        positive = (high > 0) | ((high == 0) & (low > 0))
        if not positive.all():
            rows, high, low = rows.filter(positive), high[positive], low[positive]
        if not len(rows):
            return []
        codes, heads = codes_of_panes(rows, self._spec.per)
        chosen, rank = ranked(codes, high, low, rows.columns[:width], self._spec.keep)
        totals = [sum_by_code(codes, part, len(heads)) for part in (high, low)]
        first = rank == 0
        numbers = [high[chosen], low[chosen], *(np.where(first, t[codes[chosen]], 0) for t in totals)]
        kept = rows.take(chosen)
        return [kept.with_columns([*kept.columns[:width], *map(pa.array, numbers)])]

    def _lanes(self, rows: Elements) -> tuple[Int64s, Float64s]:
        """Return the lanes of accumulator rows, by (lane, row)."""
        plan = self._spec.plan
        carried, _ = plan.carried
        integers = np.zeros((plan.integers, len(rows)), np.int64)
        for lane, column in zip(carried, rows.columns[len(plan.group) :], strict=False):
            integers[lane] = int64s(column)
        return integers, np.zeros((plan.floats, len(rows)))
