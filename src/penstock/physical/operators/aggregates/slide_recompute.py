"""RSTREAM of aggregates over windows that hardly overlap, at their boundaries [semantics 4.3, 6].

Where a row is in the window at few boundaries, it is counted at each of them, and the rows at a boundary are computed
from its panes (`physical/operators/aggregates/recomputed.py`): nothing expires, no group and no value of a DISTINCT is
carried from boundary to boundary, and nothing is kept of a boundary once its rows are emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.physical.elements import Elements
from penstock.physical.kernels.ticks import round_up
from penstock.physical.operators.aggregates.recomputed import boundary_rows
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.panes import RecomputedSlideSpec
from penstock.physical.synopses.contract import Synopsis


class RecomputedSlideAggregation(Operator):
    """State: the panes of boundaries ahead of the heartbeat, each at its boundary."""

    def __init__(self, spec: RecomputedSlideSpec) -> None:
        self._plan, self._slide, self._align, self._timed = spec.plan, spec.slide, spec.align, spec.timed
        self._early = ReorderBuffer()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        for panes in self._at_boundaries(elements):
            self._early.add(panes)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        due = self._early.parts_until(moment.heartbeat)
        if self._timed:
            # Rows valid from the beginning of time also belong to boundaries before the first instant: not evaluated.
            due = [part.filter(part.ts >= moment.start) for part in due] if moment.start is not None else []
        due = [part for part in due if len(part)]
        return boundary_rows(self._plan, due) if due else []

    def _at_boundaries(self, panes: Elements) -> Iterator[Elements]:
        """Yield every pane once for each boundary at which the window contains it; each batch is in the order of
        `panes`."""
        at = round_up(panes.ts, self._slide, self._align)
        seen = Elements(panes.columns, at, panes.exp)
        while len(seen := seen.filter(seen.ts < seen.exp)):
            yield seen
            seen = Elements(seen.columns, seen.ts + self._slide, seen.exp)
