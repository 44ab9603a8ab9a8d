"""Short ways to write expressions, and one way to run them that tries every path of the evaluator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.expressions.calls.functions import build_call
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Column, Expression, Literal, substitute
from penstock.types import TIMESTAMP, parse_type

BOOLEAN, STRING, BINARY, DATE = pa.bool_(), pa.string(), pa.binary(), pa.date32()
TINYINT, SMALLINT, INT, BIGINT = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE, DURATION = pa.float32(), pa.float64(), pa.duration("us")
NAN, INF = math.nan, math.inf


def dec(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def clock(text: str) -> datetime:
    """A TIMESTAMP_NTZ."""
    return datetime.fromisoformat(text)


def day(text: str) -> date:
    return date.fromisoformat(text)


def lit(value: Any, type_: pa.DataType | str | None = None) -> Literal:
    """A literal as the binder types it."""
    if isinstance(type_, str):
        type_ = parse_type(type_)
    if type_ is None:
        type_ = pa.null() if value is None else _TYPES.get(type(value))
    if type_ is None:
        digits = value.as_tuple()
        type_ = dec(max(len(digits.digits), -digits.exponent), -digits.exponent)
    return Literal(type_, value)


_TYPES = {bool: BOOLEAN, int: INT, float: DOUBLE, str: STRING, bytes: BINARY, date: DATE, datetime: TIMESTAMP,
          timedelta: DURATION}  # fmt: skip


@dataclass(frozen=True)
class Values:
    """A column of a case."""

    type: pa.DataType
    values: tuple[Any, ...]


def col(type_: pa.DataType | str, *values: Any) -> Values:
    return Values(parse_type(type_) if isinstance(type_, str) else type_, values)


def same(left: Any, right: Any) -> bool:
    """Equality of two values where NaN is NaN, 0.0 is not -0.0 and doubles may differ in the last digit."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=1e-14) and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and bool(left == right)


def all_same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))


def bind(arguments: Sequence[Values | Expression]) -> tuple[list[Expression], list[pa.Array], int]:
    """(expressions, columns, rows): each Values becomes a column."""
    expressions: list[Expression] = []
    columns: list[pa.Array] = []
    for argument in arguments:
        if isinstance(argument, Values):
            expressions.append(Column(argument.type, len(columns), "abcdef"[len(columns)]))
            columns.append(pa.array(argument.values, argument.type))
        else:
            expressions.append(argument)
    return expressions, columns, len(columns[0]) if columns else 1


def run(expression: Expression, columns: Sequence[pa.Array], length: int) -> list[Any]:
    """The values, after checking the evaluator's promises and every other way to compute them."""
    whole = checked(expression, columns, length)
    folded = fold(expression)
    assert folded.type == expression.type
    assert all_same(checked(folded, columns, length), whole), "folding changes the value"
    pieces = [
        value for start in range(length) for value in checked(expression, [c.slice(start, 1) for c in columns], 1)
    ]
    assert all_same(pieces, whole), "row by row differs from the whole"
    padded = [pa.concat_arrays([c.slice(0, 1), c, c.slice(0, 1)]).slice(1, length) for c in columns]
    assert all_same(checked(expression, padded, length), whole), "a slice differs from the whole"
    assert checked(expression, [c.slice(0, 0) for c in columns], 0) == []
    for row in range(length):
        literals = tuple(Literal(c.type, c[row].as_py()) for c in columns)
        constant = fold(substitute(expression, literals))
        assert isinstance(constant, Literal), "an expression over literals does not fold"
        assert all_same([constant.value], [whole[row]]), f"row {row} as literals gives {constant.value!r}"
    return whole


def checked(expression: Expression, columns: Sequence[pa.Array], length: int) -> list[Any]:
    return list(evaluated(expression, columns, length).to_pylist())


def evaluated(expression: Expression, columns: Sequence[pa.Array], length: int) -> pa.Array:
    """The values as Arrow has them: dates and timestamps may lie beyond Python's."""
    result = evaluate(expression, columns, length)
    assert isinstance(result, pa.Array)
    assert result.type == expression.type
    assert len(result) == length
    result.validate(full=True)
    return result


def call(name: str, *arguments: Values | Expression, **options: bool) -> list[Any]:
    """The values of a function over columns and literals."""
    expressions, columns, length = bind(arguments)
    return run(build_call(name, expressions, **options), columns, length)


def call_type(name: str, *types: pa.DataType | str | Expression, **options: bool) -> pa.DataType:
    """The result type of a function over columns of `types`."""
    columns = [
        t if isinstance(t, Expression) else Column(parse_type(t) if isinstance(t, str) else t, i)
        for i, t in enumerate(types)
    ]
    return build_call(name, columns, **options).type


__all__ = ["Decimal"]
