"""Bind one statement to a command: declarations, DROP, and what reads (docs/language.md)."""

from __future__ import annotations

import math
from typing import Any

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.one_time import ordered
from penstock.algebra.nodes.query import Query, SinkSpec, Start
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.optimizer.answer_rate import MANY, rows_of_answer
from penstock.algebra.optimizer.statistics import known_statistics
from penstock.errors import PenstockError, counted, instead_of_taken, nearest
from penstock.language.binder.context import BindingFailed, Context, QueryNames
from penstock.language.binder.from_.nonretroactive import contents_of_unjoined, refuse_unjoined
from penstock.language.binder.from_.windows import moment
from penstock.language.binder.select.queries import QueryBinder
from penstock.language.binder.statements.attributes import CREATED_ATTRIBUTES, bind_attributes
from penstock.language.binder.statements.connectors import bind_connector
from penstock.language.binder.statements.created import bind_rows, bind_source, distinct_names
from penstock.language.binder.statements.functions import bind_function, check_volatile
from penstock.language.binder.statements.names_read import names_read, read_by
from penstock.language.binder.statements.shedding import bind_shedding, spans_of, with_known_chances
from penstock.language.binder.statements.summaries import bind_summary
from penstock.language.catalog import Catalog, DeclaredSummary, View
from penstock.language.commands import (
    ChangeSetting,
    Command,
    CreateFunctionCommand,
    CreateQueryCommand,
    CreateSourceCommand,
    CreateSummaryCommand,
    CreateViewCommand,
    ExplainCommand,
    ExplainKind,
    InsertRows,
    SelectOnce,
    Subscribe,
    Unchanged,
)
from penstock.language.plans.choices import NO_CHOICES, as_choices, attributes_with_plan, choices_in
from penstock.language.queries import CONTROL_SCHEMA, Name, QueryTree
from penstock.language.statements import (
    AsOf,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateSummary,
    CreateView,
    Existence,
    ExplainStatement,
    Insert,
    OneTimeSelect,
    SetSetting,
    StartClause,
    SubscribeStatement,
)
from penstock.language.text import TextSpan
from penstock.redaction import redacted_text
from penstock.settings import Settings
from penstock.types import CALENDAR, TimeDomain

# --- CREATE


def bind_create_source(statement: CreateSource, context: Context) -> Command:
    kind = "STREAM" if statement.is_stream else "RELATION"
    unchanged = _taken(statement.name, kind, statement.existence, context)
    if unchanged is not None:
        return unchanged
    source = bind_source(statement, context)
    text = context.source.slice(statement.span)
    known = context.catalog.sources.get(statement.name.key)
    if known is not None and _replaces(statement.existence):
        if known.declared == source.declared:
            return Unchanged(kind, source.name, "the declaration is the same")
        _unused(statement.name, context.catalog.users_of(statement.name.key), context)
    return CreateSourceCommand(source, text, *_flags(statement.existence))


def bind_create_view(statement: CreateView, context: Context) -> Command:
    unchanged = _taken(statement.name, "VIEW", statement.existence, context)
    if unchanged is not None:
        return unchanged
    # A NON RETROACTIVE relation that a view leaves alone is joined by the queries that read the view.
    root = QueryBinder(context).root(statement.query)
    check_volatile(root, statement.query.span, context)
    names = root.schema.names
    if statement.columns:
        distinct_names(statement.columns, context)
        if len(statement.columns) != len(names):
            span = statement.columns[0].span.to(statement.columns[-1].span)
            context.fail(
                "P0305", f"{counted(len(statement.columns), 'name')} for {counted(len(names), 'column')}", span
            )
        names = tuple(c.text for c in statement.columns)
    view = View(statement.name.text, root, names, context.source.slice(statement.span), context.read_uncoalesced)
    known = context.catalog.views.get(statement.name.key)
    if known is not None and _replaces(statement.existence):
        if (known.root.fingerprint, known.names) == (root.fingerprint, names):
            return Unchanged("VIEW", view.name, "the view is the same")
        _replaced_in_use(statement.name, statement.query, context)
    return CreateViewCommand(view, names_read(statement.query, root), *_flags(statement.existence))


def bind_create_query(statement: CreateQuery, context: Context) -> Command:
    name = statement.name.text
    unchanged = _taken(statement.name, "QUERY", statement.existence, context)
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
    if known is not None and _replaces(statement.existence):
        before = context.catalog.registered.get(statement.name.key)
        same = (known.root.fingerprint, known.sink) == (root.fingerprint, query.sink)
        if same and (before is None or dict(before.attributes) == attributes):
            return Unchanged("QUERY", known.name, "the query is the same")
        _replaced_in_use(statement.name, statement.query, context)
    return CreateQueryCommand(
        query,
        start,
        attributes,
        text,
        names_read(statement.query, root),
        into is not None,
        *_flags(statement.existence),
    )


