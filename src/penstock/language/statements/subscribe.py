"""SUBSCRIBE: follow the answer of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sqlglot.tokenizer_core import TokenType

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.errors import as_name
from penstock.language.binder.context import Context
from penstock.language.binder.statements.names import query_named
from penstock.language.binder.statements.shedding import with_known_chances
from penstock.language.clauses import AsOf
from penstock.language.commands import Subscribe
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import as_of_text, instant_text, name_text, print_query
from penstock.language.queries import Mark, Name, WholeQuery
from penstock.language.statements.definitions import continuous, instant
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement
from penstock.redaction import redacted_text


@dataclass(frozen=True)
class SubscribeStatement(Statement):
    """SUBSCRIBE TO { name | (query) } [WITH (SNAPSHOT, PROGRESS)] [AS OF instant] [UP TO instant]."""

    KIND: ClassVar[str] = "SUBSCRIBE"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    name: Name | None = None
    query: WholeQuery | None = None
    snapshot: Mark | None = None
    progress: Mark | None = None
    as_of: AsOf | None = None
    up_to: AsOf | None = None


def _read(parser: ClauseGrammar, head: Head) -> SubscribeStatement:
    if not parser._take("TO"):
        parser._fail("TO", hint="the statement is SUBSCRIBE TO, and the name of a query or a query in parentheses")
    name: Name | None = None
    query = None
    if parser._match(TokenType.L_PAREN):
        query = parser._continuous_query()
        parser._need_token(TokenType.R_PAREN, ")")
    else:
        name = parser._name("the name of a query, or a query in parentheses")
    snapshot, progress = _read_shape(parser)
    as_of = parser._as_of()
    at = parser._here()
    up_to: AsOf | None = parser._instant(at) if parser._take("UP", "TO") else None
    return SubscribeStatement(name, query, snapshot, progress, as_of, up_to)


def _read_shape(parser: ClauseGrammar) -> tuple[Mark | None, Mark | None]:
    """Parse [WITH (SNAPSHOT, PROGRESS)], in any order."""
    if not parser._take("WITH"):
        return None, None
    parser._need_token(TokenType.L_PAREN, "(")
    found: dict[str, Mark] = {}
    while True:
        at = parser._here()
        word = parser._one_of(("SNAPSHOT", "PROGRESS"))
        if word in found:
            raise parser._misplaced(f"{word} is repeated", at)
        found[word] = Mark(at)
        if not parser._match(TokenType.COMMA):
            break
    if not parser._match(TokenType.R_PAREN):
        parser._fail("',' or ')'")
    return found.get("SNAPSHOT"), found.get("PROGRESS")


def _text(statement: SubscribeStatement) -> str:
    if statement.name is not None:
        text = f"SUBSCRIBE TO {name_text(statement.name)}"
    else:
        assert statement.query is not None
        text = f"SUBSCRIBE TO ({print_query(statement.query)})"
    shape = [word for word, mark in (("SNAPSHOT", statement.snapshot), ("PROGRESS", statement.progress)) if mark]
    text += f" WITH ({', '.join(shape)})" if shape else ""
    return text + as_of_text(statement.as_of) + (f" UP TO {instant_text(statement.up_to)}" if statement.up_to else "")


def _bind(statement: SubscribeStatement, context: Context) -> Subscribe:
    if statement.name is not None:
        rows = f"SUBSCRIBE TO (SELECT * FROM {as_name(statement.name.text)}) has its rows as they come"
        query = query_named(statement.name, context, rows)
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


SUBSCRIBE = StatementKind(SubscribeStatement, ("SUBSCRIBE",), _read, _text, _bind, lambda one: "SUBSCRIBE")
