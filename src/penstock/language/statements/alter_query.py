"""ALTER QUERY: pause, change, rename, replace or exchange a query that is registered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.connectors.options import OptionTable
from penstock.connectors.sinks import sink_options
from penstock.language.binder.context import Context
from penstock.language.binder.statements.attributes import QUERY_ATTRIBUTES, bind_attributes
from penstock.language.binder.statements.connectors import bind_connector
from penstock.language.binder.statements.names import query_named
from penstock.language.binder.statements.names_read import names_read
from penstock.language.binder.statements.shedding import bind_shedding, with_known_chances
from penstock.language.clauses import Connector, StartClause, WrittenOption
from penstock.language.commands import (
    AlterQuery,
    MoveInto,
    Pause,
    QueryChange,
    RenameTo,
    ReplaceQuery,
    Resume,
    SetAttributes,
    SwapWith,
)
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.plan_choices import as_choices, choices_of_plan
from penstock.language.printer import connector_text, definition_text, name_text, options_text, start_text, word_text
from penstock.language.queries import Mark, Name, PlanQuery, WholeQuery
from penstock.language.statements.definitions import bind_start, continuous, warn_of_many_answers
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import Statement
from penstock.redaction import redacted_text

_ACTIONS = ("PAUSE", "RESUME", "SET", "RENAME", "INTO", "AS", "FROM", "SWAP")


@dataclass(frozen=True)
class PauseAction:
    """PAUSE [WITH STATE]."""

    with_state: Mark | None = None


@dataclass(frozen=True)
class ResumeAction:
    """RESUME [START ...] [RESET]."""

    start: StartClause | None = None
    reset: Mark | None = None


@dataclass(frozen=True)
class SetAction:
    """SET (key value, ...)."""

    options: tuple[WrittenOption, ...]


@dataclass(frozen=True)
class RenameAction:
    """RENAME TO name."""

    name: Name


@dataclass(frozen=True)
class IntoAction:
    """INTO connector (...)."""

    into: Connector


@dataclass(frozen=True)
class AsAction:
    """AS query [START ...] [RESET]."""

    query: WholeQuery
    start: StartClause | None = None
    reset: Mark | None = None


@dataclass(frozen=True)
class SwapAction:
    """SWAP WITH name."""

    name: Name


AlterAction: TypeAlias = PauseAction | ResumeAction | SetAction | RenameAction | IntoAction | AsAction | SwapAction


@dataclass(frozen=True)
class AlterQueryStatement(Statement):
    KIND: ClassVar[str] = "ALTER QUERY"
    name: Name
    action: AlterAction


def _read(parser: ClauseGrammar, head: Head) -> AlterQueryStatement:
    name = parser._name("the name of a query")
    return AlterQueryStatement(name, _read_action(parser))


def _read_action(parser: ClauseGrammar) -> AlterAction:
    plan = parser._plan()
    if plan is not None:
        return AsAction(plan, parser._start_clause(), parser._mark("RESET"))
    word = parser._one_of(_ACTIONS)
    if word == "PAUSE":
        return PauseAction(parser._mark("WITH", "STATE"))
    if word == "RESUME":
        return ResumeAction(parser._start_clause(), parser._mark("RESET"))
    if word == "SET":
        return SetAction(parser._options())
    if word == "RENAME":
        parser._need("TO")
        return RenameAction(parser._name("a name for the query"))
    if word == "INTO":
        return IntoAction(parser._connector())
    if word == "FROM":
        parser._fail("PLAN")
    if word == "AS":
        parser._start_follows = True
        return AsAction(parser._continuous_query(), parser._start_clause(), parser._mark("RESET"))
    parser._need("WITH")
    return SwapAction(parser._name("the name of a query"))


def _text(statement: AlterQueryStatement) -> str:
    return f"ALTER QUERY {name_text(statement.name)} {_action_text(statement.action)}"


def _action_text(action: AlterAction) -> str:
    if isinstance(action, PauseAction):
        return "PAUSE" + word_text(" WITH STATE", action.with_state)
    if isinstance(action, ResumeAction):
        return f"RESUME{start_text(action.start)}" + word_text(" RESET", action.reset)
    if isinstance(action, SetAction):
        return f"SET ({options_text(action.options)})"
    if isinstance(action, RenameAction):
        return f"RENAME TO {name_text(action.name)}"
    if isinstance(action, IntoAction):
        return f"INTO {connector_text(action.into)}"
    if isinstance(action, AsAction):
        return f"{definition_text(action.query)}{start_text(action.start)}" + word_text(" RESET", action.reset)
    return f"SWAP WITH {name_text(action.name)}"


def _bind(statement: AlterQueryStatement, context: Context) -> AlterQuery:
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
        return _set(action.options, query, context)
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


def _set(written: Sequence[WrittenOption], query: Query, context: Context) -> SetAttributes:
    """Bind attributes of a query, and options of its sink that limit how much of its result is kept."""
    table = OptionTable(tuple(one for one in sink_options(query.sink.connector) or () if one.is_bound))
    bounds = [one for one in written if table.get(one.key.key) is not None]
    attributes = [one for one in written if one not in bounds]
    owner = f"query {query.name}"
    return SetAttributes(
        bind_attributes(attributes, QUERY_ATTRIBUTES, owner, context), bind_attributes(bounds, table, owner, context)
    )


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


ALTER_QUERY = StatementKind(AlterQueryStatement, ("ALTER QUERY",), _read, _text, _bind, lambda one: "ALTER QUERY")
