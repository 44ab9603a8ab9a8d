"""BIT_AND, BIT_OR and BIT_XOR: the bits that all, some or an odd number of values have set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.bits import Bits
from penstock.expressions.aggregates.accumulators.contract import Accumulator, Int64s
from penstock.expressions.aggregates.contract import AccumulatedFunction, ArgumentSums, DistinctRule
from penstock.expressions.coercion import BIGINT, NULL, cast_to, is_integer, misfit
from penstock.expressions.nodes import AggregateCall, Expression


@dataclass(frozen=True)
class BitAggregate(AccumulatedFunction):
    """chosen: whether a bit is set, from how many of the values have it set and how many values there are."""

    chosen: Callable[[Int64s, Int64s], npt.NDArray[np.bool_]] = np.equal

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        (argument,) = arguments
        if argument.type == NULL:
            return (cast_to(argument, BIGINT),), BIGINT
        if not is_integer(argument.type):
            raise misfit(self.name, [argument.type])
        return (argument,), argument.type

    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        return (Bits(call.type.bit_width),)

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        counts, _ = sums.parts[Bits(call.type.bit_width)]
        values = np.zeros(len(sums.count), np.uint64)
        for bit, having in enumerate(counts):
            values |= self.chosen(having, sums.count).astype(np.uint64) << np.uint64(bit)
        size = call.type.bit_width // 8
        return pa.array(values.astype(f"u{size}").view(f"i{size}"), call.type, mask=sums.absent)


class IdempotentBits(BitAggregate):
    """A bit aggregate to which a second equal value adds nothing."""

    distinct: ClassVar[DistinctRule] = DistinctRule.NO_EFFECT


def some(having: Int64s, count: Int64s) -> npt.NDArray[np.bool_]:
    return having > 0


def odd(having: Int64s, count: Int64s) -> npt.NDArray[np.bool_]:
    return np.equal(having % 2, 1)


BIT_AND = IdempotentBits("BIT_AND", "integer", "the bits that are set in every value", chosen=np.equal)
BIT_OR = IdempotentBits("BIT_OR", "integer", "the bits that are set in some value", chosen=some)
BIT_XOR = BitAggregate("BIT_XOR", "integer", "the bits that are set in an odd number of values", chosen=odd)
