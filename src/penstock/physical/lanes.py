"""Lanes: the numbers that aggregates are made of, additive over rows, so that panes and expirations are sums.

A `LanePlan` (`lane_plan.py`) says which lanes the aggregates of one GROUP BY need. Integer lane 0 is the multiplicity
of rows. Sums of doubles are kept as pairs of doubles (hi, lo) with error-free additions, so that what expires leaves
nothing behind even after values of very different size; sums of decimals as four 32-bit limbs. NaN and infinities are
counted in lanes of their own, since they could never be subtracted again. What is not additive travels as value columns
beside the lanes. The lanes of a DISTINCT argument, which move when a value comes or goes, are made of its values where
that is known.

Layout of a lane row: key columns | integer lanes | float lanes (hi and lo of each) | values of MIN/MAX | values of
DISTINCT | values of bags.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.evaluate import evaluate_all, mask
from penstock.physical.elements import Bools, Elements, Int64s, int64s
from penstock.physical.extremes import extreme_by_code
from penstock.physical.fingerprints import fingerprints
from penstock.physical.kernels import pane_codes, sum_by_code
from penstock.physical.lane_plan import Argument, Kind, LanePlan

Float64s = npt.NDArray[np.float64]

_MASK32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
#: Rows of which a sample tells whether panes are worth making: those whose fingerprint has these bits 0.
_SAMPLED = 1 << 14
_SAMPLE = np.uint64(31)
#: Panes are worth making where this part of the rows is left at the most.
_MOST_LEFT = 0.7


def to_lanes(plan: LanePlan, elements: Elements) -> Elements:
    """Lane rows of `elements`: one each, signs multiplied into the lanes."""
    signs = elements.signs
    integers: list[Int64s] = [signs]
    floats: list[Float64s] = []
    values: dict[int, pa.Array] = {}
    for number, argument in enumerate(plan.arguments):
        column = _argument_column(argument, elements)
        if argument.kind is Kind.SUMS:
            more_integers, more_floats = value_lanes(argument, column, signs)
            integers += more_integers
            floats += more_floats
        else:
            values[number] = column
    columns = [elements.columns[i] for i in plan.group]
    columns += [pa.array(lane) for lane in integers] + [pa.array(lane) for lane in floats]
    return Elements((*columns, *(values[i] for i in plan.valued)), elements.ts, elements.exp)


def value_lanes(argument: Argument, column: pa.Array, signs: Int64s) -> tuple[list[Int64s], list[Float64s]]:
    """The lanes of an argument's values, each taken `signs` times."""
    valid: Bools | None = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
    counts = signs if valid is None else np.where(valid, signs, 0)
    kind = argument.type
    if pa.types.is_integer(kind):
        values = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        return [counts, values * counts], []
    if pa.types.is_decimal(kind):
        return [counts, *(limb * counts for limb in _limbs(column))], []
    if pa.types.is_floating(kind):
        values = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
        finite = np.isfinite(values)
        if finite.all():
            specials = [np.zeros(len(values), np.int64)] * 3
        else:
            specials = [np.where(test, counts, 0) for test in (np.isnan(values), values == np.inf, values == -np.inf)]
            values = np.where(finite, values, 0.0)
        if not argument.squares and bool(np.all(counts == 1)):
            return [counts, *specials], [values, np.zeros(len(values))]
        weights = counts.astype(np.float64)
        floats = [*_times(values, weights)]
        if argument.squares:
            floats += _squares(values, weights)
        return [counts, *specials], floats
    return [counts], []


