"""Scripts: text to statements (`parse_script`), statements to algebra (`bind_script`, `bind_query`), and back.

A script is parsed and bound as a whole; all errors in it are reported together, as `ScriptErrors`, and then nothing is
declared (docs/language/README.md).
"""

from __future__ import annotations

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.deep_trees import deep
from penstock.errors import ScriptErrors
from penstock.language.binder.context import QueryNames
from penstock.language.catalog import Catalog, QueryStatus, RegisteredQuery, View
from penstock.language.commands import Action, Explain, SelectOnce, Show
from penstock.language.printer import print_query
from penstock.language.scripts.parse import parse_query, parse_script, parse_statements
from penstock.language.scripts.script_binder import BoundScript, ScriptBinder, bind_command
from penstock.language.statements import print_statement
from penstock.language.statements.script import Script
from penstock.language.text import SourceText
from penstock.settings import Settings

__all__ = [
    "Action", "BoundScript", "Catalog", "Explain", "QueryNames", "QueryStatus", "RegisteredQuery", "Script",
    "SelectOnce", "Show", "View", "bind_command", "bind_query", "bind_script", "bind_select", "parse_script",
    "print_query", "print_statement",
]  # fmt: skip


@deep
def bind_script(
    text: str,
    catalog: Catalog | None = None,
    settings: Settings | None = None,
    file: str | None = None,
    one_time: bool = True,
    live: bool = False,
) -> BoundScript:
    """Parse and bind a script on top of `catalog`. file: its name, for messages; one_time, live: as in `ScriptBinder`.
    Raises ScriptErrors."""
    source = SourceText.of(text, file)
    parsed = parse_statements(source)
    binder = ScriptBinder(source, catalog or Catalog(), settings or Settings(), one_time, live, failed=set(parsed.lost))
    binder.bind(parsed.statements)
    if parsed.errors or binder.errors:
        raise ScriptErrors([*parsed.errors, *binder.errors])
    return binder.bound()


@deep
def bind_select(
    text: str, catalog: Catalog, settings: Settings | None = None, query_names: QueryNames = QueryNames.DEFINITION
) -> SelectOnce:
    """Bind a text that is one one-time query. query_names: what the names of queries stand for. Raises ScriptErrors."""
    source = SourceText.of(text)
    binder = ScriptBinder(source, catalog, settings or Settings(), query_names=query_names)
    binder.bind([parse_query(source)])
    if binder.errors:
        raise ScriptErrors(binder.errors)
    (action,) = binder.actions
    assert isinstance(action, SelectOnce)
    return action


@deep
def bind_query(text: str, catalog: Catalog, settings: Settings | None = None, name: str = "query") -> Query:
    """Bind a text that is one query; its sink is MEMORY. Raises ScriptErrors."""
    source = SourceText.of(text)
    statement = parse_query(source)
    binder = ScriptBinder(source, catalog, settings or Settings(), one_time=False)
    binder.bind([statement])
    if binder.errors:
        raise ScriptErrors(binder.errors)
    root = binder.bound().queries[0].root
    return Query(name, root, SinkSpec("MEMORY"), text)
