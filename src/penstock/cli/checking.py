"""What `penstock check` does with a script that binds: it looks for the files of sources, and prints of every query
whether its state is bounded, by what, how large.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources
from penstock.connectors.sources import check_files
from penstock.errors import PenstockError, Position, ScriptErrors
from penstock.physical.planning.state_size.summary import QueryState
from penstock.session import Session

_TEXT_OR_COMMENT = r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/"
#: `_WINDOWED` matches what follows the name of a stream read with a window, `_READ` what precedes a name that is read.
_WINDOWED = re.compile(r"\s*(?:SAMPLE\s*\([^)]*\)\s*)?\[", re.IGNORECASE)
_READ = re.compile(r"(?:\bFROM|\bJOIN|,)\s*$", re.IGNORECASE)


def check_sources(session: Session) -> None:
    """Check the files that the declared queries read, as a start does. Raises the errors of a start, P0401, P0402 and
    P0404, of all sources together.
    """
    errors: list[PenstockError] = []
    for source in declared_sources(*(query.root for query in session.catalog.queries.values())).values():
        try:
            check_files(source)
        except PenstockError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ScriptErrors(errors)


def state_report(session: Session, script: str, file: str) -> Iterator[str]:
    """Yield the lines of the report; those of a query with unbounded state show the place in the script, and a hint."""
    for query in session.catalog.queries.values():
        state = session.state(query.name)
        if state.bounded:
            yield f"{query.name}: state {state.verdict}"
            continue
        source_position = position(script, query, state, file)
        yield f"{file}:{source_position.line}:{source_position.column}: warning: {query.name}: state {state.verdict}"
        yield from (f"  {line}" for line in source_position.render().split("\n"))
        if state.bound.hint:
            yield f"  hint: {state.bound.hint}"


def position(script: str, query: Query, state: QueryState, file: str) -> Position:
    """Return where the query reads the source that makes its state grow, or the query itself if it reads the source
    through a view.
    """
    start = max(0, script.find(query.text))
    end = start + len(query.text)
    source = re.escape(state.bound.source)
    # Strings and comments match first, and whole: a name inside them is no mention.
    mention = re.compile(rf"{_TEXT_OR_COMMENT}|(?<![\w.])(?P<name>`?{source}`?)(?![\w.(])", re.IGNORECASE | re.DOTALL)
    mentions = [m for m in mention.finditer(script, start, end) if m["name"]] if source else []
    places_read = [m for m in mentions if _WINDOWED.match(script, m.end(), end)]
    places_read += [m for m in mentions if _READ.search(script[start : m.start()])]
    if not places_read:
        return Position.at(script, start, len(query.text.split("\n")[0]), file)
    return Position.at(script, places_read[0].start("name"), len(places_read[0]["name"]), file)
