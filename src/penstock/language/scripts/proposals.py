"""Which promises of streams would bound the state of a query: what `penstock check` proposes.

Candidates follow from the columns that the query compares by `=` and groups by. Each is added to the declarations, and
the query is bound again: it is proposed where the plan then stores less without a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.algebra import Algebra, Source
from penstock.algebra.analysis.promise_candidates import StreamColumns, compared_streams, grouped_streams, has_order
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.promised import ClosingGroups, PromisedJoin
from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.promises import Clustered, ForeignKey, Ordered, Promise, Unique
from penstock.deep_trees import deep
from penstock.errors import PenstockError, ScriptErrors
from penstock.language.binder.statements.promises import promise_line
from penstock.language.catalog import Catalog
from penstock.language.scripts import bind_script
from penstock.settings import Settings


@dataclass(frozen=True)
class Proposal:
    """Promises that together bound some of the state of a query.

    Args:
        statements: one for each, which adds it to its stream.
        bounds: what it bounds, as text.
        of_streams: the streams whose rows it bounds; empty where it bounds groups.
        promised: those that are new, by the name of their stream in lower case.
    """

    statements: tuple[str, ...]
    bounds: tuple[str, ...]
    of_streams: tuple[str, ...]
    promised: tuple[tuple[str, Promise], ...]


@deep
def proposed_promises(
    query: Query, catalog: Catalog, settings: Settings | None = None, descending: bool = False
) -> tuple[Proposal, ...]:
    """Return the promises each of which would bound state of a query that has no bound; none for one that cannot be
    bound again.

    Args:
        query: of the catalog, with the text of its statement.
        descending: orders that descend are among them.
    """
    if not query.text:
        return ()
    before = _without_bound(optimize(query.root))
    found = []
    for candidate in dict.fromkeys(_candidates(optimize(query.root), catalog, descending)):
        changed = _with(candidate, catalog)
        root = _bound_again(query, changed, settings)
        if root is None or not _uses(root, candidate):
            continue
        after = _without_bound(optimize(root))
        ended = [bound for bound in before if before.count(bound) > after.count(bound)]
        if ended:
            added = [
                (name, next(one for one in changed.sources[name].promises if one == promise))
                for name, promise in candidate
                if promise not in catalog.sources[name].promises
            ]
            lines = tuple(promise_line(changed.sources[name], promise, changed) for name, promise in added)
            streams = dict.fromkeys(bound.source for bound in ended if bound.grade is Grade.UNBOUNDED)
            found.append(Proposal(lines, tuple(dict.fromkeys(map(_text, ended))), tuple(streams), tuple(added)))
    return tuple(found)


def _without_bound(root: Algebra) -> list[Boundedness]:
    """Return what bounds what the operators of a plan store, where neither windows nor promises do."""
    bounds = (bound for node in operators(root) for bound in node.stored)
    return [bound for bound in bounds if bound.grade > Grade.PROMISED]


def _text(bound: Boundedness) -> str:
    return f"the rows of {bound.source}" if bound.grade is Grade.UNBOUNDED and bound.source else bound.by


def _uses(root: Algebra, candidate: tuple[tuple[str, Promise], ...]) -> bool:
    """Return whether operators of a plan use one of the promises."""
    added = set(candidate)
    for node in operators(root):
        used = [one.promise for one in node.leaving] if isinstance(node, PromisedJoin) else []
        used += node.closing if isinstance(node, ClosingGroups) else ()
        if any((base.source.lower(), base.promise) in added for one in used for base in one.bases):
            return True
    return False


# --- candidates


def _candidates(root: Algebra, catalog: Catalog, descending: bool) -> Iterator[tuple[tuple[str, Promise], ...]]:
    """Yield promises that a plan might use."""
    for node in operators(root):
        for one, other in compared_streams(node):
            for child, parent in ((one, other), (other, one)):
                if child != parent:  # of itself every row is there
                    reference = ForeignKey(child.columns, parent.stream, parent.columns)
                    unique = (parent.stream.lower(), Unique(parent.columns))
                    yield (unique, (child.stream.lower(), reference))
                yield from _closing(child, catalog, descending)
        for group in grouped_streams(node):
            yield from _closing(group, catalog, descending)


def _closing(one: StreamColumns, catalog: Catalog, descending: bool) -> Iterator[tuple[tuple[str, Promise], ...]]:
    name = one.stream.lower()
    yield ((name, Clustered(one.columns)),)
    for column in one.columns:
        if has_order(catalog.sources[name].columns[column].type):
            for descends in (False, True)[: 1 + descending]:
                yield ((name, Ordered((column,), descends)),)


# --- binding again


def _with(candidate: tuple[tuple[str, Promise], ...], catalog: Catalog) -> Catalog:
    """Return the catalog with further promises of its streams."""
    for name, promise in candidate:
        source = catalog.sources[name]
        if promise not in source.promises:
            changed = replace(source, promises=(*source.promises, replace(promise, name=_name(source, promise))))
            catalog = replace(catalog, sources={**catalog.sources, name: changed})
    return catalog


def _name(source: Source, promise: Promise) -> str:
    """Return a name that no other promise of the stream has."""
    taken = {one.name.lower() for one in source.promises}
    columns = [source.columns[c].name.lower() for c in promise.columns]
    name = "_".join([*columns, promise.WORDS.split()[0].lower()])
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def _bound_again(query: Query, catalog: Catalog, settings: Settings | None) -> Algebra | None:
    """Return the plan of a query over changed declarations; None where it cannot be bound."""
    views = catalog.views
    catalog = replace(catalog, views={}, queries={}, reads={}, registered={}, beside={})
    try:
        for view in views.values():
            catalog = bind_script(view.text, catalog, settings).catalog
        bound = bind_script(query.text, catalog, settings)
    except (ScriptErrors, PenstockError):
        return None
    return bound.queries[-1].root if bound.queries else None
