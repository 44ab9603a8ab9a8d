"""The gaps between stretches, from their changes.

A gap is what two neighbours of a value leave between them, and the open one what the last stretch has behind it. So a
stretch that comes or goes changes at most three gaps; what came and went at one instant is netted. An open gap that is
not there yet is emitted with the instant from which on it is; an earlier retraction cancels it there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.temporal.coalesce import Stretches, netted
from penstock.physical.plan.temporal.gaps import GapsSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END


@compiled(reads="slots order ts begins ends")
def _follow(slots: Int64s, order: Int64s, ts: Int64s, begins: Int64s, ends: Int64s, lanes: Int64s, out: Int64s) -> int:
    """Follow stretches that come, in order of (value, time, begin): one that begins as the last one is that, grown.
    out: the changes of gaps (slot, time, begin, end, sign); those from END on stand for none. Return how many."""
    never, count = np.int64(END), 0
    for k in range(order.shape[0]):
        i = order[k]
        slot = slots[i]
        if lanes[slot, 0] != 0:
            out[0, count], out[1, count], out[2, count] = slot, ts[i], lanes[slot, 2]
            out[3, count], out[4, count] = never, -1
            count += 1
            if begins[i] != lanes[slot, 1]:
                out[0, count], out[1, count], out[2, count] = slot, ts[i], lanes[slot, 2]
                out[3, count], out[4, count] = begins[i], 1
                count += 1
        lanes[slot, 0], lanes[slot, 1], lanes[slot, 2] = 1, begins[i], ends[i]
        out[0, count], out[1, count], out[2, count] = slot, ts[i], ends[i]
        out[3, count], out[4, count] = never, 1
        count += 1
    return count


class _Following(ReorderingOperator):
    """What both strategies share: how changes of gaps are emitted."""

    def __init__(self, spec: GapsSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec = spec

    def _emitted(self, values: KeyedTable, changes: Int64s) -> list[Elements]:
        """Return changes, one per column, as elements, those of an instant netted."""
        spec = self._spec
        kept = changes[3] != END if spec.only_ended else changes[2] < END
        slots, times, begins, ends, signs = netted(*np.ascontiguousarray(changes[:, kept]))
        if not spec.only_ended:
            known = np.where(ends == END, spec.closing.instants(begins), times)
            there = known < END
            slots, begins, ends, signs = (lane[there] for lane in (slots, begins, ends, signs))
            times = np.maximum(times, known)[there]
        if not len(slots):
            return []
        columns = (*values.key_columns(slots), pa.array(begins), pa.array(ends))
        return [Elements(columns, times, np.full(len(times), END, np.int64), signs)]


class GapsInOrder(_Following):
    """Of stretches that begin in the order of time and stay. State: the last one of every value."""

    def __init__(self, spec: GapsSpec) -> None:
        super().__init__(spec)
        self._values = KeyedTable(3, 0, spec.types[:-2])

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"values": self._values, **super().synopses()}

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        # What goes is a stretch that has grown, which comes with the same begin.
        came = arrived.filter(arrived.signs > 0)
        if not len(came):
            return []
        begins, ends = (int64s(column) for column in came.columns[-2:])
        placed = self._values.place(came.columns[:-2], len(came))
        order = np.lexsort((begins, came.ts, placed.slots))
        out = np.empty((5, 3 * len(came)), np.int64)
        count = int(_follow(placed.slots, order, came.ts, begins, ends, self._values.by_slot.integers, out))
        self._values.touch(placed.unique)
        return self._emitted(self._values, out[:, :count])


class GapsOfChanges(_Following):
    """Of stretches that come and go anywhere. State: all of them, one row each; the trees of every value, in which
    their neighbours are found in logarithmic time, are not written, they follow from the rows."""

    def __init__(self, spec: GapsSpec) -> None:
        super().__init__(spec)
        self._rows = KeyedTable(1, 0, spec.types)
        self._stretches = Stretches(spec.types[:-2])
        self._rows.beside.append(lambda: self._stretches.values.nbytes)
        self._planted = False

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"rows": self._rows, **super().synopses()}

    def advance(self, moment: Moment) -> list[Elements]:
        if not self._planted:
            self._plant(self._rows.live())
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        rows = self._rows.place(arrived.columns, len(arrived))
        np.add.at(self._rows.integers[0], rows.slots, arrived.signs)
        self._rows.touch(rows.unique)
        begins, ends = (int64s(column) for column in arrived.columns[-2:])
        changes = self._stretches.gaps(arrived.columns[:-2], arrived.ts, begins, ends, arrived.signs)
        result = self._emitted(self._stretches.values, changes)
        self._rows.shrink()
        self._stretches.values.shrink()
        return result

    def _plant(self, slots: Int64s) -> None:
        """Rebuild the trees of the rows that were restored."""
        self._planted = True
        if len(slots):
            columns = self._rows.key_columns(slots)
            self._stretches.plant(columns[:-2], int64s(columns[-2]), int64s(columns[-1]))
