"""Punctuations: what a sender promises of single values of a stream, record by record (docs/promises.md).

A punctuation is a conjunction of conditions, one a column. No element that comes later in the stream fulfils it. A row
with a NULL fulfils IS NULL alone, and one with a NaN no condition of its column.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import TypeAlias

import pyarrow as pa

from penstock.errors import as_name
from penstock.types import CALENDAR, Field, Schema

#: A value as it is compared: of a timestamp its ticks, of a date its days since 1970.
PlainValue: TypeAlias = "bool | int | float | str | bytes | Decimal"
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True)
class ValueBounds:
    """Values between two bounds; None for no bound. open_low, open_high: the bound itself is not among them."""

    low: PlainValue | None = None
    high: PlainValue | None = None
    open_low: bool = False
    open_high: bool = False

    @property
    def is_empty(self) -> bool:
        low, high = self.low, self.high
        if any(isinstance(one, float) and math.isnan(one) for one in (low, high)):
            return True
        if low is None or high is None:
            return False
        return low > high or (low == high and (self.open_low or self.open_high))  # type: ignore[operator]  # one type

    def has(self, value: PlainValue | None) -> bool:
        """Return whether a value lies between the bounds; a NULL and a NaN never do."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return False
        return not (_is_below(value, self.low, self.open_low) or _is_below(self.high, value, self.open_high))

    def contains(self, other: ValueBounds) -> bool:
        """Return whether all values between other bounds lie between these."""
        low = self.low is None or (other.low is not None and _starts(other) >= _starts(self))
        high = self.high is None or (other.high is not None and _stops(other) <= _stops(self))
        return low and high

    def both(self, other: ValueBounds) -> ValueBounds:
        """Return the bounds of the values that lie between these and other ones."""
        low, open_low = max((one for one in (_starts(self), _starts(other)) if one[0] is not None), default=(None, 0))
        high, stop = min((one for one in (_stops(self), _stops(other)) if one[0] is not None), default=(None, 0))
        return ValueBounds(low, high, bool(open_low), bool(stop))


def _is_below(one: PlainValue | None, other: PlainValue | None, is_open: bool) -> bool:
    """Return whether one value is below another, or equal where a bound is open; never without a bound."""
    if one is None or other is None:
        return False
    return one < other or (is_open and one == other)  # type: ignore[operator]  # values of one column


def _starts(bounds: ValueBounds) -> tuple[PlainValue | None, int]:
    return bounds.low, int(bounds.open_low)


def _stops(bounds: ValueBounds) -> tuple[PlainValue | None, int]:
    return bounds.high, -int(bounds.open_high)


#: What the values of a column fulfil: one of some values, where None is NULL, or bounds.
Condition: TypeAlias = "tuple[PlainValue | None, ...] | ValueBounds"


@dataclass(frozen=True)
class Punctuation:
    """A record of a stream that is no element: no element that fulfils it follows.

    Args:
        conditions: by position of a declared column, in the order of these, what a row fulfils.
    """

    conditions: tuple[tuple[int, Condition], ...]

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(column for column, _ in self.conditions)

    @property
    def is_empty(self) -> bool:
        """Return whether no row can fulfil it."""
        return any(one.is_empty if isinstance(one, ValueBounds) else not one for _, one in self.conditions)

    @property
    def size(self) -> int:
        """Return how many punctuations with one value in place of several it stands for."""
        return math.prod(1 if isinstance(one, ValueBounds) else len(one) for _, one in self.conditions)

    def single(self) -> Iterator[Punctuation]:
        """Yield punctuations with one value in place of several, which say the same together."""
        parts: list[list[Condition]] = [
            [one] if isinstance(one, ValueBounds) else [(value,) for value in one] for _, one in self.conditions
        ]
        for chosen in product(*parts):
            yield Punctuation(tuple(zip(self.columns, chosen, strict=True)))

    def as_text(self) -> str:
        """Return it as text, for files; `from_text` reads it."""
        return json.dumps([[column, _written(one)] for column, one in self.conditions])

    @staticmethod
    def from_text(text: str) -> Punctuation:
        """Return the punctuation of a text that `as_text` wrote. Raises ValueError, TypeError for others."""
        return Punctuation(tuple((int(column), _read(one)) for column, one in json.loads(text)))


