"""Coalescing of periods of one length that begin as elements arrive, under a window in time: class F of the strategies.

Elements leave in the order in which they came, and their ends are in that order too. So the elements of a value are a
queue: an arrival touches its last stretch alone, and one that leaves cuts the first stretch back to the begin of the
next element, or ends it. Under SLIDE elements come and leave at boundaries, many at once, in the order of their begins.
The arrays of the queues are not written: they follow from the elements that wait to leave.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.kernels.compiled import argsort_time, distinct_slots, in_time
from penstock.physical.kernels.compiling import compiled
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.temporal.coalesce import PendingStretches, netted, with_periods
from penstock.physical.operators.temporal.left_out import CountsLeftOut, LeftOut
from penstock.physical.plan.temporal.window_stretches import WindowStretchesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END

#: The columns of an element in the ring: the slot of its value, its period, when it leaves, the number of the next
#: element of its value (-1 for none), and at the first element of a stretch the number of the last one.
_SLOT, _BEGIN, _FINISH, _LEAVES, _NEXT, _LAST_OF = range(6)
#: The lanes of a value: the number of its elements, the last one, and the first one of its last stretch.
_COUNT, _LAST, _START = range(3)


@compiled(reads="slots ts begins ends leaves")
def _pass(
    slots: Int64s,
    ts: Int64s,
    begins: Int64s,
    ends: Int64s,
    leaves: Int64s,
    heartbeat: int,
    ring: Int64s,
    head: int,
    tail: int,
    lanes: Int64s,
    out: Int64s,
) -> tuple[int, int]:
    """Let elements come, in order of ts and begin, and those before them leave up to `heartbeat`. Elements are numbered
    by their arrival, and lie in the ring at their number modulo its size; head, tail: the first number there, and the
    next. out: the changes (slot, time, begin, end, sign). Return how many there are, and the new head."""
    mask, count, k = ring.shape[0] - 1, 0, 0
    while True:
        front = ring[head & mask, _LEAVES] if head < tail else heartbeat + 1
        if front <= heartbeat and (k == ts.shape[0] or front <= ts[k]):
            gone = ring[head & mask]
            slot, after = gone[_SLOT], gone[_NEXT]
            end = ring[gone[_LAST_OF] & mask, _FINISH]
            joined = after >= 0 and ring[after & mask, _BEGIN] <= gone[_FINISH]
            if not joined or ring[after & mask, _BEGIN] != gone[_BEGIN]:
                out[0, count], out[1, count], out[2, count] = slot, front, gone[_BEGIN]
                out[3, count], out[4, count] = end, -1
                count += 1
                if joined:
                    out[0, count], out[1, count], out[2, count] = slot, front, ring[after & mask, _BEGIN]
                    out[3, count], out[4, count] = end, 1
                    count += 1
            if joined:
                # The next element is now the first one of the stretch.
                ring[after & mask, _LAST_OF] = gone[_LAST_OF]
                if lanes[slot, _START] == head:
                    lanes[slot, _START] = after
            lanes[slot, _COUNT] -= 1
            head += 1
        elif k < ts.shape[0]:
            slot, last = slots[k], lanes[slots[k], _LAST]
            place = tail & mask
            ring[place, _SLOT], ring[place, _BEGIN], ring[place, _FINISH] = slot, begins[k], ends[k]
            ring[place, _LEAVES], ring[place, _NEXT], ring[place, _LAST_OF] = leaves[k], -1, tail
            follows = lanes[slot, _COUNT] > 0
            if follows:
                ring[last & mask, _NEXT] = tail
            if follows and begins[k] <= ring[last & mask, _FINISH]:
                start = lanes[slot, _START]
                begin, end = ring[start & mask, _BEGIN], ring[last & mask, _FINISH]
                if ends[k] != end:
                    out[0, count], out[1, count], out[2, count] = slot, ts[k], begin
                    out[3, count], out[4, count] = end, -1
                    count += 1
                    out[0, count], out[1, count], out[2, count] = slot, ts[k], begin
                    out[3, count], out[4, count] = ends[k], 1
                    count += 1
                ring[start & mask, _LAST_OF] = tail
            else:
                lanes[slot, _START] = tail
                out[0, count], out[1, count], out[2, count] = slot, ts[k], begins[k]
                out[3, count], out[4, count] = ends[k], 1
                count += 1
            lanes[slot, _COUNT] += 1
            lanes[slot, _LAST] = tail
            tail += 1
            k += 1
        else:
            return count, head


class StretchesOfWindow(CountsLeftOut, ReorderingOperator):
    """State: the elements of the window, by when they leave: (leaves, begin, end, value); where only closed stretches
    are emitted, those that are not closed yet."""

    def __init__(self, spec: WindowStretchesSpec) -> None:
        super().__init__(ReorderBuffer())
        self._held = CalendarQueue()
        self._values = KeyedTable(3, 0, spec.types[:-2])
        self._values.followers.append(self._renumbered)
        self._values.beside.append(lambda: self._ring.nbytes)
        self._ring = np.zeros((64, 6), np.int64)
        self._head = self._tail = 0
        self._left_out = LeftOut()
        self._pending = None if spec.closed is None else PendingStretches(spec.closed)
        self._planted = False

    def synopses(self) -> Mapping[str, Synopsis]:
        pending = {} if self._pending is None else {"pending": self._pending.queue}
        return {"held": self._held, **pending, **super().synopses()}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(self._left_out.without_period(elements, with_periods(elements)))
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        if not self._planted:
            self._plant()
        arrived = self._early.until(moment.heartbeat)
        self._held.pop_until(moment.heartbeat)
        if arrived is not None and not in_time(begins := int64s(arrived.columns[-2])):
            arrived = arrived.take(argsort_time(begins))
        if arrived is not None:
            begins, ends = (int64s(column) for column in arrived.columns[-2:])
            stays = arrived.filter(arrived.exp > moment.heartbeat)
            if len(stays):
                self._held.push(unnamed([pa.array(stays.exp), *stays.columns[-2:], *stays.columns[:-2]]))
            slots = self._values.place(arrived.columns[:-2], len(arrived)).slots
            changes = self._follow(slots, arrived.ts, begins, ends, arrived.exp, moment.heartbeat)
        else:
            none = np.empty(0, np.int64)
            changes = self._follow(none, none, none, none, none, moment.heartbeat)
        result = self._elements(*netted(*changes))
        if self._pending is not None:
            result = self._pending.closed(result, moment.heartbeat)
        self._values.shrink()
        return result

    def _follow(
        self, slots: Int64s, ts: Int64s, begins: Int64s, ends: Int64s, leaves: Int64s, heartbeat: int
    ) -> Int64s:
        """Return the changes of stretches by elements that come and go: (slot, time, begin, end, sign) by row."""
        self._room(len(slots))
        lanes = self._values.by_slot.integers
        out = np.empty((5, 2 * (2 * len(slots) + self._tail - self._head)), np.int64)
        head, mask = self._head, len(self._ring) - 1
        count, self._head = _pass(slots, ts, begins, ends, leaves, heartbeat, self._ring, head, self._tail, lanes, out)
        self._tail += len(slots)
        gone = self._ring[np.arange(head, self._head) & mask, _SLOT]
        self._values.touch(distinct_slots(np.concatenate([slots, gone]), self._values.count))
        return out[:, :count]

    def _room(self, more: int) -> None:
        """Make room in the ring for `more` elements."""
        needed = self._tail - self._head + more
        if needed <= len(self._ring):
            return
        numbers, old = np.arange(self._head, self._tail), len(self._ring) - 1
        ring = np.zeros((1 << int(2 * needed - 1).bit_length(), 6), np.int64)
        ring[numbers & (len(ring) - 1)] = self._ring[numbers & old]
        self._ring = ring

    def _renumbered(self, slots: Int64s) -> None:
        new = np.zeros(self._values.count, np.int64)
        new[slots] = np.arange(len(slots))
        places = np.arange(self._head, self._tail) & (len(self._ring) - 1)
        self._ring[places, _SLOT] = new[self._ring[places, _SLOT]]

    def _plant(self) -> None:
        """Rebuild the queues of the elements that were restored."""
        self._planted = True
        batches = self._held.contents()
        if not batches:
            return
        columns = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(batches[0].num_columns)]
        order = argsort_time(int64s(columns[1]))
        rows = pa.array(order)
        leaves, begins, ends = (int64s(column)[order] for column in columns[:3])
        slots = self._values.place([column.take(rows) for column in columns[3:]], len(order)).slots
        self._follow(slots, begins, begins, ends, leaves, int(leaves.min()) - 1)

    def _elements(self, slots: Int64s, times: Int64s, begins: Int64s, ends: Int64s, signs: Int64s) -> list[Elements]:
        if not len(slots):
            return []
        columns = (*self._values.key_columns(slots), pa.array(begins), pa.array(ends))
        return [Elements(columns, times, np.full(len(times), END, np.int64), signs)]
