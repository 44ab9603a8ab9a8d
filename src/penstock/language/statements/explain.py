"""EXPLAIN: the plan of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.language.binder.context import Context, QueryNames
from penstock.language.binder.statements.names import query_named
from penstock.language.binder.statements.shedding import with_known_chances
from penstock.language.commands import ExplainCommand, ExplainKind
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import name_text, print_query, word_text
from penstock.language.queries import Mark, Name, WholeQuery
from penstock.language.statements.definitions import continuous
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement


@dataclass(frozen=True)
class ExplainStatement(Statement):
    """EXPLAIN [ANALYZE | START | SHARING] { query | QUERY name }. query, name: one of them."""

    KIND: ClassVar[str] = "EXPLAIN"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    query: WholeQuery | None = None
    analyze: Mark | None = None
    name: Name | None = None
    start: Mark | None = None
    sharing: Mark | None = None


def _read(parser: ClauseGrammar, head: Head) -> ExplainStatement:
    begin = parser._mark("START")
    sharing = None if begin else parser._mark("SHARING")
    analyze = None if begin or sharing else parser._mark("ANALYZE")
    if parser._take("QUERY"):
        name = parser._name("the name of a query")
        return ExplainStatement(None, analyze, name, begin, sharing)
    return ExplainStatement(parser._continuous_query(), analyze, None, begin, sharing)


def _text(statement: ExplainStatement) -> str:
    words = "EXPLAIN" + word_text(" ANALYZE", statement.analyze) + word_text(" START", statement.start)
    words += word_text(" SHARING", statement.sharing)
    if statement.name is not None:
        return f"{words} QUERY {name_text(statement.name)}"
    assert statement.query is not None
    return f"{words} {print_query(statement.query)}"


def _bind(statement: ExplainStatement, context: Context) -> ExplainCommand:
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


def _of_a_server(statement: ExplainStatement) -> str | None:
    if statement.start is not None:
        return "EXPLAIN START"
    return None if statement.sharing is None else "EXPLAIN SHARING"


EXPLAIN = StatementKind(ExplainStatement, ("EXPLAIN",), _read, _text, _bind, _of_a_server)
