"""User-defined aggregates `[ops]`, combined with the built-in aggregates of the same GROUP BY.

Port 0 receives the rows of the built-in aggregates (COUNT(*) among them, last), which determine which groups exist, and
when. Port 1 receives group columns and arguments. At every instant at which a group changes, its user-defined values
are computed again; one element is emitted per interval in which the whole row is unchanged.

The state of a group for an aggregate, and the cost of a change:

- with `expire`: one state; the cost is the rows added and removed;
- with `merge`, over rows that are never retracted before their expiration: a state per expiration; the cost is the rows
  added and one merge per expiration (one per slide of a window, none over a stream without a window);
- else the group's live rows, passed to a new state in one canonical order; the cost is all of them.
User code is called once per group and instant, with arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.user_calls import expire, final, final_values, merge, start, update
from penstock.physical.elements import Elements, Int64s, concat_arrays, decode, encode, int64s, unnamed
from penstock.physical.kernels.compiled import group_codes, sum_by_code
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.kernels.value_codec import pack, unpack
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.final_groups import FinalValues
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.user_aggregates import UserAggregateSpec, UserCallSpec, UserState
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue, FifoQueue
from penstock.physical.synopses.tables.objects import Key, ObjectTable
from penstock.types import END

# --- The rows passed to user-defined aggregates: cut by group and instant, and sorted into a canonical order.
#
# The order does not depend on how input or state is cut: by value, NULL last and NaN before it.

_END = "end"


@dataclass(frozen=True)
class Segment:
    """The changes of one group at one instant: rows added (their column `end` is their expiration) and rows
    removed."""

    key: Key
    time: int
    added: pa.RecordBatch
    removed: pa.RecordBatch

    def by_end(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows added, by their expiration."""
        ends = int64s(self.added.column(0))
        for end in np.unique(ends).tolist():
            yield end, self.added.filter(pa.array(ends == end))


@dataclass
class Change:
    """base_changed: whether the built-in aggregates changed; then their row is `base` (None: the group is empty)."""

    base_changed: bool = False
    base: pa.RecordBatch | None = None
    segment: Segment | None = None


def segments(rows: list[pa.Array], strict: bool) -> list[Segment]:
    """Cut rows by group and instant. rows: group fingerprint (two columns), instant, weight, end, arguments. strict: a
    row may be added and retracted at one instant."""
    first, second, time, weight, end, *values = rows
    weights = int64s(weight)
    if strict:
        codes, heads = group_codes(*fingerprints([first, second, time, *values], len(first)))
        weights = sum_by_code(codes, weights, len(heads))
        kept = np.flatnonzero(weights)
        heads, weights = heads[kept], weights[kept]
    else:
        heads = np.arange(len(first))
    picked = np.repeat(heads, np.abs(weights))
    weights = np.repeat(weights, np.abs(weights))
    if not len(picked):
        return []
    first_half, second_half, when = (int64s(c)[picked] for c in (first, second, time))
    order = np.lexsort((weights, when, second_half, first_half))
    first_half, second_half, when, weights = first_half[order], second_half[order], when[order], weights[order]
    columns = [c.take(pa.array(picked[order])) for c in (end, *values)]
    whole = pa.RecordBatch.from_arrays(columns, names=[_END, *(f"v{i}" for i in range(len(values)))])
    steps = (first_half[1:] != first_half[:-1]) | (second_half[1:] != second_half[:-1]) | (when[1:] != when[:-1])
    bounds = [0, *(np.flatnonzero(steps) + 1).tolist(), len(first_half)]
    result = []
    for begin, stop in pairwise(bounds):
        middle = begin + int(np.searchsorted(weights[begin:stop], 0))
        key = (int(first_half[begin]), int(second_half[begin]))
        added, removed = whole.slice(middle, stop - middle), whole.slice(begin, middle - begin)
        result.append(Segment(key, int(when[begin]), added, removed))
    return result


def live_rows(live: pa.RecordBatch | None, segment: Segment) -> pa.RecordBatch:
    """Return `live` with the added and without the removed rows of `segment`."""
    parts = [*([] if live is None else [live]), segment.added, segment.removed]
    columns = [concat_arrays([p.column(i) for p in parts]) for i in range(len(parts[0].columns))]
    weights = np.ones(len(columns[0]), np.int64)
    if len(segment.removed):
        weights[len(weights) - len(segment.removed) :] = -1
        codes, heads = group_codes(*fingerprints(columns[1:], len(weights)))
        counts: Int64s = sum_by_code(codes, weights, len(heads))
        columns = [c.take(pa.array(np.repeat(heads, np.maximum(counts, 0)))) for c in columns]
    return pa.RecordBatch.from_arrays(columns, names=segment.added.schema.names)


