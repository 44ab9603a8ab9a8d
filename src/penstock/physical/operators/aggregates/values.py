"""Aggregates computed from values rather than sums: MIN and MAX, ordered bags, and changes of DISTINCT arguments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.nodes import AggregateCall
from penstock.physical.elements import Bools, Int64s
from penstock.physical.kernels import trees
from penstock.physical.kernels.extremes import comings, from_order_keys, order_keys
from penstock.physical.kernels.key_order import is_wide
from penstock.physical.operators.aggregates.events import GroupEvents
from penstock.physical.planning.aggregate_layout import AggregateLayout, ArgumentState
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.bags import Found, LinkedBag, Questions, ValueBag
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.physical.synopses.tables.ordered_bags import ExtremeBag, OrderedBag
from penstock.physical.synopses.tables.skyline import Skyline

_ASKED = {
    "MIN": trees.LEAST, "MAX": trees.GREATEST, "FIRST": trees.LEAST, "LAST": trees.GREATEST,
    "QUANTILE": trees.QUANTILE, "MODE": trees.MODE, "TOP_K": trees.TOP, "ARRAY_AGG": trees.EVERY,
}  # fmt: skip


@dataclass(frozen=True)
class _Bag:
    """An argument kept in order, and the calls (by position) computed from it, one question each."""

    column: int
    bag: LinkedBag
    calls: tuple[int, ...]


@dataclass(frozen=True)
class _Extreme:
    """An argument kept as a skyline, and the calls computed from it. flip: whether keys are inverted, for MAX."""

    column: int
    skyline: Skyline
    calls: tuple[int, ...]
    type: pa.DataType
    flip: int


class GroupValues:
    """The bags of one aggregation. `groups`: the table of its groups."""

    def __init__(self, plan: AggregateLayout, groups: KeyedTable, types: tuple[pa.DataType, ...]) -> None:
        """Create empty bags. types: of the value columns, in the order of `plan.valued`."""
        self._plan = plan
        columns = {argument: i for i, argument in enumerate(plan.valued)}
        self._sets = {a: (columns[a], ValueBag(groups, types[columns[a]])) for a in plan.distincts}
        self._bags: list[_Bag] = []
        self._extremes: list[_Extreme] = []
        for argument in (*plan.extremes, *plan.bags):
            calls = tuple(i for i, source in enumerate(plan.sources) if source == argument)
            column, kind = columns[argument], plan.arguments[argument].kind
            if kind is not ArgumentState.BAG and not is_wide(types[column]):
                flip = 0 if kind is ArgumentState.LEAST else -1
                self._extremes.append(_Extreme(column, Skyline(groups), calls, types[column], flip))
                continue
            asked = np.array([_ASKED[plan.calls[i].function] for i in calls], np.int64)
            parameters = np.array([_parameter(plan.calls[i]) for i in calls], np.float64)
            distinct = plan.arguments[argument].distinct
            questions = Questions(asked, parameters)
            bag: LinkedBag
            if set(asked.tolist()) <= {trees.LEAST, trees.GREATEST}:
                bag = ExtremeBag(groups, types[column], questions)
            else:
                bag = OrderedBag(groups, types[column], distinct, questions)
            self._bags.append(_Bag(column, bag, calls))

    @property
    def synopses(self) -> dict[str, Synopsis]:
        """Return the synopses by a stable name."""
        skylines = {f"skyline{e.column}": e.skyline for e in self._extremes}
        return {**self._tables, **skylines}

    @property
    def _tables(self) -> dict[str, ValueBag]:
        sets = {f"set{column}": bag for column, bag in self._sets.values()}
        return {**sets, **{f"bag{b.column}": b.bag for b in self._bags}}

    def shrink(self) -> None:
        for table in self._tables.values():
            table.shrink()

    def now(self, groups: Int64s) -> dict[int, pa.Array]:
        """Return by call the current results of `groups`."""
        results = {k: v for b in self._bags for k, v in self._results(b, b.bag.ask(groups)).items()}
        for e in self._extremes:
            results |= _extreme(e, *e.skyline.now(groups))
        return results

    def follow(self, events: GroupEvents, order: Int64s, outputs: int) -> dict[int, pa.Array]:
        """Return by call the results after each (group, time) of `events`, in `order`; the bags change."""
        results: dict[int, pa.Array] = {}
        for b in self._bags:
            column = events.of_events(events.values[b.column])
            pairs = b.bag.pairs(events.slots, column)
            found = b.bag.follow(events.slots, events.times, order, pairs, events.weights, outputs)
            results |= self._results(b, found)
        for e in self._extremes:
            column = events.values[e.column]
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            keys = order_keys(column) ^ e.flip
            answer = e.skyline.follow(
                events.slots, events.times, events.rows, events.signs, events.ends, order, keys, valid, outputs
            )
            results |= _extreme(e, *answer)
        return results

    @property
    def lasting(self) -> tuple[bool, ...]:
        """Return, for each value column, whether a row's value is needed when the row is removed."""
        once = {e.column for e in self._extremes}
        return tuple(i not in once for i in range(len(self._plan.valued)))

    def factors(self, events: GroupEvents, order: Int64s) -> Int64s:
        """Return (events, 1 + distinct arguments): how often an event adds the lanes of its row. First its sign; then
        for each DISTINCT argument 1 where its value appears, -1 where it disappears, else 0."""
        factors = np.zeros((len(events.slots), 1 + len(self._sets)), np.int64)
        factors[:, 0] = events.signs
        for number, (place, bag) in enumerate(self._sets.values(), 1):
            column = events.of_events(events.values[place])
            pairs = bag.pairs(events.slots, column)
            comings(events.slots, events.times, order, pairs, events.weights, bag.integers, factors[:, number])
            bag.touch(pairs[pairs >= 0])
        return factors

    def _results(self, b: _Bag, found: Found) -> dict[int, pa.Array]:
        return {call: _result(self._plan.calls[call], b.bag, found, q) for q, call in enumerate(b.calls)}


