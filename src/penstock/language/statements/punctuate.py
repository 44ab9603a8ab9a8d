"""PUNCTUATE: a punctuation of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from penstock.algebra import Source
from penstock.language.binder.context import Context
from penstock.language.binder.statements.names import source_named
from penstock.language.binder.statements.punctuations import bind_punctuation, without_punctuations
from penstock.language.catalog import Catalog
from penstock.language.commands import PunctuateStream
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import name_text, where_text
from penstock.language.queries import Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import Statement
from penstock.language.text import TextSpan


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
    source = _stream(statement.name, context)
    return PunctuateStream(source.name, bind_punctuation(statement.where, source, context))


def _stream(name: Name, context: Context) -> Source:
    """Return the stream of a punctuation. Raises BindingFailed after P0201 and P0380."""
    known = context.catalog.sources.get(name.key)
    source = known if known is not None and name.matches(known.name) else source_named(name, "STREAM", context)
    if (error := without_punctuations(source)) is not None:
        context.fail(error.code, error.message, name.span, error.hint)
    return source


def _of_a_server(statement: PunctuateStatement, live: bool, catalog: Catalog) -> Iterator[tuple[str, TextSpan]]:
    """Yield what needs a server: a script knows the place of a punctuation among rows that it INSERTs alone."""
    source = catalog.sources.get(statement.name.key)
    if source is not None and source.connector != "MEMORY":
        yield f"PUNCTUATE of a stream FROM {source.connector}", statement.name.span


PUNCTUATE = StatementKind(PunctuateStatement, ("PUNCTUATE",), _read, _text, _bind, clauses_of_a_server=_of_a_server)
