"""Accumulators ("lanes"): the additive numbers that aggregates are computed from, so that panes and expirations are
sums.

An `AggregateLayout` (`planning/aggregate_layout.py`) says which lanes the aggregates of one GROUP BY need. Integer lane
0 is the multiplicity of rows. Sums of doubles are kept as pairs of doubles (hi, lo) with error-free additions, so that
what expires leaves nothing behind even after values of very different size; sums of decimals as four 32-bit limbs. NaN
and infinities are counted in lanes of their own, since they could never be subtracted again: one holds the count of NaN
and, `UP` times over, that of +inf, the next the count of -inf. Values of `HUGE` and more are cut in two: whole
multiples of `UNIT`, which an integer lane adds up, and what is left over. So a sum beyond the largest double is right
again when terms of it go. Squares of values of `WIDE` and more have a pair of their own, scaled. What is not additive
travels as value columns beside the lanes. The lanes of a DISTINCT argument, which move when a value comes or goes, are
made of its values where that is known.

Layout of an accumulator row: key columns | integer lanes | float lanes (hi and lo of each) | values of MIN/MAX | values
of DISTINCT | values of bags."""

from __future__ import annotations

from collections.abc import Sequence

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.evaluate import evaluate_all, mask
from penstock.physical.elements import Bools, Elements, Int64s, int64s
from penstock.physical.kernels.compiled import pane_codes, sum_by_code
from penstock.physical.kernels.extremes import extreme_by_code
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.planning.aggregate_layout import AggregateLayout, Argument, ArgumentState

Float64s = npt.NDArray[np.float64]

#: Values with this magnitude or more are counted in units of `UNIT`. 2**31 smaller values do not overflow a double, and
#: 2**31 of the largest values do not overflow the integer lane of units.
HUGE = 2.0**989
UNIT = 2.0**990
#: Weight of +inf in the lane that counts NaN.
UP = 1 << 32
#: Values with this magnitude or more are scaled by `SCALE` before they are squared.
WIDE = 2.0**480
SCALE = 2.0**-600

_MASK32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
#: Rows sampled to decide whether pre-aggregation pays: those whose fingerprint has these bits 0.
_SAMPLED = 1 << 14
_SAMPLE = np.uint64(31)
#: Rows are pre-aggregated if at most this fraction of them remains.
_MOST_LEFT = 0.7


def to_lanes(plan: AggregateLayout, elements: Elements) -> Elements:
    """Return the accumulator rows of `elements`, one each, with the signs multiplied into the lanes."""
    signs = elements.signs
    integers: list[Int64s] = [signs]
    floats: list[Float64s] = []
    values: dict[int, pa.Array] = {}
    for number, argument in enumerate(plan.arguments):
        column = _argument_column(argument, elements)
        if argument.kind is ArgumentState.SUMS:
            more_integers, more_floats = value_lanes(argument, column, signs)
            integers += more_integers
            floats += more_floats
        else:
            values[number] = column
    columns = [elements.columns[i] for i in plan.group]
    columns += [pa.array(lane) for lane in integers] + [pa.array(lane) for lane in floats]
    return Elements((*columns, *(values[i] for i in plan.valued)), elements.ts, elements.exp)


def value_lanes(argument: Argument, column: pa.Array, signs: Int64s) -> tuple[list[Int64s], list[Float64s]]:
    """Return the lanes of an argument's values, each taken `signs` times."""
    valid: Bools | None = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
    counts = signs if valid is None else np.where(valid, signs, 0)
    kind = argument.type
    if pa.types.is_duration(kind):
        return [counts, int64s(column.view(pa.int64()).fill_null(0)) * counts], []
    if pa.types.is_integer(kind):
        values = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        bits = [(values >> bit & 1) * counts for bit in range(argument.bits)]
        return [counts, values * counts, *bits], []
    if pa.types.is_decimal(kind):
        return [counts, *(limb * counts for limb in _limbs(column))], []
    if pa.types.is_floating(kind):
        values = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
        return _double_lanes(values, counts, argument.squares)
    return [counts], []


def _double_lanes(values: Float64s, counts: Int64s, squares: bool) -> tuple[list[Int64s], list[Float64s]]:
    """Return the lanes of doubles, each taken `counts` times: the count, NaN and +inf, -inf, units; sum, squares, wide
    squares."""
    left = values
    if within(values, HUGE):
        marks = [np.zeros(len(values), np.int64)] * 3
    else:
        marks, values, left = _special_values(values, counts)
    if not squares and bool(np.all(counts == 1)):
        return [counts, *marks], [left, np.zeros(len(values))]
    weights = counts.astype(np.float64)
    floats = [*_times(left, weights)]
    if squares:
        floats += _all_squares(values, weights)
    return [counts, *marks], floats


