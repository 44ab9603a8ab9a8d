"""From lanes to the values of aggregates, vectorised over any number of rows."""

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
from penstock.physical.lane_plan import Argument, LanePlan
from penstock.physical.lanes import Float64s, add_pair, product

#: By lane, rows.
_LANES = npt.NDArray[np.int64] | Sequence[Int64s]
_FLOATS = Float64s | Sequence[Float64s]


def finish(plan: LanePlan, integers: _LANES, floats: _FLOATS, others: dict[int, pa.Array]) -> list[pa.Array]:
    """One array per call. integers: (lanes, rows) int64; floats: (lanes, rows); others: by position of the call, what
    is not computed from lanes."""
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
        columns.append(_finish_one(call, argument, own, pairs))
    return columns


def _finish_one(call: AggregateCall, argument: Argument, own: _LANES, pairs: _FLOATS) -> pa.Array:
    count = own[0]
    if call.function == "COUNT":
        return pa.array(count, call.type)
    none = _absent(count == 0)
    if pa.types.is_decimal(argument.type):
        return _finish_decimal(call, argument.type, own, count == 0)
    if call.function == "SUM":
        values = own[1] if pa.types.is_integer(argument.type) else _special(own, pairs[0] + pairs[1])
        return pa.array(values, call.type, mask=none)
    divisor = (count if none is None else np.where(none, 1, count)).astype(np.float64)
    if call.function == "AVG":
        total = own[1].astype(np.float64) if pa.types.is_integer(argument.type) else _special(own, pairs[0] + pairs[1])
        return pa.array(total / divisor, call.type, mask=none)
    return _finish_variance(call, own, pairs)


def _absent(none: Bools) -> Bools | None:
    """`none`, or None where nothing is: a mask costs more than looking."""
    return none if none.any() else None


def _special(own: _LANES, values: Float64s) -> Float64s:
    """What a sum is when NaN or infinities are among its terms."""
    nan, up, down = own[1], own[2], own[3]
    if not (nan.any() or up.any() or down.any()):
        return values
    values = np.where(up > 0, np.inf, np.where(down > 0, -np.inf, values))
    return np.where((nan > 0) | ((up > 0) & (down > 0)), np.nan, values)


@nb.njit(cache=True)
def _deviations(count, high, low, square_high, square_low):  # type: ignore[no-untyped-def]
    """Σ(x - mean)² = Σx² - (Σx)²/n, in pairs of doubles so that a large mean does not drown a small spread."""
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


def _finish_variance(call: AggregateCall, own: _LANES, pairs: _FLOATS) -> pa.Array:
    count = own[0]
    sample = call.function.endswith("_SAMP")
    none: Bools = count <= (1 if sample else 0)
    divisor = np.where(none, 1, count - 1 if sample else count).astype(np.float64)
    values = _deviations(count, pairs[0], pairs[1], pairs[2], pairs[3]) / divisor
    values = np.where((own[1] > 0) | (own[2] > 0) | (own[3] > 0), np.nan, values)
    if call.function.startswith("STDDEV"):
        values = np.sqrt(values)
    return pa.array(values, call.type, mask=none)


def _finish_decimal(call: AggregateCall, kind: pa.DataType, own: _LANES, none: Bools) -> pa.Array:
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
    """Which sums have more than 38 digits. The lower limbs are less than a billionth of such a one."""
    found: Bools = np.abs(limbs[3].astype(np.float64)) * 2.0**96 >= 0.99e38
    for i in np.flatnonzero(found):
        found[i] = abs(_whole(limbs[:, i].astype(object))) >= 10**38
    return found


def _whole(limbs: np.ndarray) -> Any:
    """The integers that limbs make, as Python's."""
    return limbs[3] * 2**96 + limbs[2] * 2**64 + limbs[1] * 2**32 + limbs[0]


def _decimal_average(call: AggregateCall, kind: pa.DataType, limbs: Int64s, count: Int64s, none: Bools) -> pa.Array:
    """Sum / count, rounded half up to the result's scale: exact, with Python's integers as NumPy objects. NULL where
    it has too many digits."""
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