def distinct_rows(values: Sequence[pa.Array]) -> list[pa.Array]:
    """Return `values` without duplicates."""
    _, heads = group_codes(*fingerprints(values, len(values[0])))
    return [v.take(pa.array(heads)) for v in values]


def canonical(values: Sequence[pa.Array]) -> list[pa.Array]:
    """Return `values` in the order that the module docstring defines."""
    table = pa.table({str(i): v for i, v in enumerate(values)})
    keys = [(f.name, "ascending", "at_end") for f in table.schema if not pa.types.is_null(f.type)]
    if not keys:
        return list(values)
    order = pc.sort_indices(table, sort_keys=keys)
    return [v.take(order) for v in values]


@dataclass
class _Group:
    """The state of a group. base: the row of the built-in aggregates, None if there is none; emitted: the row that was
    emitted last and is still valid; states: per call, as in the module docstring; live: the group's rows, if a call
    needs them."""

    base: pa.RecordBatch | None = None
    emitted: pa.RecordBatch | None = None
    states: list[Any] = field(default_factory=list)
    live: pa.RecordBatch | None = None


class UserAggregation(Operator):
    """State: that of each group; the rows with a pending expiration; the elements ahead of the heartbeat."""

    def __init__(self, spec: UserAggregateSpec) -> None:
        self._spec = spec
        self._early = (ReorderBuffer(), ReorderBuffer())
        self._groups: ObjectTable[_Group] = ObjectTable(self._pack, _unpack)
        self._ends: FifoQueue | CalendarQueue = FifoQueue() if spec.fifo else CalendarQueue()
        self._final_values = FinalValues(spec.ending)
        self._keeps_live = any(c.state is UserState.LIVE for c in spec.calls)
        self._keeps_ends = any(c.state is not UserState.PARTIAL for c in spec.calls)

    def synopses(self) -> Mapping[str, Synopsis]:
        base, rows = self._early
        return {"groups": self._groups, "ends": self._ends, "early_base": base.queue, "early_rows": rows.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port == 0:
            # Two events: a row is added at ts and removed at exp.
            ended = elements.exp < END
            self._early[0].add(_reorder_entries(elements, elements.ts, elements.signs))
            if ended.any():
                expired = elements.filter(ended)
                self._early[0].add(_reorder_entries(expired, expired.exp, -expired.signs))
        else:
            self._early[1].add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        changes: dict[Key, dict[int, Change]] = defaultdict(dict)
        self._base_changes(self._early[0].until(moment.heartbeat), changes)
        for segment in self._row_changes(self._early[1].until(moment.heartbeat), moment.heartbeat):
            change = changes[segment.key].setdefault(segment.time, Change())
            change.segment = segment
        result = self._emit(changes) if changes else []
        self._drop_final(moment.heartbeat)
        return result

    def _drop_final(self, heartbeat: int) -> None:
        """Drop the state of groups whose rows stay as they are."""
        if not self._final_values.advance(heartbeat):
            return
        rows = [(key, group.emitted) for key, group in self._groups.items() if group.emitted is not None]
        if not rows:
            return
        columns = [concat_arrays([row.column(i) for _, row in rows]) for i in range(self._spec.keys)]
        for place in np.flatnonzero(self._final_values.among(columns)).tolist():
            self._groups.remove(rows[place][0])

    # -- changes -----------------------------------------------------------------------------------------------

    def _fingerprints(self, rows: Elements) -> tuple[UInt64s, UInt64s]:
        """Return by which the groups of rows are known."""
        return fingerprints(rows.columns[: self._spec.keys], len(rows))

    def _base_changes(self, arrived: Elements | None, changes: dict[Key, dict[int, Change]]) -> None:
        if arrived is None:
            return
        first, second = self._fingerprints(arrived)
        whole = unnamed(arrived.columns)
        keys = zip(first.view(np.int64).tolist(), second.view(np.int64).tolist(), strict=True)
        base_rows = zip(keys, arrived.ts.tolist(), arrived.signs.tolist(), strict=True)
        for row, (key, time, sign) in enumerate(base_rows):
            change = changes[key].setdefault(time, Change())
            change.base_changed = True
            if sign > 0:
                change.base = whole.slice(row, 1)

    def _row_changes(self, arrived: Elements | None, heartbeat: int) -> list[Segment]:
        """Return the rows added and removed, by group and instant."""
        width = self._spec.keys
        parts: list[list[pa.Array]] = []  # key, time, weight, end, arguments
        for batch in self._ends.pop_until(heartbeat):
            due, first, second, sign, *values = batch.columns
            parts.append([first, second, due, pa.array(-int64s(sign)), due, *values])
        if arrived is not None:
            first, second = (pa.array(f.view(np.int64)) for f in self._fingerprints(arrived))
            values = arrived.columns[width:]
            ts, exp, sign = (pa.array(a) for a in (arrived.ts, arrived.exp, arrived.signs))
            parts.append([first, second, ts, sign, exp, *values])
            expired = pa.array(arrived.exp <= heartbeat)
            ends = [a.filter(expired) for a in (first, second, exp, pa.array(-arrived.signs), exp, *values)]
            parts.append(ends)
            self._keep_ends((arrived.exp > heartbeat) & (arrived.exp < END), [exp, first, second, sign, *values])
        rows = [concat_arrays([part[i] for part in parts]) for i in range(len(parts[0]))] if parts else []
        if not rows or not len(rows[0]):
            return []
        return segments(rows, self._spec.strict)

    def _keep_ends(self, later: npt.NDArray[np.bool_], arrays: list[pa.Array]) -> None:
        if not later.any():
            return
        chosen = pa.array(later)
        kept = [a.filter(chosen) for a in arrays]
        if not self._keeps_ends:
            # Only the instants at which the group changes are needed.
            _, heads = group_codes(*fingerprints(kept[:3], len(kept[0])))
            kept = [a.take(pa.array(heads)) for a in kept]
        self._ends.push(unnamed(kept))

    # -- output ------------------------------------------------------------------------------------------------

    def _emit(self, changes: dict[Key, dict[int, Change]]) -> list[Elements]:
        """Compute the row after every change of every group; emit an element for each interval whose row differs from
        the one before."""
        owners: list[int] = []  # of each row below the number of its group; -1 - it for "no row"
        times: list[int] = []
        bases: list[pa.RecordBatch] = []
        values: list[list[object]] = []
        groups: list[tuple[Key, _Group]] = []
        for number, (key, events) in enumerate(changes.items()):
            group = self._groups.get(key) or _Group()
            groups.append((key, group))
            for time in sorted(events):
                base = self._apply(group, events[time], time)
                times.append(time)
                owners.append(number if base is not None else -1 - number)
                if base is not None:
                    bases.append(base)
                    values.append([self._value(c, group, i) for i, c in enumerate(self._spec.calls)])
        rows = self._rows(bases, values)
        return self._stretches(groups, np.array(owners, np.int64), np.array(times, np.int64), rows)

    def _rows(self, bases: list[pa.RecordBatch], values: list[list[object]]) -> list[pa.Array]:
        """Keys, built-in and user-defined values in the order of the select list."""
        types = self._spec.types
        if not bases:
            return [pa.array([], t) for t in types]
        table = pa.Table.from_batches(bases).combine_chunks()
        built_in = [concat_arrays(table.column(i).chunks) for i in range(table.num_columns - 1)]
        user_values = [final_values(c.user, [row[i] for row in values]) for i, c in enumerate(self._spec.calls)]
        return [(user_values if of_user else built_in)[position] for of_user, position in self._spec.order]

    def _stretches(
        self, groups: list[tuple[Key, _Group]], owners: Int64s, times: Int64s, rows: list[pa.Array]
    ) -> list[Elements]:
        names = [f"c{i}" for i in range(len(rows))]
        emitted = [(n, g.emitted) for n, (_, g) in enumerate(groups) if g.emitted is not None]
        old = [concat_arrays([b.column(i) for _, b in emitted]) for i in range(len(rows))] if emitted else None
        columns = rows if old is None else [concat_arrays([o, r]) for o, r in zip(old, rows, strict=True)]
        first, second = fingerprints(columns, len(columns[0]))
        tokens = list(zip(first.tolist(), second.tolist(), strict=True))
        now: dict[int, int] = {number: i for i, (number, _) in enumerate(emitted)}  # group -> its row
        opened: dict[int, int] = {}  # group -> the output that is open
        outputs: list[list[int]] = []  # [row, from, until, sign] of each output
        following = len(emitted)
        for owner, time in zip(owners.tolist(), times.tolist(), strict=True):
            number, row = (owner, following) if owner >= 0 else (-1 - owner, None)
            following += owner >= 0
            before = now.get(number)
            if (before is None) == (row is None) and (before is None or row is None or tokens[before] == tokens[row]):
                continue
            if number in opened:
                outputs[opened.pop(number)][2] = time
            elif before is not None:
                outputs.append([before, time, END, -1])
            if row is None:
                now.pop(number, None)
                continue
            now[number] = row
            opened[number] = len(outputs)
            outputs.append([row, time, END, 1])
        whole = pa.RecordBatch.from_arrays(columns, names=names)
        for number, (key, group) in enumerate(groups):
            # Copies: a slice would keep all rows of the round in memory.
            group.emitted = whole.take(pa.array([now[number]])) if number in now else None
            group.base = None if group.base is None else group.base.take(pa.array([0]))
            if group.base is None and self._spec.keys:
                self._groups.remove(key)
            else:
                self._groups.put(key, group)
        if not outputs:
            return []
        chosen_rows, starts, ends, signs = np.array(outputs, np.int64).T.copy()
        chosen = pa.array(chosen_rows)
        return [Elements(tuple(c.take(chosen) for c in columns), starts, ends, signs)]

    # -- a group -----------------------------------------------------------------------------------------------

    def _apply(self, group: _Group, change: Change, time: int) -> pa.RecordBatch | None:
        """Apply a change to the states; return the group's row of built-in values after it."""
        if change.base_changed:
            group.base = change.base
        if group.base is None:  # all its rows have been removed
            group.states, group.live = [], None
            return None
        if not group.states:
            group.states = [self._fresh(c) for c in self._spec.calls]
        if change.segment is not None:
            if self._keeps_live:
                group.live = live_rows(group.live, change.segment)
            for i, call in enumerate(self._spec.calls):
                if call.state is UserState.EXPIRING:
                    group.states[i] = self._incremental(call, group.states[i], change.segment)
                elif call.state is UserState.PARTIAL:
                    self._partial(call, group.states[i], change.segment, time)
        return group.base

    @staticmethod
    def _fresh(call: UserCallSpec) -> object:
        if call.state is UserState.LIVE:
            return None
        return start(call.user) if call.state is UserState.EXPIRING else {}

    @staticmethod
    def _incremental(call: UserCallSpec, state: object, segment: Segment) -> object:
        removed, added = call.chosen(segment.removed), call.chosen(segment.added)
        if removed is not None:
            state = expire(call.user, state, removed)
        return state if added is None else update(call.user, state, added)

    @staticmethod
    def _partial(call: UserCallSpec, states: dict[int, object], segment: Segment, time: int) -> None:
        for end in [end for end in states if end <= time]:
            del states[end]
        for end, rows in segment.by_end():
            values = call.chosen(rows)
            if values is not None:
                state = states[end] if end in states else start(call.user)
                states[end] = update(call.user, state, values)

    def _value(self, call: UserCallSpec, group: _Group, number: int) -> object:
        state, user = group.states[number], call.user
        if call.state is UserState.PARTIAL:
            ends = sorted(state)
            if len(ends) == 1:
                return final(user, state[ends[0]])
            whole = start(user)
            for end in ends:
                whole = merge(user, whole, state[end])
            return final(user, whole)
        if call.state is UserState.EXPIRING:
            return final(user, state)
        values = None if group.live is None else call.chosen(group.live)
        if values is not None and call.distinct:
            values = distinct_rows(values)
        fresh = start(user)
        return final(user, fresh if values is None else update(user, fresh, canonical(values)))

    # -- state as bytes ----------------------------------------------------------------------------------------

    def _pack(self, group: _Group) -> bytes:
        batches = [None if b is None else encode([b]) for b in (group.base, group.emitted, group.live)]
        try:
            return pack((batches, group.states))
        except Exception as error:
            names = ", ".join(c.user.name for c in self._spec.calls)
            message = f"the state of {names} cannot be kept: {type(error).__name__}: {error}"
            hint = "a state is made of numbers, text, dates, the containers of Python, NumPy and Arrow values"
            raise PenstockError("P0621", message, hint=hint, cause=error) from error


def _unpack(blob: bytes) -> _Group:
    batches, states = unpack(blob)
    base, emitted, live = (None if b is None else decode(b)[0] for b in batches)
    return _Group(base, emitted, states, live)


def _reorder_entries(elements: Elements, ts: Int64s, sign: Int64s) -> Elements:
    return Elements(elements.columns, ts, np.full(len(ts), END, np.int64), sign)
