"""Grouped and ungrouped aggregates: a sweep over the ends of validity intervals (DESIGN 1).

Input are lane rows (`lanes.py`), ahead of the heartbeat or not. Each gives two events: its lanes are added at ts and
taken away at exp. Between two events of a group its row does not change, so the output is one element per stretch:
closed ones with both ends, the last one open; when an open one ends in a later round, a negative tuple says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.physical.elements import Bools, Elements, Int64s, concat, int64s
from penstock.physical.extremes import follow_least, order_keys, transitions
from penstock.physical.fingerprints import UInt64s, fingerprints
from penstock.physical.finish import finish
from penstock.physical.kernels import argsort_code_time, group_codes
from penstock.physical.lanes import Float64s, add_pair, value_lanes
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.pending import Early
from penstock.physical.plan import AggregateSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues import make_queue
from penstock.physical.synopses.slots import SlotTable
from penstock.types import BEGIN, END


@nb.njit(cache=True)
def _sweep(  # type: ignore[no-untyped-def]
    slots, times, rows, signs, order, integers, floats, state_integers, state_floats, guards, out_integers, out_floats,
    out_event,
):  # fmt: skip
    """Apply events, sorted by (slot, time), to the state; one output per (slot, time). Event e adds signs[e] times the
    lanes of row rows[e]. guards[k] is the integer lane that counts the terms of float pair k: at 0 the pair is exactly
    0. Returns the number of outputs."""
    n = order.shape[0]
    width, pairs = integers.shape[1], guards.shape[0]
    i = 0
    k = 0
    while i < n:
        event = order[i]
        slot, time = slots[event], times[event]
        while i < n and slots[order[i]] == slot and times[order[i]] == time:
            event = order[i]
            row, sign = rows[event], signs[event]
            for lane in range(width):
                state_integers[lane, slot] += sign * integers[row, lane]
            for p in range(pairs):
                state_floats[2 * p, slot], state_floats[2 * p + 1, slot] = add_pair(
                    state_floats[2 * p, slot],
                    state_floats[2 * p + 1, slot],
                    sign * floats[row, 2 * p],
                    sign * floats[row, 2 * p + 1],
                )
            i += 1
        for p in range(pairs):
            if state_integers[guards[p], slot] == 0:
                state_floats[2 * p, slot] = 0.0
                state_floats[2 * p + 1, slot] = 0.0
        for lane in range(width):
            out_integers[lane, k] = state_integers[lane, slot]
        for lane in range(2 * pairs):
            out_floats[lane, k] = state_floats[lane, slot]
        out_event[k] = event
        k += 1
    return k


@dataclass(frozen=True)
class _Events:
    """Changes of groups. Event e happens to the group in slots[e] at times[e]: the lanes of row rows[e] are added
    (signs[e] = 1) or taken away (-1). A row that comes and goes in one round is there once, for two events.
    integers, floats: (rows, lanes), so that a row's lanes lie together; values: of the rows, the arguments of MIN, MAX
    and DISTINCT."""

    slots: Int64s
    times: Int64s
    rows: Int64s
    signs: Int64s
    integers: Int64s
    floats: Float64s
    values: tuple[pa.Array, ...]

    @property
    def weights(self) -> Int64s:
        """By how many rows each event changes its group."""
        weights: Int64s = self.signs * self.integers[self.rows, 0]
        return weights


class Aggregation(Operator):
    """State: the groups' lanes; the lane rows that have not expired (FIFO or calendar queue); the elements ahead of the
    heartbeat; for every MIN, MAX and DISTINCT argument the bag of live values by group."""

    def __init__(self, spec: AggregateSpec) -> None:
        plan = spec.plan
        self._plan = plan
        self._keys = len(plan.group)
        self._grouped = self._keys > 0
        self._groups = SlotTable(plan.integers, plan.floats, spec.input_types[: self._keys])
        self._early = Early()
        self._live = make_queue(spec.fifo, spec.listed)
        value_types = spec.input_types[self._keys + plan.integers + plan.floats :]
        self._bags = {
            argument: SlotTable(3, 0, [value_types[i]]) for i, argument in enumerate((*plan.extremes, *plan.distincts))
        }
        self._guards = np.array([a.integers for a in plan.arguments for _ in range(a.float_lanes // 2)], np.int64)
        self._started = False

    def synopses(self) -> Mapping[str, Synopsis]:
        bags = {f"bag{argument}": bag for argument, bag in self._bags.items()}
        return {"groups": self._groups, "early": self._early.queue, "live": self._live, **bags}

    def marks(self) -> dict[str, Any]:
        return {"started": self._started}

    def restore_marks(self, marks: dict[str, Any]) -> None:
        self._started = marks["started"]

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        events = self._events(arrived, moment.heartbeat)
        result: list[Elements] = []
        # Not before time is known at all: rows from the beginning of time may still come.
        begun = moment.heartbeat >= BEGIN
        if begun and not self._grouped and not self._started and moment.shard == 0:
            result += self._first_row(events)
        if events is not None and len(events.slots):
            result += self._changes(self._with_distinct(events))
        self._groups.shrink()
        for bag in self._bags.values():
            bag.shrink()
        return result

    # -- events ------------------------------------------------------------------------------------------------

    def _events(self, arrived: Elements | None, heartbeat: int) -> _Events | None:
        """Additions of what arrived, and subtractions of what has expired."""
        expired = self._live.pop_until(heartbeat)
        parts: list[_Events] = []
        if arrived is not None and len(arrived):
            parts += self._arrivals(arrived, heartbeat)
        for batch in expired:
            parts.append(self._expirations(batch))
        return _join(parts) if parts else None

    def _arrivals(self, arrived: Elements, heartbeat: int) -> list[_Events]:
        keys = arrived.columns[: self._keys]
        first, second = fingerprints(keys, len(arrived))
        codes, heads = group_codes(first, second)
        chosen = pa.array(heads)
        slots = self._groups.slots(first[heads], second[heads], [k.take(chosen) for k in keys])[codes]
        lanes, values = self._lanes(arrived.columns[self._keys :])
        every = np.arange(len(arrived))
        gone = np.flatnonzero(arrived.exp <= heartbeat)
        later = (arrived.exp > heartbeat) & (arrived.exp < END)
        parts = [
            _Events(
                np.concatenate([slots, slots[gone]]),
                np.concatenate([arrived.ts, arrived.exp[gone]]),
                np.concatenate([every, gone]),
                np.concatenate([np.ones(len(every), np.int64), np.full(len(gone), -1, np.int64)]),
                *lanes,
                values,
            )
        ]
        if later.any():
            columns = [c.filter(pa.array(later)) for c in arrived.columns[self._keys :]]
            head = [arrived.exp[later], first[later].view(np.int64), second[later].view(np.int64)]
            arrays = [pa.array(a) for a in head] + columns
            self._live.push(pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))]))
        return parts

    def _expirations(self, batch: pa.RecordBatch) -> _Events:
        arrays = batch.columns
        first, second = int64s(arrays[1]).view(np.uint64), int64s(arrays[2]).view(np.uint64)
        codes, heads = group_codes(first, second)
        slots = self._groups.slots(first[heads], second[heads])[codes]
        lanes, values = self._lanes(arrays[3:])
        size = len(slots)
        return _Events(slots, int64s(arrays[0]), np.arange(size), np.full(size, -1, np.int64), *lanes, values)

    def _lanes(self, columns: Any) -> tuple[tuple[Any, Any], tuple[pa.Array, ...]]:
        plan = self._plan
        width, length = plan.integers, len(columns[0])
        integers = np.empty((length, width), np.int64)
        for i in range(width):
            integers[:, i] = int64s(columns[i])
        floats = np.empty((length, plan.floats), np.float64)
        for i in range(plan.floats):
            floats[:, i] = columns[width + i].to_numpy(zero_copy_only=True)
        return (integers, floats), tuple(columns[width + plan.floats :])

    # -- the sweep ---------------------------------------------------------------------------------------------

    def _first_row(self, events: _Events | None) -> list[Elements]:
        """The one row of an ungrouped aggregate exists from the beginning of time."""
        self._started = True
        first, second = fingerprints((), 1)
        slot = self._groups.slots(first, second)
        if events is not None and bool(np.any(events.times == BEGIN)):
            return []
        return [self._rows(slot, np.array([BEGIN]), np.array([END]), self._state(slot), self._extremes_now(slot), None)]

    def _changes(self, events: _Events) -> list[Elements]:
        touched = np.flatnonzero(np.bincount(events.slots, minlength=self._groups.count))
        old_state = self._state(touched)
        old_extremes = self._extremes_now(touched)
        order = argsort_code_time(events.slots, events.times)
        count = len(order)
        out_integers = np.empty((self._plan.integers, count), np.int64)
        out_floats = np.empty((self._plan.floats, count), np.float64)
        out_event = np.empty(count, np.int64)
        groups = self._groups
        count = int(
            _sweep(
                events.slots, events.times, events.rows, events.signs, order, events.integers, events.floats,
                groups.integers, groups.floats, self._guards, out_integers, out_floats, out_event,
            )
        )  # fmt: skip
        groups.touch(touched)
        extremes = self._follow_extremes(events, order, count)
        slots, times = events.slots[out_event[:count]], events.times[out_event[:count]]
        state = (out_integers[:, :count], out_floats[:, :count])
        return self._emit(touched, old_state, old_extremes, slots, times, state, extremes)

    def _emit(
        self,
        touched: Int64s,
        old_state: Any,
        old_extremes: Any,
        slots: Int64s,
        times: Int64s,
        state: Any,
        extremes: Any,
    ) -> list[Elements]:
        results = finish(self._plan, state[0], state[1], extremes)
        old_results = finish(self._plan, old_state[0], old_state[1], old_extremes)
        live = state[0][0] > 0 if self._grouped else np.ones(len(slots), np.bool_)
        # The row of an ungrouped aggregate that began with these very events was never said.
        old_live = old_state[0][0] > 0 if self._grouped else times[:1] != BEGIN
        place = np.searchsorted(touched, slots)
        leads = np.concatenate([[True], slots[1:] != slots[:-1]])
        changed = self._changed(leads, place, live, old_live, results, old_results)
        chosen = np.flatnonzero(changed)
        slots, times, live, place = slots[chosen], times[chosen], live[chosen], place[chosen]
        same = np.concatenate([slots[1:] == slots[:-1], [False]]) if len(slots) else np.empty(0, np.bool_)
        ends = np.where(same, np.concatenate([times[1:], [END]])[: len(times)], END) if len(slots) else times
        shown = np.flatnonzero(live)
        made: list[Elements] = []
        if len(shown):
            picked = pa.array(chosen[shown])
            columns = [*self._groups.key_columns(slots[shown]), *(r.take(picked) for r in results)]
            made.append(Elements(tuple(columns), times[shown], ends[shown]))
        first = np.concatenate([[True], slots[1:] != slots[:-1]]) if len(slots) else np.empty(0, np.bool_)
        ended = np.flatnonzero(first & old_live[place])
        if len(ended):
            picked = pa.array(place[ended])
            columns = [*self._groups.key_columns(slots[ended]), *(r.take(picked) for r in old_results)]
            size = len(ended)
            negative = Elements(tuple(columns), times[ended], np.full(size, END), np.full(size, -1, np.int64))
            made.append(negative)
        return [concat(made)] if made else []

    def _changed(
        self, leads: Bools, place: Int64s, live: Bools, old_live: Bools, results: list[pa.Array], old: list[pa.Array]
    ) -> Bools:
        """Which outputs differ from the row that the group had just before."""
        first, second = fingerprints(results, len(live))
        old_first, old_second = fingerprints(old, len(old_live))
        before_live = np.where(leads, old_live[place], np.concatenate([[False], live[:-1]]))
        before_first = np.where(leads, old_first[place], np.concatenate([first[:1], first[:-1]]))
        before_second = np.where(leads, old_second[place], np.concatenate([second[:1], second[:-1]]))
        same = (before_first == first) & (before_second == second)
        changed: Bools = (live != before_live) | (live & ~same)
        return changed

    def _rows(self, slots: Int64s, ts: Int64s, exp: Int64s, state: Any, extremes: Any, sign: Int64s | None) -> Elements:
        columns = [*self._groups.key_columns(slots), *finish(self._plan, state[0], state[1], extremes)]
        return Elements(tuple(columns), ts, exp, sign)

    def _state(self, slots: Int64s) -> tuple[Any, Float64s]:
        return self._groups.integers[:, slots].copy(), self._groups.floats[:, slots].copy()

    # -- MIN, MAX ----------------------------------------------------------------------------------------------

    def _bag_slots(self, argument: int, slots: Int64s, column: pa.Array) -> tuple[SlotTable, Int64s]:
        """Slots in the bag of `argument` for the values of events; -1 for NULL."""
        bag = self._bags[argument]
        group_first, group_second = self._groups.fingerprints(slots)
        keys = [pa.array(group_first.view(np.int64)), pa.array(group_second.view(np.int64)), column]
        first, second = fingerprints(keys, len(slots))
        codes, heads = group_codes(first, second)
        before = bag.count
        found = bag.slots(first[heads], second[heads], [column.take(pa.array(heads))])
        fresh = found >= before
        bag.integers[1, found[fresh]] = group_first[heads[fresh]].view(np.int64)
        bag.integers[2, found[fresh]] = group_second[heads[fresh]].view(np.int64)
        pairs = found[codes]
        if column.null_count:
            pairs = np.where(column.is_valid().to_numpy(zero_copy_only=False), pairs, -1)
        return bag, pairs

    def _held(self, bag: SlotTable, touched: Int64s) -> tuple[Int64s, Int64s]:
        """(slots, positions in `touched`) of the bag's live values that belong to touched groups."""
        live = bag.live()
        first = bag.integers[1, live].view(np.uint64)
        second = bag.integers[2, live].view(np.uint64)
        wanted_first, wanted_second = self._groups.fingerprints(touched)
        return _match(live, first, second, wanted_first, wanted_second)

    def _extremes_now(self, touched: Int64s) -> dict[int, pa.Array]:
        """The MIN and MAX of groups as they stand."""
        result: dict[int, pa.Array] = {}
        for argument in self._plan.extremes:
            bag = self._bags[argument]
            held, place = self._held(bag, touched)
            keys = _signed_keys(self._plan.arguments[argument].extreme, bag.key_columns(held)[0])
            best = np.full(len(touched), -1, np.int64)
            for_order = np.lexsort((keys, place))
            heads = np.flatnonzero(np.concatenate([[True], np.diff(place[for_order]) != 0])) if len(held) else held
            best[place[for_order[heads]]] = held[for_order[heads]]
            result[argument] = _values_at(bag, best)
        return result

    def _follow_extremes(self, events: _Events, order: Int64s, count: int) -> dict[int, pa.Array]:
        result: dict[int, pa.Array] = {}
        for position, argument in enumerate(self._plan.extremes):
            column = events.values[position].take(pa.array(events.rows))
            bag, pairs = self._bag_slots(argument, events.slots, column)
            touched = np.unique(events.slots)
            held, place = self._held(bag, touched)
            involved = np.unique(np.concatenate([held, pairs[pairs >= 0]]))
            keys = np.zeros(bag.count, np.int64)
            keys[involved] = _signed_keys(self._plan.arguments[argument].extreme, bag.key_columns(involved)[0])
            by_key = np.lexsort((keys[held], place))
            starts = np.searchsorted(place[by_key], np.arange(len(touched) + 1)).astype(np.int64)
            groups = np.searchsorted(touched, events.slots)
            least = np.empty(count, np.int64)
            follow_least(
                groups,
                events.times,
                order,
                pairs,
                events.weights,
                held[by_key],
                starts,
                bag.integers[0],
                keys,
                least,
            )
            bag.touch(involved)
            result[argument] = _values_at(bag, least)
        return result

    # -- DISTINCT ----------------------------------------------------------------------------------------------

    def _with_distinct(self, events: _Events) -> _Events:
        """The events, and for every distinct argument the lane changes when a value comes or goes."""
        parts = [events]
        offset = len(self._plan.extremes)
        for position, number in enumerate(self._plan.distincts):
            argument = self._plan.arguments[number]
            column = events.values[offset + position].take(pa.array(events.rows))
            bag, pairs = self._bag_slots(number, events.slots, column)
            known = np.flatnonzero(pairs >= 0)
            if not len(known):
                continue
            slots, times = pairs[known], events.times[known]
            order = argsort_code_time(slots, times)
            event, step = np.empty(len(known), np.int64), np.empty(len(known), np.int64)
            count = int(transitions(slots, times, order, events.weights[known], bag.integers[0], event, step))
            bag.touch(np.unique(slots))
            rows = known[event[:count]]
            integers, floats = value_lanes(argument, column.take(pa.array(rows)), step[:count])
            lanes = (np.zeros((count, self._plan.integers), np.int64), np.zeros((count, self._plan.floats)))
            for i, lane in enumerate(integers):
                lanes[0][:, argument.integers + i] = lane
            for i, values in enumerate(floats):
                lanes[1][:, argument.floats + i] = values
            nothing = tuple(pa.nulls(count, v.type) for v in events.values)
            told = (events.slots[rows], events.times[rows], np.arange(count), np.ones(count, np.int64))
            parts.append(_Events(*told, *lanes, nothing))
        return _join(parts)


