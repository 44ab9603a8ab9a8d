"""Queries in the sequence model whose windows count the elements of one stream: to them numbers are time (LANGUAGE 6).

RANGE n TUPLES FREQUENCY m TUPLES is RANGE n SLIDE m in numbers, so the inner plan is that of any query with windows in
time: it shares panes and answers at every m-th number. What lies between two windows is left out before anything looks
at it; what an answer is told at has the timestamp of the element with that number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, concat, round_up
from penstock.physical.operators import Tables
from penstock.physical.operators.contract import Moment
from penstock.physical.operators.inner import InnerPlan
from penstock.physical.operators.pending import EarlyOperator, InOrder
from penstock.physical.order import argsort_values
from penstock.physical.sequence_plan import NumberedSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.types import END


class Numbered(EarlyOperator):
    """State: the elements ahead of the heartbeat; that of the inner plan. Marks: the elements counted so far."""

    def __init__(self, spec: NumberedSpec, tables: Tables) -> None:
        super().__init__(InOrder(spec.arrival))
        self._spec = spec
        self._inner = InnerPlan(spec.inner, tables)
        self._count = 0

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), **self._inner.synopses()}

    def marks(self) -> dict[str, Any]:
        return {"count": self._count, "inner": self._inner.marks()}

    def restore_marks(self, marks: dict[str, Any]) -> None:
        self._count = marks["count"]
        self._inner.restore_marks(marks["inner"])

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
        made = concat(parts)
        if self._spec.ordered:
            made = made.take(argsort_values(made))
        return [Elements(made.columns, arrived.ts[made.ts - first], np.full(len(made), END), made.sign)]

    def _seen(self, arrived: Elements, first: int) -> Elements:
        """The elements that a window sees, each at its number; `first`: that of the first element."""
        rows, every = self._spec.rows, self._spec.every
        if rows is None or rows >= every:
            return Elements(arrived.columns, np.arange(first, first + len(arrived)), arrived.exp)
        # The `rows` last ones before each boundary; the others are not even looked at.
        boundaries = np.arange(round_up(first, every, 0), first + len(arrived) + rows, every)
        numbers = (boundaries[:, None] - np.arange(rows - 1, -1, -1)).ravel()
        low, high = np.searchsorted(numbers, [first, first + len(arrived)])
        numbers = numbers[low:high]
        seen = pa.array(numbers - first)
        columns = tuple(column.take(seen) for column in arrived.columns)
        return Elements(columns, numbers, np.full(len(numbers), END))
