"""ADVANCE: a heartbeat of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.language.binder.context import Context
from penstock.language.binder.statements.heartbeats import without_heartbeats
from penstock.language.clauses import AsOf
from penstock.language.commands import AdvanceStream
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import instant_text, name_text
from penstock.language.queries import Name
from penstock.language.statements.definitions import instant
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.posted_record import of_a_server, stream_that_takes
from penstock.language.statements.statement import Statement
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
    source = stream_that_takes(statement.name, without_heartbeats, context)
    assert source.domain is not None, "it has timestamps"
    tick = instant(statement.to, source.domain, context)
    if not -MOST_TICKS < tick < MOST_TICKS:
        hint = "a timestamp lies within 2⁶¹ ticks of zero"
        context.fail("P0102", "this instant exceeds the range of time", statement.to.span, hint)
    return AdvanceStream(source.name, tick)


ADVANCE = StatementKind(AdvanceStatement, ("ADVANCE",), _read, _text, _bind, clauses_of_a_server=of_a_server)
