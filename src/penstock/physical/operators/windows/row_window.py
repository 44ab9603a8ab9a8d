"""Row windows: elements that end when so many later ones have arrived [semantics 4.1].

Elements are processed in (timestamp, arrival) order, up to the heartbeat. An element whose expiration is known in the
same round is emitted with it; any other is emitted without expiration, or with that of its RANGE, and ended by a
negative tuple when the element that expires it arrives. The order of arrival is the order in which elements are passed
to `process`: the driver of the executor passes the parts of one round in the order of their senders, and rounds one
after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from penstock.physical.elements import Elements, Int64s
from penstock.physical.kernels.ticks import later, round_down, round_up
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ArrivalOrderBuffer, ReorderingOperator
from penstock.physical.plan.windows import RowWindowSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.windows.row_window import RowWindowBuffer, WindowRows, chosen
from penstock.storage.documents import Document, integer
from penstock.types import BEGIN, END


class RowWindow(ReorderingOperator):
    """State: the last elements of every partition, elements ahead of the heartbeat, and the heartbeat of the last
    round, which decides whether an element has been emitted."""

    def __init__(self, spec: RowWindowSpec) -> None:
        super().__init__(ArrivalOrderBuffer(spec.arrival))
        self._spec = spec
        self._last = RowWindowBuffer(spec.types, spec.partition, spec.rows, spec.step, spec.length)
        self._emitted_until = BEGIN

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "last": self._last}

    def marks(self) -> Document:
        return {"told": self._emitted_until}

    def restore_marks(self, marks: Document) -> None:
        self._emitted_until = integer(marks, "told")

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        emitted_until, self._emitted_until = self._emitted_until, max(self._emitted_until, moment.heartbeat)
        parts = [] if arrived is None else self._arrive(arrived, emitted_until)
        if self._spec.slide is not None:
            parts.append(
                self._insertions(self._last.between(self._boundary(emitted_until), self._boundary(self._emitted_until)))
            )
        self._last.expire(moment.heartbeat)
        return [part for part in parts if len(part)]

    def _arrive(self, arrived: Elements, emitted_until: int) -> list[Elements]:
        entered, left = self._last.arrive(arrived.columns, arrived.ts)
        if self._spec.slide is None:
            return [self._insertions(entered), self._retractions(left)]
        # Under SLIDE in time a row enters at the first boundary after it. While its expiration is unknown it is not
        # emitted earlier, or it might have to be retracted at the very tick at which it enters.
        known = self._rounded(left.ts) <= emitted_until
        late = chosen(left, ~known)
        ended = [chosen(entered, entered.end < END), replace(late, start=late.ts)]
        return [*(self._insertions(rows) for rows in ended), self._retractions(chosen(left, known))]

    def _insertions(self, rows: WindowRows) -> Elements:
        start, exp = self._rounded(rows.start), np.minimum(self._rounded(rows.end), self._limit(rows))
        return Elements(rows.columns, start, exp).filter(start < exp)

    def _retractions(self, rows: WindowRows) -> Elements:
        """Return the retractions of elements that were emitted with another end."""
        end, exp = self._rounded(rows.end), self._limit(rows)
        sign = np.full(len(rows), -1, np.int64)
        return Elements(rows.columns, end, exp, sign).filter(end < exp)

    def _limit(self, rows: WindowRows) -> Int64s:
        """Return the end of each row's validity by its RANGE."""
        if self._spec.length is None:
            return np.full(len(rows), END, np.int64)
        return self._rounded(later(rows.ts, self._spec.length))

    def _boundary(self, tick: int) -> int:
        """Return the last boundary at or before a tick."""
        slide = self._spec.slide
        return round_down(tick, slide, self._spec.align) if slide and BEGIN < tick < END else tick

    def _rounded(self, ticks: Int64s) -> Int64s:
        spec = self._spec
        if spec.slide is None:
            return ticks
        return np.where(ticks < END, round_up(ticks, spec.slide, spec.align), END)
