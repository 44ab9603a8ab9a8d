"""The interface of an aggregate function: one object with all its properties.

The binder reads its arguments, result type and DISTINCT rule; the rewrite rules whether duplicates count; the planner
which state it needs; the operators how its value is computed from the state. Two kinds of state:

- accumulators: additive numbers, added when a row enters and subtracted when it leaves (`AccumulatedFunction`);
- ordered values: value -> count in the order of values, on which a question is answered (`OrderedFunction`).

A sketch is one of both over *cells* in place of values (`cells.py`).

A function is one instance in one file and one line in the registry (`__init__.py`). Its semantics are implemented a
second time, naively, in the oracle.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.bounds import BOUNDED, Accuracy, Bounds
from penstock.expressions.aggregates.cells import CellEncoder
from penstock.expressions.coercion import NULL, STRING, cast_to, is_atomic, misfit
from penstock.expressions.nodes import AggregateCall, Expression, KeyDirection, Literal

#: Lanes of an accumulator, by (lane, row): a matrix, or one array per lane.
Integers = Sequence[Int64s] | npt.NDArray[np.int64]
Floats = Sequence[Float64s] | npt.NDArray[np.float64]


class ArgumentState(enum.Enum):
    """How the values of an argument are kept."""

    SUMS = "sums"
    DISTINCT = "distinct"
    LEAST = "least"
    GREATEST = "greatest"
    BAG = "bag"
    #: Cells of a sketch with their counts.
    CELLS = "cells"
    #: Cells (register, rank), of which the greatest rank in every register matters.
    REGISTERS = "registers"
    #: The same with a count for each, where rows may be retracted.
    REGISTER_COUNTS = "register counts"


class DistinctRule(enum.Enum):
    """The effect of DISTINCT: it counts every value once; it changes nothing; or it is refused."""

    COUNTS_ONCE = "counts once"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


class NullRule(enum.Enum):
    """Which rows count: those without a NULL among the values that the function reads; all; those whose first value, by
    which they are ordered, is not NULL; those whose last value, behind the keys of ORDER BY, is not NULL."""

    SKIP = "skip"
    KEEP = "keep"
    SKIP_UNORDERED = "skip unordered"
    SKIP_BEHIND_KEYS = "skip behind keys"


class Question(enum.IntEnum):
    """The question to ordered values: the least or greatest; a quantile (with its fraction); the most frequent; the k
    most frequent (with k); all; the value at a rank (`RankParameter`); every different value with its count."""

    LEAST = 0
    GREATEST = 1
    QUANTILE = 2
    MODE = 3
    TOP = 4
    EVERY = 5
    RANK = 6
    COUNTS = 7


@dataclass(frozen=True)
class RowOrder:
    """ORDER BY in a call of an aggregate, or of WITHIN GROUP: its keys, at least one, and the direction of each."""

    keys: tuple[Expression, ...]
    directions: tuple[KeyDirection, ...]


@dataclass(frozen=True)
class AggregateInput:
    """What a call of an aggregate reads, as it is written in the query. distinct: of DISTINCT values; only: FILTER's
    condition, BOOLEAN; order: the timestamp of a row, for a function that is `timed`; by: its ORDER BY."""

    arguments: tuple[Expression, ...] = ()
    distinct: bool = False
    only: Expression | None = None
    order: Expression | None = None
    by: RowOrder | None = None


@dataclass(frozen=True)
class WrittenCall:
    """How a call is written: the arguments inside its parentheses; the keys of its ORDER BY, with the direction of
    each; and whether these stand behind it, in WITHIN GROUP."""

    inside: tuple[Expression, ...]
    keys: tuple[tuple[Expression, KeyDirection], ...] = ()
    within: bool = False


@dataclass(frozen=True)
class AggregateFunction(ABC):
    """An aggregate by its name. signature: its arguments, as in the documentation; help: a description of its value."""

    name: str
    signature: str
    help: str
    aliases: tuple[str, ...] = ()

    #: The number of arguments of a call.
    arguments: ClassVar[int] = 1
    distinct: ClassVar[DistinctRule] = DistinctRule.COUNTS_ONCE
    nulls: ClassVar[NullRule] = NullRule.SKIP
    #: Whether a call receives the timestamp of a row, where it has one.
    timed: ClassVar[bool] = False
    #: Whether a call may have ORDER BY in its parentheses.
    ordered: ClassVar[bool] = False
    #: Whether a call may be of *, that is of rows.
    of_rows: ClassVar[bool] = False
    #: Whether the arguments behind the first are the constants of a sketch.
    cell_constants: ClassVar[bool] = False
    #: The value over no rows.
    of_nothing: ClassVar[int | None] = None

    @property
    def usage(self) -> str:
        """Return the form of a call."""
        return f"{self.name}({self.signature})"

    @abstractmethod
    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        """Return the arguments with implicit casts, and the type of the result. Raises PenstockError P0203."""

    def build(self, read: AggregateInput) -> AggregateCall:
        """Return a call that reads `read`. Raises PenstockError P0203, P0204, P0304."""
        arguments = read.arguments
        self.check_count(arguments)
        self.check_distinct(read.distinct)
        # State and answers have a type; a bare NULL is a STRING, as in a select list.
        bound, type_ = self.bind(arguments)
        if bound[0].type == NULL:
            bound, type_ = self.bind((cast_to(bound[0], STRING), *arguments[1:]))
        counted = read.distinct and self.distinct is DistinctRule.COUNTS_ONCE
        call = AggregateCall(type_, self.name, bound, counted, read.only)
        if read.by is None:
            return call
        if read.distinct and not all(key in (*arguments, *bound) for key in read.by.keys):
            message = f"with DISTINCT, ORDER BY in {self.name} takes its arguments"
            raise PenstockError("P0304", message, hint="order by the value itself, or leave DISTINCT out")
        keys = tuple(self.sort_key(key) for key in read.by.keys)
        return replace(call, arguments=(*call.arguments, *keys), order=read.by.directions)

    def build_within(self, read: AggregateInput) -> AggregateCall:
        """Return a call with WITHIN GROUP, whose ORDER BY is `read.by`. Raises PenstockError P0203, P0204, P0304."""
        hint = "ORDER BY stands in its parentheses" if self.ordered else "leave WITHIN GROUP out"
        raise PenstockError("P0304", f"{self.name} does not take WITHIN GROUP", hint=hint)

    def sort_key(self, key: Expression) -> Expression:
        """Return a key of ORDER BY, which has an order. Raises PenstockError P0203."""
        if not is_atomic(key.type):
            hint = "ORDER BY takes values that have an order: read a field or an element"
            raise misfit(f"ORDER BY in {self.name}", [key.type], hint=hint)
        return cast_to(key, STRING) if key.type == NULL else key

    def written(self, call: AggregateCall) -> WrittenCall:
        """Return how a call is written in a query."""
        return WrittenCall(call.own, tuple(zip(call.keys, call.order, strict=True)))

    def check_count(self, arguments: Sequence[Expression]) -> None:
        if len(arguments) != self.arguments:
            shown = f"{self.arguments} argument{'s' if self.arguments > 1 else ''}"
            message = f"{self.name} takes {shown}, not {len(arguments)}"
            raise PenstockError("P0204", message, hint=self.usage)

    def check_distinct(self, distinct: bool) -> None:
        if distinct and self.distinct is DistinctRule.REFUSED:
            raise PenstockError("P0204", f"{self.name} does not take DISTINCT", hint="leave DISTINCT out")

    def null_rule(self, call: AggregateCall) -> NullRule:
        """Return which rows count in a call: a row whose key of ORDER BY is NULL does."""
        return NullRule.SKIP_BEHIND_KEYS if call.order and self.nulls is NullRule.SKIP else self.nulls

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        """Return the input of a call in each row, behind the keys of its ORDER BY; calls with the same input share its
        state."""
        return call.arguments or (Literal(pa.bool_(), True),)  # COUNT(*) FILTER (WHERE p) counts a constant

    @abstractmethod
    def state(self, distinct: bool, negative: bool) -> ArgumentState:
        """Return how the values are stored. negative: rows may also be retracted before their expiration."""

    def cells(self, call: AggregateCall) -> CellEncoder | None:
        """Return which cells of a sketch a value falls into; None where the values themselves are stored."""
        return None

    def accuracy(self, call: AggregateCall) -> Accuracy | None:
        """Return how far the value of a call may be from the exact one; None where it is exact."""
        return None

    def bounds(self, call: AggregateCall, confidence: float) -> Bounds:
        """Return expressions between whose values the exact value of a call lies, with this confidence or for certain.
        Raises PenstockError P0355."""
        raise PenstockError("P0355", f"{self.name} is exact and has no bounds", hint=BOUNDED)


class AccumulatedFunction(AggregateFunction):
    """An aggregate that is computed from additive numbers."""

    def state(self, distinct: bool, negative: bool) -> ArgumentState:
        return ArgumentState.DISTINCT if distinct else ArgumentState.SUMS

    @abstractmethod
    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        """Return the accumulators beside the count of values."""

    @abstractmethod
    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        """Return the value of a call for each row of `sums`."""


@dataclass(frozen=True)
class ArgumentSums:
    """The accumulators of one argument for any number of groups. type: of the values; count: how many values."""

    type: pa.DataType
    count: Int64s
    parts: Mapping[Accumulator, tuple[Integers, Floats]]

    @property
    def absent(self) -> npt.NDArray[np.bool_] | None:
        """Return where there are no values, or None if there are some everywhere: applying a mask costs more than this
        check."""
        none = self.count == 0
        return none if none.any() else None


class OrderedFunction(AggregateFunction):
    """An aggregate that is computed from the values in their order."""

    @abstractmethod
    def question(self) -> Question:
        """Return the question to the ordered values."""

    def parameter(self, call: AggregateCall) -> float:
        """Return the constant of the question."""
        return 0.0

    def parameters(self, call: AggregateCall) -> tuple[float, float, float]:
        """Return the constants of the question: one, or for RANK (q, rounded, spread): of n values the one with the
        rank 1 + ⌊q·(n - 1)⌋ for rounded = 0, or max(1, ⌈q·n⌉) for 1; moved by ⌊n/spread⌋, downwards for spread < 0.
        There is none where that is not a rank from 1 to n."""
        return self.parameter(call), 0.0, 0.0

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        return (*call.keys, call.arguments[0])

    def state(self, distinct: bool, negative: bool) -> ArgumentState:
        return ArgumentState.BAG

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        """Return the value of a call from the answer to its question: here the value that was found."""
        return behind_keys(answer.value())


def within_group(
    function: AggregateFunction, read: AggregateInput, arguments: int
) -> tuple[Expression, RowOrder | None]:
    """Return the only key of WITHIN GROUP, which is the value that a function reads, and its order where that is
    descending. NULLs do not count, wherever they stand. Raises PenstockError P0204.

    Args:
        arguments: how many stand in the parentheses of a call.
    """
    by = read.by
    assert by is not None
    if len(read.arguments) != arguments:
        shown = "an argument" if arguments else "no argument"
        message = f"{function.name} takes {shown} before WITHIN GROUP, not {len(read.arguments)}"
        raise PenstockError("P0204", message, hint=function.usage)
    if len(by.keys) != 1:
        message = f"{function.name} takes one value in WITHIN GROUP, not {len(by.keys)}"
        raise PenstockError("P0204", message, hint=function.usage)
    if read.distinct:
        message = f"{function.name} does not take DISTINCT with WITHIN GROUP"
        raise PenstockError("P0204", message, hint="leave DISTINCT out")
    descends = by.directions[0].descending
    return by.keys[0], RowOrder(by.keys, (KeyDirection(True, False),)) if descends else None


def behind_keys(values: pa.Array) -> pa.Array:
    """Return the values themselves of an input that holds keys before them."""
    return values.flatten()[-1] if pa.types.is_struct(values.type) else values


class OrderedAnswer(Protocol):
    """The answer to one question for any number of groups. share: how far a quantile lies from `value` to `other`."""

    share: Float64s

    def value(self) -> pa.Array:
        """Return the value, NULL where there is none."""

    def other(self) -> pa.Array:
        """Return the second of the two values around a quantile."""

    def members(self) -> Members:
        """Return the values for TOP, EVERY and COUNTS."""


@dataclass(frozen=True)
class Members:
    """Some values for each group. Those of row i are values[offsets[i] : offsets[i + 1]]; counts: how often each
    occurs, for TOP and COUNTS; none: where there are no values at all."""

    offsets: npt.NDArray[np.int32]
    values: pa.Array
    counts: Int64s
    none: npt.NDArray[np.bool_]

    def lists(self, type_: pa.DataType, values: pa.Array) -> pa.Array:
        """Return an array for each row, made of `values` in place of the members."""
        return pa.ListArray.from_arrays(pa.array(self.offsets), values, type=type_, mask=pa.array(self.none))
