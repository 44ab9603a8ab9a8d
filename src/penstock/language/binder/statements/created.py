"""CREATE STREAM, CREATE RELATION and INSERT: declarations to `Source`s, values to rows (docs/language.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import DeclaredPeriod, OnError, Source
from penstock.errors import PenstockError, counted, nearest
from penstock.expressions.evaluate import cast_together, literal_of
from penstock.expressions.functions import build_cast
from penstock.expressions.nodes import Column, Expression
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.from_.valid_time.periods import check_valid
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Scope
from penstock.language.binder.statements.connectors import bind_connector, options_fit
from penstock.language.catalog import Row
from penstock.language.dialect import span_of
from penstock.language.printer import valid_text
from penstock.language.queries import Name, ValidClause
from penstock.language.statements import ColumnDefinition, CreateSource, Insert, TimestampBy
from penstock.language.text import TextSpan
from penstock.types import CALENDAR, UNKNOWN_TYPE, Field, Schema, TimeDomain, Unit, parse_type, type_name

#: Connectors of sources into which statements write rows.
WRITABLE = ("MEMORY", "HTTP")


def bind_source(statement: CreateSource, context: Context) -> Source:
    """Return the declared source; if only its connector is wrong, without its options and with the errors recorded.
    Raises BindingFailed with the errors recorded.
    """
    connected = context.attempt(lambda: bind_connector(statement.connector, True, context))
    columns = _columns(statement, context)
    # All clauses are bound, so that all errors are reported.
    time = context.attempt(lambda: _time(statement, columns, context))
    operation = context.attempt(lambda: _operation(statement, columns, context))
    special_columns = (time[0] if time else None, operation[0] if operation else None)
    primary_key = context.attempt(lambda: _primary_key(statement, columns, *special_columns, context))
    domain = time[1] if time else None
    slack = context.attempt(lambda: _slack(statement, domain, context))
    ahead = context.attempt(lambda: _ahead(statement, domain, context))
    idle_clause = statement.idle
    idle = context.attempt(lambda: (None if idle_clause is None else ticks(idle_clause, CALENDAR, context),))
    retain = context.attempt(lambda: _retain(statement, columns, domain, context))
    _system_time_alone(statement, context)
    _clock_of_relation(statement, context)
    time = time or _likely_time(statement, columns)
    clauses = (operation, primary_key, slack, ahead, idle, retain)
    if time is None or any(clause is None for clause in clauses):
        raise BindingFailed
    assert operation is not None and primary_key is not None and slack is not None
    assert ahead is not None and idle is not None and retain is not None
    connector, options = connected or (statement.connector.name.text.upper(), ())
    if connected is not None:
        context.attempt(lambda: options_fit(statement.connector, domain is not None, context))
    on_error = OnError(statement.on_error.policy) if statement.on_error else OnError.DEAD_LETTER
    source = Source(
        statement.name.text, statement.is_stream, columns, connector, options, *time, slack, on_error,
        operation[0], primary_key, statement.non_retroactive is not None, statement.system_time is not None, idle[0],
        bool(context.attempt(lambda: _upserts(statement, connector, options, context))), ahead[0],
        *retain, "" if statement.valid is None else valid_text(statement.valid),
    )  # fmt: skip

    valid = statement.valid
    if valid is not None:
        context.attempt(lambda: check_valid(source, valid, statement.name.span, context))
    return source if valid is None else replace(source, period=_period(valid, columns))


def _period(valid: ValidClause, columns: Schema) -> DeclaredPeriod | None:
    """Return VALID FROM, whose columns have been checked; None for another clause, and where they are not there."""
    names = [f.name.lower() for f in columns]
    bounds = [name.text.lower() for name in (valid.begin, valid.end) if name is not None]
    if len(bounds) < 2 or not set(bounds) <= set(names):
        return None
    return DeclaredPeriod(names.index(bounds[0]), names.index(bounds[1]), valid.through is not None)


def _upserts(statement: CreateSource, connector: str, options: tuple[tuple[str, str], ...], context: Context) -> bool:
    """Return whether the connector supplies the present rows of a table instead of its changes."""
    if connector != "POSTGRES" or "deleted" not in dict(options):
        return False
    if statement.operation is None or not statement.primary_key:
        hint = "the flag becomes the operation: declare a column for it, and PRIMARY KEY (...)"
        message = "option deleted needs OPERATION BY and a PRIMARY KEY"
        context.fail("P0208", message, statement.connector.span, hint)
    return True


def _time(statement: CreateSource, columns: Schema, context: Context) -> tuple[int | None, TimeDomain | None]:
    """Return the position of the timestamp, and the time domain."""
    if statement.timestamp is not None:
        return _timestamp(statement.timestamp, columns, context)
    if statement.system_time is not None:
        return None, CALENDAR
    if statement.is_stream:
        hint = "add TIMESTAMP BY column, or SYSTEM TIME to stamp its elements as they arrive"
        context.fail("P0209", f"stream {statement.name.text} has no timestamp", statement.name.span, hint)
    return None, None


def _likely_time(statement: CreateSource, columns: Schema) -> tuple[int, TimeDomain] | None:
    """Return the likely timestamp where the declared one is wrong, so that what reads the source is checked all the
    same.
    """
    stamps = [i for i, f in enumerate(columns) if pa.types.is_timestamp(f.type)]
    return (stamps[0], CALENDAR) if stamps and statement.timestamp is not None else None


def _operation(statement: CreateSource, columns: Schema, context: Context) -> tuple[int | None]:
    if statement.operation is None:
        return (None,)
    operation = column_named(statement.operation, columns, context)
    type_ = columns[operation].type
    if type_ == UNKNOWN_TYPE:
        context.fail_silently()
    if type_ != pa.string():
        message = f"OPERATION BY needs a STRING column of '+' and '-', this is {type_name(type_)}"
        context.fail("P0209", message, statement.operation.span)
    if statement.timestamp is None and statement.system_time is None:
        context.fail("P0209", "OPERATION BY needs a TIMESTAMP BY", statement.operation.span, "add TIMESTAMP BY column")
    return (operation,)


def _slack(statement: CreateSource, domain: TimeDomain | None, context: Context) -> int:
    if statement.slack is None or domain is None:
        return 0
    return ticks(statement.slack, domain, context, least=0)


def _ahead(statement: CreateSource, domain: TimeDomain | None, context: Context) -> tuple[int | None]:
    if statement.ahead is None or domain is None:
        return (None,)
    return (ticks(statement.ahead, domain, context),)


def _clock_of_relation(statement: CreateSource, context: Context) -> None:
    """Reject clauses of the wall clock for a relation that statements do not write, or that never changes."""
    clauses = (
        ("SYSTEM TIME", statement.system_time.span if statement.system_time else None),
        ("IDLE TIMEOUT", statement.idle_span if statement.idle else None),
    )
    for clause, span in clauses:
        if statement.is_stream or span is None:
            continue
        if statement.connector.name.text.upper() not in WRITABLE:
            hint = f"{clause} is for streams, and for relations FROM MEMORY () or FROM HTTP ()"
            context.attempt(lambda: context.fail("P0103", "this clause belongs to a stream", span, hint))  # noqa: B023
        elif statement.timestamp is None and statement.system_time is None:
            hint = "add TIMESTAMP BY column"
            context.attempt(lambda: context.fail("P0103", "a static relation is never idle", span, hint))  # noqa: B023


def _retain(
    statement: CreateSource, columns: Schema, domain: TimeDomain | None, context: Context
) -> tuple[int | None, tuple[int, ...]]:
    """Return how long elements are retained, in ticks, and the positions of the columns that are; empty for all."""
    clause = statement.retain
    if clause is None:
        return None, ()
    distinct_names(clause.columns, context)
    positions = context.each(lambda name: column_named(name, columns, context), clause.columns)
    length = None if domain is None else ticks(clause.length, domain, context)
    return length, tuple(sorted(set(positions)))


def _system_time_alone(statement: CreateSource, context: Context) -> None:
    """Reject timestamp clauses beside SYSTEM TIME: such timestamps arrive in order, and advance with the clock."""
    if statement.system_time is None:
        return
    others = (
        ("TIMESTAMP BY", statement.timestamp.span if statement.timestamp else None),
        ("ORDER WITHIN", statement.slack.span if statement.slack else None),
        ("ADVANCE AT MOST", statement.ahead_span if statement.ahead else None),
        ("IDLE TIMEOUT", statement.idle_span if statement.idle else None),
    )
    for clause, span in others:
        if span is not None:
            context.fail("P0103", f"{clause} cannot be combined with SYSTEM TIME", span, "leave one of them out")


def _primary_key(
    statement: CreateSource, columns: Schema, timestamp: int | None, operation: int | None, context: Context
) -> tuple[int, ...]:
    """Return the positions of the key's columns."""
    distinct_names(statement.primary_key, context)
    positions = context.each(lambda name: column_named(name, columns, context), statement.primary_key)
    for name, position in zip(statement.primary_key, positions, strict=True):
        if position in (timestamp, operation):
            hint = "a key identifies a row over all updates; use columns that do"
            context.fail(
                "P0210", f"{name.text} describes an update and cannot be part of a primary key", name.span, hint
            )
    return tuple(positions)


