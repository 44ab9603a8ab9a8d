"""Coalescing of any periods, which may leave in any order: class G of the strategies.

The different rows (value, begin, end) are counted as DISTINCT counts them. Where one appears or disappears, the cover
of its value changes (`kernels/coverage.py`), and with it the stretches that it touches; what came and what went at one
instant is netted. The trees of cover are not written: they follow from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.coalesce import Closing
from penstock.physical.elements import Bools, Elements, Int64s, int64s, unnamed
from penstock.physical.kernels import coverage
from penstock.physical.kernels.compiled import argsort_code_time, distinct_slots
from penstock.physical.kernels.extremes import transitions
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.sets.tuple_counts import CountedTuples
from penstock.physical.operators.streams.changes import net
from penstock.physical.operators.temporal.left_out import CountsLeftOut, LeftOut
from penstock.physical.plan.temporal.coalesce import CoalesceSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END


class Stretches:
    """The cover of every value by its periods. The table of values has one lane: the number of periods."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.values = KeyedTable(1, 0, types)
        self._nodes = coverage.no_nodes()
        self._roots = np.zeros(16, np.int64)
        self._periods = 0
        self.values.followers.append(self._renumbered)
        self.values.beside.append(lambda: self._nodes.nbytes + self._roots.nbytes)

    def _renumbered(self, slots: Int64s) -> None:
        kept = np.zeros(len(self._roots), np.int64)
        kept[: len(slots)] = self._roots[slots]
        self._roots = kept

    def _room(self, more: int) -> None:
        """Make room for `more` periods that come, and for all values."""
        if self.values.count > len(self._roots):
            roots = np.zeros(2 * self.values.count, np.int64)
            roots[: len(self._roots)] = self._roots
            self._roots = roots
        needed = 2 * (self._periods + more) + 2
        if needed > len(self._nodes):
            self._nodes = coverage.grown(self._nodes, 2 * needed)

    def plant(self, columns: Sequence[pa.Array], begins: Int64s, ends: Int64s) -> None:
        """Add the periods of values of restored state, without returning changes."""
        slots = self._placed(columns, np.ones(len(begins), np.int64))
        coverage.plant(self._nodes, self._roots, slots, begins, ends)

    def follow(
        self, columns: Sequence[pa.Array], times: Int64s, begins: Int64s, ends: Int64s, weights: Int64s
    ) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
        """Apply periods of values that come (weight 1) and go (-1) at `times`; return the changes of stretches, those
        of an instant netted: slots of the values, times, begins, ends, signs."""
        slots = self._placed(columns, weights)
        order = argsort_code_time(slots, times)
        out = coverage.follow(self._nodes, self._roots, slots, order, begins, ends, weights)
        return netted(out[0], times[out[1]], out[2], out[3], out[4])

    def gaps(self, columns: Sequence[pa.Array], times: Int64s, begins: Int64s, ends: Int64s, weights: Int64s) -> Int64s:
        """Apply stretches that come and go; those of a value never touch, where at one instant those that go are gone
        before others come. Return the changes of the gaps between them, one per column: slot of the value, time,
        begin, end, sign; without an end END."""
        slots = self._placed(columns, weights)
        order = np.lexsort((weights, times, slots))
        out: Int64s = coverage.follow_gaps(self._nodes, self._roots, slots, order, begins, ends, weights)
        out[1] = times[out[1]]
        return out

    def _placed(self, columns: Sequence[pa.Array], weights: Int64s) -> Int64s:
        """Count periods of values that come and go, with room for those that come; return the slots of the values."""
        slots = self.values.place(columns, len(weights)).slots
        self._room(int((weights > 0).sum()))
        self._periods += int(weights.sum())
        np.add.at(self.values.integers[0], slots, weights)
        self.values.touch(distinct_slots(slots, self.values.count))
        return slots


