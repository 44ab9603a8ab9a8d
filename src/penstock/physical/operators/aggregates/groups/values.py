"""Aggregates computed from values rather than sums: MIN and MAX, ordered bags, and changes of DISTINCT arguments and of
the registers of sketches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates import function_of
from penstock.expressions.aggregates.contract import ArgumentState, Members, OrderedFunction
from penstock.expressions.nodes import AggregateCall
from penstock.physical.elements import Bools, Int64s
from penstock.physical.kernels import trees
from penstock.physical.kernels.extremes import comings, from_order_keys, order_keys
from penstock.physical.kernels.key_order import is_wide
from penstock.physical.operators.aggregates.groups.events import GroupEvents, join
from penstock.physical.operators.aggregates.groups.registers import RegisterMaxima
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.bags import Found, LinkedBag, Questions, ValueBag
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.physical.synopses.tables.ordered_bags import ExtremeBag, OrderedBag
from penstock.physical.synopses.tables.skyline import Skyline


@dataclass(frozen=True)
class _Bag:
    """An argument kept in order, and the calls (by position) computed from it, one question each. lane: the integer
    lane with how often a value counts."""

    column: int
    bag: LinkedBag
    calls: tuple[int, ...]
    lane: int


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
        self._registers = [RegisterMaxima(plan, a, columns[a], groups) for a in plan.ranked]
        for argument in (*plan.extremes, *plan.pictured, *plan.bags, *plan.cells):
            calls = tuple(i for i, source in enumerate(plan.sources) if source == argument)
            if argument in plan.pictured:
                calls = tuple(i for i in calls if isinstance(function_of(plan.calls[i]), OrderedFunction))
            column, kind = columns[argument], plan.arguments[argument].kind
            if argument in plan.extremes and not is_wide(types[column]):
                flip = 0 if kind is ArgumentState.LEAST else -1
                self._extremes.append(_Extreme(column, Skyline(groups), calls, types[column], flip))
                continue
            functions = [_ordered(plan.calls[i]) for i in calls]
            kinds = np.array([f.question() for f in functions], np.int64)
            parameters = np.array([f.parameters(plan.calls[i]) for f, i in zip(functions, calls, strict=True)])
            distinct, directions = plan.arguments[argument].distinct, plan.arguments[argument].directions
            questions = Questions(kinds, parameters)
            bag: LinkedBag
            if set(kinds.tolist()) <= {trees.LEAST, trees.GREATEST}:
                bag = ExtremeBag(groups, types[column], questions, directions)
            else:
                bag = OrderedBag(groups, types[column], distinct, questions, directions)
            lane = plan.arguments[argument].integers if argument in (*plan.cells, *plan.pictured) else 0
            self._bags.append(_Bag(column, bag, calls, lane))

    @property
    def synopses(self) -> dict[str, Synopsis]:
        """Return the synopses by a stable name."""
        skylines = {f"skyline{e.column}": e.skyline for e in self._extremes}
        registers = {name: synopsis for r in self._registers for name, synopsis in r.synopses.items()}
        return {**self._tables, **skylines, **registers}

    @property
    def _tables(self) -> dict[str, ValueBag]:
        sets = {f"set{column}": bag for column, bag in self._sets.values()}
        return {**sets, **{f"bag{b.column}": b.bag for b in self._bags}}

    def shrink(self) -> None:
        for table in self._tables.values():
            table.shrink()
        for registers in self._registers:
            registers.shrink()
        for extreme in self._extremes:
            extreme.skyline.shrink()

    def forget(self, groups: Int64s) -> None:
        """Drop the values of groups that have ended with rows in them, and whose slots are dead."""
        for extreme in self._extremes:
            extreme.skyline.forget(groups)
        for registers in self._registers:
            registers.forget()
        for table in self._tables.values():
            table.forget()

    def with_registers(self, events: GroupEvents) -> GroupEvents:
        """Apply the cells of registers; return `events`, and those that change the lanes which follow from them."""
        changes = [r.changes(events) for r in self._registers]
        if not changes:
            return events
        # The cells of images are in the changes: those that become the greatest of their registers, or no longer are.
        values = list(events.values)
        for column in (r.column for r in self._registers if r.pictured):
            values[column] = pa.nulls(len(values[column]), values[column].type)
        return join(self._plan, [replace(events, values=tuple(values)), *changes])

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
            answers = b.bag.follow(events.slots, events.times, order, pairs, events.weights(b.lane), outputs)
            results |= self._results(b, answers)
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
        once = {e.column for e in self._extremes} | {r.column for r in self._registers if r.known_ends}
        return tuple(i not in once for i in range(len(self._plan.valued)))

    def factors(self, events: GroupEvents, order: Int64s) -> Int64s:
        """Return (events, 1 + distinct arguments): how often an event adds the lanes of its row. First its sign; then
        for each DISTINCT argument 1 where its value appears, -1 where it disappears, else 0."""
        factors = np.zeros((len(events.slots), 1 + len(self._sets)), np.int64)
        factors[:, 0] = events.signs
        for number, (argument, bag) in enumerate(self._sets.values(), 1):
            column = events.of_events(events.values[argument])
            pairs = bag.pairs(events.slots, column)
            comings(events.slots, events.times, order, pairs, events.weights(), bag.integers, factors[:, number])
            bag.touch(pairs[pairs >= 0])
        return factors

    def _results(self, b: _Bag, answers: Found) -> dict[int, pa.Array]:
        calls = ((call_number, self._plan.calls[call_number]) for call_number in b.calls)
        return {
            call_number: _ordered(call).finalize(call, _Answer(b.bag, answers, question))
            for question, (call_number, call) in enumerate(calls)
        }


def _extreme(e: _Extreme, keys: Int64s, present: Bools) -> dict[int, pa.Array]:
    values = from_order_keys(keys ^ e.flip, present, e.type)
    return dict.fromkeys(e.calls, values)


def _ordered(call: AggregateCall) -> OrderedFunction:
    function = function_of(call)
    assert isinstance(function, OrderedFunction)
    return function


class _Answer:
    """The answer of a bag to one question (`OrderedAnswer`)."""

    def __init__(self, bag: LinkedBag, answers: Found, question: int) -> None:
        self._bag, self._answers = bag, answers
        self._first, self._second = answers.found[question, :, 0], answers.found[question, :, 1]
        self.share = answers.between[question]

    def value(self) -> pa.Array:
        return self._bag.values(self._first)

    def other(self) -> pa.Array:
        return self._bag.values(self._second)

    def members(self) -> Members:
        starts, stops = self._first, self._second
        lengths = np.where(starts < 0, 0, stops - starts)
        ends = np.cumsum(lengths)
        positions = np.repeat(starts - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        values = self._bag.values(self._answers.members[positions])
        # Counts are known where the most frequent values were searched.
        counts = self._answers.counts[positions] if len(self._answers.counts) else np.ones(len(positions), np.int64)
        return Members(offsets, values, counts, starts < 0)
