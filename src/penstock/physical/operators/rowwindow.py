"""Row windows: elements that end when so many later ones have arrived (LANGUAGE 4.1).

Elements are taken in (timestamp, arrival) order, as far as time is known. One whose end is known in the same round has
it from the start; any other is given without end, or with that of its RANGE, and taken back by a negative tuple when
the element that ends it arrives. The order of arrival is the order in which elements are handed to `process`: whoever
drives the executor gives parts of one round in the order of their senders, and rounds one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.physical.elements import Elements, Int64s, round_up
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.pending import Early
from penstock.physical.order import counted
from penstock.physical.plan import RowWindowSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.sequences import Rows, Sequences
from penstock.types import END


class RowWindow(Operator):
    """State: the last elements of every partition, and elements ahead of the heartbeat."""

    def __init__(self, spec: RowWindowSpec) -> None:
        self._spec = spec
        self._early = Early()
        self._last = Sequences(spec.types, spec.partition, spec.rows, spec.step, spec.length)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "last": self._last}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is None or not len(arrived):
            return []
        arrived = counted(arrived, self._spec.arrival)
        came, went = self._last.arrive(arrived.columns, arrived.ts)
        self._last.expire(moment.heartbeat)
        return [part for part in (self._comings(came), self._goings(went)) if len(part)]

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

    def _rounded(self, ticks: Int64s) -> Int64s:
        spec = self._spec
        if spec.slide is None:
            return ticks
        return np.where(ticks < END, round_up(ticks, spec.slide, spec.align), END)
