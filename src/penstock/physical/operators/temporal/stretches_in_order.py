"""Coalescing of periods that begin in the order of time and never leave: class S of the strategies.

Of every value only the last stretch is known, until it is closed: one compare for an element. Earlier ones are final.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.kernels.compiled import argsort_code_time, argsort_time, distinct_slots, group_codes, in_time
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.temporal.coalesce import netted, with_periods, without_periods
from penstock.physical.operators.temporal.left_out import CountsLeftOut, LeftOut, open_periods
from penstock.physical.operators.temporal.pieces import cut_pieces
from penstock.physical.operators.temporal.stretch_budget import BudgetOfStretches, MayHaveBudget, stretch_lanes
from penstock.physical.plan.temporal.coalesce import CoalesceSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END

#: The lanes of a value: whether its last stretch may grow, the begin of that, its end.
_ALIVE, _BEGIN, _END = range(3)


@compiled(reads="slots order ts begins ends")
def _extend(
    slots: Int64s, order: Int64s, ts: Int64s, begins: Int64s, ends: Int64s, lanes: Int64s, out: Int64s, final: Int64s
) -> tuple[int, int]:
    """Extend the last stretches by periods, in order of (slot, begin). out: the changes (slot, time, begin, end, sign),
    final: the stretches (slot, begin, end) that another one follows, and the element that begins it. Return how many
    there are of each."""
    count, done = 0, 0
    for k in range(order.shape[0]):
        i = order[k]
        slot = slots[i]
        if lanes[slot, 0] != 0 and begins[i] <= lanes[slot, 2]:
            if ends[i] <= lanes[slot, 2]:
                continue
            out[0, count], out[1, count], out[2, count] = slot, ts[i], lanes[slot, 1]
            out[3, count], out[4, count] = lanes[slot, 2], -1
            count += 1
            lanes[slot, 2] = ends[i]
        else:
            if lanes[slot, 0] != 0:
                final[0, done], final[1, done], final[2, done] = slot, lanes[slot, 1], lanes[slot, 2]
                final[3, done] = i
                done += 1
            lanes[slot, 0], lanes[slot, 1], lanes[slot, 2] = 1, begins[i], ends[i]
        out[0, count], out[1, count], out[2, count] = slot, ts[i], lanes[slot, 1]
        out[3, count], out[4, count] = lanes[slot, 2], 1
        count += 1
    return count, done


class StretchPieces(Operator):
    """The pieces of stretches that a batch has. A piece counts from its first element on: its later elements cannot end
    a stretch that began before, and the stretch is not emitted before the heartbeat has reached them."""

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if elements.sign is not None:
            return [elements]
        there = with_periods(elements)
        if len(there) < len(elements):
            # Those without a period are counted where they are left out.
            return [*self.process(port, there), without_periods(elements)]
        begins, ends = (int64s(column) for column in elements.columns[-2:])
        codes, heads = group_codes(*fingerprints(elements.columns[:-2], len(elements)))
        order = np.arange(len(begins)) if in_time(begins) else argsort_time(begins)
        pieces, firsts, reached = (np.empty(len(begins), np.int64) for _ in range(3))
        latest = np.full(len(heads), -1, np.int64)
        count = int(cut_pieces(codes, order, begins, ends, False, latest, pieces, firsts, reached))
        if count == len(elements):
            return [elements]
        kept = elements.take(firsts[:count])
        return [kept.with_columns((*kept.columns[:-1], pa.array(reached[:count])))]


class StretchesInOrder(MayHaveBudget, CountsLeftOut, ReorderingOperator):
    """State: per value the lanes above. Emits the changes of stretches, or each stretch once when it is closed."""

    def __init__(self, spec: CoalesceSpec) -> None:
        super().__init__(ReorderBuffer())
        assert spec.in_order is not None
        self._closing = spec.in_order
        self._only_closed = spec.closed is not None
        self._values = KeyedTable(stretch_lanes(spec.budget), 0, spec.types[:-2])
        self._ends = ExpirationIndex(self._values, _END)
        self._left_out = LeftOut()
        if spec.budget is not None:
            self._budget = BudgetOfStretches(spec.budget, self._values)
        self._records = spec.records and self._budget is not None
        if self._budget is not None and self._records:
            self._budget.falling_thresholds()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"values": self._values, **super().synopses()}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(self._left_out.without_period(elements, with_periods(elements)))
        return []

    def figures(self) -> FigureValues:
        return {**super().figures(), **(open_periods(self._values, _ALIVE) if self._only_closed else {})}

    def advance(self, moment: Moment) -> list[Elements]:
        self._follow(moment)
        arrived = self._early.until(moment.heartbeat)
        changes: list[Elements] = []
        if arrived is not None:
            changes = self._arrive(arrived)
        self._judge(moment)
        closed = self._close(moment.heartbeat)
        self._values.shrink()
        return changes + closed

    def _arrive(self, arrived: Elements) -> list[Elements]:
        dropped = met = np.empty(0, np.int64)
        if self._budget is not None:
            arrived, dropped, met = self._admitted(arrived, self._budget)
        begins, ends = (int64s(column) for column in arrived.columns[-2:])
        placed = self._values.place(arrived.columns[:-2], len(arrived))
        lanes = self._values.by_slot.integers
        fresh = placed.unique[lanes[placed.unique, _ALIVE] == 0]
        order = argsort_code_time(placed.slots, begins)
        out, final = np.empty((5, 2 * len(arrived)), np.int64), np.empty((4, len(arrived)), np.int64)
        count, done = _extend(placed.slots, order, arrived.ts, begins, ends, lanes, out, final)
        self._values.touch(placed.unique)
        self._ends.put(fresh)
        if len(dropped):
            self._values.integers[_ALIVE, dropped] = 0
            self._values.touch(distinct_slots(dropped, self._values.count))
        if self._only_closed:
            slots, begins, ends, by = final[:, :done]
            followed = (arrived.ts[by], met[by]) if self._records else None
            return self._closed_rows(slots, begins, ends, followed)
        return self._changed(*netted(*out[:, :count]))

    def _admitted(self, arrived: Elements, budget: BudgetOfStretches) -> tuple[Elements, Int64s, Int64s]:
        """Return the elements of values that the budget keeps, the slots of values to forget behind them, and the
        thresholds that these elements met."""
        values = arrived.columns[:-2]
        slots = self._values.place(values, len(arrived)).slots
        begins, ends = (int64s(column) for column in arrived.columns[-2:])
        admitted = budget.admit(values, slots, arrived.ts, begins, ends, self._closing.last_ends(arrived.ts - 1))
        return arrived.filter(admitted.kept), admitted.dropped, admitted.met[admitted.kept]

    def _close(self, heartbeat: int) -> list[Elements]:
        """Forget the stretches that are closed; return them where only closed ones are emitted."""
        slots = self._ends.until(self._closing.last_end(heartbeat))
        if self._budget is not None:
            slots = slots[self._values.integers[_ALIVE, slots] != 0]
        if not len(slots):
            return []
        begins, ends = (self._values.integers[lane, slots].copy() for lane in (_BEGIN, _END))
        self._values.integers[_ALIVE, slots] = 0
        self._values.touch(distinct_slots(slots, self._values.count))
        return self._closed_rows(slots, begins, ends) if self._only_closed else []

    def _changed(self, slots: Int64s, times: Int64s, begins: Int64s, ends: Int64s, signs: Int64s) -> list[Elements]:
        return [self._elements(slots, times, begins, ends, signs)] if len(slots) else []

    def _closed_rows(
        self, slots: Int64s, begins: Int64s, ends: Int64s, followed: tuple[Int64s, Int64s] | None = None
    ) -> list[Elements]:
        """Return stretches that are closed.

        Args:
            followed: the timestamps of the elements that begin the next stretches, and the thresholds that they met.
        """
        if not len(slots):
            return []
        closes = self._closing.instants(ends)
        rows = self._elements(slots, closes, begins, ends, None)
        if self._budget is None or not self._records:
            return [rows]
        by, met = followed or (np.full(len(slots), END, np.int64), closes)
        records = self._budget.records(slots, self._budget.told_below(slots, closes, by, met))
        return [rows.with_columns((*rows.columns, records))]

    def _elements(self, slots: Int64s, times: Int64s, begins: Int64s, ends: Int64s, signs: Int64s | None) -> Elements:
        columns = (*self._values.key_columns(slots), pa.array(begins), pa.array(ends))
        return Elements(columns, times, np.full(len(times), END, np.int64), signs)
