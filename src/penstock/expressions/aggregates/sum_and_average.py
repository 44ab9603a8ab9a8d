"""SUM and AVG: of integers, decimals, doubles and intervals.

Types follow Spark: a SUM of integers is BIGINT, of DECIMAL(p,s) DECIMAL(p+10,s); an AVG of decimals keeps four more
decimals.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.accumulators.total import TOTAL, total_of_doubles
from penstock.expressions.aggregates.arguments import number
from penstock.expressions.aggregates.contract import AccumulatedFunction, ArgumentSums
from penstock.expressions.coercion import BIGINT, DOUBLE, DURATION, bounded, cast_to, is_decimal, is_integer
from penstock.expressions.nodes import AggregateCall, Expression

Bools = npt.NDArray[np.bool_]


class _Totalled(AccumulatedFunction):
    """More digits than the argument has: those of the result when it is a decimal."""

    #: Digits that the result has more than the argument, and decimals among them.
    digits: ClassVar[tuple[int, int]]

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        (argument,) = arguments
        if argument.type == DURATION:
            return arguments, DURATION
        argument = number(self.name, argument)
        if is_decimal(argument.type):
            digits, decimals = self.digits
            return (argument,), bounded(argument.type.precision + digits, argument.type.scale + decimals)
        type_ = self.of_integers if is_integer(argument.type) else DOUBLE
        return (cast_to(argument, type_),), type_

    #: The type of the result for integers.
    of_integers: ClassVar[pa.DataType]

    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        return (TOTAL,)


class Sum(_Totalled):
    """Of integers and intervals it wraps; a sum of decimals with too many digits is NULL."""

    digits: ClassVar[tuple[int, int]] = (10, 0)
    of_integers: ClassVar[pa.DataType] = BIGINT

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        integers, pairs = sums.parts[TOTAL]
        if pa.types.is_decimal(sums.type):
            return _decimal_sum(call.type, sums.type, _carried(integers), sums.count == 0)
        if pa.types.is_duration(sums.type):
            return pa.array(integers[0], pa.int64(), mask=sums.absent).view(call.type)
        if pa.types.is_integer(sums.type):
            return pa.array(integers[0], call.type, mask=sums.absent)
        return pa.array(total_of_doubles(*integers, *pairs), call.type, mask=sums.absent)


class Average(_Totalled):
    """SUM divided by COUNT."""

    digits: ClassVar[tuple[int, int]] = (4, 4)
    of_integers: ClassVar[pa.DataType] = DOUBLE

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        integers, pairs = sums.parts[TOTAL]
        if pa.types.is_decimal(sums.type):
            return _decimal_average(call.type, sums.type, _carried(integers), sums.count)
        none = sums.absent
        if pa.types.is_duration(sums.type):
            return pa.array(_interval_average(integers[0], sums.count), pa.int64(), mask=none).view(call.type)
        divisor = (sums.count if none is None else np.where(none, 1, sums.count)).astype(np.float64)
        total: Float64s = (
            integers[0].astype(np.float64) if pa.types.is_integer(sums.type) else total_of_doubles(*integers, *pairs)
        )
        return pa.array(total / divisor, call.type, mask=none)


SUM = Sum(
    "SUM",
    "number or interval",
    "sum; NULL over no value. Of integers a BIGINT, which wraps beyond its range; of a DECIMAL one with ten digits"
    " more, NULL where they do not suffice",
)
AVG = Average(
    "AVG",
    "number or interval",
    "arithmetic mean; of intervals to the microsecond, half away from zero",
    ("MEAN",),
)


def _interval_average(total: Int64s, count: Int64s) -> Int64s:
    """Return total / count, rounded half away from zero."""
    parts = np.maximum(count, 1).astype(np.uint64)
    size = np.where(total < 0, -total.astype(np.uint64), total.astype(np.uint64))
    whole, rest = np.divmod(size, parts)
    whole += (rest >= parts - rest).astype(np.uint64)
    return np.where(total < 0, -whole, whole).view(np.int64)


def _carried(integers: Any) -> Int64s:
    """Return the limbs of decimals, every one but the highest within 32 bits."""
    limbs: Int64s = np.array(integers)
    for k in range(3):
        limbs[k + 1] += limbs[k] >> 32
        limbs[k] &= 0xFFFFFFFF
    return limbs


def _decimal_sum(type_: pa.DataType, kind: pa.DataType, limbs: Int64s, none: Bools) -> pa.Array:
    raw = np.empty(2 * len(none), np.int64)
    raw[0::2], raw[1::2] = limbs[1] << 32 | limbs[0], limbs[3] << 32 | limbs[2]
    wide = pa.decimal128(38, kind.scale)
    buffer = pa.py_buffer(raw.tobytes())
    values = pa.Array.from_buffers(wide, len(none), [None, buffer])
    if type_.precision < 38:
        limit = pa.scalar(10 ** (type_.precision - kind.scale), pa.decimal128(38, 0))
        none = none | pc.greater_equal(pc.abs(values), limit.cast(wide)).to_numpy(zero_copy_only=False)
    else:
        none = none | _beyond(limbs)
    masked = pa.array(none)
    return pc.if_else(masked, pa.scalar(None, wide), values).cast(type_)


def _beyond(limbs: Int64s) -> Bools:
    """Return which sums have more than 38 digits. The lower limbs are less than a billionth of such a sum."""
    found: Bools = np.abs(limbs[3].astype(np.float64)) * 2.0**96 >= 0.99e38
    for i in np.flatnonzero(found):
        found[i] = abs(_whole(limbs[:, i].astype(object))) >= 10**38
    return found


def _whole(limbs: np.ndarray) -> Any:
    """Return the integers represented by limbs, as Python integers."""
    return limbs[3] * 2**96 + limbs[2] * 2**64 + limbs[1] * 2**32 + limbs[0]


def _decimal_average(type_: pa.DataType, kind: pa.DataType, limbs: Int64s, count: Int64s) -> pa.Array:
    """Return sum / count, rounded half up to the result's scale: exact, with Python integers as NumPy objects. NULL
    where it has too many digits."""
    none = count == 0
    scaled = _whole(limbs.astype(object)) * 10 ** (type_.scale - kind.scale)
    divisor = np.where(none, 1, count).astype(object)
    halves = (abs(scaled) * 2 + divisor) // (2 * divisor)
    none = none | (halves >= 10**type_.precision).astype(bool)
    signed = np.where(scaled < 0, -halves, halves)
    mask64 = 2**64 - 1
    raw = np.empty(2 * len(none), np.uint64)
    raw[0::2] = (signed & mask64).astype(np.uint64)
    raw[1::2] = (signed >> 64 & mask64).astype(np.uint64)
    validity = pa.array(~none).buffers()[1] if none.any() else None
    return pa.Array.from_buffers(type_, len(none), [validity, pa.py_buffer(raw.tobytes())])
