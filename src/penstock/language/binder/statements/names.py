"""Find what the names in a statement stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.errors import as_name, nearest
from penstock.language.binder.context import Context
from penstock.language.catalog import Catalog
from penstock.language.queries import Name
from penstock.types import Schema


def query_named(name: Name, context: Context, read: str = "") -> Query:
    """Return a registered query. read: how another declaration is read in its place, for the hint. Raises
    BindingFailed after P0201."""
    query = context.catalog.queries.get(name.key)
    if query is None or not name.matches(query.name):
        if name.key in context.failed:
            context.fail_silently()
        context.check_bound(name)
        kind = context.catalog.kind(name.key)
        if query is None and kind is not None:
            hint = read or nearest(name.text, [q.name for q in context.catalog.queries.values()])
            context.fail("P0201", f"{name.text} is {an(kind)}", name.span, hint)
        known = [q.name for q in context.catalog.queries.values()]
        context.fail("P0201", f"unknown query {name.text}", name.span, nearest(name.text, known))
    return query


def source_named(name: Name, kind: str, context: Context, rows: bool = False) -> Source:
    """Return a declared stream or relation. rows: its rows are to change. Raises BindingFailed after P0201."""
    source = context.catalog.sources.get(name.key)
    if source is None or not name.matches(source.name):
        _unknown(name, kind, context)
    found = "STREAM" if source.is_stream else "RELATION"
    if found != kind:
        hint = "a stream only receives rows; UPDATE and DELETE change those of a relation"
        hint = hint if rows else f"ALTER {found} {as_name(name.text)} SET (...)"
        context.fail("P0201", f"{name.text} is {an(found)}", name.span, hint)
    return source


def _unknown(name: Name, kind: str, context: Context) -> NoReturn:
    if name.key in context.failed:
        context.fail_silently()
    known = context.catalog.kind(name.key)
    if known in ("VIEW", "QUERY"):
        hint = f"the rows of a {known.lower()} follow from those that it reads: change these"
        context.fail("P0201", f"{name.text} is {an(known)}", name.span, hint)
    context.check_bound(name)
    names = [s.name for s in context.catalog.sources.values() if s.is_stream == (kind == "STREAM")]
    context.fail("P0201", f"unknown {kind.lower()} {name.text}", name.span, nearest(name.text, names))


def column_named(name: Name, columns: Schema, context: Context) -> int:
    """Return the position of a declared column. Raises BindingFailed after P0202."""
    position = next((i for i, column in enumerate(columns) if name.matches(column.name)), None)
    if position is None:
        context.fail("P0202", f"unknown column {name.text}", name.span, nearest(name.text, columns.names))
    return position


def distinct_names(names: Sequence[Name], context: Context) -> None:
    seen: set[str] = set()
    for name in names:
        if name.key in seen:
            context.attempt(lambda: context.fail("P0206", f"column {name.text} occurs twice", name.span))  # noqa: B023
        seen.add(name.key)


def declared_name(key: str, catalog: Catalog) -> str:
    """Return a name as its declaration has it."""
    tables: tuple[Any, ...] = (catalog.sources, catalog.views, catalog.queries, catalog.summaries)
    return str(next(table[key].name for table in tables if key in table))


def an(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind.lower()}"
