"""Define aggregates over the Python values of one group [semantics 4.2]. Part of the oracle.

Contract: `aggregate` returns the Python value of one aggregate over the rows of a group, independent of any physical
code: sums are exact (decimals, fractions), NULLs are ignored, an empty group gives NULL and a COUNT of 0.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import math
import operator
import statistics
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import compress
from typing import Any, TypeVar

import pyarrow as pa

from penstock.expressions.nodes import AggregateCall, Expression
from penstock.expressions.user import UserAggregateCall
from penstock.testing.aggregates.estimates import estimated
from penstock.testing.aggregates.sketches import BY_PANES, SKETCHES
from penstock.testing.scalars.user import user_value
from penstock.testing.scalars.values import Place, Row, key_of, order_key

T = TypeVar("T")

Evaluate = Callable[[Expression, list[Row]], list[Any]]


def aggregate(call: AggregateCall, rows: list[Row], evaluate: Evaluate, panes: Sequence[Hashable] | None = None) -> Any:
    """Return the value of `call` over the rows of one group: FILTER is applied first, then NULLs are removed, then
    DISTINCT. panes: the validity of each row, for aggregates that depend on it.
    """
    panes = [None] * len(rows) if panes is None else panes
    if call.filter is not None:
        kept = [keep is True for keep in evaluate(call.filter, rows)]
        rows, panes = list(compress(rows, kept)), list(compress(panes, kept))
    if isinstance(call, UserAggregateCall):
        return user_value(call, rows, evaluate)
    if not call.arguments:
        return len(rows)
    tuples = list(zip(*(evaluate(argument, rows) for argument in call.arguments), strict=True))
    if call.order:
        return _by_keys(call, tuples)
    if call.function in IN_TIME:
        return IN_TIME[call.function](tuples) if tuples else None
    if call.function in BY_ANOTHER:
        tuples = [t for t in tuples if t[1] is not None]
        return BY_ANOTHER[call.function](tuples) if tuples else None
    panes = [pane for pane, t in zip(panes, tuples, strict=True) if None not in t]
    tuples = [t for t in tuples if None not in t]
    if call.function in BY_PANES:
        return BY_PANES[call.function](call, tuples, panes)
    if call.function in SKETCHES:
        return SKETCHES[call.function](call, tuples)
    if call.function.startswith("ESTIMATE_"):
        return estimated(call.function, tuples)
    if call.distinct:
        tuples = list({key_of(t): t for t in tuples}.values())
    if call.function == "COUNT":
        return len(tuples)
    if not tuples:
        return None
    if call.function in TOGETHER:
        return TOGETHER[call.function]([(t[0], t[1]) for t in tuples])
    if call.function == "STRING_AGG":
        # (text, separator), and the timestamp of its row where it has one
        return tuples[0][1].join(t[0] for t in sorted(tuples, key=lambda t: (*map(order_key, t[2:]), order_key(t[0]))))
    values, constants = [t[0] for t in tuples], tuples[0][1:]
    if call.function in ORDERED:
        return ORDERED[call.function](sorted(values, key=order_key), *constants)
    return DEFINITIONS[call.function](values, call.type)


_MICRO = dt.timedelta(microseconds=1)


def _sum(values: Sequence[Any], type_: pa.DataType) -> Any:
    if pa.types.is_integer(type_):
        return (sum(values) + 2**63) % 2**64 - 2**63  # integer arithmetic wraps
    if pa.types.is_decimal(type_):
        return _decimal(sum(map(Fraction, values), Fraction(0)), type_)
    if pa.types.is_duration(type_):
        return _sum([v // _MICRO for v in values], pa.int64()) * _MICRO
    return _float_sum(values)


def _average(values: Sequence[Any], type_: pa.DataType) -> Any:
    if pa.types.is_decimal(type_):
        return _decimal(sum(map(Fraction, values), Fraction(0)) / len(values), type_)
    if pa.types.is_duration(type_):
        total = _sum([v // _MICRO for v in values], pa.int64())
        half_up = (2 * abs(total) + len(values)) // (2 * len(values))
        return (half_up if total >= 0 else -half_up) * _MICRO
    if isinstance(values[0], float):
        return _float_sum(values) / len(values)
    return float(sum(map(Fraction, values), Fraction(0)) / len(values))


def _float_sum(values: Sequence[float]) -> float:
    """Return the exact sum rounded once: infinite beyond the largest double, in any order of addition."""
    if all(map(math.isfinite, values)):
        return _rounded(sum(map(Fraction, values), Fraction(0)))
    return sum(v for v in values if not math.isfinite(v))  # an infinity, or NaN


def _rounded(value: Fraction) -> float:
    """Return the nearest double, infinite beyond the largest."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _decimal(value: Fraction, type_: pa.DataType) -> Decimal | None:
    """Return `value` rounded half up to the scale of `type_`, or NULL when it has too many digits."""
    scaled = abs(value) * 10**type_.scale
    digits = int(scaled + Fraction(1, 2))
    if digits >= 10**type_.precision:
        return None
    with decimal.localcontext() as context:
        context.prec = 60
        return (Decimal(digits) if value >= 0 else -Decimal(digits)).scaleb(-type_.scale)