def bind_create_function(statement: CreateFunction, context: Context) -> Command:
    name = statement.name
    known = context.catalog.functions.get(name.key)
    if known is not None and statement.existence is Existence.IF_NOT_EXISTS and known.kind == statement.kind:
        return Unchanged(statement.kind, known.name, f"{known.name} is declared already")
    if known is not None and not (_replaces(statement.existence) and known.kind == statement.kind):
        hint = instead_of_taken(known.kind, name.text, statement.kind)
        context.fail("P0206", f"{name.text} is declared already", name.span, hint)
    function = bind_function(statement, context)
    if known is not None:
        if repr(known) == repr(function):
            return Unchanged(statement.kind, known.name, "the function is the same")
        _unused(name, context.catalog.users_of_function(name.key), context)
    return CreateFunctionCommand(function, context.source.slice(statement.span), *_flags(statement.existence))


def bind_create_summary(statement: CreateSummary, context: Context) -> Command:
    unchanged = _taken(statement.name, "SUMMARY", statement.existence, context)
    if unchanged is not None:
        return unchanged
    summary = DeclaredSummary(bind_summary(statement, context), context.source.slice(statement.span))
    known = context.catalog.summaries.get(statement.name.key)
    if known is not None and _replaces(statement.existence):
        if known.definition == summary.definition:
            return Unchanged("SUMMARY", known.name, "the summary is the same")
        _unused(statement.name, context.catalog.users_of(statement.name.key), context)
    return CreateSummaryCommand(summary, *_flags(statement.existence))


def continuous(tree: QueryTree, context: Context) -> Algebra:
    """Return a continuous query. Raises BindingFailed with the errors recorded."""
    root = QueryBinder(context).root(tree)
    refuse_unjoined(root, tree.span, context)
    check_volatile(root, tree.span, context)
    return root


def bind_start(clause: StartClause | None, root: Algebra, context: Context) -> Start | None:
    """Return where the answer of a query begins. Raises BindingFailed after P0102."""
    if clause is None:
        return None
    at = None if clause.at is None else instant(clause.at, root.domain or CALENDAR, context)
    return Start(clause.mode, at, clause.wait is not None)


def instant(clause: AsOf, domain: TimeDomain, context: Context) -> int:
    """Return an instant in ticks of `domain`. Raises BindingFailed after P0102."""
    word = context.source.slice(clause.span).split(maxsplit=1)[0].upper()
    written = "AS OF" if word == "AS" else "this instant"
    if isinstance(clause.at, str):
        if not domain.calendar:
            context.fail("P0102", f"the ticks of these streams are integers: {written} takes one", clause.span)
        return moment(clause.at, clause.span, context)
    if domain.calendar:
        example = "AS OF '2020-01-31 12:00:00'" if word == "AS" else "'2020-01-31 12:00:00'"
        context.fail("P0102", f"{written} takes a timestamp", clause.span, f"write it as {example}")
    return clause.at


def _replaces(existence: Existence | None) -> bool:
    return existence is Existence.OR_REPLACE


def _flags(existence: Existence | None) -> tuple[bool, bool]:
    """Return `replace` and `if_not_exists` of a command."""
    return _replaces(existence), existence is Existence.IF_NOT_EXISTS


def _taken(name: Name, kind: str, existence: Existence | None, context: Context) -> Unchanged | None:
    """Return that nothing changes where IF NOT EXISTS says so. A name that is taken otherwise is reported, and the
    statement is bound further, for its other errors.
    """
    known = context.catalog.kind(name.key)
    if name.key.startswith(f"{CONTROL_SCHEMA}."):
        hint = "choose another name"
        context.note(PenstockError("P0206", f"{name.text} is a name of control relations", hint=hint), name.span)
        return None
    if known is None and name.key not in context.failed:
        return None
    if known == kind and existence is Existence.IF_NOT_EXISTS:
        return Unchanged(kind, name.text, f"{name.text} is declared already")
    if known == kind and existence is Existence.OR_REPLACE:
        return None
    hint = "choose another name" if known is None else instead_of_taken(known, name.text, kind)
    context.note(PenstockError("P0206", f"{name.text} is declared already", hint=hint), name.span)
    return None


def _replaced_in_use(name: Name, tree: QueryTree, context: Context) -> None:
    """Fail where what is replaced is read by something, or by its replacement."""
    if name.key in read_by(tree):
        context.fail("P0306", f"the new {name.text} reads the {name.text} that it replaces", name.span)
    _unused(name, context.catalog.users_of(name.key), context)


def _unused(name: Name, users: list[str], context: Context) -> None:
    if users:
        hint = "drop what uses it first"
        context.fail("P0222", f"{name.text} is used by {', '.join(users)}", name.span, hint)


def _warn_of_names(query: Query, name: Name, context: Context) -> None:
    """Warn of columns whose names differ in the result (`Query.output_names`)."""
    called = query.output_names[-len(query.root.schema) :]
    taken = [(old, new) for old, new in zip(query.root.schema.names, called, strict=True) if old != new]
    if taken:
        shown = ", ".join(f"{old} is called {new}" for old, new in taken)
        own = "a column ts" if query.root.is_stream else "columns ts and op"
        hint = f"choose a name with AS, as in {taken[0][0]} AS happened; this result has {own} already"
        context.warn(f"{shown} in the result of {query.name}, where the name is taken", name.span, hint)