def _extreme(e: _Extreme, keys: Int64s, there: Bools) -> dict[int, pa.Array]:
    values = from_order_keys(keys ^ e.flip, there, e.type)
    return dict.fromkeys(e.calls, values)


def _parameter(call: AggregateCall) -> float:
    last = call.arguments[-1] if call.arguments else None
    return float(last.value) if call.function in ("QUANTILE", "TOP_K") else 0.0  # type: ignore[union-attr]


def _result(call: AggregateCall, bag: LinkedBag, found: Found, question: int) -> pa.Array:
    """Return the values of a call, read from the slots found for it."""
    one, other = found.found[question, :, 0], found.found[question, :, 1]
    if call.function == "QUANTILE":
        low, high = (bag.values(slots) for slots in (one, other))
        return _between(low, high, found.between[question])
    if call.function in ("ARRAY_AGG", "TOP_K"):
        return _lists(call, bag, found, one, other)
    values = bag.values(one)
    return values.flatten()[1] if call.function in ("FIRST", "LAST") else values


def _between(low: pa.Array, high: pa.Array, share: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pa.Array:
    """Return low + share · (high - low), exactly low where both are equal."""
    one, other = (np.asarray(c.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64) for c in (low, high))
    with np.errstate(invalid="ignore"):
        mixed = np.where((share == 0) | (one == other), one, (1.0 - share) * one + share * other)
    return pa.array(mixed, pa.float64(), mask=pc.is_null(low).to_numpy(zero_copy_only=False))


def _lists(call: AggregateCall, bag: LinkedBag, found: Found, starts: Int64s, stops: Int64s) -> pa.Array:
    """Return an array for each row: the members between starts and stops, NULL where they are -1."""
    lengths = np.where(starts < 0, 0, stops - starts)
    ends = np.cumsum(lengths)
    places = np.repeat(starts - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
    members: pa.Array = bag.values(found.members[places])
    if call.function == "TOP_K":
        counts = pa.array(found.counts[places])
        members = pa.StructArray.from_arrays([members, counts], fields=list(call.type.value_type))
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, members, type=call.type, mask=pa.array(starts < 0))
