"""Evaluation of expressions over columns: one Arrow kernel call per node, never a Python step per row.

A subexpression that occurs twice in one call is computed once (by fingerprint). What depends on literals alone stays a
scalar until the end, so that kernels can take their fast paths. No value of a row raises an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.calls.functions import function
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.nodes import Call, Cast, Column, Expression, Literal
from penstock.expressions.user import UserCall
from penstock.expressions.user_calls import call_function
from penstock.expressions.values.casts import convert
from penstock.expressions.values.datum import Datum, is_scalar, to_array


def evaluate(expression: Expression, columns: Sequence[pa.Array], length: int) -> pa.Array:
    """Return the `length` values of `expression`, exactly of its type; `columns` are the input's, by position."""
    return evaluate_all((expression,), columns, length)[0]


def evaluate_all(expressions: Sequence[Expression], columns: Sequence[pa.Array], length: int) -> list[pa.Array]:
    """Evaluate each of `expressions` like `evaluate`, computing common subexpressions once."""
    known: dict[str, Datum] = {}
    return [to_array(_value(e, columns, length, known), length) for e in expressions]


def mask(predicate: Expression, columns: Sequence[pa.Array], length: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the `length` rows that satisfy `predicate`: True only where it is TRUE."""
    value = _value(predicate, columns, length, {})
    if is_scalar(value):
        return np.full(length, value.as_py() is True)
    if value.null_count:
        value = pc.fill_null(value, False)
    result: npt.NDArray[np.bool_] = value.to_numpy(zero_copy_only=False)
    return result.astype(np.bool_, copy=False)


def constant(expression: Expression) -> pa.Scalar:
    """Return the value of an expression that reads no column."""
    return evaluate(expression, (), 1)[0]


def literal_of(expression: Expression) -> Literal:
    """Return the value of an expression without columns; usual ones need no evaluation."""
    if isinstance(expression, Literal):
        return expression
    if isinstance(expression, Call) and expression.function == "NEG" and isinstance(expression.arguments[0], Literal):
        value = expression.arguments[0].value
        if value is not None:
            # Of a decimal, `-` would round to the digits of Python's context.
            return Literal(expression.type, value.copy_negate() if isinstance(value, Decimal) else -value)
    return Literal(expression.type, python_value(constant(expression)))


def cast_together(literals: Sequence[Literal], cast: Callable[[pa.DataType, int], Expression]) -> list[object]:
    """Return the values of literals in one type, those of one type converted together.

    Args:
        cast: returns the conversion of a column 0 of a type; it also gets the place of the first literal of this type.
    """
    alike: dict[pa.DataType, list[int]] = {}
    for place, literal in enumerate(literals):
        alike.setdefault(literal.type, []).append(place)
    found: list[object] = [None] * len(literals)
    for type_, places in alike.items():
        array = pa.array([literals[place].value for place in places], type_)
        values = evaluate(cast(type_, places[0]), [array], len(places))
        for place, value in zip(places, map(python_value, values), strict=True):
            found[place] = value
    return found


def python_value(value: pa.Scalar) -> object:
    """Return a value of which Arrow makes the same again; of a time outside of Python's years, its ticks."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return value.cast(pa.int32() if value.type == pa.date32() else pa.int64()).as_py()


def _value(expression: Expression, columns: Sequence[pa.Array], length: int, known: dict[str, Datum]) -> Datum:
    if isinstance(expression, Column):
        return columns[expression.index]
    if isinstance(expression, Literal):
        return pa.scalar(expression.value, expression.type)
    if volatile(expression):  # two calls are two independent draws
        return _compute(expression, columns, length, known)
    found = known.get(expression.fingerprint)
    if found is None:
        found = known[expression.fingerprint] = _compute(expression, columns, length, known)
    return found


def _compute(expression: Expression, columns: Sequence[pa.Array], length: int, known: dict[str, Datum]) -> Datum:
    if isinstance(expression, Cast):
        value = _value(expression.argument, columns, length, known)
        if is_scalar(value):
            return convert(pa.array([value], value.type), expression.type)[0]
        return convert(value, expression.type)
    if isinstance(expression, UserCall):
        given = [to_array(_value(a, columns, length, known), length) for a in expression.arguments]
        return call_function(expression.function, given, length)
    if not isinstance(expression, Call):
        raise PenstockError("P0304", f"{type(expression).__name__} has no value for a single row")
    kernel = function(expression.function).kernel
    arguments = tuple([_value(a, columns, length, known) for a in expression.arguments])
    if all(isinstance(a, pa.Scalar) for a in arguments):
        single = tuple(pa.array([a], a.type) for a in arguments)
        return to_array(kernel(single, expression.type), 1)[0]
    result = kernel(arguments, expression.type)
    return to_array(result, 0) if isinstance(result, pa.ChunkedArray) else result