def warn_of_many_answers(root: Algebra, span: TextSpan, context: Context) -> None:
    """Warn where a query answers far more rows than it reads, by the statistics that are known."""
    if context.errors:
        return
    statistics = known_statistics(declared_sources(root), {}, {}, context.settings["statistics"])
    answered, read = rows_of_answer(root, statistics)
    if read <= 0 or answered < MANY * read or not math.isfinite(answered):
        return
    context.warn(
        f"about {counted(answered / read, 'row')} of answers for each row of input:"
        f" {counted(answered, 'row')} a second where it reads {counted(read, 'row')}",
        span,
        "a longer SLIDE, a shorter window or a narrower join; SET statistics says what the sources are like",
    )


# --- rows and settings


def bind_insert(statement: Insert, context: Context) -> Command:
    rows = bind_rows(statement, context)
    return InsertRows(context.catalog.sources[statement.name.key].name, rows)


def bind_setting(statement: SetSetting, context: Context) -> Command:
    name, value = statement.name.text, statement.value
    known = {key for key, _ in Settings()}
    span = statement.value_span if name.lower() in known else statement.name.span
    return ChangeSetting(name, value, context.guard(span, lambda: context.settings.with_value(name, value)))


# --- reading


def bind_select(statement: OneTimeSelect, context: Context) -> Command:
    if context.query_names is QueryNames.REFUSED:
        context.query_names = QueryNames.ANSWER
    root = context.attempt(lambda: QueryBinder(context).relation(statement.query))
    domain = CALENDAR if root is None else root.domain or CALENDAR
    as_of = None if statement.as_of is None else instant(statement.as_of, domain, context)
    if root is None:
        raise BindingFailed
    root = contents_of_unjoined(root)
    refuse_unjoined(root, statement.query.span, context)
    check_volatile(root, statement.query.span, context)
    root = with_known_chances(root, statement.query.span, context)
    text = redacted_text(context.source.slice(statement.span))
    position = context.source.position(statement.span)
    return SelectOnce(ordered("select", root, as_of, text), context.catalog.memory, context.settings, position)


def bind_explain(statement: ExplainStatement, context: Context) -> Command:
    marks = {ExplainKind.START: statement.start, ExplainKind.ANALYZE: statement.analyze}
    marks[ExplainKind.SHARING] = statement.sharing
    kind = next((kind for kind, mark in marks.items() if mark), ExplainKind.PLAN)
    if statement.name is not None:
        return ExplainCommand(kind, query_named(statement.name, context), registered=True)
    assert statement.query is not None
    if kind is ExplainKind.PLAN and context.query_names is QueryNames.REFUSED:
        # A SELECT that is answered once may read the answers of queries, too.
        context.query_names = QueryNames.ANSWER
    root = with_known_chances(continuous(statement.query, context), statement.query.span, context)
    text = context.source.slice(statement.query.span)
    return ExplainCommand(kind, Query("query", root, SinkSpec("CONSOLE"), text, (), context.read_uncoalesced))


def query_named(name: Name, context: Context) -> Query:
    """Return a registered query. Raises BindingFailed after P0201."""
    query = context.catalog.queries.get(name.key)
    if query is None or not name.matches(query.name):
        if name.key in context.failed:
            context.fail_silently()
        context.check_bound(name)
        kind = context.catalog.kind(name.key)
        if query is None and kind is not None:
            hint = nearest(name.text, [q.name for q in context.catalog.queries.values()])
            context.fail("P0201", f"{name.text} is {an(kind)}", name.span, hint)
        known = [q.name for q in context.catalog.queries.values()]
        context.fail("P0201", f"unknown query {name.text}", name.span, nearest(name.text, known))
    return query


def bind_subscribe(statement: SubscribeStatement, context: Context) -> Command:
    if statement.name is not None:
        query = query_named(statement.name, context)
    else:
        assert statement.query is not None
        root = with_known_chances(continuous(statement.query, context), statement.query.span, context)
        text = redacted_text(context.source.slice(statement.query.span))
        query = Query("subscription", root, SinkSpec("CONSOLE"), text)
    if statement.snapshot is not None and query.root.is_stream:
        hint = "leave SNAPSHOT out: a stream has no content"
        context.fail("P0103", "SNAPSHOT begins with the content of a relation", statement.snapshot.span, hint)
    as_of, up_to = (
        None if clause is None else instant(clause, query.domain, context)
        for clause in (statement.as_of, statement.up_to)
    )
    if as_of is not None and up_to is not None and statement.up_to is not None and up_to < as_of:
        context.fail("P0102", "UP TO is before AS OF", statement.up_to.span)
    followed = query.name if statement.name is not None else query
    return Subscribe(followed, statement.snapshot is not None, statement.progress is not None, as_of, up_to)


# --- names


def an(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind.lower()}"


def declared_name(key: str, catalog: Catalog) -> str:
    """Return a name as its declaration has it."""
    tables: tuple[Any, ...] = (catalog.sources, catalog.views, catalog.queries, catalog.summaries)
    return str(next(table[key].name for table in tables if key in table))
