"""The state that the aggregates of one GROUP BY need: sums, counts by value, ordered values.

A call's *argument* is the values that it reads; calls on the same argument share its state. Four kinds:

- sums (`expressions/aggregates/accumulators/`): additive numbers, added when a row enters and subtracted when it
  leaves;
- extremes: MIN and MAX of rows whose expiration is known on arrival, stored as skylines;
- bags: value -> count in the order of values, for functions of the order or the frequency of values, and for MIN and
  MAX where negative tuples may arrive;
- cells of sketches (`expressions/aggregates/cells.py`): cell -> count, or the greatest rank of every register.

A row falls into any number of cells, so each of these is a lane row of its own, beside the one that has the other
lanes. It carries how often it counts, since it does not count as a row of its group.

A DISTINCT argument of sums is a set of values beside its lanes, which change when a value enters or leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import pyarrow as pa

from penstock.expressions.aggregates import function_of
from penstock.expressions.aggregates.accumulators.contract import Accumulator
from penstock.expressions.aggregates.cells import CellEncoder
from penstock.expressions.aggregates.contract import AccumulatedFunction, ArgumentState, NullRule, OrderedFunction
from penstock.expressions.nodes import AggregateCall, Expression, KeyDirection


@dataclass(frozen=True)
class Argument:
    """The input of an aggregate: expressions over the input (several: a tuple of values), without the rows that its
    FILTER rejects. integers, floats: the first positions of its lanes; integers = [count, then by accumulator], floats
    = pairs and expansions, by accumulator. distinct: a bag counts every value once. nulls: which tuples count.
    encoder: which cells of a sketch a value falls into. directions: of the first expressions, which are keys of ORDER
    BY."""

    expressions: tuple[Expression, ...]
    filter: Expression | None
    kind: ArgumentState
    distinct: bool
    nulls: NullRule
    integers: int
    floats: int
    accumulators: tuple[Accumulator, ...]
    encoder: CellEncoder | None = None
    directions: tuple[KeyDirection, ...] = ()

    @property
    def type(self) -> pa.DataType:
        """Return the type of the stored values."""
        return self.value_type if self.encoder is None else self.encoder.type(self.value_type)

    @property
    def value_type(self) -> pa.DataType:
        """Return the type of the values that are read: a struct for several expressions."""
        if len(self.expressions) == 1:
            return self.expressions[0].type
        return pa.struct([(f"f{i}", e.type) for i, e in enumerate(self.expressions)])

    @property
    def summed(self) -> bool:
        return self.kind in (ArgumentState.SUMS, ArgumentState.DISTINCT, *_RANKED)

    @property
    def integer_lanes(self) -> int:
        if self.kind is ArgumentState.CELLS:
            return 1
        return 1 + sum(a.integers(self.type) for a in self.accumulators) if self.summed else 0

    @property
    def carried_lanes(self) -> int:
        """Return how many of its integer lanes travel in lane rows. Those of DISTINCT arguments and of registers follow
        from values, but for the lane with how often a cell counts."""
        if self.kind is ArgumentState.SUMS:
            return self.integer_lanes
        return 1 if self.encoder is not None else 0

    @property
    def float_lanes(self) -> int:
        return sum(a.floats(self.type) for a in self.accumulators)

    @property
    def widths(self) -> tuple[int, ...]:
        """Return how many float lanes each sum of doubles has, in their order."""
        return tuple(width for a in self.accumulators for width in a.widths(self.type))


@dataclass(frozen=True)
class AggregateLayout:
    """The state of one Aggregate. calls[i] is computed from arguments[sources[i]] (None for COUNT(*))."""

    group: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    arguments: tuple[Argument, ...]
    sources: tuple[int | None, ...]

    @cached_property
    def integers(self) -> int:
        return 1 + sum(a.integer_lanes for a in self.arguments)

    @cached_property
    def floats(self) -> int:
        return sum(a.float_lanes for a in self.arguments)

    @cached_property
    def double_sums(self) -> tuple[tuple[int, int, int], ...]:
        """Return, of each sum of doubles: the integer lane that counts its terms, its first float lane, and the one
        after its last."""
        sums: list[tuple[int, int, int]] = []
        for argument in self.arguments:
            first = argument.floats
            for width in argument.widths:
                sums.append((argument.integers, first, first + width))
                first += width
        return tuple(sums)

    @cached_property
    def carried(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the integer and float lanes of lane rows. Those of DISTINCT arguments follow from values."""
        kept = [a for a in self.arguments if a.kind is ArgumentState.SUMS]
        integers = [lane for a in self.arguments for lane in range(a.integers, a.integers + a.carried_lanes)]
        return (0, *integers), tuple(lane for a in kept for lane in range(a.floats, a.floats + a.float_lanes))

    @cached_property
    def carried_widths(self) -> tuple[int, ...]:
        """Return how many of the float lanes of lane rows each sum of doubles has, in their order."""
        return tuple(width for a in self.arguments if a.kind is ArgumentState.SUMS for width in a.widths)

    @cached_property
    def values_at(self) -> int:
        """Return the column of lane rows with which their values begin."""
        return len(self.group) + sum(map(len, self.carried))

    @cached_property
    def extremes(self) -> tuple[int, ...]:
        """Return the positions of the arguments of MIN and MAX that are stored as extremes."""
        return self._of(ArgumentState.LEAST, ArgumentState.GREATEST)

    @cached_property
    def distincts(self) -> tuple[int, ...]:
        """Return the positions of the arguments whose lanes count every value once."""
        return self._of(ArgumentState.DISTINCT)

    @cached_property
    def bags(self) -> tuple[int, ...]:
        return self._of(ArgumentState.BAG)

    @cached_property
    def registers(self) -> tuple[int, ...]:
        """Return the positions of the arguments of which a pane keeps the greatest rank of every register."""
        return self._of(ArgumentState.REGISTERS)

    @cached_property
    def pictured(self) -> tuple[int, ...]:
        """Return the positions of the arguments of registers of which images are made."""
        calls = zip(self.calls, self.sources, strict=True)
        ordered = {source for call, source in calls if isinstance(function_of(call), OrderedFunction)}
        return tuple(i for i in self.registers if i in ordered)

    @cached_property
    def ranked(self) -> tuple[int, ...]:
        """Return the positions of the arguments whose lanes follow from the greatest rank of every register."""
        return self._of(*_RANKED)

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """Return the positions of the arguments whose cells are counted."""
        return self._of(ArgumentState.CELLS)

    @cached_property
    def sketched(self) -> tuple[int, ...]:
        """Return the positions of the arguments that are stored as cells of sketches."""
        return self.registers + self._of(ArgumentState.REGISTER_COUNTS) + self.cells

    @cached_property
    def valued(self) -> tuple[int, ...]:
        """Return the positions of the arguments whose values travel beside the lanes, in the order of their columns."""
        counted = self._of(ArgumentState.REGISTER_COUNTS)
        return self.extremes + self.registers + self.distincts + self.bags + counted + self.cells

    @cached_property
    def plain_sums(self) -> bool:
        """Return whether the results are sums that cost little more to finalize than to copy."""
        return not self.valued and all(
            a.is_plain(argument.type) for argument in self.arguments for a in argument.accumulators
        )

    def __getstate__(self) -> dict[str, object]:
        # Equal layouts have equal pickles, whatever has been asked of them.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _of(self, *kinds: ArgumentState) -> tuple[int, ...]:
        return tuple(i for i, a in enumerate(self.arguments) if a.kind in kinds)