def _columns(statement: CreateSource, context: Context) -> Schema:
    distinct_names([c.name for c in statement.columns], context)
    types = [_type(column, context) for column in statement.columns]
    return Schema(tuple(Field(c.name.text, t) for c, t in zip(statement.columns, types, strict=True)))


def _type(column: ColumnDefinition, context: Context) -> pa.DataType:
    """Return the type of a column; one that does not exist is reported, and what reads the column fails without a
    message, so that the other columns can be used to check what follows.
    """
    type_ = context.attempt(lambda: context.guard(column.type_span, lambda: parse_type(column.type)))
    return UNKNOWN_TYPE if type_ is None else type_


def distinct_names(names: Sequence[Name], context: Context) -> None:
    seen: set[str] = set()
    for name in names:
        if name.key in seen:
            context.attempt(lambda: context.fail("P0206", f"column {name.text} occurs twice", name.span))  # noqa: B023
        seen.add(name.key)


def column_named(name: Name, columns: Schema, context: Context) -> int:
    """Return the position of a declared column. Raises BindingFailed after P0202."""
    position = next((i for i, column in enumerate(columns) if name.matches(column.name)), None)
    if position is None:
        context.fail("P0202", f"unknown column {name.text}", name.span, nearest(name.text, columns.names))
    return position


