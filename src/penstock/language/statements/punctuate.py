"""PUNCTUATE: a punctuation of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from penstock.language.binder.context import Context
from penstock.language.binder.statements.punctuations import bind_punctuation, without_punctuations
from penstock.language.commands import PunctuateStream
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import name_text, where_text
from penstock.language.queries import Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.posted_record import of_a_server, stream_that_takes
from penstock.language.statements.statement import Statement


@dataclass(frozen=True)
class PunctuateStatement(Statement):
    """PUNCTUATE stream WHERE condition."""

    KIND: ClassVar[str] = "PUNCTUATE"
    name: Name
    where: exp.Expr


def _read(parser: ClauseGrammar, head: Head) -> PunctuateStatement:
    name = parser._name("the name of a stream")
    where = parser._where()
    if where is None:
        parser._fail("WHERE", hint="the statement is PUNCTUATE stream WHERE c = 17, no row of which follows")
    return PunctuateStatement(name, where)


def _text(statement: PunctuateStatement) -> str:
    return f"PUNCTUATE {name_text(statement.name)}{where_text(statement.where)}"


def _bind(statement: PunctuateStatement, context: Context) -> PunctuateStream:
    source = stream_that_takes(statement.name, without_punctuations, context)
    punctuation = bind_punctuation(statement.where, source, context)
    if punctuation.is_empty and not context.is_live:
        context.warn("nothing changes: no row can fulfil this", statement.span)
    return PunctuateStream(source.name, punctuation)


PUNCTUATE = StatementKind(PunctuateStatement, ("PUNCTUATE",), _read, _text, _bind, clauses_of_a_server=of_a_server)
