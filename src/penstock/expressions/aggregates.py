"""Aggregates: their names, what they take and what type they give. Physical operators carry them out.

Types follow Spark: a SUM of integers is BIGINT, of DECIMAL(p,s) DECIMAL(p+10,s); an AVG of decimals keeps four more
decimals; everything statistical is DOUBLE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import PenstockError, nearest
from penstock.expressions.coercion import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    DURATION,
    NULL,
    STRING,
    bounded,
    cast_to,
    implicit,
    is_atomic,
    is_decimal,
    is_integer,
    is_numeric,
    misfit,
)
from penstock.expressions.nodes import AggregateCall, Expression, Literal
from penstock.types import type_name


@dataclass(frozen=True)
class AggregateFunction:
    """typing: argument -> (argument with implicit casts, result type); raises PenstockError P0203.
    constant: checks the second argument, for those that take one."""

    name: str
    signature: str
    typing: Callable[[str, Expression], tuple[Expression, pa.DataType]]
    help: str
    aliases: tuple[str, ...] = ()
    constant: Callable[[str, Expression], Literal] | None = None


def _count(name: str, argument: Expression) -> tuple[Expression, pa.DataType]:
    return argument, BIGINT


def _number(name: str, argument: Expression) -> Expression:
    """The argument as a number: strings count as doubles, as in arithmetic."""
    if argument.type in (STRING, NULL):
        return cast_to(argument, DOUBLE)
    if not is_numeric(argument.type):
        raise misfit(name, [argument.type])
    return argument


def _sum(name: str, argument: Expression) -> tuple[Expression, pa.DataType]:
    if argument.type == DURATION:
        return argument, DURATION
    argument = _number(name, argument)
    if is_integer(argument.type):
        return cast_to(argument, BIGINT), BIGINT
    if is_decimal(argument.type):
        return argument, bounded(argument.type.precision + 10, argument.type.scale)
    return cast_to(argument, DOUBLE), DOUBLE


def _average(name: str, argument: Expression) -> tuple[Expression, pa.DataType]:
    if argument.type == DURATION:
        return argument, DURATION
    argument = _number(name, argument)
    if is_decimal(argument.type):
        return argument, bounded(argument.type.precision + 4, argument.type.scale + 4)
    return cast_to(argument, DOUBLE), DOUBLE


def _extreme(name: str, argument: Expression) -> tuple[Expression, pa.DataType]:
    if not is_atomic(argument.type):
        raise misfit(name, [argument.type])
    return argument, argument.type


def _statistic(name: str, argument: Expression) -> tuple[Expression, pa.DataType]:
    return implicit(_number(name, argument), DOUBLE, name), DOUBLE


def _bits(name: str, argument: Expression) -> tuple[Expression, pa.DataType]:
    if argument.type == NULL:
        return cast_to(argument, BIGINT), BIGINT
    if not is_integer(argument.type):
        raise misfit(name, [argument.type])
    return argument, argument.type


def _list(name: str, argument: Expression) -> tuple[Expression, pa.DataType]:
    argument, type_ = _extreme(name, argument)
    return argument, pa.list_(type_)


def _ranking(name: str, argument: Expression) -> tuple[Expression, pa.DataType]:
    argument, type_ = _extreme(name, argument)
    return argument, pa.list_(pa.struct([("value", type_), ("count", BIGINT)]))


def _fraction(name: str, argument: Expression) -> Literal:
    value = argument.value if isinstance(argument, Literal) and is_numeric(argument.type) else None
    if value is None or not 0 <= value <= 1:
        raise PenstockError("P0203", f"{name} takes a constant from 0 to 1 there", hint=f"write {name}(x, 0.9)")
    return Literal(DOUBLE, float(value))


def _length(name: str, argument: Expression) -> Literal:
    value = argument.value if isinstance(argument, Literal) and is_integer(argument.type) else None
    if value is None or value < 1:
        raise PenstockError("P0203", f"{name} takes a constant number from 1 there", hint=f"write {name}(x, 10)")
    return Literal(BIGINT, value)


AGGREGATES: tuple[AggregateFunction, ...] = (
    AggregateFunction("COUNT", "* | value", _count, "rows, or values that are not NULL"),
    AggregateFunction("SUM", "number or interval", _sum, "sum; NULL over no value"),
    AggregateFunction(
        "AVG",
        "number or interval",
        _average,
        "arithmetic mean; of intervals to the microsecond, half away from zero",
        ("MEAN",),
    ),
    AggregateFunction("MIN", "value", _extreme, "least value; NaN is the greatest"),
    AggregateFunction("MAX", "value", _extreme, "greatest value; NaN is the greatest"),
    AggregateFunction("STDDEV_SAMP", "number", _statistic, "standard deviation of a sample (n - 1)", ("STDDEV", "STD")),
    AggregateFunction("STDDEV_POP", "number", _statistic, "standard deviation of a population (n)"),
    AggregateFunction("VAR_SAMP", "number", _statistic, "variance of a sample (n - 1)", ("VARIANCE",)),
    AggregateFunction("VAR_POP", "number", _statistic, "variance of a population (n)"),
    AggregateFunction(
        "MEDIAN", "number", _statistic, "the value in the middle, or the mean of the two: QUANTILE(x, 0.5)"
    ),
    AggregateFunction(
        "QUANTILE",
        "number, q",
        _statistic,
        "the value at place (n - 1)·q of the sorted values, between two neighbours by their distances; q from 0 to 1",
        ("PERCENTILE",),
        _fraction,
    ),
    AggregateFunction("BIT_AND", "integer", _bits, "the bits that are set in every value"),
    AggregateFunction("BIT_OR", "integer", _bits, "the bits that are set in some value"),
    AggregateFunction("BIT_XOR", "integer", _bits, "the bits that are set in an odd number of values"),
    AggregateFunction("MODE", "value", _extreme, "the most frequent value; of several the least"),
    AggregateFunction(
        "TOP_K",
        "value, k",
        _ranking,
        "the k most frequent values as an array of (value, count), by count, equal counts by value",
        constant=_length,
    ),
    AggregateFunction(
        "ARRAY_AGG", "value", _list, "all values that are not NULL, in ascending order", ("COLLECT_LIST",)
    ),
    AggregateFunction(
        "FIRST", "value", _extreme, "value of the row with the least timestamp; of several the least", ("FIRST_VALUE",)
    ),
    AggregateFunction(
        "LAST",
        "value",
        _extreme,
        "value of the row with the greatest timestamp; of several the greatest",
        ("LAST_VALUE",),
    ),
)
_BY_NAME = {name: row for row in AGGREGATES for name in (row.name, *row.aliases)}

#: Aggregates of [semantics 4.2] and of Spark that are refused by name until they exist.
_LATER = frozenset(
    """
    ANY_VALUE PERCENTILE_APPROX APPROX_PERCENTILE PERCENTILE_CONT PERCENTILE_DISC COLLECT_SET APPROX_COUNT_DISTINCT
    APPROX_TOP_K
    LISTAGG STRING_AGG MAX_BY MIN_BY BOOL_AND BOOL_OR EVERY ANY SOME COUNT_IF CORR COVAR_POP COVAR_SAMP SKEWNESS
    KURTOSIS REGR_COUNT REGR_SLOPE REGR_INTERCEPT REGR_R2 GROUPING GROUPING_ID HISTOGRAM_NUMERIC COUNT_MIN_SKETCH
    TRY_SUM TRY_AVG
    """.split()  # noqa: SIM905
)


def is_aggregate(name: str) -> bool:
    """Whether `name` is an aggregate, supported or not."""
    return name.upper() in _BY_NAME or name.upper() in _LATER


def known_aggregates() -> list[str]:
    return sorted(_BY_NAME)


def build_aggregate(
    name: str,
    arguments: Sequence[Expression],
    distinct: bool = False,
    filter: Expression | None = None,  # noqa: A002
    order: Expression | None = None,
) -> AggregateCall:
    """The aggregate `name`; no arguments for COUNT(*). order: the timestamp of a row, where it has one, for FIRST and
    LAST. Raises PenstockError P0203, P0204, P0304, P0901."""
    row = _BY_NAME.get(name.upper())
    if row is None:
        if name.upper() in _LATER:
            raise PenstockError("P0901", f"the aggregate {name.upper()} is not supported yet")
        raise PenstockError("P0204", f"unknown aggregate {name}", hint=nearest(name, known_aggregates()))
    only = None if filter is None else _condition(filter)
    if row.name == "COUNT":
        return _build_count(tuple(arguments), distinct, only)
    takes = 1 if row.constant is None else 2
    if len(arguments) != takes:
        shown = f"{takes} argument{'s' if takes > 1 else ''}"
        message = f"{row.name} takes {shown}, not {len(arguments)}"
        raise PenstockError("P0204", message, hint=f"{row.name}({row.signature})")
    argument, type_ = row.typing(row.name, arguments[0])
    if argument.type == NULL:  # state and answers have a type; a bare NULL is a STRING as in a select list
        argument, type_ = row.typing(row.name, cast_to(argument, STRING))
    more: tuple[Expression, ...] = () if row.constant is None else (row.constant(row.name, arguments[1]),)
    if row.name in ("FIRST", "LAST"):
        more = (_order(row.name, order),)
    if row.name == "MEDIAN":
        return AggregateCall(type_, "QUANTILE", (argument, Literal(DOUBLE, 0.5)), distinct, only)
    # These are the same with and without duplicates; one form lets equal aggregates be shared.
    return AggregateCall(type_, row.name, (argument, *more), distinct and row.name not in _SAME_DISTINCT, only)


_SAME_DISTINCT = frozenset({"MIN", "MAX", "FIRST", "LAST"})


def _order(name: str, order: Expression | None) -> Expression:
    if order is None:
        hint = "MIN(ts) and MAX(ts) say when; without a stream there is no order among rows"
        raise PenstockError("P0304", f"{name} needs the timestamps of a stream that stands in FROM", hint=hint)
    return order


def _condition(argument: Expression) -> Expression:
    if argument.type not in (BOOLEAN, NULL):
        raise PenstockError("P0203", f"FILTER needs BOOLEAN, not {type_name(argument.type)}")
    return cast_to(argument, BOOLEAN)


def _build_count(arguments: tuple[Expression, ...], distinct: bool, only: Expression | None) -> AggregateCall:
    if distinct and not arguments:
        raise PenstockError("P0204", "COUNT(DISTINCT *) is no aggregate", hint="name the columns to be counted")
    if len(arguments) > 1 and not distinct:
        raise PenstockError("P0204", f"COUNT takes 1 argument, not {len(arguments)}", hint="COUNT(* | value)")
    for argument in arguments:
        if not is_atomic(argument.type):
            raise misfit("COUNT", [argument.type])
    return AggregateCall(BIGINT, "COUNT", arguments, distinct, only)
