"""What `penstock check` does with a script that binds: it looks for the files of sources, and prints of every query
whether its state is bounded, by what, how large.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.properties.boundedness import Grade
from penstock.algebra.properties.statistics import known_statistics
from penstock.connectors.sources import check_files
from penstock.control.engine import NextVersion
from penstock.control.live.control import Control
from penstock.control.registry import settings_of
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError, Position, ScriptErrors, ScriptWarning
from penstock.language.binder.statements.names_read import sources_in
from penstock.language.catalog import Catalog
from penstock.language.queries import NOWHERE, WholeQuery
from penstock.language.scripts.parse import parse_script
from penstock.language.scripts.proposals import Proposal, proposed_promises
from penstock.language.statements import AlterQueryStatement, CreateQuery, OneTimeSelect
from penstock.language.statements.alter_query import AsAction
from penstock.language.statements.script import Script
from penstock.language.text import TextSpan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.state_size.summary import QueryState, query_state
from penstock.redaction import redacted_text
from penstock.session import Session
from penstock.settings import Settings

#: A line of a script, and the error of files that are not there.
_DATA, _MISSING = re.compile(r"^--\s*Data:\s*(\S.*)$", re.MULTILINE | re.IGNORECASE), "P0404"


def check_for_run(script: str, name: str, settings: Settings) -> Iterator[str]:
    """Check a script of `penstock run`; yield the lines of the report. name: its file. Raises the errors of the script,
    or those of a start for its files, P0401, P0402 and P0404, of all sources together.
    """
    session = Session(settings=settings)
    queries = [session.catalog.queries[query.lower()] for query in session.declare(script, name)]
    check_sources(queries, script)
    with_settings = [(query, session.settings) for query in queries]
    return _report(lambda: parse_script(script, name), name, with_settings, session.warnings, session.catalog)


def check_for_server(script: str, name: str, written: Mapping[str, str]) -> Iterator[str]:
    """The same for a script of `penstock serve`; the report is about the queries that are there after it.

    written: settings of the server, as they were written.
    """
    with TemporaryDirectory(prefix="penstock-") as folder:
        control = Control(Path(folder), IdleEngine(Path(folder) / "engine"), written)
        try:
            parsed = parse_script(script, name)
            found = control.check(parsed)
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
    return _report(lambda: parsed, name, standing, warnings, replace(found.after.bound, memory={}))


class IdleEngine(InProcessEngine):
    """Runs nothing, so it refuses nothing that only Spark does."""

    def check(self, version: NextVersion) -> None:
        pass


def _report(
    script: Callable[[], Script],
    name: str,
    queries: Sequence[tuple[Query, Settings]],
    warnings: Iterable[ScriptWarning],
    catalog: Catalog,
) -> Iterator[str]:
    """Yield the lines about a script that binds.

    Args:
        script: returns it.
        queries: each with the settings for its state.
        catalog: after it.
    """
    yield f"{name}: correct, {len(queries)} {'query' if len(queries) == 1 else 'queries'}"
    yield from (warning.render() for warning in warnings)
    for query, settings in queries:
        statistics = known_statistics(declared_sources(query.root), catalog.memory, {}, settings["statistics"])
        state = query_state(query, statistics, Strategy.of(settings))
        yield from _state_report(query, state, script, name)
        if state.bound.grade > Grade.PROMISED:
            yield from _proposals(proposed_promises(query, catalog, settings))


def _proposals(proposals: Sequence[Proposal]) -> Iterator[str]:
    """Yield the lines about promises that would bound the state of a query."""
    if proposals:
        yield "  promises that would bound it, where the data keep them (WITHIN k):"
    for one in proposals:
        *first, last = one.statements
        yield from (f"    {statement};" for statement in first)
        yield f"    {last};  -- {', '.join(one.bounds)}"


def check_sources(queries: Iterable[Query], script: str = "") -> None:
    """Check the files that queries read, as a start does. Raises the errors of a start, of all sources together.

    Args:
        script: a comment of it that begins with `Data:` is the hint where its files are missing.
    """
    data_comment = _DATA.search(script)
    errors: list[PenstockError] = []
    for source in declared_sources(*(query.root for query in queries)).values():
        try:
            check_files(source)
        except PenstockError as error:
            if data_comment is not None and error.code == _MISSING:
                error = PenstockError(error.code, error.message, error.position, data_comment[1].strip(), error.cause)
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ScriptErrors(errors)


def _state_report(query: Query, state: QueryState, script: Callable[[], Script], file: str) -> Iterator[str]:
    """Yield the lines about the state of a query; those of unbounded state show the place in the script, and a hint."""
    if state.bounded:
        yield f"{query.name}: state {state.verdict}"
        return
    place = _position(script(), query, state)
    yield f"{file}:{place.line}:{place.column}: warning: {query.name}: state {state.verdict}"
    yield from (f"  {line}" for line in place.render().split("\n"))
    if state.bound.hint:
        yield f"  hint: {state.bound.hint}"


def _position(script: Script, query: Query, state: QueryState) -> Position:
    """Return where the query reads the source that makes its state grow, best with a window, or the query itself if it
    reads the source through a view.
    """
    place = TextSpan(0, 1)
    for span, tree in _definitions(script):
        if redacted_text(script.source.slice(span)) == query.text:
            named = [one for one in sources_in(tree) if one.name.key == state.bound.source.lower()]
            read = [(one.window is None, one.name.span.start, one.name.span) for one in named if one.span != NOWHERE]
            place = min(read)[2] if read else span
    return script.source.position(place)


def _definitions(script: Script) -> Iterator[tuple[TextSpan, WholeQuery]]:
    """Yield the continuous queries of a script, each with the place of what their text is."""
    for statement in script.statements:
        match statement:
            case CreateQuery(query=tree) | OneTimeSelect(query=tree):
                yield statement.span, tree
            case AlterQueryStatement(action=AsAction(query=tree)):
                yield tree.span, tree
