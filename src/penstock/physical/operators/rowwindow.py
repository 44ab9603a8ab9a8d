"""Row windows: elements that end when so many later ones have arrived (LANGUAGE 4.1).

Elements are taken in (timestamp, arrival) order, as far as time is known. One whose end is known in the same round has
it from the start; any other is given without end, or with that of its RANGE, and taken back by a negative tuple when
the element that ends it arrives. The order of arrival is the order in which elements are handed to `process`: whoever
drives the executor gives parts of one round in the order of their senders, and rounds one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.physical.elements import Elements, Int64s, round_up
from penstock.physical.operators.contract import Moment
from penstock.physical.operators.pending import EarlyOperator, InOrder
from penstock.physical.plan import RowWindowSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.sequences import Rows, Sequences, chosen
from penstock.types import BEGIN, END


class RowWindow(EarlyOperator):
    """State: the last elements of every partition, elements ahead of the heartbeat, and how far time had come in the
    last round, which says whether an element has been given out."""

    def __init__(self, spec: RowWindowSpec) -> None:
        super().__init__(InOrder(spec.arrival))
        self._spec = spec
        self._last = Sequences(spec.types, spec.partition, spec.rows, spec.step, spec.length)
        self._told = BEGIN

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "last": self._last}

    def marks(self) -> dict[str, Any]:
        return {"told": self._told}

    def restore_marks(self, marks: dict[str, Any]) -> None:
        self._told = marks["told"]

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        told, self._told = self._told, max(self._told, moment.heartbeat)
        parts = [] if arrived is None else self._arrive(arrived, told)
        if self._spec.slide is not None:
            parts.append(self._comings(self._last.between(self._boundary(told), self._boundary(self._told))))
        self._last.expire(moment.heartbeat)
        return [part for part in parts if len(part)]

    def _arrive(self, arrived: Elements, told: int) -> list[Elements]:
        came, went = self._last.arrive(arrived.columns, arrived.ts)
        if self._spec.slide is None:
            return [self._comings(came), self._goings(went)]
        # Under SLIDE in time a row comes at the boundary behind it. While its end is open it is not given out before,
        # or it might have to be taken back at the very tick at which it comes.
        known = self._rounded(went.ts) <= told
        late = chosen(went, ~known)
        ended = [chosen(came, came.end < END), replace(late, start=late.ts)]
        return [*(self._comings(rows) for rows in ended), self._goings(chosen(went, known))]

    def _comings(self, rows: Rows) -> Elements:
        start, exp = self._rounded(rows.start), np.minimum(self._rounded(rows.end), self._limit(rows))
        return Elements(rows.columns, start, exp).filter(start < exp)

    def _goings(self, rows: Rows) -> Elements:
        """What takes back elements that were given with another end."""
        end, exp = self._rounded(rows.end), self._limit(rows)
        sign = np.full(len(rows), -1, np.int64)
        return Elements(rows.columns, end, exp, sign).filter(end < exp)

    def _limit(self, rows: Rows) -> Int64s:
        """The end that an element's RANGE gives it."""
        if self._spec.length is None:
            return np.full(len(rows), END, np.int64)
        return self._rounded(rows.ts + self._spec.length)

    def _boundary(self, tick: int) -> int:
        """The last boundary at or before a tick."""
        slide = self._spec.slide
        return round_up(tick + 1, slide, self._spec.align) - slide if slide and BEGIN < tick < END else tick

    def _rounded(self, ticks: Int64s) -> Int64s:
        spec = self._spec
        if spec.slide is None:
            return ticks
        return np.where(ticks < END, round_up(ticks, spec.slide, spec.align), END)
