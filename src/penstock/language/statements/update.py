"""UPDATE: rows of a relation, or attributes of what a control relation lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.algebra.nodes.scans import Source
from penstock.expressions.calls.functions import build_cast
from penstock.expressions.evaluation.evaluate import constant, python_value
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import Context
from penstock.language.binder.from_.control_names import control_table
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry, Scope
from penstock.language.binder.statements.names import column_named, distinct_names
from penstock.language.binder.statements.rows import bind_condition, changeable_relation, row_binder
from penstock.language.commands import UpdateControl, UpdateRows
from penstock.language.dialect import span_of
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import name_text, scalar_text, where_text
from penstock.language.queries import NOWHERE, Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import Statement
from penstock.language.text import TextSpan
from penstock.tree import walk
from penstock.types import type_name


@dataclass(frozen=True)
class Assignment:
    """column = value, in an UPDATE."""

    column: Name
    value: exp.Expr
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class RowsConfirmed:
    """`CONFIRM n ROWS`: how many rows the statement is expected to change."""

    count: int
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class UpdateStatement(Statement):
    KIND: ClassVar[str] = "UPDATE"
    name: Name
    assignments: tuple[Assignment, ...]
    where: exp.Expr | None = None
    confirmed: RowsConfirmed | None = None


def _read(parser: ClauseGrammar, head: Head) -> UpdateStatement:
    name = parser._source_name("the name of a relation")
    parser._need("SET")
    assignments = [_read_assignment(parser)]
    while parser._match(TokenType.COMMA):
        assignments.append(_read_assignment(parser))
    where = parser._where()
    return UpdateStatement(name, tuple(assignments), where, _read_confirmed(parser))


def _read_confirmed(parser: ClauseGrammar) -> RowsConfirmed | None:
    """Parse [CONFIRM n ROWS]."""
    at = parser._here()
    if not parser._take("CONFIRM"):
        return None
    number, _ = parser._whole("the number of rows")
    if not parser._take("ROW"):
        parser._need("ROWS")
    return RowsConfirmed(number, parser._since(at))


def _read_assignment(parser: ClauseGrammar) -> Assignment:
    start = parser._here()
    column = parser._name("a column name")
    parser._need_token(TokenType.EQ, "=")
    return Assignment(column, parser._condition(), parser._since(start))


def _text(statement: UpdateStatement) -> str:
    values = ", ".join(f"{name_text(a.column)} = {scalar_text(a.value)}" for a in statement.assignments)
    confirmed = "" if statement.confirmed is None else f" CONFIRM {statement.confirmed.count} ROWS"
    return f"UPDATE {name_text(statement.name)} SET {values}{where_text(statement.where)}{confirmed}"


def _bind(statement: UpdateStatement, context: Context) -> UpdateRows | UpdateControl:
    if statement.name.schema:
        return _bind_control(statement, context)
    if statement.confirmed is not None:
        hint = "leave it out"
        context.fail(
            "P0103", "CONFIRM is for control relations, such as penstock.queries", statement.confirmed.span, hint
        )
    relation = changeable_relation(statement.name, context)
    if not relation.primary_key:
        hint = "declare PRIMARY KEY (...) among its columns"
        context.fail("P0210", f"an UPDATE needs a primary key, {relation.name} has none", statement.name.span, hint)
    distinct_names([a.column for a in statement.assignments], context)
    binder = row_binder(relation, context)
    assignments = context.each(lambda a: _bind_assignment(a, relation, binder, context), statement.assignments)
    condition = bind_condition(statement.where, relation, context)
    if relation.has_timestamps and not {*relation.time_columns} & {position for position, _ in assignments}:
        stamp = relation.shown_timestamp
        columns = ", ".join(f"{relation.columns[position].name} = ..." for position in relation.time_columns)
        hint = f"add {columns}, the instant of the change; a relation with SYSTEM TIME needs none"
        context.fail(
            "P0209", f"this UPDATE has no instant: {relation.name} is stamped by {stamp}", statement.span, hint
        )
    return UpdateRows(relation.name, tuple(assignments), condition)


def _bind_control(statement: UpdateStatement, context: Context) -> UpdateControl:
    """Bind an UPDATE of a control relation. Raises BindingFailed after P0201, P0202, P0203, P0751 or P0752."""
    table = control_table(statement.name, context)
    relation = table.source
    distinct_names([a.column for a in statement.assignments], context)
    entries = tuple(Entry(i, f.name, f.type, statement.name.text) for i, f in enumerate(relation.columns))

    def assigned(one: Assignment) -> tuple[str, Expression]:
        column = relation.columns[column_named(one.column, relation.columns, context)]
        if column.name not in table.settable:
            settable = ", ".join(f.name for f in relation.columns if f.name in table.settable)
            hint = f"what can be set: {settable}" if settable else "nothing of this relation can be set"
            context.fail("P0752", f"{column.name} of {relation.name} cannot be set", one.column.span, hint)
        value, span = ExpressionBinder(Scope(entries), context, "SET").bind(one.value), span_of(one.value)
        return column.name, context.guard(span, lambda: build_cast(value, pa.string()))

    assignments = context.each(assigned, statement.assignments)
    where = statement.where
    condition = None if where is None else ExpressionBinder(Scope(entries), context, "WHERE").predicate(where, "WHERE")
    confirmed = None if statement.confirmed is None else statement.confirmed.count
    position = context.source.position(statement.span)
    return UpdateControl(relation.name, tuple(assignments), condition, confirmed, position)


def _bind_assignment(
    assignment: Assignment, relation: Source, binder: ExpressionBinder, context: Context
) -> tuple[int, Expression]:
    name = assignment.column
    position = column_named(name, relation.columns, context)
    if position == relation.operation:
        context.fail("P0209", f"{name.text} is the operation of an update, and cannot be set", name.span)
    if position in relation.primary_key and relation.operation is None:
        hint = "with OPERATION BY the row of the old key can be deleted"
        context.fail("P0210", f"{name.text} is part of the primary key, and cannot be set", name.span, hint)
    value, span = binder.bind(assignment.value), span_of(assignment.value)
    column = relation.columns[position]
    if value.type == column.type:
        return position, value
    fixed = not any(isinstance(node, Column) for node in walk(value))
    cast: Expression = context.guard(span, lambda: build_cast(value, column.type, try_=fixed))
    if fixed:
        written, converted = python_value(constant(value)), python_value(constant(cast))
        if written is not None and converted is None:
            message = f"{written!r} is not {type_name(column.type)}, the type of {column.name}"
            context.fail("P0203", message, span)
        return position, Literal(column.type, converted)
    if _texts_become_values(value.type, column.type):
        hint = f"write CAST({context.source.slice(span)} AS {type_name(column.type)})"
        message = f"{column.name} is {type_name(column.type)}, this is {type_name(value.type)}"
        context.fail("P0203", message, span, hint)
    return position, cast


def _texts_become_values(given: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether texts of rows would have to be converted, which may fail for some."""
    return pa.types.is_string(given) and not pa.types.is_string(declared)


UPDATE = StatementKind(UpdateStatement, ("UPDATE",), _read, _text, _bind, lambda one: "UPDATE")
