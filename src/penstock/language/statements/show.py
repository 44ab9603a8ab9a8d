"""SHOW: what is declared, the settings, and what a server keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock.algebra.nodes.scans import Source
from penstock.expressions.calls.user_functions import REGISTERED
from penstock.expressions.user import signature
from penstock.language.binder.context import Context
from penstock.language.binder.statements.names import an, source_named
from penstock.language.binder.statements.promises import promise_line
from penstock.language.catalog import Catalog
from penstock.language.commands import ShowCommand
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import name_text, word_text
from penstock.language.queries import Mark, Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement

_SHOWN = (
    "STREAMS",
    "RELATIONS",
    "VIEWS",
    "QUERIES",
    "SUMMARIES",
    "FUNCTIONS",
    "AGGREGATES",
    "CONSTRAINTS",
    "COMMANDS",
    "SETTINGS",
    "SUBSCRIPTIONS",
    "STATEMENTS",
    "VERSIONS",
)
#: The kind of the command that lists what data keep.
SUGGESTED = "SUGGESTED CONSTRAINTS"
#: What SHOW lists of a server.
_KEPT_BY_A_SERVER = ("COMMANDS", "STATEMENTS", "SUBSCRIPTIONS", "VERSIONS")


@dataclass(frozen=True)
class ShowStatement(Statement):
    """SHOW STREAMS and the like; SHOW CONSTRAINTS [OF stream] [SUGGESTED].

    Args:
        kind: what is listed, such as STREAMS.
        stream: whose constraints are listed; None for those of all.
        suggested: those that the data keep are listed, not those that are declared.
    """

    KIND: ClassVar[str] = "SHOW"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    kind: str
    stream: Name | None = None
    suggested: Mark | None = None


def _read(parser: ClauseGrammar, head: Head) -> ShowStatement:
    kind = parser._one_of(_SHOWN)
    if kind != "CONSTRAINTS":
        return ShowStatement(kind)
    stream = parser._name("the name of a stream") if parser._take("OF") else None
    return ShowStatement(kind, stream, parser._mark("SUGGESTED"))


def _text(statement: ShowStatement) -> str:
    of = f" OF {name_text(statement.stream)}" if statement.stream else ""
    return f"SHOW {statement.kind}{of}{word_text(' SUGGESTED', statement.suggested)}"


def _bind(statement: ShowStatement, context: Context) -> ShowCommand:
    if statement.kind == "CONSTRAINTS":
        sources = _streams(statement, context)
        if statement.suggested is not None:
            return ShowCommand(SUGGESTED, tuple((source.name, "") for source in sources))
        declared = ((source, one) for source in sources for one in source.promises)
        lines = ((one.name, promise_line(source, one, context.catalog)) for source, one in declared)
        return ShowCommand(statement.kind, tuple(lines))
    return ShowCommand(statement.kind, _shown(statement.kind, context))


def _streams(statement: ShowStatement, context: Context) -> tuple[Source, ...]:
    """Return the streams whose constraints are listed."""
    name = statement.stream
    if name is None:
        return tuple(source for source in context.catalog.sources.values() if source.is_stream)
    kind = context.catalog.kind(name.key)
    if kind not in (None, "STREAM"):
        context.fail("P0201", f"{name.text} is {an(kind)}", name.span, "only streams have constraints")
    return (source_named(name, "STREAM", context),)


def _shown(kind: str, context: Context) -> tuple[tuple[str, str], ...]:
    return *_shown_bound(kind, context), *_shown_unbound(kind, context.catalog)


def _shown_unbound(kind: str, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Yield what cannot be bound, with the reason as a comment behind the statement; SHOW QUERIES has it of queries."""
    for one in (*catalog.unbound.values(), *catalog.unbound_functions.values()):
        if kind == ("SUMMARIES" if one.kind == "SUMMARY" else f"{one.kind}S") and one.kind != "QUERY":
            reason = one.reason.partition("\n")[0]
            yield one.name, f"{one.text.rstrip()} -- NEEDS ATTENTION: {one.code} {reason}"


def _shown_bound(kind: str, context: Context) -> tuple[tuple[str, str], ...]:
    catalog = context.catalog
    if kind == "VIEWS":
        return tuple((v.name, v.text) for v in catalog.views.values())
    if kind == "QUERIES":
        return tuple((q.name, q.text) for q in catalog.queries.values())
    if kind == "SUMMARIES":
        return tuple((s.name, s.text) for s in catalog.summaries.values())
    if kind in ("FUNCTIONS", "AGGREGATES"):
        users = [u for u in {**REGISTERED, **catalog.functions}.values() if f"{u.kind}S" == kind]
        return tuple((u.name, signature(u)) for u in users)
    if kind == "SETTINGS":
        return tuple((name, f"{name} = {text}") for name, text in context.settings.written())
    if kind not in ("STREAMS", "RELATIONS"):
        return ()
    streams = kind == "STREAMS"
    sources = [(key, s) for key, s in catalog.sources.items() if s.is_stream == streams]
    return tuple((s.name, catalog.texts.get(key, "")) for key, s in sources)


def _of_a_server(statement: ShowStatement) -> str | None:
    if statement.suggested is not None:
        return "SHOW CONSTRAINTS SUGGESTED"
    return f"SHOW {statement.kind}" if statement.kind in _KEPT_BY_A_SERVER else None


SHOW = StatementKind(ShowStatement, ("SHOW",), _read, _text, _bind, _of_a_server)
