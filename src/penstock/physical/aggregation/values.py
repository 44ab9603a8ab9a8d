"""What is computed from values, not from sums: MIN and MAX, bags in order, and the changes of DISTINCT arguments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.nodes import AggregateCall
from penstock.physical import trees
from penstock.physical.aggregation.events import Events, join
from penstock.physical.elements import Int64s
from penstock.physical.extremes import transitions
from penstock.physical.kernels import argsort_code_time
from penstock.physical.lane_plan import LanePlan
from penstock.physical.lanes import value_lanes
from penstock.physical.synopses.bags import Found, OrderedBag, Questions, ValueBag
from penstock.physical.synopses.slots import SlotTable

_ASKED = {
    "MIN": trees.LEAST, "MAX": trees.GREATEST, "FIRST": trees.LEAST, "LAST": trees.GREATEST,
    "QUANTILE": trees.QUANTILE, "MODE": trees.MODE, "TOP_K": trees.TOP, "ARRAY_AGG": trees.EVERY,
}  # fmt: skip


@dataclass(frozen=True)
class _Bag:
    """An argument kept in order, and the calls (by position) that it answers, one question each."""

    column: int
    bag: OrderedBag
    calls: tuple[int, ...]


class Values:
    """The bags of one aggregation. `groups`: the table of its groups."""

    def __init__(self, plan: LanePlan, groups: SlotTable, types: tuple[pa.DataType, ...]) -> None:
        """types: of the value columns, in the order of `plan.valued`."""
        self._plan = plan
        columns = {argument: i for i, argument in enumerate(plan.valued)}
        self._sets = {a: (columns[a], ValueBag(groups, types[columns[a]])) for a in plan.distincts}
        self._bags: list[_Bag] = []
        for argument in (*plan.extremes, *plan.bags):
            calls = tuple(i for i, source in enumerate(plan.sources) if source == argument)
            asked = np.array([_ASKED[plan.calls[i].function] for i in calls], np.int64)
            parameters = np.array([_parameter(plan.calls[i]) for i in calls], np.float64)
            column, distinct = columns[argument], plan.arguments[argument].distinct
            bag = OrderedBag(groups, types[column], distinct, Questions(asked, parameters))
            self._bags.append(_Bag(column, bag, calls))

    @property
    def synopses(self) -> dict[str, ValueBag]:
        """By a stable name."""
        sets = {f"set{column}": bag for column, bag in self._sets.values()}
        return {**sets, **{f"bag{b.column}": b.bag for b in self._bags}}

    def shrink(self) -> None:
        for bag in self.synopses.values():
            bag.shrink()

    def now(self, groups: Int64s) -> dict[int, pa.Array]:
        """By call, the results of `groups` as they stand."""
        return {k: v for b in self._bags for k, v in self._results(b, b.bag.ask(groups)).items()}

    def follow(self, events: Events, order: Int64s, outputs: int) -> dict[int, pa.Array]:
        """By call, the results after each (group, time) of `events`, in `order`; the bags change."""
        results: dict[int, pa.Array] = {}
        for b in self._bags:
            column = events.values[b.column].take(pa.array(events.rows))
            pairs = b.bag.pairs(events.slots, column)
            found = b.bag.follow(events.slots, events.times, order, pairs, events.weights, outputs)
            results |= self._results(b, found)
        return results

    def with_distinct(self, events: Events) -> Events:
        """The events, and for every distinct argument the lane changes when a value comes or goes."""
        parts = [events]
        for number, (place, bag) in self._sets.items():
            argument = self._plan.arguments[number]
            column = events.values[place].take(pa.array(events.rows))
            pairs = bag.pairs(events.slots, column)
            known = np.flatnonzero(pairs >= 0)
            if not len(known):
                continue
            slots, times = pairs[known], events.times[known]
            order = argsort_code_time(slots, times)
            event, step = np.empty(len(known), np.int64), np.empty(len(known), np.int64)
            count = int(transitions(slots, times, order, events.weights[known], bag.integers[0], event, step))
            bag.touch(slots)
            rows = known[event[:count]]
            integers, floats = value_lanes(argument, column.take(pa.array(rows)), step[:count])
            lanes = (np.zeros((count, self._plan.integers), np.int64), np.zeros((count, self._plan.floats)))
            for i, lane in enumerate(integers):
                lanes[0][:, argument.integers + i] = lane
            for i, values in enumerate(floats):
                lanes[1][:, argument.floats + i] = values
            nothing = tuple(pa.nulls(count, v.type) for v in events.values)
            told = (events.slots[rows], events.times[rows], np.arange(count), np.ones(count, np.int64))
            parts.append(Events(*told, *lanes, nothing))
        return join(parts)

    def _results(self, b: _Bag, found: Found) -> dict[int, pa.Array]:
        return {call: _result(self._plan.calls[call], b.bag, found, q) for q, call in enumerate(b.calls)}


def _parameter(call: AggregateCall) -> float:
    last = call.arguments[-1] if call.arguments else None
    return float(last.value) if call.function in ("QUANTILE", "TOP_K") else 0.0  # type: ignore[union-attr]


def _result(call: AggregateCall, bag: OrderedBag, found: Found, question: int) -> pa.Array:
    """The values of a call from the slots that answer it."""
    one, other = found.found[question, :, 0], found.found[question, :, 1]
    if call.function == "QUANTILE":
        low, high = (bag.key_columns(slots)[0] for slots in (one, other))
        return _between(low, high, found.between[question])
    if call.function in ("ARRAY_AGG", "TOP_K"):
        return _lists(call, bag, found, one, other)
    values = bag.key_columns(one)[0]
    return values.flatten()[1] if call.function in ("FIRST", "LAST") else values


def _between(low: pa.Array, high: pa.Array, share: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pa.Array:
    """low + share · (high - low), exactly low where they are one value."""
    one, other = (np.asarray(c.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64) for c in (low, high))
    with np.errstate(invalid="ignore"):
        mixed = np.where((share == 0) | (one == other), one, (1.0 - share) * one + share * other)
    return pa.array(mixed, pa.float64(), mask=pc.is_null(low).to_numpy(zero_copy_only=False))


def _lists(call: AggregateCall, bag: OrderedBag, found: Found, starts: Int64s, stops: Int64s) -> pa.Array:
    """An array for each row: the members between starts and stops, NULL where they are -1."""
    lengths = np.where(starts < 0, 0, stops - starts)
    ends = np.cumsum(lengths)
    places = np.repeat(starts - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
    members: pa.Array = bag.key_columns(found.members[places])[0]
    if call.function == "TOP_K":
        counts = pa.array(found.counts[places])
        members = pa.StructArray.from_arrays([members, counts], fields=list(call.type.value_type))
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, members, type=call.type, mask=pa.array(starts < 0))
