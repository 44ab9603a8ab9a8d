"""Sequence-model queries whose windows count the elements of one stream: to them numbers are time [semantics 6].

RANGE n TUPLES FREQUENCY m TUPLES is RANGE n SLIDE m in count time, so the nested plan is that of any query with time
windows: it shares panes and emits at every m-th position. Elements that no window contains are dropped before the
nested plan. A result has the timestamp of the element at whose position it is emitted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.arrival_order import argsort_values
from penstock.physical.kernels.ticks import round_up
from penstock.physical.operators.base.contract import Moment, RunPlan, Tables
from penstock.physical.operators.base.reorder_buffer import ArrivalOrderBuffer, ReorderingOperator
from penstock.physical.plan.sequence import CountTimeSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.storage.documents import Document, array, integer
from penstock.types import BEGIN, END


class CountTime(ReorderingOperator):
    """State: the elements ahead of the heartbeat, and the state of the nested plan. Marks: the number of elements
    counted so far."""

    def __init__(self, spec: CountTimeSpec, tables: Tables, run_plan: RunPlan) -> None:
        super().__init__(ArrivalOrderBuffer(spec.arrival))
        self._spec = spec
        self._inner = run_plan(spec.inner, tables)
        self._count = 0

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), **self._inner.synopses()}

    def figures(self) -> FigureValues:
        return self._inner.figures()

    def marks(self) -> Document:
        return {"count": self._count, "inner": self._inner.marks()}

    def restore_marks(self, marks: Document) -> None:
        self._count = integer(marks, "count")
        self._inner.restore_marks(array(marks, "inner"))

    def advance(self, moment: Moment) -> list[Elements]:
        if moment.shard:
            return []  # all elements are sent to the first shard
        if moment.start is None or moment.heartbeat < moment.start:
            self._early.hold()
            return []
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        arrived = arrived.with_columns([arrived.columns[i] for i in self._spec.columns])
        first = self._count + 1
        self._count += len(arrived)
        seen = {self._spec.source: self._seen(arrived, first)}
        parts = [part for part in self._inner.run(seen, self._count) if len(part)]
        if not parts:
            return []
        emitted = concat(parts)
        if not self._spec.relation:
            emitted = emitted.take(argsort_values(emitted))
        return self._in_time(emitted, arrived.ts, first)

    def _in_time(self, emitted: Elements, ticks: Int64s, first: int) -> list[Elements]:
        """Return elements in the time of numbers in that of timestamps. ticks: of the elements that arrived, of which
        `first` is the first number."""
        # The row of an ungrouped aggregate is valid from the beginning of time.
        known = emitted.ts != BEGIN
        ts, ends = np.full(len(emitted), BEGIN), np.full(len(emitted), END)
        ts[known] = ticks[emitted.ts[known] - first]
        if self._spec.relation:
            closed = emitted.exp < END
            ends[closed] = ticks[emitted.exp[closed] - first]
        shown = Elements(emitted.columns, ts, ends, emitted.sign).filter(ts < ends)
        return [shown] if len(shown) else []

    def _seen(self, arrived: Elements, first: int) -> Elements:
        """Return the elements that some window contains, each with its position as ts. first: position of the first
        element of `arrived`."""
        rows, every = self._spec.rows, self._spec.every
        if rows is None or rows >= every:
            return Elements(arrived.columns, np.arange(first, first + len(arrived)), arrived.exp)
        # The last `rows` elements before each boundary; no window contains the others.
        boundaries = np.arange(round_up(first, every, 0), first + len(arrived) + rows, every)
        numbers = (boundaries[:, None] - np.arange(rows - 1, -1, -1)).ravel()
        low, high = np.searchsorted(numbers, [first, first + len(arrived)])
        numbers = numbers[low:high]
        seen = pa.array(numbers - first)
        columns = tuple(column.take(seen) for column in arrived.columns)
        return Elements(columns, numbers, np.full(len(numbers), END))
