"""ADVANCE: a heartbeat of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.algebra import Source
from penstock.algebra.properties.heartbeats import Heartbeat
from penstock.language.binder.context import Context
from penstock.language.binder.statements.heartbeats import far_ahead, without_heartbeats
from penstock.language.catalog import MemoryRow
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

#: Number of records before an ADVANCE that are compared with it.
_LAST = 100


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
    complete = _complete_to(source, context.catalog.memory.get(source.name.lower(), ()))
    if complete is not None and tick <= complete:
        message = f"nothing changes: {source.name} is complete up to {source.domain.show(complete)} already"
        context.warn(message, statement.to.span, "a heartbeat is above the timestamps of the rows before it")
    elif not context.is_live and (ahead := far_ahead(source, tick)) is not None:
        context.warn(ahead, statement.to.span)
    return AdvanceStream(source.name, tick)


def _complete_to(source: Source, records: Sequence[MemoryRow]) -> int | None:
    """Return up to which tick the last rows and heartbeats that a script has put into a stream make it complete; None
    before the first."""
    if source.ahead is not None:
        # Rows that are too far ahead are no elements.
        return None
    last = records[-_LAST:]
    found = [one.tick for one in last if isinstance(one, Heartbeat)]
    rows = [one for one in last if isinstance(one, tuple)]
    stamps = source.timestamps(lambda i: pa.array([row[i] for row in rows], source.columns[i].type), len(rows))
    ticks = [] if stamps is None else stamps.cast(pa.int64()).drop_null().to_pylist()
    found += [tick - source.slack - 1 for tick in ticks]
    return max(found, default=None)


ADVANCE = StatementKind(AdvanceStatement, ("ADVANCE",), _read, _text, _bind, clauses_of_a_server=of_a_server)