def _signed_keys(extreme: str, column: pa.Array) -> Int64s:
    keys = order_keys(column)
    return keys if extreme == "MIN" else ~keys


def _values_at(bag: SlotTable, slots: Int64s) -> pa.Array:
    """The bag's values at `slots`, NULL for -1."""
    return bag.key_columns(slots)[0]


def _match(
    rows: Int64s, first: UInt64s, second: UInt64s, wanted_first: UInt64s, wanted_second: UInt64s
) -> tuple[Int64s, Int64s]:
    """(rows, position in wanted) of those rows whose fingerprint is wanted. The wanted ones are distinct."""
    both_first = np.concatenate([wanted_first, first])
    both_second = np.concatenate([wanted_second, second])
    codes, _ = group_codes(both_first, both_second)
    place = codes[len(wanted_first) :]
    mine = place < len(wanted_first)
    return rows[mine], place[mine]


def _join(parts: list[_Events]) -> _Events:
    if len(parts) == 1:
        return parts[0]
    sizes = [len(p.integers) for p in parts]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return _Events(
        np.concatenate([p.slots for p in parts]),
        np.concatenate([p.times for p in parts]),
        np.concatenate([p.rows + start for p, start in zip(parts, starts, strict=True)]),
        np.concatenate([p.signs for p in parts]),
        np.concatenate([p.integers for p in parts]),
        np.concatenate([p.floats for p in parts]),
        tuple(pa.concat_arrays([p.values[i] for p in parts]) for i in range(len(parts[0].values))),
    )