def _written(condition: Condition) -> Json:
    if not isinstance(condition, ValueBounds):
        return [_value_text(value) for value in condition]
    fields = condition.low, condition.high
    return {"between": [*map(_value_text, fields), condition.open_low, condition.open_high]}


def _read(written: dict[str, list[Json]] | list[Json]) -> Condition:
    if isinstance(written, list):
        return tuple(map(_value_of, written))
    low, high, open_low, open_high = written["between"]
    return ValueBounds(_value_of(low), _value_of(high), bool(open_low), bool(open_high))


def _value_text(value: PlainValue | None) -> Json:
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    return {"bytes": value.hex()} if isinstance(value, bytes) else value


def _value_of(written: Json) -> PlainValue | None:
    if isinstance(written, dict):
        (kind, text), *_ = written.items()
        return Decimal(str(text)) if kind == "decimal" else bytes.fromhex(str(text))
    if isinstance(written, list):
        raise TypeError("a list is no value of a punctuation")
    return written


def intersected(one: Condition, other: Condition) -> Condition:
    """Return what values fulfil that fulfil both conditions of one column."""
    if isinstance(one, ValueBounds):
        if isinstance(other, ValueBounds):
            return one.both(other)
        one, other = other, one
    return tuple(value for value in one if (other.has(value) if isinstance(other, ValueBounds) else value in other))


def shown_punctuation(one: Punctuation, columns: Schema) -> str:
    """Return a punctuation as it is written, over declared columns."""
    return " AND ".join(_shown(how, columns[c]) for c, how in one.conditions)


def _shown(condition: Condition, column: Field) -> str:
    name = as_name(column.name)
    if not isinstance(condition, ValueBounds):
        if condition == (None,):
            return f"{name} IS NULL"
        values = [_shown_value(value, column.type) for value in condition]
        return f"{name} = {values[0]}" if len(values) == 1 else f"{name} IN ({', '.join(values)})"
    parts = []
    if condition.low is not None:
        parts.append(f"{name} {'>' if condition.open_low else '>='} {_shown_value(condition.low, column.type)}")
    if condition.high is not None:
        parts.append(f"{name} {'<' if condition.open_high else '<='} {_shown_value(condition.high, column.type)}")
    return " AND ".join(parts)


def _shown_value(value: PlainValue | None, type_: pa.DataType) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, int) and pa.types.is_timestamp(type_):
        return f"TIMESTAMP '{CALENDAR.show(value)}'"
    if isinstance(value, int) and pa.types.is_date32(type_):
        return f"DATE '{CALENDAR.show(value * 86_400_000_000)[:10]}'"
    return f"X'{value.hex()}'" if isinstance(value, bytes) else str(value)


def is_comparable(type_: pa.DataType) -> bool:
    """Return whether punctuations compare values of a type."""
    kinds = pa.types
    return bool(
        kinds.is_integer(type_)
        or kinds.is_floating(type_)
        or kinds.is_decimal(type_)
        or kinds.is_string(type_)
        or kinds.is_boolean(type_)
        or kinds.is_timestamp(type_)
        or kinds.is_date32(type_)
        or kinds.is_binary(type_)
    )


def plain_values(column: pa.Array) -> list[PlainValue | None]:
    """Return the values of a column as punctuations compare them."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: list[PlainValue | None] = column.to_pylist()
    return values


def typed_array(values: Sequence[PlainValue | None], type_: pa.DataType) -> pa.Array:
    """Return values as a column of a type: the reverse of `plain_values`."""
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    if pa.types.is_date32(type_):
        return pa.array(values, pa.int32()).cast(type_)
    return pa.array(values, type_)
