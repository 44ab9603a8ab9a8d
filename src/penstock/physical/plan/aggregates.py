"""The specs of grouping: the rows of accumulators, and the groups computed from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import pyarrow as pa

from penstock.algebra.properties.boundedness import Boundedness
from penstock.expressions.aggregates import function_of
from penstock.expressions.aggregates.contract import ArgumentState, OrderedFunction, Question
from penstock.expressions.nodes import columns_of
from penstock.physical.plan.spec import (
    Memory,
    Parameter,
    ReducingSpec,
    Spec,
    Ticks,
    has_one_form,
    queue_kinds,
    queue_name,
    with_queue,
)
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.plan.state.of_sketches import ADDED_UP, panes_of_ticks, sketch_state
from penstock.physical.plan.state.state_parts import (
    SLOT,
    TIMES,
    StateInput,
    StatePart,
    all_rows,
    pending_ends,
    width,
    width_of_value,
)
from penstock.physical.plan.state.time_endings import TimeEnding, shown_endings, until_final
from penstock.physical.plan.step_choices import SynopsisKinds

#: Bytes of a node of a tree of values, and of the skyline of an extreme.
TREE, SKYLINE = 64, 64


@dataclass(frozen=True)
class AccumulatorRowsSpec(ReducingSpec):
    """The accumulators of each row. pre_aggregate: rows of one group and validity become one, a pane."""

    plan: AggregateLayout
    pre_aggregate: bool

    def describe(self) -> dict[str, str]:
        return {"panes": "yes" if self.pre_aggregate else "no"}

    def panes(self, inputs: Sequence[StateInput]) -> AggregateLayout | None:
        return self.plan if self.pre_aggregate else None


@dataclass(frozen=True)
class AggregateSpec(Spec):
    """fifo: the input's elements expire in order of arrival. input_types: of the lane rows. ending: by which groups
    become final, whose state is dropped then."""

    plan: AggregateLayout
    fifo: bool
    input_types: tuple[pa.DataType, ...]
    listed: bool = False
    ending: tuple[TimeEnding, ...] = ()

    @property
    def divides(self) -> bool:
        # Each change of a group emits all its values.
        functions = (function_of(call) for call in self.plan.calls)
        return any(isinstance(f, OrderedFunction) and f.question() is Question.EVERY for f in functions)

    @property
    def memory(self) -> Memory:
        # Sums of floating point may carry the rounding of what has left, and a retraction has the bits of its row.
        exact = not self.plan.floats and has_one_form(self.input_types)
        return Memory.LIVE if exact else Memory.HISTORY

    @property
    def grouped(self) -> AggregateLayout | None:
        return self.plan

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return queue_kinds(self.fifo, self.listed)

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        return with_queue(self, kinds)

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": queue_name(self.fifo, self.listed), **shown_endings(self.ending)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        parts = grouped_state(self.plan, inputs[-1], self.input_types, made.content)
        return until_final(parts, self.ending, "groups")


@dataclass(frozen=True)
class RowLogSpec(Spec):
    """The accumulator rows of a stream in order of time, for aggregates over windows of any length over it [bulletin
    2.2]. How long they are kept follows from these windows, so the length is no part of what the log is.

    Args:
        types: of the accumulator rows.
    """

    keeps_rows: ClassVar[bool] = True

    plan: AggregateLayout
    types: tuple[pa.DataType, ...]

    @property
    def memory(self) -> Memory:
        # Each row is kept as it came.
        return Memory.LIVE

    def describe(self) -> dict[str, str]:
        return {"state": "rows of the longest window, in order of time"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return [all_rows(replace(made, types=self.types), "rows of the longest window", 3 * TIMES // 2)]


@dataclass(frozen=True)
class LoggedAggregateSpec(AggregateSpec):
    """The same over a window of `length` ticks of the rows in a log: those that enter and leave are read there."""

    reads: ClassVar[bool] = True
    holds_early: ClassVar[bool] = False
    varying: ClassVar[frozenset[str]] = frozenset({"length"})

    length: int = 1

    @property
    def title(self) -> str:
        return "Aggregate"

    def read_length(self, port: int) -> int | None:
        return self.length

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        # What is to expire is read in the log.
        return {}

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "groups; rows in the log below", "length": Ticks(self.length)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return grouped_state(self.plan, inputs[-1], self.input_types, made.content, stores_rows=False)


def grouped_state(
    plan: AggregateLayout,
    rows: StateInput,
    input_types: Sequence[pa.DataType],
    bound: Boundedness,
    stores_rows: bool = True,
) -> Iterable[StatePart]:
    """Return the state that grouping stores of its input `rows`: groups with their accumulators, and the values of
    aggregates that are not sums. input_types: of the accumulator rows; bound: what bounds the number of groups;
    stores_rows: rows whose end is to come are part of it."""
    groups = rows.values(plan.group)
    keys = width(input_types[: len(plan.group)])
    yield StatePart("groups", groups, groups * (SLOT + 8 * (plan.integers + plan.floats) + keys), bound)
    ticks = panes_of_ticks(rows, groups) if plan.sketched else rows
    if stores_rows:
        yield from pending_ends(ticks if all(a.kind in ADDED_UP for a in plan.arguments) else rows)
    for argument in plan.arguments:
        if argument.kind is ArgumentState.SUMS:
            continue
        nbytes = width_of_value(argument.type)
        if argument.encoder is not None:
            yield from sketch_state(plan, argument, ticks, groups, rows.node.carries_ends)
            continue
        if argument.kind in (ArgumentState.LEAST, ArgumentState.GREATEST):
            # Of n rows in random order about log n are greater than all that follow.
            count = groups * math.log(rows.size / groups + math.e)
            yield StatePart("rows that may become an extreme", count, count * (SKYLINE + nbytes), bound)
            continue
        columns = tuple(sorted({column for e in argument.expressions for column in columns_of(e)}))
        count = min(rows.size, groups * rows.values(columns))
        tree = TREE if argument.kind is ArgumentState.BAG else 0
        by_value = rows.by_keys(tuple(dict.fromkeys((*plan.group, *columns))), "different values")
        yield StatePart("values by group", count, count * (2 * SLOT + 8 + nbytes + tree), by_value)
