"""The names that a query reads."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.preferences import summaries_read
from penstock.language.plan_form import sources_named
from penstock.language.queries import EmbeddedQuery, Name, NamedSource, PlanQuery, WholeQuery, WithQuery
from penstock.language.text import LEAVES, fields_compared


def read_by(tree: WholeQuery) -> frozenset[str]:
    """Return the names of sources anywhere in a query, in lower case."""
    return frozenset(source.name.key for source in sources_in(tree))


def names_read(tree: WholeQuery, root: Algebra) -> frozenset[str]:
    """Return the names that a query reads: of sources, and of the summaries in its preferences."""
    return read_by(tree) | {summary.name.lower() for summary in summaries_read(root)}


def sources_in(tree: WholeQuery) -> Iterator[NamedSource]:
    """Yield the sources that a query names, without local views where these hide declared ones; those of a plan have no
    place."""
    todo: list[tuple[object, frozenset[str]]] = [(tree, frozenset())]
    while todo:
        part, hidden = todo.pop()
        if isinstance(part, PlanQuery):
            yield from (NamedSource(Name(name)) for name in sources_named(part.text))
        elif isinstance(part, NamedSource):
            if part.name.key not in hidden:
                yield part
        elif isinstance(part, WithQuery):
            for view in part.views:
                todo.append((view.query, hidden))
                hidden |= {view.name.key}
            todo.append((part.query, hidden))
        elif isinstance(part, tuple):
            todo.extend((one, hidden) for one in part)
        elif isinstance(part, exp.Expr):
            todo.extend((embedded.tree, hidden) for embedded in part.find_all(EmbeddedQuery))
        elif type(part) not in LEAVES and (names := fields_compared(type(part))) is not None:
            todo.extend((getattr(part, name), hidden) for name in names)
