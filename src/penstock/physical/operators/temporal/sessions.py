"""Session windows, and the window `[VALID]`.

A partition has at most one session that goes on, of which its first tick and its end so far are known; elements wait
until the end of theirs. They lie in a calendar queue by the earliest end that their session can have; when time has
come there and the session goes on, they wait for its end of then.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.kernels.compiled import argsort_code_time, distinct_slots
from penstock.physical.kernels.compiling import compiled
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.temporal.coalesce import with_periods
from penstock.physical.operators.temporal.left_out import CountsLeftOut, LeftOut, open_periods
from penstock.physical.operators.temporal.stretch_budget import (
    Admitted,
    BudgetOfStretches,
    DropsValues,
    MayHaveBudget,
    stretch_lanes,
)
from penstock.physical.plan.temporal.sessions import SessionsSpec, ValidWindowSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.shedding.hashing import FallingThresholds
from penstock.types import BEGIN, END

#: The lanes of a partition: whether a session goes on, its first tick, its end so far.
_ALIVE, _FIRST, _END = range(3)


@compiled(reads="slots order ts reach")
def _follow(
    slots: Int64s, order: Int64s, ts: Int64s, reach: Int64s, at_most: int, lanes: Int64s, firsts: Int64s, ended: Int64s
) -> int:
    """Put elements, in the order of time of every partition, into sessions; at_most: 0 for any length. firsts: the
    first tick of the session of each; ended: (slot, first, end) of the sessions that another one follows, and the
    element that begins it. Return how many these are."""
    count = 0
    for k in range(order.shape[0]):
        i = order[k]
        slot = slots[i]
        goes_on = lanes[slot, 0] != 0
        if not goes_on or ts[i] > lanes[slot, 2] or (at_most > 0 and ts[i] >= lanes[slot, 1] + at_most):
            if goes_on:
                ended[0, count], ended[1, count], ended[2, count] = slot, lanes[slot, 1], lanes[slot, 2]
                ended[3, count] = i
                count += 1
            lanes[slot, 0], lanes[slot, 1], lanes[slot, 2] = 1, ts[i], ts[i]
        end = max(lanes[slot, 2], reach[i])
        if at_most > 0:
            end = min(end, lanes[slot, 1] + at_most)
        lanes[slot, 2] = end
        firsts[i] = lanes[slot, 1]
    return count


def lasting(elements: Elements) -> Elements:
    """Return the elements whose gap, the last column, is positive."""
    gap = elements.columns[-1]
    return elements.filter(gap.is_valid().to_numpy(zero_copy_only=False) & (gap.fill_null(0).to_numpy() > 0))


def reached(elements: Elements) -> Int64s:
    """Return the ends of the gaps behind elements, END at most."""
    return elements.ts + np.minimum(int64s(elements.columns[-1]), END - elements.ts)


class Sessions(MayHaveBudget, DropsValues, CountsLeftOut, ReorderingOperator):
    """State: per partition the lanes above; the elements of sessions that go on, each with the first tick of its
    session."""

    def __init__(self, spec: SessionsSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec = spec
        keys = () if spec.budget is None else tuple(spec.types[i] for i in spec.partition)
        self._partitions = KeyedTable(stretch_lanes(spec.budget), 0, keys)
        if spec.budget is not None:
            self._budget = BudgetOfStretches(spec.budget, self._partitions, spec.at_most or 0, True, spec.open)
            if spec.records:
                self._budget.falling_thresholds()
        self._waiting = CalendarQueue()
        self._left_out = LeftOut()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"partitions": self._partitions, "waiting": self._waiting, **super().synopses()}

    def falling_thresholds(self) -> FallingThresholds:
        assert self._budget is not None
        return self._budget.falling_thresholds()

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(self._left_out.without_period(elements, lasting(elements)))
        return []

    def figures(self) -> FigureValues:
        return {**super().figures(), **open_periods(self._partitions, _ALIVE)}

    def advance(self, moment: Moment) -> list[Elements]:
        self._follow(moment)
        arrived = self._early.until(moment.heartbeat)
        ended = np.empty((4, 0), np.int64)
        result: list[Elements] = []
        if arrived is not None:
            ended, result = self._arrive(arrived)
        self._judge(moment)
        result += self._close(moment.heartbeat, ended)
        self._partitions.shrink()
        if self._budget is not None and BEGIN < moment.heartbeat < END:
            self._budget.pass_to(moment.heartbeat)
        return result

    def _slots(self, columns: list[pa.Array], rows: int) -> Int64s:
        return self._partitions.place([columns[i] for i in self._spec.partition], rows).slots

    def _arrive(self, arrived: Elements) -> tuple[Int64s, list[Elements]]:
        """Return the sessions that are followed by another: (slot, first, end, threshold below which they are emitted);
        and under OPEN the changes of those that continue."""
        admitted = None
        if self._budget is not None:
            admitted = self._admitted(arrived, self._budget)
            arrived = arrived.filter(admitted.kept)
        reach = reached(arrived)
        slots = self._slots(list(arrived.columns), len(arrived))
        order = argsort_code_time(slots, arrived.ts)
        firsts, ended = np.empty(len(arrived), np.int64), np.empty((4, len(arrived)), np.int64)
        lanes = self._partitions.by_slot.integers
        most = self._spec.at_most or 0
        count = int(_follow(slots, order, arrived.ts, reach, most, lanes, firsts, ended))
        self._partitions.touch(distinct_slots(slots, self._partitions.count))
        kept = arrived.with_columns(arrived.columns[:-1])
        due = np.minimum(reach, firsts + most) if most else reach
        dropped = admitted is not None and len(admitted.dropped) > 0
        if admitted is not None and dropped:
            # What is dropped at the instant of its arrival never enters.
            entered = self._dropped_at(admitted, slots, firsts) > arrived.ts
            kept, firsts, due = kept.filter(entered), firsts[entered], due[entered]
        if len(kept):
            self._waiting.push(unnamed([pa.array(due), pa.array(firsts), *kept.columns]))
        ended = ended[:, :count]
        if self._budget is not None and admitted is not None and self._spec.records:
            slots, _, ends, by = ended
            ended[3] = self._budget.told_below(slots, ends, arrived.ts[by], admitted.met[admitted.kept][by])
        result = [_opened(kept, firsts)] if self._spec.open else []
        if admitted is not None and dropped:
            result += self._forget(admitted)
        return ended, result

    def _dropped_at(self, admitted: Admitted, slots: Int64s, firsts: Int64s) -> Int64s:
        """Return the instant at which the session of each element, by slot and first tick, is dropped, else END."""
        at = np.full(self._partitions.count, END, np.int64)
        at[admitted.dropped] = admitted.at
        found: Int64s = np.where(firsts == self._partitions.integers[_FIRST, slots], at[slots], END)
        return found

    def _admitted(self, arrived: Elements, budget: BudgetOfStretches) -> Admitted:
        """Return of which elements the budget keeps the partition, and the partitions to forget behind them."""
        values = [arrived.columns[i] for i in self._spec.partition]
        slots = self._slots(list(arrived.columns), len(arrived))
        return budget.admit(values, slots, arrived.ts, arrived.ts, reached(arrived), arrived.ts - 1)

    def _forget(self, admitted: Admitted) -> list[Elements]:
        """Forget the open sessions of the partitions that are dropped, with their elements; return the retractions of
        these elements under OPEN."""
        self._partitions.integers[_ALIVE, admitted.dropped] = 0
        self._partitions.touch(distinct_slots(admitted.dropped, self._partitions.count))
        result: list[Elements] = []
        for batch in self._waiting.pop_until(END):
            columns = batch.columns
            firsts = int64s(columns[1])
            at = self._dropped_at(admitted, self._slots(columns[2:], batch.num_rows), firsts)
            gone = np.flatnonzero(at < END)
            if len(gone) < batch.num_rows:
                self._waiting.push(batch.filter(pa.array(at == END)))
            if self._spec.open and len(gone):
                result.append(self._session_rows(columns[2:], firsts, at, gone))
        return result

    def _close(self, heartbeat: int, ended: Int64s) -> list[Elements]:
        """Return the elements of the sessions that have ended; put those of others back, to wait for their end."""
        batches = self._waiting.pop_until(heartbeat)
        if not batches:
            return []
        columns = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(batches[0].num_columns)]
        firsts, columns = int64s(columns[1]), columns[2:]
        slots = self._slots(columns, len(firsts))
        lanes = self._partitions.integers
        current = np.unique(slots)
        current = current[lanes[_ALIVE, current] != 0]
        told_below = np.zeros(len(current), np.int64)
        if self._budget is not None and self._spec.records:
            last = lanes[_END, current]
            told_below = self._budget.told_below(current, last, np.full(len(last), END, np.int64), told_below)
        own = (current, *lanes[_FIRST : _END + 1, current], told_below)
        known = [np.concatenate([ended[k], lane]) for k, lane in enumerate(own)]
        session = _looked_up(known, slots, firsts)
        ends = known[2][session]
        over = ends <= heartbeat
        done = current[lanes[_END, current] <= heartbeat]
        lanes[_ALIVE, done] = 0
        self._partitions.touch(done)
        wait = np.flatnonzero(~over)
        if len(wait):
            rows = pa.array(wait)
            waits = [pa.array(ends[wait]), pa.array(firsts[wait]), *(c.take(rows) for c in columns)]
            self._waiting.push(unnamed(waits))
        chosen = np.flatnonzero(over)
        if not len(chosen):
            return []
        rows = self._session_rows(columns, firsts, ends, chosen)
        if self._budget is not None and self._spec.records:
            records = self._budget.records(slots[chosen], known[3][session[chosen]])
            rows = rows.with_columns((*rows.columns, records))
        return [rows]

    def _session_rows(self, columns: list[pa.Array], firsts: Int64s, ends: Int64s, chosen: Int64s) -> Elements:
        rows, first, end = pa.array(chosen), firsts[chosen], ends[chosen]
        shown = tuple(c.take(rows) for c in columns)
        never = np.full(len(chosen), END, np.int64)
        if self._spec.open:
            return Elements((*shown, pa.array(first), pa.array(never)), end, never, np.full(len(end), -1, np.int64))
        return Elements((*shown, pa.array(first), pa.array(end)), end, end + 1)


def _opened(arrived: Elements, firsts: Int64s) -> Elements:
    never = np.full(len(firsts), END, np.int64)
    return Elements((*arrived.columns, pa.array(firsts), pa.array(never)), arrived.ts, never)


def _looked_up(known: list[Int64s], slots: Int64s, firsts: Int64s) -> Int64s:
    """Return which session every (slot, first) is of. known: slots and firsts of all sessions that any of them may
    be, and what else is known of these."""
    sizes = len(known[0])
    slot, first = np.concatenate([known[0], slots]), np.concatenate([known[1], firsts])
    order = np.lexsort((np.arange(len(slot)), first, slot))
    last = np.maximum.accumulate(np.where(order < sizes, np.arange(len(order)), -1))
    session = np.empty(len(order), np.int64)
    session[order] = order[last]
    return session[sizes:]


class ValidWindow(CountsLeftOut):
    """Elements live while they are in their period, from their timestamp on at the earliest."""

    def __init__(self, spec: ValidWindowSpec) -> None:
        self._left_out = LeftOut()

    def process(self, port: int, elements: Elements) -> list[Elements]:
        there = self._left_out.without_period(elements, with_periods(elements))
        begin, end = (int64s(column) for column in there.columns[-2:])
        self._left_out.ended_on_arrival(there, end <= there.ts)
        ts, exp = np.maximum(there.ts, begin), np.minimum(there.exp, end)
        lived = ts < exp
        result = Elements(there.columns, ts, exp, there.sign)
        return [result if lived.all() else result.filter(lived)] if lived.any() else []
