"""Groups that end when the values of their columns are closed (docs/promises.md).

A closing at t takes effect after t: the rows of t are in the group. Then its accumulators leave; its row stays in the
answer, so nothing is emitted. A later row of the group begins it again, with a second row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements
from penstock.physical.operators.aggregates.aggregate import Aggregation
from penstock.physical.operators.aggregates.groups.group_rows import changed_rows
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.promises.closed_counts import promise_figures
from penstock.physical.operators.promises.open_groups import OpenGroups
from penstock.physical.plan.promises.groups import ClosingAggregateSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.keyed_table import SlotAssignment
from penstock.types import END


class ClosingAggregation(Aggregation):
    """State: as of the other groupings, of groups that are open; what closes values."""

    def __init__(self, spec: ClosingAggregateSpec) -> None:
        super().__init__(spec)
        self._final = spec.final
        self._open = OpenGroups(spec.closings, self._groups)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), **self._open.synopses()}

    def figures(self) -> FigureValues:
        return {**super().figures(), **promise_figures(self.synopses().values())}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port == 0:
            return super().process(port, elements)
        self._open.process(port, elements)
        return []

    def advance(self, moment: Moment) -> Iterable[Elements]:
        self._open.begin(moment.heartbeat)
        events = self._events(self._entering(moment.heartbeat), moment.heartbeat)
        result: list[Elements] = []
        if events is not None and len(events.slots):
            course = self._course(events)
            result = [] if self._final else changed_rows(course, self._groups)
        slots, instants = self._open.closed()
        if self._final and len(slots):
            columns = [*self._groups.key_columns(slots), *self._rows(slots)]
            result = [Elements(tuple(columns), instants, np.full(len(slots), END))]
        self._drop(slots)
        self._open.end()
        self._shrink()
        return result

    def _entering(self, heartbeat: int) -> Elements | None:
        arrived = super()._entering(heartbeat)
        if arrived is None or not self._final:
            return arrived
        # A group that is never closed is never emitted.
        return arrived.filter(self._open.can_close(arrived.columns[: self._keys], len(arrived)))

    def _placed(self, arrived: Elements) -> SlotAssignment:
        return self._open.place(arrived.columns[: self._keys], arrived.ts)
