"""Load shedding in a window of the last rows of a stream, which the operator takes in itself.

The clock of the window is the number of arrivals: an element leaves when so many have arrived behind it, selected or
not. Elements that leave in the round in which they arrived are emitted with that end; any other is emitted without, and
ended by a negative tuple.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.arrays import Records
from penstock.physical.elements import Elements, Int64s
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ArrivalOrderBuffer
from penstock.physical.operators.temporal.shedding import Shed
from penstock.physical.plan.temporal.shedding import ShedRowsSpec
from penstock.storage.documents import Document, integer
from penstock.types import END


class ShedRows(Shed):
    """State: that of `Shed`, and how many rows have arrived. In elements that have arrived, `exp` is the number of the
    arrival at which each leaves."""

    def __init__(self, spec: ShedRowsSpec) -> None:
        super().__init__(spec)
        self._early = ArrivalOrderBuffer(arrival=True)
        self._rows = spec.rows
        #: How many rows had arrived before this round, and the timestamps of those of it.
        self._before = 0
        self._stamps: Int64s = np.empty(0, np.int64)
        #: By bucket, the number of its first entry of this round.
        self._first = [0] * len(self._shedders)
        self._dropped: list[set[int]] = [set() for _ in self._shedders]
        #: By bucket, what was held before this round; and the retractions of what has left in it.
        self._earlier: list[Records] = []
        self._left: list[Elements] = []

    def marks(self) -> Document:
        return {**super().marks(), "rows": self._before + len(self._stamps)}

    def restore_marks(self, marks: Document) -> None:
        super().restore_marks(marks)
        self._before = integer(marks, "rows")

    def advance(self, moment: Moment) -> list[Elements]:
        self._held.take(lambda columns, rows: self._values.place(columns, rows).slots)
        self._before, self._stamps = self._before + len(self._stamps), np.empty(0, np.int64)
        self._first = [shedder.arrived for shedder in self._shedders]
        self._dropped = [set() for _ in self._shedders]
        self._earlier = [shedder.rows().copy() for shedder in self._shedders]
        self._left = []
        return super().advance(moment) + self._left

    def _forget(self) -> None:
        # What has left may be all that there was of a value.
        for bucket, rows in enumerate(self._earlier):
            gone = rows.compress(rows["expires"] <= self._before + len(self._stamps))
            if self._dropped[bucket]:
                gone = gone.compress(~np.isin(gone["number"], list(self._dropped[bucket])))
            if len(gone):
                self._left.append(self._ended(gone))
        super()._forget()

    def _in_order(self, elements: Elements) -> tuple[Elements, Int64s]:
        self._stamps = elements.ts
        numbers = self._before + 1 + np.arange(len(elements), dtype=np.int64)
        selected = elements.columns[-1].fill_null(False).to_numpy(zero_copy_only=False)
        return self._with_ranks(Elements(elements.columns[:-1], elements.ts, numbers + self._rows).filter(selected))

    def _window_clock(self, tick: int) -> int:
        return self._before + int(np.searchsorted(self._stamps, tick, "right"))

    def _window_clocks(self, arrived: Elements) -> Int64s:
        return arrived.exp - self._rows

    def _left_at(self, numbers: Int64s) -> Int64s:
        """Return the timestamps of these arrivals, END of those that are still to come."""
        stamps = np.append(self._stamps, END)
        places: Int64s = np.minimum(numbers - self._before - 1, len(self._stamps))
        return stamps[places]

    def _entering(self, elements: Elements) -> Elements:
        entering = Elements(elements.columns, elements.ts, self._left_at(elements.exp))
        return entering.filter(entering.ts < entering.exp)

    def _retractions(self, bucket: int, drops: Records) -> Elements:
        self._dropped[bucket].update(drops["number"].tolist())
        fresh = drops["number"] >= self._first[bucket]
        exp = np.where(fresh, self._left_at(drops["expires"]), END)
        columns = ("slot", "begin", "end", "at")
        slots, begins, ends, at = (np.ascontiguousarray(drops[name]) for name in columns)
        return self._negative(slots, begins, ends, at, exp).filter(at < exp)

    def _ended(self, entries: Records) -> Elements:
        """Return negative tuples of entries that have left."""
        slots, begins, ends = (np.ascontiguousarray(entries[name]) for name in ("slot", "begin", "end"))
        return self._negative(slots, begins, ends, self._left_at(entries["expires"]), np.full(len(entries), END))

    def _negative(self, slots: Int64s, begins: Int64s, ends: Int64s, at: Int64s, exp: Int64s) -> Elements:
        columns = (*self._values.key_columns(slots), pa.array(begins), pa.array(ends))
        return Elements(columns, at, exp.astype(np.int64), np.full(len(at), -1, np.int64))
