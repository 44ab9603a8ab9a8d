"""Punctuations: WHERE of PUNCTUATE, and texts of the column of PUNCTUATED BY (docs/promises.md)."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import Source
from penstock.algebra.properties.punctuations import (
    Condition,
    PlainValue,
    Punctuation,
    ValueBounds,
    intersected,
    is_comparable,
    plain_values,
)
from penstock.errors import PenstockError
from penstock.expressions.calls.functions import build_cast
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.evaluation.evaluate import cast_together, literal_of
from penstock.expressions.nodes import Column
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.unsupported import refusals
from penstock.language.binder.scope import Scope
from penstock.language.binder.statements.rows import row_binder
from penstock.language.catalog import Catalog
from penstock.language.dialect import span_of
from penstock.language.grammar.fragments import parse_expression
from penstock.language.text import SourceText
from penstock.settings import Settings
from penstock.types import UNKNOWN_TYPE, type_name

_HINT = "a punctuation is a conjunction, as in c = 17 AND d BETWEEN 1 AND 5, of =, <, <=, >, >=, BETWEEN, IN, IS NULL"
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
#: Values of one punctuation at most: IN of several columns has all combinations.
MOST_VALUES = 100_000


def without_punctuations(source: Source) -> PenstockError | None:
    """Return the error for a punctuation of a relation."""
    if source.is_stream:
        return None
    hint = "a row of a relation is ended by an update; a punctuation is a record of a stream"
    return PenstockError("P0380", f"{source.name} is a relation, and a stream has punctuations", hint=hint)


def read_punctuation(text: str, source: Source) -> Punctuation:
    """Return the punctuation of a text. Raises PenstockError P0101, P0105, P0202, P0203, P0381."""
    written = SourceText(text)
    context = Context(written, Catalog(), Settings())
    try:
        node = parse_expression(written)
        for error, span in refusals(node):
            context.note(error, span)
        if not context.errors:
            return bind_punctuation(node, source, context)
    except BindingFailed:
        pass
    except PenstockError as error:
        context.errors.append(error)
    found = context.errors[0]
    first, _, condition = text.strip().partition(" ")
    if first.upper() == "WHERE":
        hint = f"the condition alone, without WHERE: {condition.strip()[:100]}"
        raise PenstockError(found.code, found.message, found.position, hint, found.cause)
    raise found


def bind_punctuation(where: exp.Expr, source: Source, context: Context) -> Punctuation:
    """Return the punctuation of a condition. Raises BindingFailed after P0202, P0203 and P0381."""
    found: dict[int, Condition] = {}
    for part in _parts(where):
        column, condition = _comparison(part, source, context)
        found[column] = intersected(found[column], condition) if column in found else condition
    punctuation = Punctuation(tuple(sorted(found.items(), key=lambda one: one[0])))
    if punctuation.size > MOST_VALUES:
        message = f"this punctuation has {punctuation.size:,} combinations of values, {MOST_VALUES:,} are the limit"
        context.fail("P0381", message, span_of(where), "send several")
    return punctuation


def _parts(where: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(where, exp.Paren):
        yield from _parts(where.this)
    elif isinstance(where, exp.And):
        yield from _parts(where.this)
        yield from _parts(where.expression)
    else:
        yield where


def _comparison(part: exp.Expr, source: Source, context: Context) -> tuple[int, Condition]:
    """Return the column of one comparison, and what it says of it."""
    if isinstance(part, exp.Is) and isinstance(part.expression, exp.Null):
        return _column(part.this, source, context), (None,)
    if isinstance(part, exp.Between):
        column = _column(part.this, source, context)
        low, high = (_value(part.args[name], column, source, context) for name in ("low", "high"))
        return column, ValueBounds(low, high)
    if isinstance(part, exp.In) and part.expressions:
        column = _column(part.this, source, context)
        values = context.each(lambda one: _value(one, column, source, context), part.expressions)
        return column, tuple(dict.fromkeys(value for value in values if value == value))
    compares = isinstance(part, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE)
    if not compares or not (isinstance(part.this, exp.Column) or isinstance(part.expression, exp.Column)):
        context.fail("P0381", "this is no comparison of a column with a constant", span_of(part), _HINT)
    kind: type[exp.Expr] = type(part)
    left, right = part.this, part.expression
    if not isinstance(left, exp.Column):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    column = _column(left, source, context)
    value = _value(right, column, source, context)
    if kind is exp.EQ:
        return column, (value,) if value == value else ()  # a NaN equals nothing
    if kind in (exp.LT, exp.LTE):
        return column, ValueBounds(high=value, open_high=kind is exp.LT)
    return column, ValueBounds(low=value, open_low=kind is exp.GT)


def _column(node: exp.Expr, source: Source, context: Context) -> int:
    """Return the position of the column that is compared."""
    if not isinstance(node, exp.Column):
        context.fail("P0381", "a punctuation compares columns with constants", span_of(node), _HINT)
    bound = row_binder(source, context).bind(node)
    if not isinstance(bound, Column):
        context.fail("P0381", "a punctuation compares columns with constants", span_of(node), _HINT)
    type_ = source.columns[bound.index].type
    if type_ == UNKNOWN_TYPE:
        context.fail_silently()
    if not is_comparable(type_):
        message = f"values of {source.columns[bound.index].name} are {type_name(type_)}, which a punctuation"
        context.fail("P0381", f"{message} does not compare", span_of(node), "leave this column out")
    return bound.index


def _value(node: exp.Expr, column: int, source: Source, context: Context) -> PlainValue:
    """Return a constant in the type of a column. Raises BindingFailed after P0203 and P0381."""
    if node.find(exp.Column) is not None:
        context.fail("P0381", "a punctuation compares columns with constants", span_of(node), _HINT)
    field = source.columns[column]
    bound = ExpressionBinder(Scope(()), context, "a punctuation").bind(node)
    if volatile(bound):
        context.fail("P0381", "a punctuation compares columns with constants", span_of(node), _HINT)
    literal = literal_of(bound)
    if literal.value is None:
        hint = f"{field.name} IS NULL says that no row without a value follows"
        context.fail("P0381", "a comparison with NULL is never true", span_of(node), hint)
    cast = context.guard(span_of(node), lambda: build_cast(Column(literal.type, 0), field.type, try_=True))
    (converted,) = cast_together([literal], lambda type_, place: cast)
    given = literal.value
    is_exact = not isinstance(given, Decimal | float) or not _is_exact(field.type) or converted == given
    if converted is None or not is_exact:
        shown = given if isinstance(given, Decimal) else repr(given)
        message = f"{shown} is no value of {field.name}, which is {type_name(field.type)}"
        context.fail("P0203", message, span_of(node), "compare it with a value that the column can have")
    (plain,) = plain_values(pa.array([converted], field.type))
    assert plain is not None, "it is no NULL"
    return plain


def _is_exact(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_decimal(type_))
