"""CREATE QUERY: register a continuous query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.algebra.nodes.query import Query, SinkSpec, Start, StartMode
from penstock.language.binder.context import Context
from penstock.language.binder.statements.attributes import CREATED_ATTRIBUTES, QUERY_ATTRIBUTES, bind_attributes
from penstock.language.binder.statements.connectors import bind_connector
from penstock.language.binder.statements.names_read import names_read
from penstock.language.binder.statements.shedding import bind_shedding, spans_of
from penstock.language.catalog import Catalog
from penstock.language.clauses import Connector, StartClause, WrittenOption
from penstock.language.commands import CreateQueryCommand, Unchanged
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.plan_choices import NO_CHOICES, as_choices, attributes_with_plan, choices_in
from penstock.language.printer import connector_text, definition_text, options_text, start_text
from penstock.language.queries import Name, WholeQuery
from penstock.language.statements.creation import Creation, check_replaceable, create_text, declared_already, read_name
from penstock.language.statements.definitions import bind_start, continuous, warn_of_many_answers
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.text import TextSpan
from penstock.redaction import redacted_text

#: Attributes of queries that mean something without a server.
_OF_A_SCRIPT = ("comment", "plan")


@dataclass(frozen=True)
class CreateQuery(Creation):
    KIND: ClassVar[str] = "CREATE QUERY"
    query: WholeQuery
    into: Connector | None = None
    start: StartClause | None = None
    attributes: tuple[WrittenOption, ...] = ()

    @property
    def defined_by(self) -> WholeQuery:
        return self.query


def _read(parser: ClauseGrammar, head: Head) -> CreateQuery:
    name, existence = read_name(parser, head)
    clauses: dict[str, Any] = {}
    while True:
        at = parser._here()
        found: dict[str, Any]
        if parser._take("INTO"):
            found = {"into": parser._connector()}
        elif parser._take("WITH"):
            found = {"attributes": parser._options()}
        elif begun := parser._start_clause():
            found = {"start": begun}
        else:
            break
        if found.keys() & clauses.keys():
            word = parser.sql[at.start : at.end].upper()
            raise parser._misplaced(f"this {word} clause is repeated", parser._since(at))
        clauses |= found
    plan = parser._plan()
    if plan is None:
        parser._need("AS")
    query = plan or parser._continuous_query()
    return CreateQuery(name, query, **clauses, existence=existence)


def _text(statement: CreateQuery) -> str:
    text = create_text(statement)
    text += f" INTO {connector_text(statement.into)}" if statement.into else ""
    text += start_text(statement.start)
    text += f" WITH ({options_text(statement.attributes)})" if statement.attributes else ""
    return f"{text} {definition_text(statement.query)}"


def _bind(statement: CreateQuery, context: Context) -> CreateQueryCommand | Unchanged:
    name = statement.name.text
    unchanged = declared_already(statement, context)
    if unchanged is not None:
        return unchanged
    sink: tuple[str, tuple[tuple[str, str], ...]] | None = ("CONSOLE", ())
    into = statement.into
    if into is not None:
        sink = context.attempt(lambda: bind_connector(into, False, context))
    attributes = context.attempt(
        lambda: bind_attributes(statement.attributes, CREATED_ATTRIBUTES, f"query {name}", context)
    )
    root = continuous(statement.query, context)
    if attributes is not None:
        root = bind_shedding(root, name, attributes, spans_of(statement.attributes), statement.name.span, context)
    start = bind_start(statement.start, root, context) or Start()
    text = context.source.slice(statement.span)
    attributes = attributes_with_plan(statement.query, attributes or {})
    choices = as_choices(choices_in(attributes.get("plan", NO_CHOICES)))
    query = Query(
        name, root, SinkSpec(*(sink or ("CONSOLE", ()))), redacted_text(text), choices, context.read_uncoalesced
    )
    _warn_of_names(query, statement.name, context)
    warn_of_many_answers(root, statement.name.span, context)
    known = context.catalog.queries.get(statement.name.key)
    if known is not None and statement.replaces:
        before = context.catalog.registered.get(statement.name.key)
        same = (known.root.fingerprint, known.sink) == (root.fingerprint, query.sink)
        if same and (before is None or dict(before.attributes) == attributes):
            return Unchanged("QUERY", known.name, "the query is the same")
        check_replaceable(statement.name, statement.query, context)
    return CreateQueryCommand(
        query,
        start,
        attributes,
        text,
        names_read(statement.query, root),
        into is not None,
        statement.replaces,
        statement.if_not_exists,
    )


def _warn_of_names(query: Query, name: Name, context: Context) -> None:
    """Warn of columns whose names differ in the result (`Query.output_names`)."""
    called = query.output_names[-len(query.root.schema) :]
    taken = [(old, new) for old, new in zip(query.root.schema.names, called, strict=True) if old != new]
    if taken:
        shown = ", ".join(f"{old} is called {new}" for old, new in taken)
        own = "a column ts" if query.root.is_stream else "columns ts and op"
        names = query.root.schema.names
        why = "" if any(names.count(old) > 1 for old, _ in taken) else f"; this result has {own} already"
        hint = f"choose a name with AS, as in {taken[0][0]} AS happened{why}"
        context.warn(f"{shown} in the result of {query.name}, where the name is taken", name.span, hint)


def _clauses_of_a_server(statement: CreateQuery, live: bool, catalog: Catalog) -> Iterator[tuple[str, TextSpan]]:
    start = statement.start
    if start is not None and start.mode in (StartMode.WARM, StartMode.AT) and not live:
        yield f"START {start.mode.value}", start.span
    for attribute in statement.attributes:
        if attribute.key.key in QUERY_ATTRIBUTES.names and attribute.key.key not in _OF_A_SCRIPT:
            yield f"attribute {attribute.key.key}", attribute.key.span


CREATE_QUERY = StatementKind(
    CreateQuery, ("CREATE QUERY",), _read, _text, _bind, clauses_of_a_server=_clauses_of_a_server
)
