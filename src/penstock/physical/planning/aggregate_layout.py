"""Which state the aggregates of one GROUP BY need: what is summed, what is counted by value, what is kept in order.

A call's *argument* is the values it looks at; calls on the same argument share its state. Three kinds:

- sums (`lanes.py`): additive numbers, added when a row comes and taken away when it goes;
- extremes: MIN and MAX of rows whose end is known when they come, kept as skylines;
- bags: value -> count in the order of values, for what depends on the order or the frequency of values (QUANTILE,
  MODE, TOP_K, ARRAY_AGG, FIRST, LAST), and for MIN and MAX where negative tuples may come.

A DISTINCT argument of sums is a set of values beside its lanes, which move when a value comes or goes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pyarrow as pa

from penstock.expressions.nodes import AggregateCall, Expression, Literal


class ArgumentState(enum.Enum):
    """How the values of an argument are kept."""

    SUMS = "sums"
    DISTINCT = "distinct"
    LEAST = "least"
    GREATEST = "greatest"
    BAG = "bag"


_EXTREMES = {"MIN": ArgumentState.LEAST, "MAX": ArgumentState.GREATEST}
_BITS = frozenset({"BIT_AND", "BIT_OR", "BIT_XOR"})
_IN_TIME = frozenset({"FIRST", "LAST"})
_ORDERED = frozenset({"QUANTILE", "MODE", "TOP_K", "ARRAY_AGG"}) | _IN_TIME
#: Calls whose arguments behind the first are constants.
_CONSTANTS = frozenset({"QUANTILE", "TOP_K"})


@dataclass(frozen=True)
class Argument:
    """What an aggregate looks at: expressions over the input (several: a tuple of values), rows that its FILTER rejects
    left out. integers, floats: the first positions of its lanes; integers = [count, then by kind], floats = (hi, lo)
    pairs. bits: how many of the values' bits are counted, in lanes behind the sum. distinct: a bag counts every value
    once. nulls: a tuple counts though values in it are NULL."""

    expressions: tuple[Expression, ...]
    filter: Expression | None
    kind: ArgumentState
    distinct: bool
    nulls: bool
    integers: int
    floats: int
    squares: bool
    bits: int = 0

    @property
    def type(self) -> pa.DataType:
        """Of the values: a struct for several expressions."""
        if len(self.expressions) == 1:
            return self.expressions[0].type
        return pa.struct([(f"f{i}", e.type) for i, e in enumerate(self.expressions)])

    @property
    def summed(self) -> bool:
        return self.kind in (ArgumentState.SUMS, ArgumentState.DISTINCT)

    @property
    def integer_lanes(self) -> int:
        return 1 + _sum_integers(self.type) + self.bits if self.summed else 0

    @property
    def float_lanes(self) -> int:
        if not self.summed:
            return 0
        return (6 if self.squares else 2) if pa.types.is_floating(self.type) else 0


def _sum_integers(type_: pa.DataType) -> int:
    """Integer lanes that a sum of `type_` takes beside the count."""
    if pa.types.is_integer(type_) or pa.types.is_duration(type_):
        return 1
    if pa.types.is_decimal(type_):
        return 4
    return 3 if pa.types.is_floating(type_) else 0  # NaN and +inf, -inf, units of huge values


@dataclass(frozen=True)
class AggregateLayout:
    """The state of one Aggregate. calls[i] is computed from arguments[sources[i]] (None for COUNT(*))."""

    group: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    arguments: tuple[Argument, ...]
    sources: tuple[int | None, ...]

    @property
    def integers(self) -> int:
        return 1 + sum(a.integer_lanes for a in self.arguments)

    @property
    def floats(self) -> int:
        return sum(a.float_lanes for a in self.arguments)

    @property
    def carried(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The integer and float lanes that travel in lane rows. Those of DISTINCT arguments follow from values."""
        kept = [a for a in self.arguments if a.kind is ArgumentState.SUMS]
        integers = [lane for a in kept for lane in range(a.integers, a.integers + a.integer_lanes)]
        return (0, *integers), tuple(lane for a in kept for lane in range(a.floats, a.floats + a.float_lanes))

    @property
    def values_at(self) -> int:
        """The column of lane rows with which their values begin."""
        return len(self.group) + sum(map(len, self.carried))

    @property
    def extremes(self) -> tuple[int, ...]:
        """Positions of the arguments of MIN and MAX that are kept as such."""
        return self._of(ArgumentState.LEAST, ArgumentState.GREATEST)

    @property
    def distincts(self) -> tuple[int, ...]:
        """Positions of the arguments whose lanes count every value once."""
        return self._of(ArgumentState.DISTINCT)

    @property
    def bags(self) -> tuple[int, ...]:
        return self._of(ArgumentState.BAG)

    @property
    def valued(self) -> tuple[int, ...]:
        """Positions of the arguments whose values travel beside the lanes, in the order of their columns."""
        return self.extremes + self.distincts + self.bags

    @property
    def plain_sums(self) -> bool:
        """Whether the results are sums that cost little more to finish than to copy."""
        dear = any(a.squares or a.bits or pa.types.is_decimal(a.type) for a in self.arguments)
        return not dear and not self.valued

    def _of(self, *kinds: ArgumentState) -> tuple[int, ...]:
        return tuple(i for i, a in enumerate(self.arguments) if a.kind in kinds)


