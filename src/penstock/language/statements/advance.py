"""ADVANCE: a heartbeat of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock.algebra import Source
from penstock.language.binder.context import Context
from penstock.language.binder.statements.heartbeats import without_heartbeats
from penstock.language.binder.statements.names import source_named
from penstock.language.catalog import Catalog
from penstock.language.clauses import AsOf
from penstock.language.commands import AdvanceStream
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import instant_text, name_text
from penstock.language.queries import Name
from penstock.language.statements.definitions import instant
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import Statement
from penstock.language.text import TextSpan
from penstock.types import MOST_TICKS


@dataclass(frozen=True)
class AdvanceStatement(Statement):
    """ADVANCE stream TO instant."""

    KIND: ClassVar[str] = "ADVANCE"
    name: Name
    to: AsOf


def _read(parser: ClauseGrammar, head: Head) -> AdvanceStatement:
    name = parser._name("the name of a stream")
    if not parser._take("TO"):
        parser._fail("TO", hint="the statement is ADVANCE stream TO TIMESTAMP '2020-01-31 12:00:00', or TO a tick")
    return AdvanceStatement(name, parser._instant(parser._here()))


def _text(statement: AdvanceStatement) -> str:
    return f"ADVANCE {name_text(statement.name)} TO {instant_text(statement.to)}"


def _bind(statement: AdvanceStatement, context: Context) -> AdvanceStream:
    source = _stream(statement.name, context)
    assert source.domain is not None, "it has timestamps"
    tick = instant(statement.to, source.domain, context)
    if not -MOST_TICKS < tick < MOST_TICKS:
        hint = "a timestamp lies within 2⁶¹ ticks of zero"
        context.fail("P0102", "this instant exceeds the range of time", statement.to.span, hint)
    return AdvanceStream(source.name, tick)


def _stream(name: Name, context: Context) -> Source:
    """Return the stream of a heartbeat. Raises BindingFailed after P0201 and P0380."""
    known = context.catalog.sources.get(name.key)
    source = known if known is not None and name.matches(known.name) else source_named(name, "STREAM", context)
    if (error := without_heartbeats(source)) is not None:
        context.fail(error.code, error.message, name.span, error.hint)
    return source


def _of_a_server(statement: AdvanceStatement, live: bool, catalog: Catalog) -> Iterator[tuple[str, TextSpan]]:
    """Yield what needs a server: a script knows the place of a heartbeat among rows that it INSERTs alone."""
    source = catalog.sources.get(statement.name.key)
    if source is not None and source.connector != "MEMORY":
        yield f"ADVANCE of a stream FROM {source.connector}", statement.name.span


ADVANCE = StatementKind(AdvanceStatement, ("ADVANCE",), _read, _text, _bind, clauses_of_a_server=_of_a_server)
