"""Bounds that a condition between two sides of a join sets on an expression of either, also by a difference.

`l - r < c` implies l < r + c, and `ABS(l - r) <= c` implies l <= r + c and l >= r - c, as long as the difference does
not overflow. So of integers and timestamps far from zero nothing is concluded (`limit`); the difference of two others
and their sum with a constant as near to zero do not overflow. Sums of doubles are rounded, so nothing is concluded from
these.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.expressions.nodes import FLIPPED, Call, Expression, Literal, columns_of, remap
from penstock.expressions.user import UserCall
from penstock.tree import walk


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
