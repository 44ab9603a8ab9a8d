"""Elements whose period lasts until the next one of the same values, and rows that have lasted for so long.

Of every value the elements with its latest timestamp are open. They end when a later one arrives, or when time has come
to the longest period. Their rows are in a table, linked by value; the links are not written: they follow from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.until_next import Lives
from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.kernels.compiled import argsort_code_time, distinct_slots
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.ticks import later, round_up
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.streams.changes import net
from penstock.physical.operators.temporal.coalesce import with_periods
from penstock.physical.plan.temporal.until_next import LastingSpec, UntilNextSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END

#: The lanes of a value: whether elements are open, their timestamp, when they end at the latest.
_ALIVE, _LAST, _DUE = range(3)


@compiled(reads="keys rows order ts weights dues")
def _follow(
    keys: Int64s,
    rows: Int64s,
    order: Int64s,
    ts: Int64s,
    weights: Int64s,
    dues: Int64s,
    values: Int64s,
    copies: Int64s,
    heads: Int64s,
    links: Int64s,
    ended: Int64s,
) -> int:
    """Add elements, in the order of time of every value; a later one ends those before it. keys, rows: the slots of
    their values and of their rows; values, copies: the lanes of both tables; heads, links: the rows of every value.
    ended: (slot of the row, begin, end, copies) of the elements that have ended; return how many."""
    count = 0
    for k in range(order.shape[0]):
        i = order[k]
        key, row = keys[i], rows[i]
        if values[key, 0] != 0 and ts[i] > values[key, 1]:
            end = min(ts[i], values[key, 2])
            other = heads[key]
            while other >= 0:
                ended[0, count], ended[1, count], ended[2, count] = other, values[key, 1], end
                ended[3, count] = copies[other, 0]
                copies[other, 0] = 0
                count += 1
                other = links[other]
            heads[key] = -1
        values[key, 0], values[key, 1], values[key, 2] = 1, ts[i], dues[i]
        if copies[row, 0] == 0:
            links[row] = heads[key]
            heads[key] = row
        copies[row, 0] += weights[i]
    return count


@compiled(reads="keys values")
def _end(keys: Int64s, values: Int64s, copies: Int64s, heads: Int64s, links: Int64s, ended: Int64s) -> int:
    """End the elements of values whose time has come; `ended` as of `_follow`. Return how many elements they are."""
    count = 0
    for k in range(keys.shape[0]):
        key = keys[k]
        other = heads[key]
        while other >= 0:
            ended[0, count], ended[1, count], ended[2, count] = other, values[key, 1], values[key, 2]
            ended[3, count] = copies[other, 0]
            copies[other, 0] = 0
            count += 1
            other = links[other]
        heads[key] = -1
    return count


@compiled(reads="keys rows")
def _link(keys: Int64s, rows: Int64s, heads: Int64s, links: Int64s) -> None:
    for k in range(keys.shape[0]):
        links[rows[k]] = heads[keys[k]]
        heads[keys[k]] = rows[k]


class UntilNext(ReorderingOperator):
    """State: per value the lanes above; the different rows of open elements, with the number of their copies; results
    before the boundary at which they are visible."""

    def __init__(self, spec: UntilNextSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec = spec
        self._values = KeyedTable(3, 0)
        self._rows = KeyedTable(1, 0, spec.types)
        self._dues = ExpirationIndex(self._values, _DUE)
        self._results = ReorderBuffer()
        self._heads = np.full(16, -1, np.int64)
        self._links = np.full(16, -1, np.int64)
        self._linked = False
        for table in (self._values, self._rows):
            table.followers.append(self._renumbered)
        self._values.beside.append(lambda: self._heads.nbytes + self._links.nbytes)

    def synopses(self) -> Mapping[str, Synopsis]:
        own = {"values": self._values, "rows": self._rows, **super().synopses()}
        return own if self._spec.slide is None else {**own, "results": self._results.queue}

    def _renumbered(self, slots: Int64s) -> None:
        self._linked = False

    def advance(self, moment: Moment) -> list[Elements]:
        if not self._linked:
            self._relink()
        result: list[Elements] = []
        arrived = self._early.until(moment.heartbeat)
        if arrived is not None:
            result += self._arrive(arrived)
        result += self._pass(moment.heartbeat)
        self._values.shrink()
        self._rows.shrink()
        result = [part for part in result if len(part)]
        return result if self._spec.slide is None else self._visible(result, moment.heartbeat)

    def _relink(self) -> None:
        """Link the open rows of every value again, after they were restored or got other slots."""
        self._heads, self._links = (np.full(max(16, t.count), -1, np.int64) for t in (self._values, self._rows))
        rows = self._rows.live()
        if len(rows):
            columns = self._rows.key_columns(rows)
            keys = self._values.place([columns[i] for i in self._spec.by], len(rows)).slots
            self._room()
            _link(keys, rows, self._heads, self._links)
        self._linked = True

    def _room(self) -> None:
        self._heads, self._links = (
            array if len(array) >= table.count else np.concatenate([array, np.full(2 * table.count, -1, np.int64)])
            for array, table in ((self._heads, self._values), (self._links, self._rows))
        )

    def _arrive(self, arrived: Elements) -> list[Elements]:
        spec, count = self._spec, len(arrived)
        most = self._rows.rows
        placed = self._values.place([arrived.columns[i] for i in spec.by], count)
        rows = self._rows.place(arrived.columns, count)
        self._room()
        values, copies = self._values.by_slot.integers, self._rows.by_slot.integers
        fresh = placed.unique[values[placed.unique, _ALIVE] == 0]
        dues = np.full(count, END, np.int64) if spec.at_most is None else later(arrived.ts, spec.at_most)
        order = argsort_code_time(placed.slots, arrived.ts)
        ended = np.empty((4, most + count), np.int64)
        done = int(
            _follow(
                placed.slots,
                rows.slots,
                order,
                arrived.ts,
                arrived.signs,
                dues,
                values,
                copies,
                self._heads,
                self._links,
                ended,
            )
        )
        self._values.touch(placed.unique)
        self._dues.put(fresh)
        result = self._ended(ended[:, :done])
        self._rows.touch(distinct_slots(np.concatenate([rows.slots, ended[0, :done]]), self._rows.count))
        return [self._opened(arrived), *result] if spec.lives is not None else result

    def _pass(self, heartbeat: int) -> list[Elements]:
        """End the elements that have lasted for as long as they may."""
        if self._spec.at_most is None:
            return []
        due = self._dues.until(heartbeat)
        if not len(due):
            return []
        ended = np.empty((4, self._rows.rows), np.int64)
        values, copies = self._values.by_slot.integers, self._rows.by_slot.integers
        count = int(_end(due, values, copies, self._heads, self._links, ended))
        values[due, _ALIVE] = 0
        self._values.touch(due)
        result = self._ended(ended[:, :count])
        self._rows.touch(distinct_slots(ended[0, :count], self._rows.count))
        return result

    # --- what is emitted

    def _opened(self, arrived: Elements) -> Elements:
        """Return elements that arrive, with an open period."""
        count = len(arrived)
        columns = (*arrived.columns, pa.array(arrived.ts), pa.array(np.full(count, END, np.int64)))
        start = self._rounded(arrived.ts)
        return _living(Elements(columns, start, self._open_until(arrived.ts), arrived.sign))

    def _open_until(self, begin: Int64s) -> Int64s:
        """Return when elements go that stay open."""
        return self._after(begin) if self._spec.lives is Lives.WINDOW else np.full(len(begin), END, np.int64)

    def _ended(self, ended: Int64s) -> list[Elements]:
        """Return what elements change that have ended: (slot of the row, begin, end, copies) of each."""
        spec = self._spec
        slots, begin, end, copies = (np.ascontiguousarray(lane) for lane in ended)
        if not len(slots):
            return []
        columns = self._rows.key_columns(slots)
        never = np.full(len(slots), END, np.int64)
        closed = (*columns, pa.array(begin), pa.array(end))
        if spec.lives is None:
            return [Elements(closed, end, never, copies)]
        start, known = self._rounded(begin), self._rounded(end)
        gone = self._open_until(begin)
        at = np.maximum(start, known)
        opened = _living(Elements((*columns, pa.array(begin), pa.array(never)), at, gone, -copies))
        if spec.lives is Lives.CURRENT:
            return [opened]
        until = gone if spec.lives is Lives.WINDOW else self._after(end)
        return [opened, _living(Elements(closed, at, until, copies))]

    def _after(self, ticks: Int64s) -> Int64s:
        """Return when the window of elements ends that enter it at `ticks`."""
        if self._spec.length is None:
            return np.full(len(ticks), END, np.int64)
        return self._rounded(later(ticks, self._spec.length))

    def _rounded(self, ticks: Int64s) -> Int64s:
        spec = self._spec
        if spec.slide is None:
            return ticks
        return np.where(ticks < END, round_up(ticks, spec.slide, spec.align), END)

    def _visible(self, result: list[Elements], heartbeat: int) -> list[Elements]:
        """Return the results up to the heartbeat. What comes and goes at one boundary is netted."""
        for part in result:
            self._results.add(part)
        due = self._results.until(heartbeat)
        if due is None:
            return []
        changed = net(due.with_columns((*due.columns, pa.array(due.exp))))
        return [changed.with_columns(changed.columns[:-1])] if len(changed) else []


def _living(elements: Elements) -> Elements:
    return elements.filter(elements.ts < elements.exp)


class Lasting(Operator):
    """Open rows from the instant on at which they have lasted for so long; ended ones if they have. What takes a row
    back before that instant cancels it there."""

    def __init__(self, spec: LastingSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        spec = self._spec
        there = with_periods(elements)
        begin, end = (int64s(column) for column in there.columns[-2:])
        due = later(begin, spec.least)
        is_open = end == END
        visible = due
        if spec.slide is not None:
            visible = np.where(due < END, round_up(due, spec.slide, spec.align), END)
        ts = np.where(is_open, np.maximum(there.ts, visible), there.ts)
        kept = (ts < there.exp) & (is_open | (end >= due))
        result = Elements(there.columns, ts, there.exp, there.sign)
        return [result if kept.all() else result.filter(kept)] if kept.any() else []