#: (expressions, filter, kind, distinct) of an argument.
_Key = tuple[tuple[str, ...], str, ArgumentState, bool]


def plan_lanes(group: tuple[int, ...], calls: tuple[AggregateCall, ...], strict: bool) -> AggregateLayout:
    """Return the state that `calls` need. strict: negative tuples may come."""
    wanted: dict[_Key, tuple[AggregateCall, bool, int]] = {}
    keys: list[_Key | None] = []
    for call in calls:
        if not call.arguments and call.filter is None:
            keys.append(None)
            continue
        kind = _kind(call, strict)
        distinct = call.distinct and kind in (ArgumentState.DISTINCT, ArgumentState.BAG)
        prints = tuple(e.fingerprint for e in _expressions(call))
        key = (prints, call.filter.fingerprint if call.filter else "", kind, distinct)
        squares = call.function.startswith(("STDDEV", "VAR")) or (key in wanted and wanted[key][1])
        bits = call.type.bit_width if call.function in _BITS else wanted[key][2] if key in wanted else 0
        wanted[key] = (call, squares, bits)
        keys.append(key)
    arguments: list[Argument] = []
    integers, floats = 1, 0
    for key, (call, squares, bits) in wanted.items():
        nulls = call.function in _IN_TIME
        argument = Argument(_expressions(call), call.filter, key[2], key[3], nulls, integers, floats, squares, bits)
        integers, floats = integers + argument.integer_lanes, floats + argument.float_lanes
        arguments.append(argument)
    places = {key: i for i, key in enumerate(wanted)}
    return AggregateLayout(group, calls, tuple(arguments), tuple(None if k is None else places[k] for k in keys))


def _kind(call: AggregateCall, strict: bool) -> ArgumentState:
    if call.function in _EXTREMES:
        return ArgumentState.BAG if strict else _EXTREMES[call.function]
    if call.function in _ORDERED:
        return ArgumentState.BAG
    return ArgumentState.DISTINCT if call.distinct else ArgumentState.SUMS


def _expressions(call: AggregateCall) -> tuple[Expression, ...]:
    """Return the values that `call` looks at."""
    if call.function in _CONSTANTS:
        return call.arguments[:1]
    if call.function in _IN_TIME:
        return call.arguments[::-1]  # by timestamp, then by value
    # COUNT(*) FILTER (WHERE p) counts a constant.
    return call.arguments or (Literal(pa.bool_(), True),)
