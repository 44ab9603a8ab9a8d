"""Bound expressions as SQL text that binds to the same expression.

The casts that the binder has inserted are written out, and nested operators stand in brackets, so the text has the
structure of the expression whatever precedences are. Columns are written by the labels of their input
(`column_names`).
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp

from penstock.errors import PenstockError
from penstock.expressions.aggregates import aggregate_function, build_aggregate, written_call
from penstock.expressions.aggregates.contract import RowOrder
from penstock.expressions.calls.functions import build_call, row_of
from penstock.expressions.coercion import DURATION
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import AggregateCall, Call, Cast, Column, Expression, Literal
from penstock.expressions.user import UserAggregateCall, UserCall
from penstock.language.binder.scalars.operators import number
from penstock.language.dialect import Cql
from penstock.language.printer import ScalarGenerator
from penstock.types import TIMESTAMP, Schema, type_name

_INFIX: Mapping[str, type[exp.Expr]] = {
    "ADD": exp.Add, "SUB": exp.Sub, "MUL": exp.Mul, "DIV": exp.Div, "INT_DIV": exp.IntDiv, "MOD": exp.Mod,
    "EQ": exp.EQ, "NE": exp.NEQ, "LT": exp.LT, "LE": exp.LTE, "GT": exp.GT, "GE": exp.GTE,
    "EQ_NULL_SAFE": exp.NullSafeEQ, "AND": exp.And, "OR": exp.Or, "BIT_AND": exp.BitwiseAnd,
    "BIT_OR": exp.BitwiseOr, "BIT_XOR": exp.BitwiseXor,
}  # fmt: skip
_PREFIX: Mapping[str, type[exp.Expr]] = {"NEG": exp.Neg, "NOT": exp.Not, "BIT_NOT": exp.BitwiseNot}
_LIKE: Mapping[str, type[exp.Expr]] = {"LIKE": exp.Like, "ILIKE": exp.ILike}
#: Nodes that need no brackets as operands.
_WHOLE = (
    exp.Column,
    exp.Literal,
    exp.Anonymous,
    exp.Boolean,
    exp.Null,
    exp.Paren,
    exp.HexString,
    exp.TryCast,
    exp.Cast,
)


def column_names(schema: Schema) -> tuple[str, ...]:
    """Return the names by which a plan calls the columns of an input: their own; where two are alike but for the
    case of letters, with their position behind a `#`."""
    own = [field.name.lower() for field in schema]
    taken, found = {name for name in own if own.count(name) == 1}, []
    for position, field in enumerate(schema):
        name = field.name
        if not name or own.count(name.lower()) > 1:
            name = f"{field.name}#{position}"
            while name.lower() in taken:
                name += "#"
            taken.add(name.lower())
        found.append(name)
    return tuple(found)


def written(expression: Expression, names: Sequence[str]) -> str:
    """Return an expression as text. names: of the columns, by position. Raises PenstockError P0342."""
    return str(_PlanGenerator(dialect=Cql()).generate(_ScalarWriter(names).node(expression)))


def written_time(call: AggregateCall, names: Sequence[str]) -> list[str]:
    """Return the columns with the timestamps by which FIRST and LAST order rows; empty for other aggregates."""
    if not _timed(call):
        return []
    order = call.arguments[-1]
    parts = order.arguments if isinstance(order, Call) and order.function == "GREATEST" else (order,)
    columns = [part.index for part in parts if isinstance(part, Column)]
    if len(columns) != len(parts):
        raise _unwritable(f"the timestamps of {call.function}")
    return [names[i] for i in columns]


def _timed(call: AggregateCall) -> bool:
    known = None if isinstance(call, UserAggregateCall) else aggregate_function(call.function)
    return known is not None and known.timed and not call.order and len(call.arguments) > known.arguments


def _unwritable(what: str) -> PenstockError:
    return PenstockError("P0342", f"{what} has no text that stands for the same in a plan")


class _PlanGenerator(ScalarGenerator):
    """The generator of the language, which shows a TRY_CAST as a CAST where it names a column."""

    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **ScalarGenerator.TRANSFORMS,
        exp.TryCast: lambda self, node: f"TRY_CAST({self.sql(node, 'this')} AS {self.sql(node, 'to')})",
    }


class _ScalarWriter:
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def node(self, expression: Expression) -> exp.Expr:
        if isinstance(expression, Column):
            return exp.Column(this=exp.Identifier(this=self._names[expression.index], quoted=True))
        if isinstance(expression, Literal):
            return _literal(expression)
        if isinstance(expression, Cast):
            return _cast(self.node(expression.argument), expression.type)
        if isinstance(expression, UserCall):
            return _call(expression.function.name, self._nodes(expression.arguments))
        if isinstance(expression, AggregateCall):
            return self._aggregate(expression)
        if isinstance(expression, Call):
            return self._operator(expression)
        raise _unwritable(type(expression).__name__)

    def _nodes(self, expressions: Sequence[Expression]) -> list[exp.Expr]:
        return [self.node(one) for one in expressions]

    def _operator(self, call: Call) -> exp.Expr:
        if call.function == "TRY_CAST":
            return _cast(self.node(call.arguments[0]), call.type, exp.TryCast)
        return self._written(call, _arguments(call, lambda given: build_call(call.function, given)))

    def _written(self, call: Call, arguments: Sequence[Expression]) -> exp.Expr:
        name, row = call.function, row_of(call.function)
        nodes = self._nodes(_computed(arguments) if row is not None and row.checks else arguments)
        if name in _INFIX and len(nodes) == 2:
            return _INFIX[name](this=_operand(nodes[0]), expression=_operand(nodes[1]))
        if name in _PREFIX:
            return _PREFIX[name](this=_operand(nodes[0]))
        if name == "AT_TIME_ZONE":
            return exp.AtTimeZone(this=_operand(nodes[0]), zone=_operand(nodes[1]))
        if name == "IS_NULL":
            return exp.Is(this=_operand(nodes[0]), expression=exp.Null())
        if name == "TRIM" and len(nodes) == 2:
            return exp.Trim(this=nodes[0], expression=_operand(nodes[1]))
        if name in _LIKE:
            like = _LIKE[name](this=_operand(nodes[0]), expression=_operand(nodes[1]))
            return like if len(nodes) == 2 else exp.Escape(this=like, expression=nodes[2])
        if name == "IN":
            return exp.In(this=_operand(nodes[0]), expressions=nodes[1:])
        if name == "CASE":
            pairs = [exp.If(this=nodes[i], true=nodes[i + 1]) for i in range(0, len(nodes) - 1, 2)]
            return exp.Case(ifs=pairs, default=nodes[-1] if len(nodes) % 2 else None)
        return _call(name, nodes)

    def _aggregate(self, call: AggregateCall) -> exp.Expr:
        if isinstance(call, UserAggregateCall):
            node = self._called(call.definition.name, call.arguments, call.distinct)
        else:
            node = self._built_in(call)
        if call.filter is not None:
            node = exp.Filter(this=node, expression=exp.Where(this=self.node(call.filter)))
        return node

    def _built_in(self, call: AggregateCall) -> exp.Expr:
        name, form = call.function, written_call(call)
        order = call.arguments[-1] if _timed(call) else None
        inside = form.inside[:-1] if _timed(call) else form.inside
        values = tuple(key for key, _ in form.keys)
        by = RowOrder(values, tuple(direction for _, direction in form.keys)) if values else None

        def build(given: Sequence[Expression]) -> Expression:
            order_by = None if by is None else replace(by, keys=tuple(given[len(inside) :]))
            own = given[: len(inside)]
            return build_aggregate(name, own, call.distinct, call.filter, order, order_by, form.within)

        given = _arguments(call, build, (*inside, *values)) if inside or values else ()
        own, keys = given[: len(inside)], self._nodes(given[len(inside) :])
        if by is None:
            return self._called(name, own, call.distinct)
        ordered = [
            exp.Ordered(this=key, desc=direction.descending, nulls_first=direction.nulls_first)
            for key, direction in zip(keys, by.directions, strict=True)
        ]
        if form.within:
            return exp.WithinGroup(this=_call(name, self._nodes(own)), expression=exp.Order(expressions=ordered))
        node = self._called(name, own, call.distinct)
        node.expressions.append(exp.Order(this=node.expressions.pop(), expressions=ordered))
        return node

    def _called(self, name: str, arguments: Sequence[Expression], distinct: bool) -> exp.Expr:
        nodes = self._nodes(_computed(arguments)) or [exp.Star()]
        return _call(name, [exp.Distinct(expressions=nodes)] if distinct else nodes)


def _computed(arguments: Sequence[Expression]) -> Sequence[Expression]:
    """Return arguments with constants computed behind the first one, as the binder computes them."""
    folded = [fold(argument) for argument in arguments[1:]]
    rest = [new if isinstance(new, Literal) else old for old, new in zip(arguments[1:], folded, strict=True)]
    return [*arguments[:1], *rest]


def _arguments(
    call: Call | AggregateCall,
    build: Callable[[Sequence[Expression]], Expression],
    arguments: Sequence[Expression] | None = None,
) -> Sequence[Expression]:
    """Return arguments from which the binder builds `call`: mostly its own; where a type follows from those before a
    cast, without it."""
    for given in _candidates(call.arguments if arguments is None else arguments):
        try:
            if build(given) == call:
                return given
        except PenstockError:
            continue
    raise _unwritable(f"{call.function} of these types")


def _candidates(arguments: Sequence[Expression]) -> Iterator[Sequence[Expression]]:
    """Yield the arguments, then without all casts, then without one of them."""
    yield arguments
    bare = [argument.argument if isinstance(argument, Cast) else argument for argument in arguments]
    yield bare
    for i in range(len(arguments)):
        yield [*arguments[:i], bare[i], *arguments[i + 1 :]]


def _call(name: str, nodes: list[exp.Expr]) -> exp.Expr:
    return exp.Anonymous(this=name.lower() if name.isupper() else name, expressions=nodes)


def _operand(node: exp.Expr) -> exp.Expr:
    return node if isinstance(node, _WHOLE) else exp.Paren(this=node)


def _cast(node: exp.Expr, type_: pa.DataType, kind: type[exp.Expr] = exp.Cast) -> exp.Expr:
    try:
        target = exp.DataType.build(type_name(type_), dialect=Cql)
    except Exception as error:
        raise _unwritable(f"a value of the type {type_name(type_)}") from error
    return kind(this=node, to=target)


def _literal(literal: Literal) -> exp.Expr:
    value, type_ = literal.value, literal.type
    if value is None:
        return exp.Null() if pa.types.is_null(type_) else _null(type_)
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, bytes):
        return exp.HexString(this=value.hex().upper()) if value else _cast(exp.Literal.string(""), type_)
    if isinstance(value, dt.timedelta):
        micros = value // dt.timedelta(microseconds=1)
        return exp.Interval(this=exp.Literal.string(str(micros)), unit=exp.Var(this="MICROSECOND"))
    if type_ == TIMESTAMP and isinstance(value, dt.datetime):
        return _cast(exp.Literal.string(value.replace(tzinfo=None).isoformat(" ")), type_)
    if isinstance(value, dt.date):
        return _cast(exp.Literal.string(value.isoformat()), type_)
    if isinstance(value, float):
        return _float(value, type_)
    if isinstance(value, int | decimal.Decimal):
        return _number(value, type_)
    raise _unwritable(f"a constant of the type {type_name(type_)}")


def _null(type_: pa.DataType) -> exp.Expr:
    if type_ == DURATION:  # no CAST names that type
        interval = exp.Interval(this=exp.Literal.string("0"), unit=exp.Var(this="MICROSECOND"))
        return exp.Case(ifs=[exp.If(this=exp.Boolean(this=False), true=interval)])
    return _cast(exp.Null(), type_)


def _float(value: float, type_: pa.DataType) -> exp.Expr:
    if not math.isfinite(value):
        return _cast(exp.Literal.string(str(value)), type_)
    text = repr(abs(value))
    node: exp.Expr = exp.Literal.number(text if "e" in text else f"{text}e0")
    if math.copysign(1, value) < 0:
        node = exp.Neg(this=node)
    return node if type_ == pa.float64() else _cast(node, type_)


def _number(value: int | decimal.Decimal, type_: pa.DataType) -> exp.Expr:
    text = f"{abs(value):f}" if isinstance(value, decimal.Decimal) else str(abs(value))
    node: exp.Expr = exp.Literal.number(text)
    if value < 0:
        return _cast(exp.Neg(this=node), type_)
    known = number(text)
    return node if known is not None and known.type == type_ else _cast(node, type_)
