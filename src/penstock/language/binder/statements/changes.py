"""Bind what changes a standing query, a source, the system, or rows: ALTER, UPDATE, DELETE (docs/language.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pyarrow as pa
from sqlglot import exp

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import OnError, Source
from penstock.errors import as_name, nearest
from penstock.expressions.evaluate import constant, python_value
from penstock.expressions.functions import build_cast
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import Context
from penstock.language.binder.from_.control_names import control_table
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry, Scope
from penstock.language.binder.statements.attributes import NONE, QUERY_ATTRIBUTES, SOURCE_ATTRIBUTES, bind_attributes
from penstock.language.binder.statements.commands import an, bind_start, continuous, query_named, warn_of_many_answers
from penstock.language.binder.statements.connectors import bind_connector
from penstock.language.binder.statements.created import WRITABLE, column_named, distinct_names
from penstock.language.binder.statements.names_read import names_read
from penstock.language.binder.statements.shedding import bind_shedding, with_known_chances
from penstock.language.commands import (
    AlterQuery,
    AlterSource,
    AlterSystem,
    Command,
    DeleteRows,
    MoveInto,
    Pause,
    QueryChange,
    RenameTo,
    ReplaceQuery,
    Resume,
    SetAttributes,
    SwapWith,
    UpdateControl,
    UpdateRows,
)
from penstock.language.dialect import span_of
from penstock.language.plans.choices import as_choices, choices_of_plan
from penstock.language.queries import Duration, Name, PlanQuery
from penstock.language.statements import (
    AlterAction,
    AlterQueryStatement,
    AlterSourceStatement,
    AlterSystemStatement,
    AsAction,
    Assignment,
    DeleteStatement,
    IntoAction,
    PauseAction,
    RenameAction,
    ResumeAction,
    SetAction,
    UpdateStatement,
    WrittenOption,
)
from penstock.redaction import redacted_text
from penstock.settings import FIXED, Settings
from penstock.tree import walk
from penstock.types import CALENDAR, Interval, type_name

# --- ALTER QUERY


def bind_alter_query(statement: AlterQueryStatement, context: Context) -> Command:
    name, action = statement.name, statement.action
    unbound = context.catalog.unbound.get(name.key)
    if unbound is not None and unbound.kind == "QUERY" and name.matches(unbound.name):
        if isinstance(action, RenameAction):
            return AlterQuery(unbound.name, _renamed(action.name, unbound.name, context))
        if isinstance(action, AsAction):
            return AlterQuery(unbound.name, _replaced(action, unbound.name, None, context))
    query = query_named(name, context)
    return AlterQuery(query.name, _change(action, query, context))


def _change(action: AlterAction, query: Query, context: Context) -> QueryChange:
    if isinstance(action, PauseAction):
        return Pause(action.with_state is not None)
    if isinstance(action, ResumeAction):
        return Resume(bind_start(action.start, query.root, context), action.reset is not None)
    if isinstance(action, SetAction):
        return SetAttributes(bind_attributes(action.options, QUERY_ATTRIBUTES, f"query {query.name}", context))
    if isinstance(action, RenameAction):
        return _renamed(action.name, query.name, context)
    if isinstance(action, IntoAction):
        return MoveInto(SinkSpec(*bind_connector(action.into, False, context)))
    if isinstance(action, AsAction):
        return _replaced(action, query.name, query.sink, context)
    other = query_named(action.name, context)
    if other.name == query.name:
        context.fail("P0103", f"{query.name} cannot be exchanged with itself", action.name.span)
    return SwapWith(other.name)


def _renamed(name: Name, former: str, context: Context) -> RenameTo:
    is_taken = context.catalog.kind(name.key) is not None or name.key in context.catalog.unbound
    if is_taken and name.key != former.lower():
        context.fail("P0206", f"{name.text} is declared already", name.span, "choose another name")
    return RenameTo(name.text)


def _replaced(action: AsAction, name: str, sink: SinkSpec | None, context: Context) -> ReplaceQuery:
    """Bind the query that is to take the place of another one. sink: of that one, None where it cannot be bound."""
    context.view, context.view_kind = name.lower(), "query"
    root = continuous(action.query, context)
    catalog = context.catalog
    registered = catalog.registered.get(name.lower()) or catalog.unbound.get(name.lower())
    if registered is not None:
        # The budget belongs to the query of this name, whatever it answers.
        root = bind_shedding(root, name, registered.attributes, {}, action.query.span, context)
    else:
        with_known_chances(root, action.query.span, context)
    warn_of_many_answers(root, action.query.span, context)
    start = bind_start(action.start, root, context)
    text = redacted_text(context.source.slice(action.query.span))
    chosen = as_choices(choices_of_plan(action.query.text)) if isinstance(action.query, PlanQuery) else ()
    new = Query(name, root, sink or SinkSpec("CONSOLE"), text, chosen, context.read_uncoalesced)
    return ReplaceQuery(new, text, names_read(action.query, new.root), start, action.reset is not None)


# --- ALTER STREAM, ALTER RELATION, ALTER SYSTEM


def bind_alter_source(statement: AlterSourceStatement, context: Context) -> Command:
    source = _source(statement.name, statement.kind, context)
    owner = f"{statement.kind.lower()} {source.name}"
    values = bind_attributes(statement.options, SOURCE_ATTRIBUTES, owner, context)
    for written in statement.options:
        source = _with_attribute(source, written, values[written.key.key], context)
    return AlterSource(source.name, values, source)


def _with_attribute(source: Source, written: WrittenOption, value: str, context: Context) -> Source:
    """Return the declaration with one attribute, a value in normal form. Raises BindingFailed with the errors
    recorded.
    """
    key, span = written.key.key, written.value_span
    removed = value == NONE
    if key == "on_error":
        return replace(source, on_error=OnError(value.upper()))
    if key == "rate_limit":
        if source.connector != "HTTP":
            context.fail("P0104", f"rate_limit is for sources FROM HTTP, this is {source.connector}", written.key.span)
        others = tuple(option for option in source.options if option[0] != key)
        return replace(source, options=others if removed else (*others, (key, value)))
    if key in ("slack", "retain") and not source.is_stream:
        context.fail("P0104", f"{key} is an attribute of streams, {source.name} is a relation", written.key.span)
    if source.is_static:
        context.fail("P0104", f"{source.name} never changes, and has no {key}", written.key.span)
    if source.system_time and key in ("slack", "idle_timeout"):
        context.fail("P0103", f"{key} cannot be combined with SYSTEM TIME", written.key.span)
    domain = CALENDAR if key == "idle_timeout" else source.domain or CALENDAR
    interval = None if removed else Interval.parse(value)
    least = 0 if key == "slack" else 1
    length = None if interval is None else ticks(Duration(interval, span), domain, context, least)
    if key == "slack":
        return replace(source, slack=length or 0)
    return replace(source, retain=length) if key == "retain" else replace(source, idle=length)


def bind_alter_system(statement: AlterSystemStatement, context: Context) -> Command:
    name, value = statement.name.text, statement.value
    if name.lower().startswith(FIXED):
        hint = "give it to penstock serve with --set"
        context.fail("P0104", f"setting {name} cannot change while a server runs", statement.name.span, hint)
    known = {key for key, _ in Settings()}
    span = statement.value_span if name.lower() in known else statement.name.span
    context.guard(span, lambda: context.settings.with_value(name, value))
    return AlterSystem(name.lower(), value)


# --- UPDATE, DELETE


def bind_update(statement: UpdateStatement, context: Context) -> Command:
    if statement.name.schema:
        return bind_control_update(statement, context)
    if statement.confirmed is not None:
        hint = "leave it out"
        context.fail(
            "P0103", "CONFIRM is for control relations, such as penstock.queries", statement.confirmed.span, hint
        )
    relation = _changeable(statement.name, context)
    if not relation.primary_key:
        hint = "declare PRIMARY KEY (...) among its columns"
        context.fail("P0210", f"an UPDATE needs a primary key, {relation.name} has none", statement.name.span, hint)
    distinct_names([a.column for a in statement.assignments], context)
    binder = _binder(relation, context)
    assignments = context.each(lambda a: _assignment(a, relation, binder, context), statement.assignments)
    condition = _condition(statement.where, relation, context)
    if relation.timestamp is not None and relation.timestamp not in dict(assignments):
        stamp = relation.columns[relation.timestamp].name
        hint = f"add {stamp} = ..., the instant of the change; a relation with SYSTEM TIME needs none"
        context.fail(
            "P0209", f"this UPDATE has no instant: {relation.name} is stamped by {stamp}", statement.span, hint
        )
    return UpdateRows(relation.name, tuple(assignments), condition)


def bind_control_update(statement: UpdateStatement, context: Context) -> Command:
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


def bind_delete(statement: DeleteStatement, context: Context) -> Command:
    relation = _changeable(statement.name, context)
    if relation.operation is None:
        hint = "declare a STRING column for it, and OPERATION BY"
        context.fail(
            "P0209", f"no row of {relation.name} can be deleted: it has no operation", statement.name.span, hint
        )
    if relation.timestamp is not None:
        stamp = relation.columns[relation.timestamp].name
        hint = "INSERT a row with the operation '-' and its instant, or declare the relation with SYSTEM TIME"
        context.fail(
            "P0209", f"a DELETE has no instant: {relation.name} is stamped by {stamp}", statement.name.span, hint
        )
    return DeleteRows(relation.name, _condition(statement.where, relation, context))


def _changeable(name: Name, context: Context) -> Source:
    """Return the relation whose rows are changed. Raises BindingFailed after P0201, P0208 or P0209."""
    relation = _source(name, "RELATION", context, rows=True)
    if relation.connector not in WRITABLE:
        hint = "its rows come from there; a relation FROM MEMORY () or FROM HTTP () can be changed"
        context.fail("P0208", f"{relation.name} is declared FROM {relation.connector}", name.span, hint)
    if relation.is_static:
        hint = "declare it with SYSTEM TIME, or TIMESTAMP BY"
        context.fail("P0209", f"{relation.name} never changes: it has no timestamps", name.span, hint)
    return relation


def _condition(where: exp.Expr | None, relation: Source, context: Context) -> Expression | None:
    return None if where is None else _binder(relation, context).predicate(where, "WHERE")


def _binder(relation: Source, context: Context) -> ExpressionBinder:
    entries = tuple(Entry(i, f.name, f.type, relation.name) for i, f in enumerate(relation.columns))
    return ExpressionBinder(Scope(entries), context, "a change of rows")


def _assignment(
    assignment: Assignment, relation: Source, binder: ExpressionBinder, context: Context
) -> tuple[int, Expression]:
    name = assignment.column
    position = column_named(name, relation.columns, context)
    if position == relation.operation:
        context.fail("P0209", f"{name.text} says what an update does, and cannot be set", name.span)
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


def _source(name: Name, kind: str, context: Context, rows: bool = False) -> Source:
    """Return a declared stream or relation. rows: its rows are to change. Raises BindingFailed after P0201."""
    source = context.catalog.sources.get(name.key)
    if source is None or not name.matches(source.name):
        _unknown(name, kind, context)
    found = "STREAM" if source.is_stream else "RELATION"
    if found != kind:
        hint = "a stream only receives rows; UPDATE and DELETE change those of a relation"
        hint = hint if rows else f"ALTER {found} {as_name(name.text)} SET (...)"
        context.fail("P0201", f"{name.text} is {an(found)}", name.span, hint)
    return source


def _unknown(name: Name, kind: str, context: Context) -> NoReturn:
    if name.key in context.failed:
        context.fail_silently()
    known = context.catalog.kind(name.key)
    if known in ("VIEW", "QUERY"):
        hint = f"the rows of a {known.lower()} follow from those that it reads: change these"
        context.fail("P0201", f"{name.text} is {an(known)}", name.span, hint)
    context.check_bound(name)
    names = [s.name for s in context.catalog.sources.values() if s.is_stream == (kind == "STREAM")]
    context.fail("P0201", f"unknown {kind.lower()} {name.text}", name.span, nearest(name.text, names))