def all_lanes(
    plan: LanePlan, carried: Sequence[pa.Array], values: Sequence[pa.Array]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """(rows, lanes) of lane rows, integers and floats, those of DISTINCT arguments as if each value were new. carried:
    the lanes that came; values: by `plan.valued`."""
    width, pairs = plan.carried
    length = len(carried[0])
    integers, floats = np.empty((length, plan.integers), np.int64), np.empty((length, plan.floats), np.float64)
    for lane, column in zip(width, carried[: len(width)], strict=True):
        integers[:, lane] = int64s(column)
    for lane, column in zip(pairs, carried[len(width) :], strict=True):
        floats[:, lane] = column.to_numpy(zero_copy_only=True)
    for argument, column in zip(plan.valued, values, strict=True):
        one = plan.arguments[argument]
        if one.kind is not Kind.DISTINCT:
            continue
        made, pair = value_lanes(one, column, np.ones(length, np.int64))
        for lane, numbers in enumerate(made, one.integers):
            integers[:, lane] = numbers
        for lane, halves in enumerate(pair, one.floats):
            floats[:, lane] = halves
    return integers, floats


def _argument_column(argument: Argument, elements: Elements) -> pa.Array:
    """The values of an argument, NULL where they do not count."""
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
    """A decimal128 column as four 32-bit limbs, lowest first; the highest carries the sign."""
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
    """values * weights as (hi, lo), without rounding."""
    high = np.empty_like(values)
    low = np.empty_like(values)
    for i in range(values.shape[0]):
        high[i], low[i] = product(values[i], weights[i])
    return high, low


@nb.njit(cache=True)
def _squares(values, weights):  # type: ignore[no-untyped-def]
    """values² * weights as (hi, lo)."""
    high = np.empty_like(values)
    low = np.empty_like(values)
    for i in range(values.shape[0]):
        square, rest = product(values[i], values[i])
        high[i], low[i] = square * weights[i], rest * weights[i]
    return high, low


@nb.njit(inline="always")
def product(a, b):  # type: ignore[no-untyped-def]
    """a * b as (hi, lo), without rounding (Dekker)."""
    p = a * b
    if b == 1.0 or b == -1.0 or not np.isfinite(p) or abs(a) > 1e150 or abs(b) > 1e150:
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
    """(high, low) + (more_high, more_low) as a normalised pair (Knuth's two-sum on both parts)."""
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
    """Sums of pairs of doubles per code in [0, count), as (hi, lo)."""
    sums = np.zeros(count)
    rests = np.zeros(count)
    for i in range(codes.shape[0]):
        k = codes[i]
        sums[k], rests[k] = add_pair(sums[k], rests[k], high[i], low[i])
    return sums, rests


def pre_aggregate(plan: LanePlan, lanes: Elements) -> Elements:
    """One lane row for all rows with equal (key, values but those of MIN/MAX, ts, exp): a pane (Golab).
    Signs must all have been positive where the plan has extremes."""
    values = plan.values_at + len(plan.extremes)
    first, second = fingerprints([*lanes.columns[: len(plan.group)], *lanes.columns[values:]], len(lanes))
    return added_up(plan, lanes, *pane_codes(first, second, lanes.ts, lanes.exp))


def pre_aggregate_where_it_pays(plan: LanePlan, lanes: Elements) -> Elements:
    """The same, or `lanes` as they are: where hardly two of a sample are of one pane, to look at all of them costs more
    than what they are spared afterwards."""
    values = plan.values_at + len(plan.extremes)
    first, second = fingerprints([*lanes.columns[: len(plan.group)], *lanes.columns[values:]], len(lanes))
    if len(lanes) >= _SAMPLED:
        # All rows of a pane are in the sample, or none.
        drawn = np.flatnonzero((first & _SAMPLE) == 0)
        _, heads = pane_codes(first[drawn], second[drawn], lanes.ts[drawn], lanes.exp[drawn])
        if len(heads) > _MOST_LEFT * len(drawn):
            return lanes
    return added_up(plan, lanes, *pane_codes(first, second, lanes.ts, lanes.exp))


def added_up(plan: LanePlan, lanes: Elements, codes: Int64s, firsts: Int64s) -> Elements:
    """One lane row for all rows of one code, of which firsts[code] is the first."""
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
        least = plan.arguments[argument].kind is Kind.LEAST
        columns[i] = extreme_by_code(least, codes, count, lanes.columns[i])
    return base.with_columns(columns)
