"""Ranges in the condition of a join, by which its state can be sorted so that binary search finds candidates.

In `a(l) <= b(r) AND c(l) >= d(r)` the left row spans [a, c] and the right one [d, b], and the pair passes exactly when
the two spans overlap. A side that is compared once has one end only. So `x BETWEEN y - 5 AND y + 5`, `l.x < r.y` and `p
BETWEEN r.low AND r.high` are one case. Spans only find candidates, so that strict bounds may count as closed ones; the
condition itself is evaluated for every pair that is formed.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.first_rows import SortKey
from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.expressions.evaluation.evaluate import evaluate_all
from penstock.expressions.nodes import FLIPPED, Call, Cast, Column, Expression, Literal, columns_of, conjuncts, remap
from penstock.expressions.user import UserCall
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.kernels.row_order import coarse_keys
from penstock.tree import walk

# --- Bounds that a condition between two sides of a join sets on an expression of either, also by a difference.
#
# `l - r < c` implies l < r + c, and `ABS(l - r) <= c` implies l <= r + c and l >= r - c, as long as the difference
# does not overflow. So of integers and timestamps far from zero nothing is concluded (`limit`); the difference of two
# others and their sum with a constant as near to zero do not overflow. Sums of doubles are rounded, so nothing is
# concluded from these.


@dataclass(frozen=True)
class RangeBound:
    """`left` is at most `right`, or where it is not `left_is_less`, at least; each over the columns of its own side.
    limit: holds only for values that are no further from zero; None for all values."""

    left_is_less: bool
    left: Expression
    right: Expression
    limit: int | None = None


def crosses(left: Expression, right: Expression, width: int) -> bool:
    """Return whether `left` reads the left side, of `width` columns, and `right` the right side alone."""
    reads_left, reads_right = columns_of(left), columns_of(right)
    return bool(reads_left and reads_right and max(reads_left) < width <= min(reads_right))


def bounds_of_difference(part: Expression, width: int) -> Iterator[RangeBound]:
    """Return the bounds of `part` if it compares the difference between the sides, or its absolute value, with a
    constant."""
    if not (isinstance(part, Call) and part.function in FLIPPED) or is_volatile(part):
        return
    difference, constant, function = *part.arguments, part.function
    if isinstance(difference, Literal):
        difference, constant, function = constant, difference, FLIPPED[function]
    if not (isinstance(difference, Call) and isinstance(constant, Literal)) or any(
        isinstance(n, UserCall) for n in walk(part)
    ):
        return
    below = function in ("LT", "LE")
    if difference.function == "ABS" and below and isinstance(difference.arguments[0], Call):
        inner = difference.arguments[0]
        yield from _bound(inner, True, constant, width)
        yield from _bound(inner, False, _negative(constant), width)
    else:
        yield from _bound(difference, below, constant, width)


def _bound(difference: Call, below: bool, constant: Literal, width: int) -> Iterator[RangeBound]:
    """Return the bound of `difference <= constant`, or `>=`."""
    if difference.function != "SUB" or len(difference.arguments) != 2:
        return
    left, right = difference.arguments
    limit = _limit(left.type)
    far = _size(constant)
    if left.type != right.type or limit is None or far is None or far > limit:
        return
    if crosses(left, right, width):
        bound = Call(right.type, "ADD", (right, constant))
        yield RangeBound(below, left, remap(bound, lambda i: i - width), limit)
    elif crosses(right, left, width):
        bound = Call(left.type, "SUB", (left, constant))
        yield RangeBound(not below, right, remap(bound, lambda i: i - width), limit)


def _limit(kind: pa.DataType) -> int | None:
    """Return how far from zero values of `kind` may be for their sums and differences not to overflow."""
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return 1 << (int(kind.bit_width) - 3)
    return None


def _size(constant: Literal) -> int | None:
    value = constant.value
    if isinstance(value, dt.timedelta):
        return abs(value // dt.timedelta(microseconds=1))
    return abs(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _negative(constant: Literal) -> Literal:
    return constant if constant.value is None else Literal(constant.type, -constant.value)


_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
#: Beyond this many cells from zero, doubles do not distinguish neighbours.
_LAST_CELL = 1 << 52
#: A sum with more than this may be infinite where the value itself lies in a cell before the last one.
_WIDEST_CELL = 1e18
_ASCENDING = SortKey(0)


@dataclass(frozen=True)
class RangeSpan:
    """The span of a row, over the columns of its side; an end that is None is open. limit: a row with an end further
    from zero, or whose end is NULL because it overflows, overlaps every other, as a difference with it may overflow;
    None for no such limit."""

    low: Expression | None
    high: Expression | None
    limit: int | None = None

    @property
    def ends(self) -> tuple[Expression, ...]:
        return tuple(end for end in (self.low, self.high) if end is not None)

    @property
    def width(self) -> float | None:
        """Return `high` - `low`, where that is the same for all rows, in units of the values' keys.

        A sum that overflows may cross the ends, but must not increase their distance: None where it could.
        """
        if self.low is None or self.high is None:
            return None
        low, high = _offset(self.low), _offset(self.high)
        if low.base.fingerprint != high.base.fingerprint:
            return None
        if len(low.wrapping | high.wrapping) > 1 or low.wrapped > high.wrapped:
            return None
        return high.constant - low.constant


@dataclass(frozen=True)
class Ranges:
    """The spans that overlap in every pair that passes the condition."""

    left: RangeSpan
    right: RangeSpan

    def side(self, port: int) -> RangeSpan:
        return self.right if port else self.left

    @property
    def closed(self) -> bool:
        """Return whether the spans are bounded on both sides."""
        return None not in (self.left.low, self.left.high)

    @property
    def cell(self) -> float | None:
        """Return a width of cells such that a span reaches two or three of them; None where spans have no bound."""
        left, right = self.left.width, self.right.width
        if left is None or right is None or min(left, right) < 0 or self.left.limit is not None:
            return None
        widest = max(left, right)
        return widest if 0 < widest <= _WIDEST_CELL else None

    def describe(self) -> str:
        return " overlaps ".join(f"[{_end_text(span.low)}, {_end_text(span.high)}]" for span in (self.left, self.right))


def spans(ranges: Ranges | None) -> tuple[RangeSpan | None, RangeSpan | None]:
    """Return the spans of both sides, if there are any."""
    return (None, None) if ranges is None else (ranges.left, ranges.right)


def range_properties(ranges: Ranges | None) -> dict[str, str]:
    """Return the properties that EXPLAIN shows of ranges."""
    return {} if ranges is None else {"sorted by": ranges.describe()}


def find_ranges(condition: Expression | None, width: int) -> Ranges | None:
    """Return the ranges of a join's `condition` over the columns of both sides, of which the left one has `width`; None
    for none. Where several could be taken, first those of one width (a band), then those about one expression."""
    parts = () if condition is None else conjuncts(condition)
    bounds = [bound for part in parts for bound in (*_comparison(part, width), *bounds_of_difference(part, width))]
    below, above = [b for b in bounds if b.left_is_less], [b for b in bounds if not b.left_is_less]
    if not bounds:
        return None
    if not below or not above:
        (only,) = bounds[:1]
        left, right = RangeSpan(only.left, None, only.limit), RangeSpan(None, only.right, only.limit)
        if only.left_is_less:
            return Ranges(left, right)
        return Ranges(RangeSpan(None, only.left, only.limit), RangeSpan(only.right, None, only.limit))
    pairs = [_both(under, over) for under, over in product(below, above)]
    return max(pairs, key=lambda pair: (pair.cell is not None, _points(pair)))


def _both(under: RangeBound, over: RangeBound) -> Ranges:
    limit = min((b.limit for b in (under, over) if b.limit is not None), default=None)
    return Ranges(RangeSpan(under.left, over.left, limit), RangeSpan(over.right, under.right, limit))


def _points(ranges: Ranges) -> int:
    """Return how many of the sides are compared by one expression only."""
    return sum(len({end.fingerprint for end in span.ends}) == 1 for span in (ranges.left, ranges.right))


def _comparison(part: Expression, width: int) -> list[RangeBound]:
    """Return the bounds of a comparison between the sides."""
    if not (isinstance(part, Call) and part.function in FLIPPED) or is_volatile(part):
        return []
    first, second = part.arguments
    if first.type != second.type or not _sorts(first.type) or any(isinstance(n, UserCall) for n in walk(part)):
        return []
    for left, right, function in ((first, second, part.function), (second, first, FLIPPED[part.function])):
        if crosses(left, right, width):
            return [RangeBound(function in ("LT", "LE"), left, remap(right, lambda i: i - width))]
    return []


def _sorts(kind: pa.DataType) -> bool:
    """Return whether `coarse_keys` agrees with comparisons of this type."""
    is_ = pa.types
    plain = is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind) or is_.is_decimal(kind)
    timed = is_.is_date32(kind) or is_.is_timestamp(kind) or is_.is_duration(kind)
    return bool(plain or timed or is_.is_string(kind) or is_.is_binary(kind))


@dataclass(frozen=True)
class _Offset:
    """An end as `base` and a constant that is added to it.

    `wrapped`: the part of it that is added in types whose sums overflow to the other end of the type, which those of
    decimals and doubles do not. `wrapping`: these types.
    """

    base: Expression
    constant: float = 0.0
    wrapped: float = 0.0
    wrapping: frozenset[str] = frozenset()


def _offset(end: Expression) -> _Offset:
    if isinstance(end, Cast) and _widens(end.argument.type, end.type):
        return _offset(end.argument)
    if isinstance(end, Call) and end.function in ("ADD", "SUB") and len(end.arguments) == 2:
        base, added = end.arguments
        if end.function == "ADD" and isinstance(base, Literal):
            base, added = added, base
        constant = _constant(added, end.type)
        if constant is not None:
            inner, constant = _offset(base), constant if end.function == "ADD" else -constant
            total = inner.constant + constant
            if _fractional(end.type):
                return _Offset(inner.base, total, inner.wrapped, inner.wrapping)
            return _Offset(inner.base, total, inner.wrapped + constant, inner.wrapping | {str(end.type)})
    return _Offset(end)


def _widens(inner: pa.DataType, outer: pa.DataType) -> bool:
    """Return whether a cast leaves numbers about where they are: it rounds them at most, or gives NULL."""
    if pa.types.is_integer(inner) and pa.types.is_integer(outer):
        return bool(inner.bit_width <= outer.bit_width)
    return _numeric(inner) and _fractional(outer)


def _fractional(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _constant(node: Expression, kind: pa.DataType) -> float | None:
    """Return what the literal `node` adds to the key of a value of type `kind`."""
    if not isinstance(node, Literal):
        return None
    if isinstance(node.value, dt.timedelta):
        return node.value / dt.timedelta(microseconds=1) if pa.types.is_timestamp(kind) else None
    if isinstance(node.value, int | float | Decimal) and _numeric(kind):
        return float(node.value)
    return None


def _end_text(end: Expression | None) -> str:
    if end is None:
        return "..."
    offset = _offset(end)
    inner, constant = offset.base, offset.constant
    name = next((n.name for n in walk(inner) if isinstance(n, Column)), "value")
    shown = name if isinstance(inner, Column | Cast) else f"f({name})"
    return shown + (f" {'-' if constant < 0 else '+'} {abs(constant):.15g}" if constant else "")


def span_keys(span: RangeSpan, elements: Elements) -> tuple[Int64s, Int64s]:
    """Return (lows, highs) of the rows' spans, as int64 keys in the order of values. Arbitrary where a row is not
    `comparable`."""
    ends = evaluate_all(span.ends, elements.columns, len(elements))
    keys = iter([coarse_keys(end, _ASCENDING) for end in ends])
    lows = _open(elements, _LEAST) if span.low is None else next(keys)
    highs = _open(elements, _MOST) if span.high is None else next(keys)
    if span.limit is None:
        return lows, highs
    far = ~_valid(ends, len(elements))
    for end in (keys for keys, end_expression in ((lows, span.low), (highs, span.high)) if end_expression is not None):
        far |= (end > span.limit) | (end < -span.limit)
    return np.where(far, _LEAST, lows), np.where(far, _MOST, highs)


def _open(elements: Elements, end: int) -> Int64s:
    return np.full(len(elements), end, np.int64)


def comparable(span: RangeSpan, elements: Elements) -> Bools:
    """Return rows that a range can hold for at all: no end is NULL, unless because it overflows and `limit` is set."""
    ends = span.ends if span.limit is None else tuple(_offset(end).base for end in span.ends)
    return _valid(evaluate_all(ends, elements.columns, len(elements)), len(elements))


def _valid(ends: list[pa.Array], length: int) -> Bools:
    """Return the rows in which none of `ends` is NULL."""
    keep = np.ones(length, np.bool_)
    for end in ends:
        if end.null_count:
            keep &= end.is_valid().to_numpy(zero_copy_only=False)
    return keep


def cells(span: RangeSpan, elements: Elements, width: float) -> tuple[Int64s, Int64s]:
    """Return the first and the last cell of `width` that each row's span, which has both ends and no NULL, reaches
    into. A greater value never lies in an earlier cell, so that spans that overlap share one.

    The ends may be of two types, the same two on both sides of the join: `y BETWEEN x AND x + 0.5` compares integers
    and decimals. Both are then cut at the same places. Ends that cross, if only by rounding, are in the first cell."""
    ends = evaluate_all(span.ends, elements.columns, len(elements))
    rounded = any(_fractional(end.type) for end in ends)
    first, last = (_cell(end, width, rounded) for end in ends)
    return first, np.maximum(first, last)


def _cell(column: pa.Array, width: float, rounded: bool) -> Int64s:
    """Return the cells of values, cut at multiples of `width`, or without `rounded` of the next integer."""
    if rounded:
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            numbers = np.floor(np.where(np.isnan(values), np.inf, values) / width)
        return np.clip(numbers, -_LAST_CELL, _LAST_CELL).astype(np.int64)
    return coarse_keys(column, _ASCENDING) // max(1, math.ceil(width))