_RANKED = (ArgumentState.REGISTERS, ArgumentState.REGISTER_COUNTS)

#: (expressions, filter, kind, distinct, nulls, encoder, directions) of an argument.
_Key = tuple[tuple[str, ...], str, ArgumentState, bool, NullRule, CellEncoder | None, tuple[KeyDirection, ...]]


def plan_lanes(group: tuple[int, ...], calls: tuple[AggregateCall, ...], strict: bool) -> AggregateLayout:
    """Return the state that `calls` need. strict: negative tuples may arrive."""
    needed: dict[_Key, tuple[AggregateCall, set[Accumulator]]] = {}
    keys: list[_Key | None] = []
    for call in calls:
        if not call.arguments and call.filter is None:
            keys.append(None)
            continue
        function = function_of(call)
        kind = function.state(call.distinct, strict)
        distinct = call.distinct and kind in (ArgumentState.DISTINCT, ArgumentState.BAG)
        prints = tuple(e.fingerprint for e in function.values(call))
        only = call.filter.fingerprint if call.filter else ""
        key = (prints, only, kind, distinct, function.null_rule(call), function.cells(call), call.order)
        _, accumulators = needed.setdefault(key, (call, set()))
        if isinstance(function, AccumulatedFunction):
            accumulators.update(function.accumulators(call))
        keys.append(key)
    arguments: list[Argument] = []
    integers, floats = 1, 0
    for key, (call, accumulators) in needed.items():
        _, _, kind, distinct, nulls, encoder, directions = key
        ranked = tuple(sorted(accumulators, key=lambda a: a.rank))
        expressions = function_of(call).values(call)
        argument = Argument(
            expressions, call.filter, kind, distinct, nulls, integers, floats, ranked, encoder, directions
        )
        integers, floats = integers + argument.integer_lanes, floats + argument.float_lanes
        arguments.append(argument)
    index_of = {key: i for i, key in enumerate(needed)}
    return AggregateLayout(group, calls, tuple(arguments), tuple(None if k is None else index_of[k] for k in keys))
