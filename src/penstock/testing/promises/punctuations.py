"""Punctuations by definition [docs/promises.md]: a reader of their texts of its own, and which rows fulfil one."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

from penstock.algebra import Source
from penstock.algebra.properties.punctuations import Condition, PlainValue, Punctuation, ValueBounds

#: A word, a number, a text, a comparison.
_TOKEN = re.compile(r"""\s*(\"[^\"]+\"|\w+|-?\d+(?:\.\d+)?|'(?:[^']|'')*'|<=|>=|=|<|>|\(|\)|,)""")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_KEYWORDS = ("AND", "IN", "IS", "NULL", "BETWEEN", "NOT", "OR")


class NoPunctuation(ValueError):
    """A text is no punctuation."""


def plain_rows(table: pa.Table) -> list[tuple[PlainValue | None, ...]]:
    """Return the rows of a table as punctuations compare them: ticks of timestamps, days of dates."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def plain_value(value: object) -> PlainValue | None:
    """Return a value of the oracle as punctuations compare it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)  # a time of any year is one
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days
    assert value is None or isinstance(value, bool | int | float | str | bytes | Decimal), "a type that is compared"
    return value


def fulfils(row: Sequence[PlainValue | None] | Mapping[int, PlainValue | None], punctuation: Punctuation) -> bool:
    """Return whether a row fulfils all conditions of a punctuation."""
    return all(_holds(row[column], condition) for column, condition in punctuation.conditions)


def _holds(value: PlainValue | None, condition: Condition) -> bool:
    if not isinstance(condition, ValueBounds):
        return any(value is None if one is None else value is not None and value == one for one in condition)
    if value is None or value != value:
        return False
    low, high = condition.low, condition.high
    above = low is None or value > low or (value == low and not condition.open_low)  # type: ignore[operator]  # of one type
    below = high is None or value < high or (value == high and not condition.open_high)  # type: ignore[operator]  # of one type
    return above and below


def read_text(text: str, source: Source) -> list[Punctuation]:
    """Return the conditions of a text as punctuations, all of which a row must fulfil. Raises NoPunctuation."""
    return _PunctuationReader(text, source).conjunction()


class _PunctuationReader:
    def __init__(self, text: str, source: Source) -> None:
        self._source = source
        self._tokens: list[str] = []
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise NoPunctuation(text)
            self._tokens.append(match[1])
            place = match.end()

    def _next(self, *words: str) -> str:
        """Return the next token, one of `words` where these are given."""
        if not self._tokens or (words and self._tokens[0].upper() not in words):
            raise NoPunctuation(str(self._tokens))
        return self._tokens.pop(0)

    def conjunction(self) -> list[Punctuation]:
        found = [self._comparison()]
        while self._tokens:
            self._next("AND")
            found.append(self._comparison())
        return found

    def _comparison(self) -> Punctuation:
        name = self._next().strip('"').lower()
        names = [one.lower() for one in self._source.columns.names]
        if name not in names or name.upper() in _KEYWORDS:
            raise NoPunctuation(name)
        column = names.index(name)
        return Punctuation(((column, self._condition(self._next().upper(), self._source.columns[column].type)),))

    def _condition(self, how: str, type_: pa.DataType) -> Condition:
        if how == "IS":
            self._next("NULL")
            return (None,)
        if how == "BETWEEN":
            low = self._value(type_)
            self._next("AND")
            return ValueBounds(low, self._value(type_))
        if how == "IN":
            self._next("(")
            values = [self._value(type_)]
            while self._next(",", ")") == ",":
                values.append(self._value(type_))
            return tuple(values)
        if how not in ("=", "<", "<=", ">", ">="):
            raise NoPunctuation(how)
        value = self._value(type_)
        if how == "=":
            return (value,)
        if how[0] == "<":
            return ValueBounds(high=value, open_high=how == "<")
        return ValueBounds(low=value, open_low=how == ">")

    def _value(self, type_: pa.DataType) -> PlainValue:
        token = self._next()
        if token.upper() in ("TIMESTAMP", "DATE"):
            token = self._next()
        text = token[1:-1].replace("''", "'") if token.startswith("'") else token
        if pa.types.is_string(type_) and token.startswith("'"):
            return text
        if pa.types.is_timestamp(type_) and token.startswith("'"):
            return (dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
        if pa.types.is_date32(type_) and token.startswith("'"):
            return (dt.date.fromisoformat(text) - _EPOCH.date()).days
        if pa.types.is_boolean(type_) and token.upper() in ("TRUE", "FALSE"):
            return token.upper() == "TRUE"
        if not _NUMBER.fullmatch(token):
            raise NoPunctuation(token)
        if pa.types.is_integer(type_) and Decimal(token) == int(Decimal(token)):
            return int(Decimal(token))
        if pa.types.is_floating(type_):
            return float(token)
        if pa.types.is_decimal(type_):
            return Decimal(token)
        raise NoPunctuation(token)
