"""Lanes: the numbers that aggregates are made of, additive over rows, so that panes and expirations are sums.

A `LanePlan` says which lanes the aggregates of one GROUP BY need. Integer lane 0 is the multiplicity of rows. Sums of
doubles are kept as pairs of doubles (hi, lo) with error-free additions, so that what expires leaves nothing behind
even after values of very different size; sums of decimals as four 32-bit limbs. NaN and infinities are counted in
lanes of their own, since they could never be subtracted again. MIN, MAX and DISTINCT are not additive: their arguments
travel as value columns beside the lanes.

Layout of a lane row: key columns | integer lanes | float lanes (hi and lo of each) | values of MIN/MAX | values of
DISTINCT.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.evaluate import evaluate, mask
from penstock.expressions.nodes import AggregateCall, Expression, Literal
from penstock.physical.elements import Bools, Elements, Int64s, int64s
from penstock.physical.extremes import extreme_by_code
from penstock.physical.fingerprints import fingerprints
from penstock.physical.kernels import group_codes, sum_by_code, with_time

Float64s = npt.NDArray[np.float64]

_MASK32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)


@dataclass(frozen=True)
class Argument:
    """What an aggregate looks at: an expression over the input, rows that its FILTER rejects left out.
    `integers` and `floats` are its lanes' first positions: integers = [count, then by kind], floats = (hi, lo) pairs.
    extreme: MIN or MAX for an argument of these, which has no lanes; empty otherwise."""

    expression: Expression
    filter: Expression | None
    distinct: bool
    extreme: str
    integers: int
    floats: int
    squares: bool

    @property
    def type(self) -> pa.DataType:
        return self.expression.type

    @property
    def integer_lanes(self) -> int:
        return 0 if self.extreme else 1 + _sum_integers(self.type)

    @property
    def float_lanes(self) -> int:
        if self.extreme:
            return 0
        return (4 if self.squares else 2) if pa.types.is_floating(self.type) else 0


def _sum_integers(type_: pa.DataType) -> int:
    """Integer lanes that a sum of `type_` takes beside the count."""
    if pa.types.is_integer(type_):
        return 1
    if pa.types.is_decimal(type_):
        return 4
    return 3 if pa.types.is_floating(type_) else 0  # NaN, +inf, -inf


@dataclass(frozen=True)
class LanePlan:
    """The lanes of one Aggregate. calls[i] is computed from arguments[sources[i]] (None for COUNT(*))."""

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
    def extremes(self) -> tuple[int, ...]:
        """Positions of the arguments of MIN and MAX."""
        return tuple(i for i, a in enumerate(self.arguments) if a.extreme)

    @property
    def distincts(self) -> tuple[int, ...]:
        """Positions of the arguments that are taken DISTINCT."""
        return tuple(i for i, a in enumerate(self.arguments) if a.distinct)


def plan_lanes(group: tuple[int, ...], calls: tuple[AggregateCall, ...]) -> LanePlan:
    """The lanes that `calls` need; calls on the same argument share theirs."""
    wanted: dict[tuple[str, str, bool, str], tuple[AggregateCall, bool]] = {}
    keys: list[tuple[str, str, bool, str] | None] = []
    for call in calls:
        if not call.arguments and call.filter is None:
            keys.append(None)
            continue
        extreme = call.function if call.function in ("MIN", "MAX") else ""
        # DISTINCT changes nothing for MIN and MAX.
        distinct = call.distinct and not extreme
        key = (_argument(call).fingerprint, call.filter.fingerprint if call.filter else "", distinct, extreme)
        squares = call.function.startswith(("STDDEV", "VAR")) or (key in wanted and wanted[key][1])
        wanted[key] = (call, squares)
        keys.append(key)
    arguments: list[Argument] = []
    integers, floats = 1, 0
    for key, (call, squares) in wanted.items():
        argument = Argument(_argument(call), call.filter, key[2], key[3], integers, floats, squares)
        integers, floats = integers + argument.integer_lanes, floats + argument.float_lanes
        arguments.append(argument)
    places = {key: i for i, key in enumerate(wanted)}
    return LanePlan(group, calls, tuple(arguments), tuple(None if k is None else places[k] for k in keys))


def _argument(call: AggregateCall) -> Expression:
    # COUNT(*) FILTER (WHERE p) counts a constant.
    return call.arguments[0] if call.arguments else Literal(pa.bool_(), True)


def to_lanes(plan: LanePlan, elements: Elements) -> Elements:
    """Lane rows of `elements`: one each, signs multiplied into the lanes."""
    length = len(elements)
    signs = elements.signs
    integers: list[Int64s] = [signs]
    floats: list[Float64s] = []
    extremes: list[pa.Array] = []
    distincts: list[pa.Array] = []
    for argument in plan.arguments:
        column = _argument_column(argument, elements)
        if argument.extreme:
            extremes.append(column)
        elif argument.distinct:
            # The lanes of a distinct argument move when a value comes or goes, not with the rows.
            integers += [np.zeros(length, np.int64)] * argument.integer_lanes
            floats += [np.zeros(length)] * argument.float_lanes
            distincts.append(column)
        else:
            more_integers, more_floats = value_lanes(argument, column, signs)
            integers += more_integers
            floats += more_floats
    columns = [elements.columns[i] for i in plan.group]
    columns += [pa.array(lane) for lane in integers] + [pa.array(lane) for lane in floats]
    return Elements((*columns, *extremes, *distincts), elements.ts, elements.exp)


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
        specials = [np.where(test, counts, 0) for test in (np.isnan(values), values == np.inf, values == -np.inf)]
        if not finite.all():
            values = np.where(finite, values, 0.0)
        weights = counts.astype(np.float64)
        floats = [*_times(values, weights)]
        if argument.squares:
            floats += _squares(values, weights)
        return [counts, *specials], floats
    return [counts], []


def _argument_column(argument: Argument, elements: Elements) -> pa.Array:
    column = evaluate(argument.expression, elements.columns, len(elements))
    if argument.filter is not None:
        chosen = pa.array(mask(argument.filter, elements.columns, len(elements)))
        column = pc.if_else(chosen, column, pa.scalar(None, column.type))
    return column


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
    """values * weights as (hi, lo), without rounding (Dekker)."""
    high = np.empty_like(values)
    low = np.empty_like(values)
    for i in range(values.shape[0]):
        high[i], low[i] = _product(values[i], weights[i])
    return high, low


@nb.njit(cache=True)
def _squares(values, weights):  # type: ignore[no-untyped-def]
    """values² * weights as (hi, lo)."""
    high = np.empty_like(values)
    low = np.empty_like(values)
    for i in range(values.shape[0]):
        square, rest = _product(values[i], values[i])
        high[i], low[i] = square * weights[i], rest * weights[i]
    return high, low


@nb.njit(inline="always")
def _product(a, b):  # type: ignore[no-untyped-def]
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
def _sum_pairs(codes, high, low, count):  # type: ignore[no-untyped-def]
    sums = np.zeros(count)
    rests = np.zeros(count)
    for i in range(codes.shape[0]):
        k = codes[i]
        sums[k], rests[k] = add_pair(sums[k], rests[k], high[i], low[i])
    return sums, rests


def pre_aggregate(plan: LanePlan, lanes: Elements) -> Elements:
    """One lane row for all rows with equal (key, distinct values, ts, exp): the pane (Golab's basic interval).
    Signs must all have been positive where the plan has extremes."""
    keys = len(plan.group)
    first_extreme = keys + plan.integers + plan.floats
    first_distinct = first_extreme + len(plan.extremes)
    grouping = [*lanes.columns[:keys], *lanes.columns[first_distinct:]]
    first, second = fingerprints(grouping, len(lanes))
    first, second = with_time(*with_time(first, second, lanes.ts), lanes.exp)
    codes, firsts = group_codes(first, second)
    count = len(firsts)
    if count == len(lanes):
        return lanes
    base = lanes.take(firsts)
    columns = list(base.columns)
    for i in range(keys, keys + plan.integers):
        columns[i] = pa.array(sum_by_code(codes, int64s(lanes.columns[i]), count))
    for i in range(keys + plan.integers, first_extreme, 2):
        high, low = (lanes.columns[j].to_numpy(zero_copy_only=True) for j in (i, i + 1))
        sums, rests = _sum_pairs(codes, high, low, count)
        columns[i], columns[i + 1] = pa.array(sums), pa.array(rests)
    for i, argument in zip(range(first_extreme, first_distinct), plan.extremes, strict=True):
        columns[i] = extreme_by_code(plan.arguments[argument].extreme, codes, count, lanes.columns[i])
    return base.with_columns(columns)
