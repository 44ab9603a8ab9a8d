"""The frequency operator: every n-th element of a stream, or the last element of each time slot (`[csql 4.3]`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.arrays import Bools
from penstock.compilation import loop
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.compiled import argsort_time, group_codes, with_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.kernels.ticks import round_up
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ArrivalOrderBuffer, ReorderingOperator
from penstock.physical.plan.sequence import FrequencySpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.physical.synopses.tables.materialized import MaterializedElements
from penstock.types import END


class EveryNth(ReorderingOperator):
    """State: per substream, the number of elements since the last one emitted; elements ahead of the heartbeat."""

    def __init__(self, spec: FrequencySpec) -> None:
        assert spec.rows is not None
        super().__init__(ArrivalOrderBuffer(spec.arrival))
        self._spec, self._rows = spec, spec.rows
        self._counts = KeyedTable(1, 0)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "counts": self._counts}

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat if self._spec.waits else moment.frontier)
        if arrived is None:
            return []
        first, second = fingerprints([arrived.columns[i] for i in self._spec.partition], len(arrived))
        slots = self._counts.slots(first, second)
        picked = np.zeros(len(arrived), np.bool_)
        _count(slots, self._counts.integers, self._rows, picked)
        self._counts.touch(slots)
        self._counts.shrink()
        return [arrived.filter(picked)] if picked.any() else []


@loop
def _count(slots: Int64s, counts: Int64s, rows: int, picked: Bools) -> None:
    for i in range(slots.shape[0]):
        slot = slots[i]
        counts[0, slot] += 1
        if counts[0, slot] == rows:
            counts[0, slot] = 0
            picked[i] = True


class LastOfSlot(ReorderingOperator):
    """State: the latest element of each substream in the time slots that have not ended; elements ahead of the
    heartbeat."""

    def __init__(self, spec: FrequencySpec) -> None:
        assert spec.slot is not None
        super().__init__(ArrivalOrderBuffer(spec.arrival))
        self._spec, self._slot = spec, spec.slot
        self._last = MaterializedElements()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "last": self._last}

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        # The elements in the state arrived before all elements of this round.
        parts = [] if self._last.elements is None else [self._last.elements]
        if arrived is not None:
            parts.append(arrived)
        if not sum(map(len, parts)):
            return []
        every = concat([part for part in parts if len(part)])
        stamps = round_up(every.ts, self._slot, 0)
        last = self._last_ones(every, stamps)
        over = stamps[last] <= moment.heartbeat
        self._last.replace(every.take(last[~over]))
        emitted, when = every.take(last[over]), stamps[last[over]]
        if not len(emitted):
            return []
        return [Elements(emitted.columns, when, np.full(len(emitted), END)).take(argsort_time(when))]

    def _last_ones(self, every: Elements, stamps: Int64s) -> Int64s:
        """Return the row numbers of the last element of every (substream, slot), in ascending order."""
        first, second = fingerprints([every.columns[i] for i in self._spec.partition], len(every))
        codes, heads = group_codes(*with_time(first, second, stamps))
        last = np.empty(len(heads), np.int64)
        last[codes] = np.arange(len(every))  # of equal codes the last one is written last
        return np.sort(last)


def make_every_nth(spec: FrequencySpec) -> Operator:
    return EveryNth(spec) if spec.slot is None else LastOfSlot(spec)