def _variance(sample: bool) -> Callable[[Sequence[Numeric], pa.DataType], float | None]:
    def define(values: Sequence[Numeric], _: pa.DataType) -> float | None:
        if sample and len(values) == 1:
            return None
        if any(isinstance(v, float) and not math.isfinite(v) for v in values):
            return math.nan
        exact = [Fraction(v) for v in values]
        return _rounded(statistics.variance(exact) if sample else statistics.pvariance(exact))

    return define


def _deviation(sample: bool) -> Callable[[Sequence[Numeric], pa.DataType], float | None]:
    def define(values: Sequence[Numeric], type_: pa.DataType) -> float | None:
        variance = _variance(sample)(values, type_)
        return None if variance is None else math.sqrt(variance)

    return define


def _least(values: Sequence[T], _: pa.DataType) -> T:
    return min(values, key=order_key)


def _greatest(values: Sequence[T], _: pa.DataType) -> T:
    return max(values, key=order_key)


def _of_bits(joined: Callable[[int, int], int]) -> Callable[[Sequence[int], pa.DataType], int]:
    return lambda values, _: functools.reduce(joined, values)


#: Values of a numeric column.
Numeric = int | float | Decimal
#: canonical name -> definition over the non-NULL values (at least one) and the result's type
DEFINITIONS: dict[str, Callable[[Sequence[Any], pa.DataType], Any]] = {
    "SUM": _sum,
    "AVG": _average,
    "BOOL_AND": lambda values, _: all(values),
    "BOOL_OR": lambda values, _: any(values),
    "BIT_AND": _of_bits(operator.and_),
    "BIT_OR": _of_bits(operator.or_),
    "BIT_XOR": _of_bits(operator.xor),
    "MIN": _least,
    "MAX": _greatest,
    "STDDEV": _deviation(sample=True),
    "STDDEV_SAMP": _deviation(sample=True),
    "STDDEV_POP": _deviation(sample=False),
    "VARIANCE": _variance(sample=True),
    "VAR_SAMP": _variance(sample=True),
    "VAR_POP": _variance(sample=False),
}


def _quantile(values: Sequence[float], fraction: float) -> float:
    """Interpolate between the two values around rank (n - 1)·q, weighted by nearness (Spark's PERCENTILE)."""
    place = (len(values) - 1) * fraction
    low, high = math.floor(place), math.ceil(place)
    if low == high or values[low] == values[high]:
        return values[low]
    return (high - place) * values[low] + (place - low) * values[high]


def _frequent(values: Sequence[T]) -> list[tuple[T, int]]:
    """Return (value, count) in descending order of count, equal counts by value; `values` are sorted."""
    counted: dict[Row, list[T]] = {}
    for value in values:
        counted.setdefault(key_of((value,)), []).append(value)
    return sorted(((same[0], len(same)) for same in counted.values()), key=lambda pair: -pair[1])


def _top(values: Sequence[object], length: int) -> list[dict[str, object]]:
    return [{"value": value, "count": count} for value, count in _frequent(values)[:length]]


def _discrete(values: Sequence[T], fraction: float) -> T:
    """Return the first value that at least this part of the values precedes or equals. The fraction is meant as it is
    written in decimals."""
    return values[max(1, math.ceil(Fraction(repr(fraction)) * len(values))) - 1]