def netted(
    slots: Int64s, times: Int64s, begins: Int64s, ends: Int64s, signs: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Return the changes without those that cancel at one instant, by (slot, time, begin, end)."""
    order = np.lexsort((ends, begins, times, slots))
    columns = [column[order] for column in (slots, times, begins, ends)]
    new = np.ones(len(order), np.bool_)
    if len(order) > 1:
        new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    heads = np.flatnonzero(new)
    sums = np.add.reduceat(signs[order], heads) if len(heads) else signs[:0]
    kept = heads[sums != 0]
    first, second, third, fourth = (column[kept] for column in columns)
    return first, second, third, fourth, sums[sums != 0]


class PendingStretches:
    """The changes of stretches that are not closed yet, in `queue`, where only closed ones are emitted.

    Args:
        closing: when stretches are closed.
    """

    def __init__(self, closing: Closing) -> None:
        self._closing = closing
        self.queue = CalendarQueue()

    def closed(self, changes: list[Elements], heartbeat: int) -> list[Elements]:
        """Return the changes of the stretches that are closed. A stretch that begins to exist before it is closed waits
        until then. One that is replaced before is never emitted: its end waits too, and cancels it."""
        result = []
        for elements in changes:
            due = self._closing.instants(int64s(elements.columns[-1]))
            # Changes of a stretch that is never closed are dropped.
            ever = due < END
            if not ever.all():
                elements, due = elements.filter(ever), due[ever]
            waits = (elements.ts < due) | ((elements.sign == -1) & (elements.ts == due))
            if waits.any():
                held = elements.filter(waits)
                self.queue.push(unnamed([pa.array(due[waits]), pa.array(held.signs), *held.columns]))
            if len(elements) and not waits.all():
                result.append(elements.filter(~waits))
        batches = self.queue.pop_until(heartbeat)
        if batches:
            columns = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(batches[0].num_columns)]
            due, signs = int64s(columns[0]), int64s(columns[1])
            never = np.full(len(due), END, np.int64)
            changed = net(Elements(tuple(columns[2:]), due, never, signs))
            if len(changed):
                result.append(changed)
        return result


class Coalescing(CountsLeftOut):
    """State: the different rows with lanes [copies], and the pending expirations; where only closed stretches are
    emitted, those that are not closed yet."""

    def __init__(self, spec: CoalesceSpec) -> None:
        self._types = spec.types
        self._rows = CountedTuples(spec.types, 1, listed=spec.listed)
        self._stretches = Stretches(spec.types[:-2])
        self._pending = None if spec.closed is None else PendingStretches(spec.closed)
        self._planted = False
        self._left_out = LeftOut()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**self._rows.synopses(), **({} if self._pending is None else {"pending": self._pending.queue})}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._rows.add(0, self._left_out.without_period(elements, with_periods(elements)))
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        rows, stretches = self._rows.tuples, self._stretches
        if not self._planted:
            self._plant(rows.live())
        result = self._changes(moment.heartbeat)
        if self._pending is not None:
            result = self._pending.closed(result, moment.heartbeat)
        rows.shrink()
        stretches.values.shrink()
        return result

    def _changes(self, heartbeat: int) -> list[Elements]:
        rows, stretches = self._rows.tuples, self._stretches
        events = self._rows.events(heartbeat)
        if events is None:
            return []
        order = argsort_code_time(events.slots, events.times)
        event, step = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        count = int(transitions(events.slots, events.times, order, events.weights, rows.integers[0], event, step))
        chosen = event[:count]
        changed = rows.key_columns(events.slots[chosen])
        rows.touch(distinct_slots(events.slots, rows.count))
        if not count:
            return []
        begins, ends = int64s(changed[-2]), int64s(changed[-1])
        changes = stretches.follow(changed[:-2], events.times[chosen], begins, ends, step[:count])
        return self._elements(*changes)

    def _plant(self, slots: Int64s) -> None:
        """Rebuild the cover of the rows that were restored."""
        self._planted = True
        if len(slots):
            columns = self._rows.tuples.key_columns(slots)
            self._stretches.plant(columns[:-2], int64s(columns[-2]), int64s(columns[-1]))

    def _elements(self, slots: Int64s, times: Int64s, begins: Int64s, ends: Int64s, signs: Int64s) -> list[Elements]:
        if not len(slots):
            return []
        columns = (*self._stretches.values.key_columns(slots), pa.array(begins), pa.array(ends))
        return [Elements(columns, times, np.full(len(times), END, np.int64), signs)]


def with_periods(elements: Elements) -> Elements:
    """Return the elements that have a period: both of its ends, the begin before the end."""
    there = _have_periods(elements)
    return elements if there.all() else elements.filter(there)


def without_periods(elements: Elements) -> Elements:
    """Return the other ones."""
    return elements.filter(~_have_periods(elements))


def _have_periods(elements: Elements) -> Bools:
    begin, end = elements.columns[-2:]
    if not (begin.null_count or end.null_count):
        return int64s(begin) < int64s(end)
    there: Bools = np.asarray(begin.is_valid()) & np.asarray(end.is_valid())
    return there & (int64s(begin.fill_null(0)) < int64s(end.fill_null(0)))
