"""Finalize: compute the values of aggregates from their lanes, vectorised over any number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.nodes import AggregateCall
from penstock.physical.elements import Bools, Int64s
from penstock.physical.operators.aggregates.accumulators import SCALE, UNIT, UP, WIDE, Float64s, add_pair, product
from penstock.physical.planning.aggregate_layout import AggregateLayout, Argument

#: Integer lanes: (lanes, rows).
_LANES = npt.NDArray[np.int64] | Sequence[Int64s]
_FLOATS = Float64s | Sequence[Float64s]
#: The factor by which sums beyond the largest double are scaled down, and the size of a unit on that scale.
_DOWN = 2.0**-64
_UNIT_DOWN = UNIT * _DOWN
#: On the scale of wide squares: of a unit, and the part of the squares below which a spread is nothing but rounding.
_UNIT_SCALED = UNIT * SCALE
_ROUNDING = 2.0**-96


def finish(plan: AggregateLayout, integers: _LANES, floats: _FLOATS, others: dict[int, pa.Array]) -> list[pa.Array]:
    """Return one array per call. integers: (lanes, rows) int64; floats: (lanes, rows); others: by position of the call,
    the results that are not computed from lanes."""
    columns: list[pa.Array] = []
    for number, (call, source) in enumerate(zip(plan.calls, plan.sources, strict=True)):
        if source is None:
            columns.append(pa.array(integers[0], call.type))
            continue
        argument = plan.arguments[source]
        if not argument.summed:
            columns.append(others[number])
            continue
        own = integers[argument.integers : argument.integers + argument.integer_lanes]
        pairs = floats[argument.floats : argument.floats + argument.float_lanes]
        columns.append(_finalize_call(call, argument, own, pairs))
    return columns


def _finalize_call(call: AggregateCall, argument: Argument, own: _LANES, pairs: _FLOATS) -> pa.Array:
    count = own[0]
    if call.function == "COUNT":
        return pa.array(count, call.type)
    none = _absent(count == 0)
    if pa.types.is_decimal(argument.type):
        return _finalize_decimal(call, argument.type, own, count == 0)
    if call.function.startswith("BIT_"):
        return _finalize_bits(call, count, own[2:], none)
    if pa.types.is_duration(argument.type):
        return _finalize_interval(call, own, none)
    if call.function == "SUM":
        values = own[1] if pa.types.is_integer(argument.type) else _total(own, pairs)
        return pa.array(values, call.type, mask=none)
    divisor = (count if none is None else np.where(none, 1, count)).astype(np.float64)
    if call.function == "AVG":
        total = own[1].astype(np.float64) if pa.types.is_integer(argument.type) else _total(own, pairs)
        return pa.array(total / divisor, call.type, mask=none)
    return _finalize_variance(call, own, pairs)


def _finalize_bits(call: AggregateCall, count: Int64s, counts: _LANES, none: Bools | None) -> pa.Array:
    """Return the value of a bit aggregate. counts: by bit, lowest first, the number of values that have it set."""
    values = np.zeros(len(count), np.uint64)
    for bit, having in enumerate(counts):
        chosen = {"BIT_AND": having == count, "BIT_OR": having > 0}.get(call.function, having % 2 == 1)
        values |= np.asarray(chosen).astype(np.uint64) << np.uint64(bit)
    return pa.array(
        values.astype(f"u{call.type.bit_width // 8}").view(f"i{call.type.bit_width // 8}"), call.type, mask=none
    )


def _finalize_interval(call: AggregateCall, own: _LANES, none: Bools | None) -> pa.Array:
    """Return sums of microseconds, which wrap like those of integers, or their means, rounded half away from zero."""
    total = own[1]
    if call.function == "AVG":
        count = np.maximum(own[0], 1)
        size = np.where(total < 0, -total.astype(np.uint64), total.astype(np.uint64))
        whole, rest = np.divmod(size, count.astype(np.uint64))
        whole += (rest >= count.astype(np.uint64) - rest).astype(np.uint64)
        total = np.where(total < 0, -whole, whole).view(np.int64)
    return pa.array(total, pa.int64(), mask=none).view(call.type)


def _absent(none: Bools) -> Bools | None:
    """Return `none`, or None if no entry is set: applying a mask costs more than this check."""
    return none if none.any() else None


def _total(own: _LANES, pairs: _FLOATS) -> Float64s:
    """Return sums of doubles: infinite beyond the largest double; NaN or infinite if a term is."""
    values: Float64s = pairs[0] + pairs[1]
    marks, down, units = own[1], own[2], own[3]
    if units.any():
        values = np.where(units == 0, values, _with_units(units, pairs[0], pairs[1]))
    if not (marks.any() or down.any()):
        return values
    nan, up = marks & (UP - 1), marks >> 32
    values = np.where(up > 0, np.inf, np.where(down > 0, -np.inf, values))
    return np.where((nan > 0) | ((up > 0) & (down > 0)), np.nan, values)


@nb.njit(cache=True)
def _with_units(units, high, low):  # type: ignore[no-untyped-def]
    """Return units * UNIT + high + low, added on a scale on which nothing overflows."""
    result = np.empty_like(high)
    for i in range(high.shape[0]):
        # Two doubles hold 64 bits; the first is the nearest double, as `add_pair` requires.
        upper = float(units[i])
        lower = float(units[i] - np.int64(upper))
        a, b = add_pair(upper * _UNIT_DOWN, lower * _UNIT_DOWN, high[i] * _DOWN, low[i] * _DOWN)
        result[i] = (a + b) / _DOWN
    return result


@nb.njit(cache=True)
def _deviations(count, high, low, square_high, square_low):  # type: ignore[no-untyped-def]
    """Return Σ(x - mean)² = Σx² - (Σx)²/n, in pairs of doubles so that a small spread around a large mean is exact."""
    result = np.empty_like(high)
    for i in range(high.shape[0]):
        n = float(max(count[i], 1))
        mean_high = (high[i] + low[i]) / n
        p, error = product(mean_high, n)
        rest_high, rest_low = add_pair(high[i], low[i], -p, -error)
        # With s = n·m + r: Σx² - s²/n = Σx² - (n·m² + 2·m·r + r²/n).
        r = rest_high + rest_low
        q, q_error = product(p, mean_high)
        a, b = add_pair(square_high[i], square_low[i], -q, -(q_error + error * mean_high))
        a, b = add_pair(a, b, -2.0 * mean_high * r, -r * r / n)
        result[i] = max(a + b, 0.0)
    return result


@nb.njit(cache=True)
def _wide_deviations(count, units, high, low, square_high, square_low, wide_high, wide_low):  # type: ignore[no-untyped-def]
    """Return the same for sums with terms whose squares are scaled; the result is scaled like these."""
    size = count.shape[0]
    sums, rests, squares, square_rests = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for i in range(size):
        upper = float(units[i])
        lower = float(units[i] - np.int64(upper))
        sums[i], rests[i] = add_pair(upper * _UNIT_SCALED, lower * _UNIT_SCALED, high[i] * SCALE, low[i] * SCALE)
        squares[i], square_rests[i] = add_pair(
            wide_high[i], wide_low[i], square_high[i] * SCALE * SCALE, square_low[i] * SCALE * SCALE
        )
    result = _deviations(count, sums, rests, squares, square_rests)
    for i in range(size):
        if result[i] <= _ROUNDING * squares[i]:
            result[i] = 0.0
    return result


def _variances(own: _LANES, pairs: _FLOATS, divisor: Float64s) -> Float64s:
    """Return Σ(x - mean)² / divisor, infinite beyond the largest double."""
    wide = (pairs[4] != 0) | (own[3] != 0) | (np.abs(pairs[0]) >= WIDE)
    values: Float64s = _deviations(own[0], pairs[0], pairs[1], pairs[2], pairs[3]) / divisor
    if not wide.any():
        return values
    scaled = _wide_deviations(own[0], own[3], *(pairs[k] for k in range(6))) / divisor
    with np.errstate(over="ignore"):
        return np.where(wide, scaled / SCALE / SCALE, values)


def _finalize_variance(call: AggregateCall, own: _LANES, pairs: _FLOATS) -> pa.Array:
    count = own[0]
    sample = call.function.endswith("_SAMP")
    none: Bools = count <= (1 if sample else 0)
    values = _variances(own, pairs, np.where(none, 1, count - 1 if sample else count).astype(np.float64))
    values = np.where((own[1] > 0) | (own[2] > 0), np.nan, values)
    if call.function.startswith("STDDEV"):
        values = np.sqrt(values)
    return pa.array(values, call.type, mask=none)


def _finalize_decimal(call: AggregateCall, kind: pa.DataType, own: _LANES, none: Bools) -> pa.Array:
    limbs = np.array(own[1:5])
    for k in range(3):  # carry, so that every limb but the highest is within 32 bits
        limbs[k + 1] += limbs[k] >> 32
        limbs[k] &= 0xFFFFFFFF
    if call.function == "AVG":
        return _decimal_average(call, kind, limbs, own[0], none)
    high_word = limbs[3] << 32 | limbs[2]
    low_word = limbs[1] << 32 | limbs[0]
    raw = np.empty(2 * len(none), np.int64)
    raw[0::2], raw[1::2] = low_word, high_word
    wide = pa.decimal128(38, kind.scale)
    buffer = pa.py_buffer(raw.tobytes())
    values = pa.Array.from_buffers(wide, len(none), [None, buffer])
    if call.type.precision < 38:
        limit = pa.scalar(10 ** (call.type.precision - kind.scale), pa.decimal128(38, 0))
        none = none | pc.greater_equal(pc.abs(values), limit.cast(wide)).to_numpy(zero_copy_only=False)
    else:
        none = none | _beyond(limbs)
    masked = pa.array(none)
    return pc.if_else(masked, pa.scalar(None, wide), values).cast(call.type)


def _beyond(limbs: Int64s) -> Bools:
    """Return which sums have more than 38 digits. The lower limbs are less than a billionth of such a sum."""
    found: Bools = np.abs(limbs[3].astype(np.float64)) * 2.0**96 >= 0.99e38
    for i in np.flatnonzero(found):
        found[i] = abs(_whole(limbs[:, i].astype(object))) >= 10**38
    return found


def _whole(limbs: np.ndarray) -> Any:
    """Return the integers represented by limbs, as Python integers."""
    return limbs[3] * 2**96 + limbs[2] * 2**64 + limbs[1] * 2**32 + limbs[0]


def _decimal_average(call: AggregateCall, kind: pa.DataType, limbs: Int64s, count: Int64s, none: Bools) -> pa.Array:
    """Return sum / count, rounded half up to the result's scale: exact, with Python integers as NumPy objects. NULL
    where it has too many digits."""
    scaled = _whole(limbs.astype(object)) * 10 ** (call.type.scale - kind.scale)
    divisor = np.where(none, 1, count).astype(object)
    halves = (abs(scaled) * 2 + divisor) // (2 * divisor)
    none = none | (halves >= 10**call.type.precision).astype(bool)
    signed = np.where(scaled < 0, -halves, halves)
    mask64 = 2**64 - 1
    raw = np.empty(2 * len(none), np.uint64)
    raw[0::2] = (signed & mask64).astype(np.uint64)
    raw[1::2] = (signed >> 64 & mask64).astype(np.uint64)
    validity = pa.array(~none).buffers()[1] if none.any() else None
    return pa.Array.from_buffers(call.type, len(none), [validity, pa.py_buffer(raw.tobytes())])