def _special_values(values: Float64s, counts: Int64s) -> tuple[list[Int64s], Float64s, Float64s]:
    """Return (lanes of NaN and +inf, -inf, units; the finite values, 0 for others; the remainders of these after whole
    units)."""
    nan, up, down = (np.where(test, counts, 0) for test in (np.isnan(values), values == np.inf, values == -np.inf))
    values = np.where(np.isfinite(values), values, 0.0)
    units = np.where(np.abs(values) < HUGE, 0.0, np.rint(values / UNIT))
    return [nan + up * UP, down, units.astype(np.int64) * counts], values, values - units * UNIT


@nb.njit(cache=True)
def within(values, limit):  # type: ignore[no-untyped-def]
    """Return whether all values are smaller than `limit` in size; NaN is not."""
    inside = True
    for i in range(values.shape[0]):
        inside &= abs(values[i]) < limit
    return inside


def _all_squares(values: Float64s, weights: Float64s) -> list[Float64s]:
    """Return the pairs of squares and of wide squares."""
    if within(values, WIDE):
        return [*_squares(values, weights), np.zeros(len(values)), np.zeros(len(values))]
    wide = np.abs(values) >= WIDE
    return [
        *_squares(np.where(wide, 0.0, values), weights),
        *_squares(np.where(wide, values * SCALE, 0.0), weights),
    ]