#: canonical name -> definition over the sorted non-NULL values (at least one), and the constants of the call
ORDERED: dict[str, Callable[..., Any]] = {
    "QUANTILE": _quantile,
    "MODE": lambda values: _frequent(values)[0][0],
    "TOP_K": _top,
    "PERCENTILE_DISC": _discrete,
    "ARRAY_AGG": list,
}


def _by_keys(call: AggregateCall, tuples: Sequence[Row]) -> Any:
    """Return the value of a call with ORDER BY over (arguments, keys): the rows are ordered by the keys, then by the
    arguments, ascending and NULL first."""
    width = len(call.own)
    if call.function not in IN_TIME:
        tuples = [row for row in tuples if None not in row[:width]]
    if call.distinct:
        tuples = list({key_of(row[:width]): row for row in tuples}.values())

    def place(row: Row) -> list[object]:
        return [*map(Place, row[width:], call.order), *map(order_key, row[:width])]

    return BY_KEYS[call.function](sorted(tuples, key=place)) if tuples else None


#: canonical name -> definition over (arguments, keys) in order (at least one)
BY_KEYS: dict[str, Callable[[Sequence[Row]], Any]] = {
    "FIRST": lambda rows: rows[0][0],
    "LAST": lambda rows: rows[-1][0],
    "ARRAY_AGG": lambda rows: [row[0] for row in rows],
    "STRING_AGG": lambda rows: rows[0][1].join(row[0] for row in rows),
    "MODE": lambda rows: _frequent([row[0] for row in rows])[0][0],
    "PERCENTILE_DISC": lambda rows: _discrete([row[0] for row in rows], rows[0][1]),
}


def _by_time(row: Row) -> tuple[object, ...]:
    value, timestamp = row
    return order_key(timestamp), order_key(value)


#: canonical name -> definition over (value, timestamp of its row), NULLs among the values
IN_TIME: dict[str, Callable[[Sequence[Row]], Any]] = {
    "FIRST": lambda rows: min(rows, key=_by_time)[0],
    "LAST": lambda rows: max(rows, key=_by_time)[0],
}

#: canonical name -> definition over (value, what it is ordered by), where the latter is not NULL
BY_ANOTHER = {"MIN_BY": IN_TIME["FIRST"], "MAX_BY": IN_TIME["LAST"]}


def _spread(ones: Sequence[Fraction], others: Sequence[Fraction]) -> Fraction:
    """The sum of the products of what lies between values and their means."""
    count = len(ones)
    (one, size), (other, other_size) = _over_one_denominator(ones), _over_one_denominator(others)
    one_sum, other_sum = sum(one), sum(other)
    # Of whole numbers, as the sum of many fractions looks for a common divisor at each step.
    products = sum((count * a - one_sum) * (count * b - other_sum) for a, b in zip(one, other, strict=True))
    return Fraction(products, count * count * size * other_size)


def _over_one_denominator(values: Sequence[Fraction]) -> tuple[list[int], int]:
    size = math.lcm(*(value.denominator for value in values))
    return [value.numerator * (size // value.denominator) for value in values], size


def _covariance(least: int) -> Callable[[Sequence[Row]], float | None]:
    def define(pairs: Sequence[Row]) -> float | None:
        if len(pairs) < least:
            return None
        if not all(math.isfinite(v) for pair in pairs for v in pair):
            return math.nan
        ones, others = ([Fraction(pair[side]) for pair in pairs] for side in (0, 1))
        return _rounded(_spread(ones, others) / (len(pairs) - least + 1))

    return define


def _correlation(pairs: Sequence[Row]) -> float | None:
    if len(pairs) < 2:
        return None
    if not all(math.isfinite(v) for pair in pairs for v in pair):
        return math.nan
    ones, others = ([Fraction(pair[side]) for pair in pairs] for side in (0, 1))
    both, one, other = _spread(ones, others), _spread(ones, ones), _spread(others, others)
    if one == 0 or other == 0:
        return None
    size = math.sqrt(both * both / (one * other))
    return size if both >= 0 else -size


#: canonical name -> definition over pairs of numbers that are not NULL (at least one)
TOGETHER: dict[str, Callable[[Sequence[Row]], float | None]] = {
    "COVAR_SAMP": _covariance(2),
    "COVAR_POP": _covariance(1),
    "CORR": _correlation,
}
