"""What `penstock check` does with a script that binds: it looks for the files of sources, and prints of every query
whether its state is bounded, by what, how large.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.optimizer.statistics import known_statistics
from penstock.connectors.sources import check_files
from penstock.control.control import Control
from penstock.control.engine import NextVersion
from penstock.control.in_process import InProcessEngine
from penstock.control.registry import settings_of
from penstock.errors import PenstockError, Position, ScriptErrors, ScriptWarning
from penstock.language.catalog import Row
from penstock.language.parse import parse_script
from penstock.physical.planning.state_size.summary import QueryState, query_state
from penstock.physical.planning.strategies import Strategy
from penstock.session import Session
from penstock.settings import Settings

#: A line of a script, and the error of files that are not there.
_DATA, _MISSING = re.compile(r"^--\s*Data:\s*(\S.*)$", re.MULTILINE | re.IGNORECASE), "P0404"
_TEXT_OR_COMMENT = r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/"
#: `_WINDOWED` matches what follows the name of a stream read with a window, `_READ` what precedes a name that is read.
_WINDOWED = re.compile(r"\s*(?:SAMPLE\s*\([^)]*\)\s*)?\[", re.IGNORECASE)
_READ = re.compile(r"(?:\bFROM|\bJOIN|,)\s*$", re.IGNORECASE)


def check_for_run(script: str, name: str, settings: Settings) -> Iterator[str]:
    """Check a script of `penstock run`; yield the lines of the report. name: its file. Raises the errors of the script,
    or those of a start for its files, P0401, P0402 and P0404, of all sources together.
    """
    session = Session(settings=settings)
    queries = [session.catalog.queries[query.lower()] for query in session.declare(script, name)]
    check_sources(queries, script)
    with_settings = [(query, session.settings) for query in queries]
    return _report(script, name, with_settings, session.warnings, session.catalog.memory)


def check_for_server(script: str, name: str, written: Mapping[str, str]) -> Iterator[str]:
    """The same for a script of `penstock serve`; the report is about the queries that are there after it.

    written: settings of the server, as they were written.
    """
    with TemporaryDirectory(prefix="penstock-") as folder:
        control = Control(Path(folder), IdleEngine(Path(folder) / "engine"), written)
        try:
            found = control.check(parse_script(script, name))
        finally:
            control.close()
    bound = found.after.bound.queries
    # Each was written with the settings that were in force there.
    standing = [
        (bound[one.name.lower()], settings_of(one.settings))
        for one, _ in found.after.stored.queries
        if one.name.lower() in bound
    ]
    warnings = [warning for one in found.outcomes for warning in one.warnings]
    check_sources((query for query, _ in standing), script)
    return _report(script, name, standing, warnings, {})


class IdleEngine(InProcessEngine):
    """Runs nothing, so it refuses nothing that only Spark does."""

    def check(self, version: NextVersion) -> None:
        pass


def _report(
    script: str, name: str, queries: Sequence[tuple[Query, Settings]], warnings: Iterable[ScriptWarning],
    memory: Mapping[str, tuple[Row, ...]],
) -> Iterator[str]:  # fmt: skip
    """Yield the lines about a script that binds. queries: each with the settings for its state."""
    yield f"{name}: correct, {len(queries)} {'query' if len(queries) == 1 else 'queries'}"
    yield from (warning.render() for warning in warnings)
    for query, settings in queries:
        statistics = known_statistics(declared_sources(query.root), memory, {}, settings["statistics"])
        yield from _state_report(query, query_state(query, statistics, Strategy.of(settings)), script, name)


def check_sources(queries: Iterable[Query], script: str = "") -> None:
    """Check the files that queries read, as a start does. Raises the errors of a start, of all sources together.

    Args:
        script: a comment of it that begins with `Data:` says how its files are had, where they are missing.
    """
    told = _DATA.search(script)
    errors: list[PenstockError] = []
    for source in declared_sources(*(query.root for query in queries)).values():
        try:
            check_files(source)
        except PenstockError as error:
            if told is not None and error.code == _MISSING:
                error = PenstockError(error.code, error.message, error.position, told[1].strip(), error.cause)
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ScriptErrors(errors)


def _state_report(query: Query, state: QueryState, script: str, file: str) -> Iterator[str]:
    """Yield the lines about the state of a query; those of unbounded state show the place in the script, and a hint."""
    if state.bounded:
        yield f"{query.name}: state {state.verdict}"
        return
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
