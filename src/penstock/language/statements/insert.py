"""INSERT: rows into a stream or relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
from sqlglot.tokenizer_core import TokenType

from penstock.algebra import Source
from penstock.algebra.analysis.constant_rows import constant_rows, first_unknown
from penstock.algebra.nodes.scans import declared_sources
from penstock.errors import PenstockError, counted, nearest
from penstock.expressions.evaluation.evaluate import cast_together, literal_of, python_value
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.local_time import cast_in
from penstock.language.binder.scope import Scope
from penstock.language.binder.select.queries import QueryBinder, span_of_query
from penstock.language.binder.statements.names import column_named, distinct_names
from penstock.language.binder.statements.rows import WRITABLE
from penstock.language.commands import InsertRows
from penstock.language.dialect import span_of
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.limits import MAX_VALUES
from penstock.language.printer import columns_text, name_text, print_query
from penstock.language.queries import Name, QueryTree, ValuesQuery
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import Statement
from penstock.language.text import TextSpan
from penstock.types import UNKNOWN_TYPE, Field, Unit, type_name, unit_of_present


@dataclass(frozen=True)
class Insert(Statement):
    """INSERT. query: VALUES, or another query over constants; columns: those of its rows, all of them in their order if
    the statement names none."""

    KIND: ClassVar[str] = "INSERT"
    name: Name
    query: QueryTree
    columns: tuple[Name, ...] = ()


def _read(parser: ClauseGrammar, head: Head) -> Insert:
    parser._need("INTO")
    name = parser._name("the name of a stream or relation")
    listed = parser._curr.token_type is TokenType.L_PAREN and not parser._query_ahead()
    columns = parser._names("a column name") if listed else ()
    if not parser._query_ahead() and not parser._at("FROM"):
        parser._fail("VALUES or a query")
    return Insert(name, parser.query(), columns)


def _text(statement: Insert) -> str:
    return f"INSERT INTO {name_text(statement.name)}{columns_text(statement.columns)} {print_query(statement.query)}"


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
        meant = nearest(name.text, known) if isinstance(statement.query, ValuesQuery) else _hint_of(name)
        context.fail("P0201", f"unknown stream or relation {name.text}", name.span, meant)
    if source.connector not in WRITABLE:
        hint = "INSERT needs a stream or relation declared FROM MEMORY ()"
        context.fail("P0208", f"{source.name} is declared FROM {source.connector}", name.span, hint)
    positions = _written_columns(statement, source, context)
    if source.timestamp is not None and not {source.timestamp, source.punctuated} & set(positions):
        column = source.columns[source.timestamp].name
        message = f"rows without {column}, the timestamp of {source.name}, are dead letters and in no answer"
        names = ", ".join([*(source.columns[i].name for i in positions), column])
        context.warn(message, name.span, f"name it too: INSERT INTO {source.name} ({names}) VALUES ...")
    query, before = statement.query, len(context.errors)
    if isinstance(query, ValuesQuery):
        places = _values_by_place(query, len(positions), statement, context)
    else:
        places = _rows_by_place(query, len(positions), statement, context)
    count = len(places[0][0])

    def values(column: int) -> list[Any]:
        if column not in positions:
            return [_value_left_out(source, column)] * count
        return _column_values(places[positions.index(column)], source, column, context)

    columns = context.each(values, range(len(source.columns)))
    if len(context.errors) > before:
        raise BindingFailed
    return InsertRows(source.name, tuple(zip(*columns, strict=True)))


#: The values that are written into one column, and where each stands: at one place where a query computes them.
_WrittenColumn: TypeAlias = tuple[Sequence[Literal], Sequence[TextSpan]]


def _values_by_place(query: ValuesQuery, width: int, statement: Insert, context: Context) -> list[_WrittenColumn]:
    """Return what the rows of VALUES that have as many values as they should have in each place; errors of others are
    recorded. Raises BindingFailed with the errors recorded."""
    spans = query.row_spans or tuple(statement.name.span for _ in query.rows)
    fits = [_fits(len(row), width, span, statement, context) for row, span in zip(query.rows, spans, strict=True)]
    rows = [row for row, is_fitting in zip(query.rows, fits, strict=True) if is_fitting]
    binder = ExpressionBinder(Scope(()), context, "VALUES")
    bound = context.each(lambda row: [literal_of(value) for value in binder.bind_all(list(row))], rows)
    return [([values[place] for values in bound], [span_of(row[place]) for row in rows]) for place in range(width)]


def _rows_by_place(query: QueryTree, width: int, statement: Insert, context: Context) -> list[_WrittenColumn]:
    """Return what the rows of a query over constants have in each place. Raises BindingFailed after P0103, P0105, P0305
    or P0901, and whatever a query is refused with."""
    root = QueryBinder(context).relation(query)
    span = span_of_query(query)
    if declared := declared_sources(root):
        message = f"INSERT takes a query over constants, and this one reads {next(iter(declared))}"
        context.fail("P0103", message, span, _hint_of(statement.name))
    if (unknown := first_unknown(root)) is not None:
        message = f"INSERT of a query with {unknown.worded}"
        hint = "it takes VALUES, SELECT without FROM, range(..) and generate_series(..), with conditions, DISTINCT,"
        context.fail("P0901", message, span, f"{hint} set operations and ORDER BY .. LIMIT over them")
    if not _fits(len(root.schema), width, span, statement, context):
        raise BindingFailed
    rows = context.guard(span, lambda: constant_rows(root, MAX_VALUES))
    return [
        ([Literal(column.type, python_value(value)) for value in column], [span] * rows.count)
        for column in rows.columns
    ]


def _hint_of(name: Name) -> str:
    return f"a continuous query is CREATE QUERY {name.text} INTO connector (...) AS SELECT ..."


def _written_columns(statement: Insert, source: Source, context: Context) -> list[int]:
    """Return the positions of the columns that the rows of an INSERT have, in their order."""
    if not statement.columns:
        return list(range(len(source.columns)))
    distinct_names(statement.columns, context)
    return context.each(lambda name: column_named(name, source.columns, context), statement.columns)


def _value_left_out(source: Source, column: int) -> str | None:
    """Return the value of a column that an INSERT does not name: NULL, and the operation is an insertion."""
    return "+" if column == source.operation else None


def _fits(count: int, width: int, span: TextSpan, statement: Insert, context: Context) -> bool:
    """Return whether a row has as many values as it has columns; otherwise record P0305."""
    if count != width:
        owner = "" if statement.columns else f" of {context.catalog.sources[statement.name.key].name}"
        message = f"{counted(count, 'value')} for the {counted(width, 'column')}{owner}"
        context.note(PenstockError("P0305", message), span)
    return count == width


def _column_values(written: _WrittenColumn, source: Source, position: int, context: Context) -> list[Any]:
    """Return the values of one column, converted together, literals of one type at a time. P0203 for values that do not
    convert: for all that are written, and for the first that a query computes.
    """
    column, (values, spans) = source.columns[position], written
    if column.type == UNKNOWN_TYPE:
        context.fail_silently()

    def cast(type_: pa.DataType, first: int) -> Expression:
        return context.guard(spans[first], lambda: cast_in(context.zone, Column(type_, 0), column.type, try_=True))

    converted = cast_together(values, cast)
    wrong: set[TextSpan] = set()
    warned: set[TextSpan] = set()
    for value, literal, span in zip(converted, values, spans, strict=True):
        given = literal.value
        if value is None and given is not None:
            if span not in wrong:
                shown = given if isinstance(given, Decimal) else repr(given)
                message = f"{shown} is not {type_name(column.type)}, the type of {column.name}"
                hint = "write it as '2020-01-31 12:00:00'" if pa.types.is_timestamp(column.type) else None
                context.note(PenstockError("P0203", message, hint=hint), span)
            wrong.add(span)
        elif span not in warned and (doubt := _doubt(given, value, column)) is not None:
            context.warn(doubt[0], span, doubt[1])
            warned.add(span)
    if wrong:
        raise BindingFailed
    return converted


def _doubt(given: Any, value: Any, column: Field) -> tuple[str, str] | None:
    """Return a warning, with its hint, of a value that becomes another than it was probably meant to be."""
    becomes = f"{given} becomes {value}, since {column.name} is {type_name(column.type)}"
    if pa.types.is_integer(column.type) and isinstance(given, Decimal | float) and value != given:
        return becomes, "declare the column as DOUBLE or DECIMAL to keep it"
    if pa.types.is_decimal(column.type) and isinstance(given, Decimal) and value != given:
        return becomes, "a DECIMAL with more digits behind the point, or a DOUBLE, keeps it"
    if pa.types.is_timestamp(column.type) and _is_of_milliseconds(given):
        message = f"{given} is read as seconds since 1970, which is no instant of this century"
        return message, f"TIMESTAMP_MILLIS({given}) is the instant of so many milliseconds"
    return None


def _is_of_milliseconds(given: Any) -> bool:
    """Return whether a number is an instant of this century in milliseconds since 1970, and in seconds of none."""
    return isinstance(given, int) and unit_of_present(given) is Unit.MILLISECOND


INSERT = StatementKind(Insert, ("INSERT",), _read, _text, _bind)
