"""CASE and its short forms, and functions that choose among values by NULL or by order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.coercion import (
    BOOLEAN,
    DURATION,
    NULL,
    cast_to,
    common_type,
    comparison_type,
    is_float,
    misfit,
)
from penstock.expressions.library.comparison import comparable, equal, greater
from penstock.expressions.library.registry import Function
from penstock.expressions.nodes import Expression
from penstock.expressions.values.casts import convert, converter, out_of_range
from penstock.expressions.values.datum import Arguments, Datum, choose, is_scalar, length_of, null, to_array
from penstock.types import TIMESTAMP, WALL_CLOCK

Typed = tuple[tuple[Expression, ...], pa.DataType]


def unified(name: str, arguments: Sequence[Expression]) -> Typed:
    """Return all arguments in their common type, which is the result's."""
    common = common_type([a.type for a in arguments])
    if common is None:
        raise misfit(name, list(dict.fromkeys(a.type for a in arguments)), hint="CAST them to one type")
    return tuple(cast_to(a, common) for a in arguments), common


def _case_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    pairs = len(arguments) // 2
    for condition in arguments[0 : 2 * pairs : 2]:
        if condition.type not in (BOOLEAN, NULL):
            raise misfit(f"a condition of {name}", [condition.type])
    values = [*arguments[1 : 2 * pairs : 2], *arguments[2 * pairs :]]
    coerced, type_ = unified(name, values)
    result: list[Expression] = []
    for number in range(pairs):
        result += [cast_to(arguments[2 * number], BOOLEAN), coerced[number]]
    return (*result, *coerced[pairs:]), type_


def _case(arguments: Arguments, type_: pa.DataType) -> Datum:
    length = length_of(arguments)
    if type_ == NULL:
        return pa.nulls(length)
    pairs = len(arguments) // 2
    result: Datum = arguments[-1] if len(arguments) % 2 else null(type_)
    for number in reversed(range(pairs)):
        condition, value = arguments[2 * number : 2 * number + 2]
        if is_scalar(condition):
            result = value if condition.as_py() is True else result
        else:
            result = choose(condition, value, result)
    return to_array(result, length)


def _coalesce(arguments: Arguments, type_: pa.DataType) -> Datum:
    return pa.nulls(length_of(arguments)) if type_ == NULL else pc.coalesce(*arguments)


def _null_if_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    comparable(name, arguments, equality=True)
    return tuple(arguments), arguments[0].type


def _null_if(arguments: Arguments, type_: pa.DataType) -> Datum:
    length = length_of(arguments)
    value, other = (to_array(a, length) for a in arguments)
    common = comparison_type(value.type, other.type, equality=True)
    if NULL in (value.type, other.type):
        return value
    return choose(equal(convert(value, common), convert(other, common)), null(type_), value)


def _nvl2_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    values, type_ = unified(name, arguments[1:])
    return (arguments[0], *values), type_


def _nvl2(arguments: Arguments, type_: pa.DataType) -> Datum:
    return _case((pc.is_valid(arguments[0]), *arguments[1:]), type_)


def _best(largest: bool, arguments: Arguments, type_: pa.DataType) -> Datum:
    """Return the largest or smallest value that is not NULL."""
    if type_ == NULL:
        return pa.nulls(length_of(arguments))
    if is_float(type_):
        # Arrow ignores NaN, which is the greatest value here.
        def pick(a: Datum, b: Datum) -> Datum:
            first, second = (a, b) if largest else (b, a)
            return pc.coalesce(choose(_array(greater(first, second), arguments), a, b), a, b)

        return reduce(pick, arguments)
    if type_ in (BOOLEAN, DURATION, TIMESTAMP, WALL_CLOCK):
        # Arrow has no kernel for these.
        plain = pa.int8() if type_ == BOOLEAN else pa.int64()
        best = _best(largest, tuple(a.cast(plain) for a in arguments), plain)
        return best.cast(type_)
    return (pc.max_element_wise if largest else pc.min_element_wise)(*arguments)


def _array(datum: Datum, arguments: Arguments) -> pa.Array:
    return to_array(datum, length_of(arguments))


def _greatest(arguments: Arguments, type_: pa.DataType) -> Datum:
    return _best(True, arguments, type_)


def _least(arguments: Arguments, type_: pa.DataType) -> Datum:
    return _best(False, arguments, type_)


def _try_cast_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    raise misfit(name, [a.type for a in arguments])


def _try_cast(arguments: Arguments, type_: pa.DataType) -> Datum:
    (array,) = arguments
    assert converter(array.type, type_) is not None
    outside = out_of_range(array, type_)
    result = convert(array, type_)
    return result if outside is None else pc.if_else(outside, null(type_), result)


FUNCTIONS = (
    Function(
        "CASE",
        "condition, value, ...",
        _case_rule,
        _case,
        "the first that is TRUE",
        operator="CASE WHEN condition THEN value ... [ELSE value] END",
    ),
    Function("IF", "condition, yes, no", _case_rule, _case, "`yes` where the condition is TRUE, else `no`"),
    Function("COALESCE", "value, ...", unified, _coalesce, "the first value that is not NULL"),
    Function("NVL", "value, other", unified, _coalesce, "`other` where `value` is NULL", ("IFNULL",)),
    Function("NVL2", "value, yes, no", _nvl2_rule, _nvl2, "`no` where `value` is NULL, else `yes`"),
    Function("NULLIF", "value, other", _null_if_rule, _null_if, "NULL where the two are equal, else `value`"),
    Function("GREATEST", "value, value, ...", unified, _greatest, "the greatest value that is not NULL"),
    Function("LEAST", "value, value, ...", unified, _least, "the least value that is not NULL"),
    Function(
        "TRY_CAST",
        "value",
        _try_cast_rule,
        _try_cast,
        "NULL where a CAST would wrap",
        operator="TRY_CAST(value AS type)",
    ),
)