def all_lanes(
    plan: AggregateLayout, carried: Sequence[pa.Array], values: Sequence[pa.Array]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return (rows, lanes) of lane rows, integers and floats, those of DISTINCT arguments as if each value were new.
    carried: the lanes that came; values: by `plan.valued`."""
    width, pairs = plan.carried
    length = len(carried[0])
    integers, floats = np.empty((length, plan.integers), np.int64), np.empty((length, plan.floats), np.float64)
    for lane, column in zip(width, carried[: len(width)], strict=True):
        integers[:, lane] = int64s(column)
    for lane, column in zip(pairs, carried[len(width) :], strict=True):
        floats[:, lane] = column.to_numpy(zero_copy_only=True)
    for argument, column in zip(plan.valued, values, strict=True):
        one = plan.arguments[argument]
        if one.kind is not ArgumentState.DISTINCT:
            continue
        made, pair = value_lanes(one, column, np.ones(length, np.int64))
        for lane, numbers in enumerate(made, one.integers):
            integers[:, lane] = numbers
        for lane, halves in enumerate(pair, one.floats):
            floats[:, lane] = halves
    return integers, floats


def _argument_column(argument: Argument, elements: Elements) -> pa.Array:
    """Return the values of an argument, NULL where they do not count."""
    length = len(elements)
    parts = evaluate_all(argument.expressions, elements.columns, length)
    chosen = None if argument.filter is None else mask(argument.filter, elements.columns, length)
    if len(parts) == 1:
        return parts[0] if chosen is None else pc.if_else(pa.array(chosen), parts[0], pa.scalar(None, parts[0].type))
    kept = np.ones(length, np.bool_) if chosen is None else chosen
    if not argument.nulls:
        for part in parts:
            kept = kept & part.is_valid().to_numpy(zero_copy_only=False)
    return pa.StructArray.from_arrays(parts, fields=list(argument.type), mask=pa.array(~kept))


def _limbs(column: pa.Array) -> list[Int64s]:
    """Return a decimal128 column as four 32-bit limbs, lowest first; the highest carries the sign."""
    column = column.fill_null(0) if column.null_count else column
    if column.type.bit_width != 128:
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    raw = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = raw[0::2], raw[1::2]
    return [
        (low & _MASK32).astype(np.int64),
        (low >> _S32).astype(np.int64),
        (high & _MASK32).astype(np.int64),
        high.view(np.int64) >> 32 if high.flags.c_contiguous else np.ascontiguousarray(high).view(np.int64) >> 32,
    ]


@nb.njit(cache=True)
def _times(values, weights):  # type: ignore[no-untyped-def]
    """Return values * weights as (hi, lo), without rounding."""
    high = np.empty_like(values)
    low = np.empty_like(values)
    for i in range(values.shape[0]):
        high[i], low[i] = product(values[i], weights[i])
    return high, low


@nb.njit(cache=True)
def _squares(values, weights):  # type: ignore[no-untyped-def]
    """Return values² * weights as (hi, lo)."""
    high = np.empty_like(values)
    low = np.empty_like(values)
    for i in range(values.shape[0]):
        square, rest = product(values[i], values[i])
        high[i], low[i] = square * weights[i], rest * weights[i]
    return high, low


@nb.njit(inline="always")
def product(a, b):  # type: ignore[no-untyped-def]
    """Return a * b as (hi, lo), without rounding (Dekker)."""
    p = a * b
    if b == 1.0 or b == -1.0 or not np.isfinite(p) or abs(a) > 1e298 or abs(b) > 1e298:
        return p, 0.0
    c = 134217729.0 * a
    ah = c - (c - a)
    al = a - ah
    c = 134217729.0 * b
    bh = c - (c - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@nb.njit(inline="always")
def add_pair(high, low, more_high, more_low):  # type: ignore[no-untyped-def]
    """Return (high, low) + (more_high, more_low) as a normalised pair (Knuth's two-sum on both parts)."""
    s = high + more_high
    v = s - high
    e = (high - (s - v)) + (more_high - v)
    t = low + more_low
    v = t - low
    f = (low - (t - v)) + (more_low - v)
    e += t
    h = s + e
    e = e - (h - s)
    e += f
    r = h + e
    return r, e - (r - h)


@nb.njit(cache=True)
def sum_pairs(codes, high, low, count):  # type: ignore[no-untyped-def]
    """Return the sums of pairs of doubles per code in [0, count), as (hi, lo)."""
    sums = np.zeros(count)
    rests = np.zeros(count)
    for i in range(codes.shape[0]):
        k = codes[i]
        sums[k], rests[k] = add_pair(sums[k], rests[k], high[i], low[i])
    return sums, rests


def pre_aggregate(plan: AggregateLayout, lanes: Elements) -> Elements:
    """Return one lane row for all rows with equal (key, values but those of MIN/MAX, ts, exp): a pane (Golab).
    Signs must all have been positive where the plan has extremes."""
    values = plan.values_at + len(plan.extremes)
    first, second = fingerprints([*lanes.columns[: len(plan.group)], *lanes.columns[values:]], len(lanes))
    return added_up(plan, lanes, *pane_codes(first, second, lanes.ts, lanes.exp))


def pre_aggregate_where_it_pays(plan: AggregateLayout, lanes: Elements) -> Elements:
    """Return `pre_aggregate(plan, lanes)`, or `lanes` unchanged if a sample shows that hardly two rows share a pane:
    then grouping all rows costs more than it saves afterwards."""
    values = plan.values_at + len(plan.extremes)
    first, second = fingerprints([*lanes.columns[: len(plan.group)], *lanes.columns[values:]], len(lanes))
    if len(lanes) >= _SAMPLED:
        # The sample contains either all rows of a pane or none.
        drawn = np.flatnonzero((first & _SAMPLE) == 0)
        _, heads = pane_codes(first[drawn], second[drawn], lanes.ts[drawn], lanes.exp[drawn])
        if len(heads) > _MOST_LEFT * len(drawn):
            return lanes
    return added_up(plan, lanes, *pane_codes(first, second, lanes.ts, lanes.exp))


def added_up(plan: AggregateLayout, lanes: Elements, codes: Int64s, firsts: Int64s) -> Elements:
    """Return one accumulator row per code: the sum of its rows, of which firsts[code] is the first."""
    count = len(firsts)
    if count == len(lanes):
        return lanes
    base = lanes.take(firsts)
    columns = list(base.columns)
    integers, floats = (len(carried) for carried in plan.carried)
    start = len(plan.group)
    for i in range(start, start + integers):
        columns[i] = pa.array(sum_by_code(codes, int64s(lanes.columns[i]), count))
    for i in range(start + integers, start + integers + floats, 2):
        high, low = (lanes.columns[j].to_numpy(zero_copy_only=True) for j in (i, i + 1))
        sums, rests = sum_pairs(codes, high, low, count)
        columns[i], columns[i + 1] = pa.array(sums), pa.array(rests)
    for i, argument in enumerate(plan.extremes, plan.values_at):
        least = plan.arguments[argument].kind is ArgumentState.LEAST
        columns[i] = extreme_by_code(least, codes, count, lanes.columns[i])
    return base.with_columns(columns)
