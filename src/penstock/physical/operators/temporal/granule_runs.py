"""Coalescing of granules under SLIDE: class R of the strategies.

All rows of a granule enter and leave the window together, so the rows of a value are runs of granules. Of the last run
of every value the first and the last granule are known; it grows by one granule at a boundary, or has ended. From then
on all that happens to it is known: it stays until its first granule leaves, and is then cut by one granule at every
boundary. What a boundary shows of a run that may grow lives until the next one, so nothing is ever retracted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat_arrays, int64s, unnamed
from penstock.physical.kernels.compiled import argsort_code_time, distinct_slots, pane_codes, repeat
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.temporal.coalesce import with_periods, without_periods
from penstock.physical.plan.temporal.granules import GranuleRunsSpec, OncePerLifeSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END

#: The lanes of a value: whether its last run may grow, the ends of the first and of the last granule of that.
_ALIVE, _FIRST, _LAST = range(3)


class OncePerLife(Operator):
    def __init__(self, spec: OncePerLifeSpec) -> None:
        self._told_apart = spec.told_apart

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if elements.sign is not None:
            return [elements]
        there = with_periods(elements)
        if len(there) < len(elements):
            # Those without a period are counted where they are left out.
            return [*self.process(port, there), without_periods(elements)]
        first, second = fingerprints(elements.columns[: self._told_apart], len(elements))
        _, heads = pane_codes(first, second, elements.ts, elements.exp)
        return [elements if len(heads) == len(elements) else elements.take(heads)]


@compiled(reads="slots order granules")
def _grow(
    slots: Int64s, order: Int64s, granules: Int64s, slide: int, lanes: Int64s, shown: Int64s, ended: Int64s
) -> tuple[int, int]:
    """Extend the last runs of values by granules, in order of (slot, granule).

    Args:
        granules: the ends of the granules.
        shown: (slot, end of the first granule, end of the last one) of every run at each boundary at which it grows.
        ended: the same of the runs that another one follows.

    Returns:
        How many there are of each.
    """
    grown, done = 0, 0
    for k in range(order.shape[0]):
        slot, granule = slots[order[k]], granules[order[k]]
        if lanes[slot, 0] != 0 and granule <= lanes[slot, 2]:
            continue
        if lanes[slot, 0] == 0 or granule > lanes[slot, 2] + slide:
            if lanes[slot, 0] != 0:
                ended[0, done], ended[1, done], ended[2, done] = slot, lanes[slot, 1], lanes[slot, 2]
                done += 1
            lanes[slot, 0], lanes[slot, 1] = 1, granule
        lanes[slot, 2] = granule
        shown[0, grown], shown[1, grown], shown[2, grown] = slot, lanes[slot, 1], granule
        grown += 1
    return grown, done


class GranuleRuns(ReorderingOperator):
    """State: per value the lanes above; the runs that have ended, by the next boundary at which they change: (first
    granule, last granule, value)."""

    def __init__(self, spec: GranuleRunsSpec) -> None:
        super().__init__(ReorderBuffer())
        self._slide, self._length = spec.slide, spec.length
        self._values = KeyedTable(3, 0, spec.types[:-2])
        self._quiet = ExpirationIndex(self._values, _LAST)
        self._ended = CalendarQueue()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"values": self._values, "ended": self._ended, **super().synopses()}

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        shown, ended = ([], []) if arrived is None else self._arrive(arrived)
        ended += self._end(moment.heartbeat)
        # Runs that have just ended change next one boundary behind their last granule.
        parts = [(last + self._slide, first, last, values) for first, last, values in ended]
        for batch in self._ended.pop_until(moment.heartbeat):
            parts.append((*(int64s(batch.column(i)) for i in range(3)), batch.columns[3:]))
        if parts:
            due, first, last = (np.concatenate([part[i] for part in parts]) for i in range(3))
            columns = [concat_arrays(pieces) for pieces in zip(*(part[3] for part in parts), strict=True)]
            shown += self._shrink(due, first, last, columns, moment.heartbeat)
        self._values.shrink()
        return shown

    def _arrive(self, arrived: Elements) -> tuple[list[Elements], list[tuple[Int64s, Int64s, list[pa.Array]]]]:
        """Return what runs that grow show, and the runs that are followed by another: first and last granule, value."""
        placed = self._values.place(arrived.columns[:-2], len(arrived))
        lanes = self._values.by_slot.integers
        fresh = placed.unique[lanes[placed.unique, _ALIVE] == 0]
        order = argsort_code_time(placed.slots, arrived.ts)
        shown, ended = (np.empty((3, len(arrived)), np.int64) for _ in range(2))
        grown, done = _grow(placed.slots, order, arrived.ts, self._slide, lanes, shown, ended)
        self._values.touch(placed.unique)
        self._quiet.put(fresh)
        slots, first, last = shown[:, :grown]
        begins = np.maximum(first - self._slide, last - self._length)
        parts = [_elements(self._values.key_columns(slots), begins, last, last, last + self._slide)] if grown else []
        slots, first, last = ended[:, :done]
        return parts, [(first, last, self._values.key_columns(slots))] if done else []

    def _end(self, heartbeat: int) -> list[tuple[Int64s, Int64s, list[pa.Array]]]:
        """Return the runs that have not grown at their next boundary, up to `heartbeat`."""
        slots = self._quiet.until(heartbeat - self._slide)
        if not len(slots):
            return []
        first, last = (self._values.integers[lane, slots].copy() for lane in (_FIRST, _LAST))
        self._values.integers[_ALIVE, slots] = 0
        self._values.touch(distinct_slots(slots, self._values.count))
        return [(first, last, self._values.key_columns(slots))]

    def _shrink(self, due: Int64s, first: Int64s, last: Int64s, columns: list[pa.Array], until: int) -> list[Elements]:
        """Return what is shown of runs that have ended, from the boundary `due` of each on; put back those of which
        something is left after `until`."""
        result = []
        cut, gone = np.minimum(first + self._length, END), np.minimum(last + self._length, END)
        whole = np.flatnonzero(due < cut)
        if len(whole):
            rows = pa.array(whole)
            values = [column.take(rows) for column in columns]
            result.append(_elements(values, first[whole] - self._slide, last[whole], due[whole], cut[whole]))
        since = np.maximum(due, cut)
        stop = np.minimum(gone, until + 1)
        # The boundaries from `since` on before `stop`.
        rows, number = repeat((stop - since + self._slide - 1) // self._slide)
        if len(rows):
            at = since[rows] + number * self._slide
            values = [column.take(pa.array(rows)) for column in columns]
            result.append(_elements(values, at - self._length, last[rows], at, at + self._slide))
        counts = np.maximum(0, (stop - since + self._slide - 1) // self._slide)
        following = since + counts * self._slide
        left = np.flatnonzero(following < gone)
        if len(left):
            kept = [pa.array(part[left]) for part in (following, first, last)]
            self._ended.push(unnamed([*kept, *(column.take(pa.array(left)) for column in columns)]))
        return result


def _elements(values: list[pa.Array], begins: Int64s, ends: Int64s, ts: Int64s, exp: Int64s) -> Elements:
    ends = np.ascontiguousarray(ends)
    columns = (*values, pa.array(np.ascontiguousarray(begins)), pa.array(ends))
    return Elements(columns, np.ascontiguousarray(ts), np.ascontiguousarray(exp))
