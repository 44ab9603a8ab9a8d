"""The items that are frequent in the lists of all live panes: Algorithm 6 of `[golab 6]`, boundary by boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.frequent import Measure
from penstock.figures import MISSED_SHARE, PAIRS_HELD
from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.kernels.compiled import argsort_code_time, argsort_time, distinct_slots, sum_by_code
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.kernels.wide import joined
from penstock.physical.operators.aggregates.cells.cutting import codes_of_panes, ranked
from penstock.physical.operators.aggregates.frequent.sweeping import (
    EVENT_LANES,
    ITEM_LANES,
    KEY,
    MEASURE_LANES,
    MISSED,
    PER_LANES,
    TOTAL,
    measures,
    sweep,
)
from penstock.physical.operators.aggregates.groups.group_rows import GroupHistory, changed_rows
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.panes import FrequentItemsSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END

_PLACES = (Measure.RECORDED, Measure.UPPER, Measure.MISSED)


@dataclass(frozen=True)
class _Lists:
    """Items of lists. item, per: fingerprints (2, rows) of the item and of its PER columns; lanes: as of an event of
    `sweeping.py`, by (row, lane)."""

    times: Int64s
    sign: int
    item: Int64s
    per: Int64s
    lanes: Int64s


class FrequentItems(Operator):
    """State: the listed items and the values of the PER columns, each with the sums over its live lists; the items of
    live lists by their expiration; candidates ahead of the heartbeat."""

    def __init__(self, spec: FrequentItemsSpec) -> None:
        self._spec = spec
        self._early = ReorderBuffer()
        self._items = KeyedTable(ITEM_LANES, 0, spec.keys)
        self._pers = KeyedTable(PER_LANES, 0)
        self._live = CalendarQueue()
        self._emitted = np.array([m in spec.measures for m in _PLACES])

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "items": self._items, "pers": self._pers, "live": self._live}

    def figures(self) -> FigureValues:
        """Return the items of live lists, and the greatest share δ/N of any value of the PER columns."""
        pers = self._pers.by_slot.integers[: self._pers.count].astype(np.float64)
        missed, total = (pers[:, lane] * 2.0**32 + pers[:, lane + 1] for lane in (MISSED, TOTAL))
        share = np.divide(missed, total, out=np.zeros(len(pers)), where=total > 0)
        return {PAIRS_HELD: self._live.rows, MISSED_SHARE: float(share.max(initial=0.0))}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        parts = [_unpacked(batch) for batch in self._live.pop_until(moment.heartbeat)]
        due = self._early.until(moment.heartbeat)
        if due is not None:
            parts += self._lists(due, moment.heartbeat)
        parts = [part for part in parts if len(part.times)]
        changed = self._course(parts) if parts else []
        self._items.shrink()
        self._pers.shrink()
        return changed

    def _lists(self, due: Elements, heartbeat: int) -> list[_Lists]:
        """Cut the candidates of panes to their lists; return their beginnings, and the ends up to `heartbeat`."""
        width, k = len(self._spec.keys), self._spec.k
        numbers = [int64s(column) for column in due.columns[width:]]
        codes, heads = codes_of_panes(due, self._spec.per)
        chosen, rank = ranked(codes, numbers[0], numbers[1], due.columns[:width], k + 1)
        own = codes[chosen]
        lanes = np.zeros((len(chosen), EVENT_LANES), np.int64)
        lanes[:, 0], lanes[:, 1] = numbers[0][chosen], numbers[1][chosen]
        beyond = np.flatnonzero(rank == k)
        missed = beyond - 1 if self._spec.thesis else beyond
        delta = np.zeros((len(heads), 2), np.int64)
        delta[own[beyond]] = lanes[missed, :2]
        lanes[:, 2:4] = delta[own]
        first = rank == 0
        lanes[:, 4] = first
        for lane, part in enumerate(numbers[2:], 5):
            lanes[:, lane] = np.where(first, sum_by_code(codes, part, len(heads))[own], 0)
        kept = np.flatnonzero(rank < k)
        rows, lanes = due.take(chosen[kept]), lanes[kept]
        keys = rows.columns[:width]
        item = _pair(*fingerprints(keys, len(rows)))
        per = _pair(*fingerprints([keys[i] for i in self._spec.per], len(rows)))
        self._enter(keys, item, per)
        ended = rows.exp <= heartbeat
        begun = _Lists(rows.ts, 1, item, per, lanes)
        gone = _Lists(rows.exp[ended], -1, item[:, ended], per[:, ended], lanes[ended])
        later = ~ended & (rows.exp < END)
        if later.any():
            columns = [rows.exp[later], *item[:, later], *per[:, later], *lanes[later].T]
            self._live.push(unnamed([pa.array(np.ascontiguousarray(column)) for column in columns]))
        return [begun, gone]

    def _enter(self, keys: tuple[pa.Array, ...], item: Int64s, per: Int64s) -> None:
        """Give items, and the values of their PER columns, a slot."""
        first, second = item.view(np.uint64)
        slots = self._items.slots(first, second, keys)
        self._items.integers[KEY : KEY + 2, slots] = per
        first, second = per.view(np.uint64)
        self._pers.slots(first, second)

    def _course(self, parts: list[_Lists]) -> list[Elements]:
        """Apply the lists that come and go; return the changes of the result."""
        spec, items, pers = self._spec, self._items, self._pers
        slots = np.concatenate([items.find(*part.item.view(np.uint64)) for part in parts])
        owners = np.concatenate([pers.find(*part.per.view(np.uint64)) for part in parts])
        times = np.concatenate([part.times for part in parts])
        signs = np.concatenate([np.full(len(part.times), part.sign) for part in parts])
        lanes = np.concatenate([part.lanes for part in parts])
        count = items.count
        keys = np.ascontiguousarray(items.integers[KEY : KEY + 2, :count]).view(np.uint64)
        per_of = pers.find(keys[0], keys[1])
        rule = (int(spec.rule), spec.possibly, *spec.number)
        shown, live = measures(items.by_slot.integers, pers.by_slot.integers, per_of, count, *rule)
        before, was_live = shown.copy(), live.copy()
        rows = sweep(
            slots,
            owners,
            times,
            signs,
            lanes,
            argsort_time(times),
            per_of,
            self._emitted,
            items.by_slot.integers,
            pers.by_slot.integers,
            shown,
            live,
            *rule,
        )
        items.touch(distinct_slots(slots, count))
        pers.touch(distinct_slots(owners, pers.count))
        if not rows.shape[1]:
            return []
        rows = rows[:, argsort_code_time(rows[0], rows[1])]
        touched = distinct_slots(rows[0], count)
        course = GroupHistory(
            rows[0],
            rows[1],
            rows[2].astype(np.bool_),
            self._columns(rows[3:]),
            touched,
            was_live[touched],
            self._columns(before[touched].T),
        )
        return changed_rows(course, items)

    def _columns(self, lanes: Int64s) -> list[pa.Array]:
        """Return the measures that are emitted. lanes: by (lane, row)."""
        assert len(lanes) == MEASURE_LANES
        places = [_PLACES.index(measure) for measure in self._spec.measures]
        return [joined(lanes[2 * place], lanes[2 * place + 1], self._spec.type) for place in places]


def _pair(first: UInt64s, second: UInt64s) -> Int64s:
    return np.stack([first, second]).view(np.int64)


def _unpacked(batch: pa.RecordBatch) -> _Lists:
    columns = [int64s(column) for column in batch.columns]
    lanes = np.stack(columns[5:], axis=1)
    return _Lists(columns[0], -1, np.stack(columns[1:3]), np.stack(columns[3:5]), lanes)
