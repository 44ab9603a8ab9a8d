"""Values under the law: when two rows are the same row, and the canonical order of rows.

Contract: `key_of` maps rows that are equal for GROUP BY, DISTINCT, bag differences and netting to equal, hashable
tuples: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0 (as in Spark, [semantics 4]). Dates and timestamps outside the
years of Python's are `FarDate` and `FarTimestamp`, which compare with Python's own, and which Arrow takes for them.
"""

from __future__ import annotations

import datetime as dt
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol

import pyarrow as pa

from penstock.expressions.values.calendar import far_day, far_moment

Row = tuple[Any, ...]
Event = tuple[int, "str | None", Row]
"""(timestamp, `+` or `-` or None for a stream, tuple)"""

_NAN = ("NaN",)


class _Far(int, ABC):
    """A date or timestamp before the year 1 or after 9999, as its number of units since 1970.

    Its sign alone decides whether it precedes a value of Python's range.
    """

    def __lt__(self, other: Any) -> bool:
        return int(self) < _sign_or_units(other)

    def __gt__(self, other: Any) -> bool:
        return int(self) > _sign_or_units(other)

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.isoformat()})"

    @abstractmethod
    def isoformat(self) -> str:
        """Return the text of the value, in as many digits of the year as it needs."""


def _sign_or_units(other: Any) -> int:
    return 0 if isinstance(other, dt.date) else int(other)


class FarDate(_Far):
    """In days since 1970."""

    def isoformat(self) -> str:
        return far_day(int(self))


class FarTimestamp(_Far):
    """In microseconds since 1970."""

    def isoformat(self) -> str:
        return far_moment(int(self))


def python_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python objects, of any year."""
    try:
        result: list[Any] = values.to_pylist()
    except (OverflowError, ValueError):
        return _each(values)
    return result


def _each(values: Iterable[pa.Scalar]) -> list[Any]:
    return [_python_value(value) for value in values]


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        if isinstance(value, pa.StructScalar):
            return {name: _python_value(member) for name, member in value.items()}
        if isinstance(value, pa.ListScalar):
            return _each(value.values)
        if pa.types.is_date32(value.type):
            return FarDate(value.cast(pa.int32()).as_py())
        return FarTimestamp(value.cast(pa.int64()).as_py())


def key_of(row: Row) -> Row:
    """Return `row` with equal values made identical."""
    return tuple(_key(value) for value in row)


def _key(value: object) -> Any:
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return ("array", *map(_key, value))
    if isinstance(value, dict):
        return ("struct", *map(_key, value.values()))
    return value


def order_key(value: object) -> tuple[int, Any]:
    """Return a sort key over the values of one column: NULL first, NaN last, arrays and structs by their elements."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    if isinstance(value, list | dict):
        return (1, tuple(map(order_key, value.values() if isinstance(value, dict) else value)))
    return (1, value)


class OrderOfKey(Protocol):
    """How a sort key orders values."""

    @property
    def descending(self) -> bool: ...

    @property
    def nulls_first(self) -> bool: ...


class Place:
    """The rank of a value under one sort key. NaN is the largest number; the key decides where NULL sorts."""

    def __init__(self, value: object, key: OrderOfKey) -> None:
        self._null = value is None
        self._value = order_key(value)
        self._key = key

    def __lt__(self, other: Place) -> bool:
        if self._null or other._null:
            return self._null is not other._null and self._null is self._key.nulls_first
        one, two = (other, self) if self._key.descending else (self, other)
        return bool(one._value < two._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and not (self < other or other < self)


def value_order(row: Row) -> tuple[object, ...]:
    """Return a sort key over rows: a total order of values, column by column. NULL first; -0.0 before 0.0, NaN last."""
    return tuple(_value_order(value) for value in row)


def _value_order(value: object) -> tuple[object, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, 1, 0, 0) if math.isnan(value) else (1, 0, value, math.copysign(1, value))
    if isinstance(value, dict):
        return (1, value_order(tuple(value.values())))
    return (1, value_order(tuple(value)) if isinstance(value, list) else value)


def event_order(event: Event) -> tuple[object, ...]:
    """Return the canonical order of events: by timestamp, `-` before `+`, then by the tuple's values."""
    ts, op, row = event
    return (ts, op == "+", tuple(order_key(value) for value in row))


def close(one: Row, other: Row, tolerance: float) -> bool:
    """Return whether two rows are equal, doubles up to a relative (and, near zero, absolute) `tolerance`."""
    return all(_close(a, b, tolerance) for a, b in zip(one, other, strict=True))


def _close(a: object, b: object, tolerance: float) -> bool:
    if isinstance(a, float) and isinstance(b, float) and not (math.isnan(a) or math.isnan(b)):
        return a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and close(tuple(a), tuple(b), tolerance)
    if isinstance(a, dict) and isinstance(b, dict):
        return close(tuple(a.values()), tuple(b.values()), tolerance)
    return bool(_key(a) == _key(b))
