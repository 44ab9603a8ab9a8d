"""INSERT: rows into a stream or relation."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.algebra import Source
from penstock.errors import PenstockError, counted, nearest
from penstock.expressions.evaluation.evaluate import cast_together, literal_of
from penstock.expressions.nodes import Column, Expression
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.local_time import cast_in
from penstock.language.binder.scope import Scope
from penstock.language.binder.statements.names import column_named, distinct_names
from penstock.language.binder.statements.rows import WRITABLE
from penstock.language.commands import InsertRows
from penstock.language.dialect import span_of
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import columns_text, name_text, values_text
from penstock.language.queries import Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import Statement
from penstock.language.text import TextSpan
from penstock.types import UNKNOWN_TYPE, Unit, type_name, unit_of_present


@dataclass(frozen=True)
class Insert(Statement):
    """INSERT. columns: those of the values, all of them in their order if the statement names none."""

    KIND: ClassVar[str] = "INSERT"
    name: Name
    rows: tuple[tuple[exp.Expr, ...], ...]
    columns: tuple[Name, ...] = ()
    row_spans: tuple[TextSpan, ...] = field(default=(), compare=False)


def _read(parser: ClauseGrammar, head: Head) -> Insert:
    parser._need("INTO")
    name = parser._name("the name of a stream or relation")
    listed = parser._curr.token_type is TokenType.L_PAREN and not parser._query_ahead()
    columns = parser._names("a column name") if listed else ()
    if parser._query_ahead() and not parser._at_values():
        hint = f"a continuous query is CREATE QUERY {name.text} INTO connector (...) AS SELECT ..."
        parser._fail("VALUES", hint=hint)
    parser._need("VALUES")
    rows, spans = parser._value_rows()
    return Insert(name, rows, columns, spans)


def _text(statement: Insert) -> str:
    return (
        f"INSERT INTO {name_text(statement.name)}{columns_text(statement.columns)} VALUES {values_text(statement.rows)}"
    )


def _bind(statement: Insert, context: Context) -> InsertRows:
    name = statement.name
    source = context.catalog.sources.get(name.key)
    if source is None or not name.matches(source.name):
        if name.key in context.failed:
            context.fail_silently()
        known = [s.name for s in context.catalog.sources.values()]
        kind = context.catalog.kind(name.key)
        if kind in ("VIEW", "QUERY"):
            hint = "INSERT needs a stream or relation declared FROM MEMORY ()"
            context.fail("P0201", f"{name.text} is a {kind.lower()}", name.span, hint)
        context.check_bound(name)
        context.fail("P0201", f"unknown stream or relation {name.text}", name.span, nearest(name.text, known))
    if source.connector not in WRITABLE:
        hint = "INSERT needs a stream or relation declared FROM MEMORY ()"
        context.fail("P0208", f"{source.name} is declared FROM {source.connector}", name.span, hint)
    positions = _written_columns(statement, source, context)
    if source.timestamp is not None and not {source.timestamp, source.punctuated} & set(positions):
        column = source.columns[source.timestamp].name
        message = f"rows without {column}, the timestamp of {source.name}, are dead letters and in no answer"
        names = ", ".join([*(source.columns[i].name for i in positions), column])
        context.warn(message, name.span, f"name it too: INSERT INTO {source.name} ({names}) VALUES ...")
    spans = statement.row_spans or tuple(name.span for _ in statement.rows)
    width = len(positions)
    fitting = [
        row for row, span in zip(statement.rows, spans, strict=True) if _fits(row, span, width, statement, context)
    ]
    binder = ExpressionBinder(Scope(()), context, "VALUES")
    bound = context.each(lambda row: binder.bind_all(list(row)), fitting)

    def values(column: int) -> list[Any]:
        if column not in positions:
            return [_value_left_out(source, column)] * len(fitting)
        place = positions.index(column)
        written = [(e[place], r[place]) for e, r in zip(bound, fitting, strict=True)]
        return _column_values(written, source, column, context)

    columns = context.each(values, range(len(source.columns)))
    if len(fitting) < len(statement.rows):
        raise BindingFailed
    return InsertRows(source.name, tuple(zip(*columns, strict=True)))


def _written_columns(statement: Insert, source: Source, context: Context) -> list[int]:
    """Return the positions of the columns that the rows of an INSERT have, in their order."""
    if not statement.columns:
        return list(range(len(source.columns)))
    distinct_names(statement.columns, context)
    return context.each(lambda name: column_named(name, source.columns, context), statement.columns)


def _value_left_out(source: Source, column: int) -> str | None:
    """Return the value of a column that an INSERT does not name: NULL, and the operation is an insertion."""
    return "+" if column == source.operation else None


def _fits(row: tuple[exp.Expr, ...], span: TextSpan, width: int, statement: Insert, context: Context) -> bool:
    """Return whether the row has as many values as it has columns; otherwise record P0305."""
    if len(row) != width:
        owner = "" if statement.columns else f" of {context.catalog.sources[statement.name.key].name}"
        message = f"{counted(len(row), 'value')} for the {counted(width, 'column')}{owner}"
        context.note(PenstockError("P0305", message), span)
    return len(row) == width


def _column_values(
    values: list[tuple[Expression, exp.Expr]], source: Source, position: int, context: Context
) -> list[Any]:
    """Return the values of one column, converted together, literals of one type at a time. P0203 for values that do not
    convert.
    """
    column = source.columns[position]
    if column.type == UNKNOWN_TYPE:
        context.fail_silently()
    literals = [literal_of(expression) for expression, _ in values]

    def cast(type_: pa.DataType, first: int) -> Expression:
        span = span_of(values[first][1])
        return context.guard(span, lambda: cast_in(context.zone, Column(type_, 0), column.type, try_=True))

    converted, wrong = cast_together(literals, cast), False
    for value, literal, (_, node) in zip(converted, literals, values, strict=True):
        given = literal.value
        if value is None and given is not None:
            shown = given if isinstance(given, Decimal) else repr(given)
            message = f"{shown} is not {type_name(column.type)}, the type of {column.name}"
            hint = "write it as '2020-01-31 12:00:00'" if pa.types.is_timestamp(column.type) else None
            context.note(PenstockError("P0203", message, hint=hint), span_of(node))
            wrong = True
        elif pa.types.is_integer(column.type) and isinstance(given, Decimal | float) and value != given:
            message = f"{given} becomes {value}, since {column.name} is {type_name(column.type)}"
            context.warn(message, span_of(node), "declare the column as DOUBLE or DECIMAL to keep it")
        elif pa.types.is_decimal(column.type) and isinstance(given, Decimal) and value != given:
            message = f"{given} becomes {value}, since {column.name} is {type_name(column.type)}"
            context.warn(message, span_of(node), "a DECIMAL with more digits behind the point, or a DOUBLE, keeps it")
        elif pa.types.is_timestamp(column.type) and _is_of_milliseconds(given):
            message = f"{given} is read as seconds since 1970, which is no instant of this century"
            hint = f"TIMESTAMP_MILLIS({given}) is the instant of so many milliseconds"
            context.warn(message, span_of(node), hint)
    if wrong:
        raise BindingFailed
    return converted


def _is_of_milliseconds(given: Any) -> bool:
    """Return whether a number is an instant of this century in milliseconds since 1970, and in seconds of none."""
    return isinstance(given, int) and unit_of_present(given) is Unit.MILLISECOND


INSERT = StatementKind(Insert, ("INSERT",), _read, _text, _bind)