def _timestamp(by: TimestampBy, columns: Schema, context: Context) -> tuple[int, TimeDomain]:
    index = column_named(by.column, columns, context)
    type_ = columns[index].type
    if type_ == UNKNOWN_TYPE:
        context.fail_silently()
    if pa.types.is_timestamp(type_):
        if by.unit is not None:
            context.fail("P0209", "UNIT is for integer columns; a TIMESTAMP has microseconds", by.unit_span)
        return index, CALENDAR
    if not pa.types.is_integer(type_):
        message = f"TIMESTAMP BY needs a TIMESTAMP or integer column, {by.column.text} is {type_name(type_)}"
        hint = (
            f"declare it {by.column.text} TIMESTAMP: texts in files are read as such" if type_ == pa.string() else None
        )
        context.fail("P0209", message, by.column.span, hint)
    unit = by.unit or Unit.SECOND
    if unit not in (Unit.SECOND, Unit.MILLISECOND, Unit.MICROSECOND):
        context.fail("P0209", "UNIT is SECOND, MILLISECOND or MICROSECOND", by.unit_span)
    return index, TimeDomain(unit, False)


# --- INSERT


def bind_rows(statement: Insert, context: Context) -> tuple[Row, ...]:
    """Return the rows of an INSERT as values of the source's columns. Raises BindingFailed with the errors recorded."""
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
    return tuple(zip(*columns, strict=True))


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
        return context.guard(span, lambda: build_cast(Column(type_, 0), column.type, try_=True))

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
    if wrong:
        raise BindingFailed
    return converted
