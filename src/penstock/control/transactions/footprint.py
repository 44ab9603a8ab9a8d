"""Which declarations a transaction concerns: what decides whether another one has to wait for it, or fails with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.control.stored_catalog import CatalogChange, ObjectKey, StoredCatalog, StoredObject
from penstock.language.catalog import Catalog, called_functions


@dataclass(frozen=True)
class Footprint:
    """Declarations by what a transaction does with them.

    Args:
        writes: it declares, changes or drops them, under each of their names.
        reads: its queries and views refer to them, directly or through views.
        rows: it changes their rows.
    """

    writes: frozenset[ObjectKey] = frozenset()
    reads: frozenset[ObjectKey] = frozenset()
    rows: frozenset[ObjectKey] = frozenset()

    def waits_for(self, earlier: Footprint) -> bool:
        """Return whether it must not be applied before an earlier transaction."""
        return self.depends_on(earlier) or bool(self.writes & (earlier.reads | earlier.rows))

    def depends_on(self, earlier: Footprint) -> bool:
        """Return whether it means something else where an earlier transaction had no effect."""
        return bool((self.writes | self.reads | self.rows) & earlier.writes or self.rows & earlier.rows)


def footprint_of(before: StoredCatalog, change: CatalogChange, bound: Catalog) -> Footprint:
    """Return the footprint of a transaction.

    Args:
        before: the declarations before it.
        bound: those after it, bound.
    """
    former = [before.objects.get(one.id) for one in change.objects]
    former += [before.objects.get(number) for number in change.removed]
    declared = [*change.objects, *(one for one in former if one is not None)]
    known = {**before.objects, **{one.id: one for one in change.objects}}
    rows = {known[row.source].key for row in change.rows if row.source in known}
    return Footprint(frozenset(one.key for one in declared), _read(change.objects, bound), frozenset(rows))


def _read(objects: Iterable[StoredObject], bound: Catalog) -> frozenset[ObjectKey]:
    """Return what queries and views read, through views too, and which functions they call."""
    found: set[ObjectKey] = set()
    waiting = [one.name.lower() for one in objects if one.kind in ("QUERY", "VIEW", "SUMMARY")]
    for name in waiting:
        roots = [named[name].root for named in (bound.queries, bound.views) if name in named]
        roots += [bound.beside[name].query.root] if name in bound.beside else []
        found |= {("FUNCTION", called) for root in roots for called in called_functions(root)}
    while waiting:
        name = waiting.pop()
        beside = bound.beside[name].reads if name in bound.beside else frozenset[str]()
        for read in bound.reads.get(name, frozenset()) | beside:
            key = "", read.lower()
            if key not in found:
                found.add(key)
                waiting.append(key[1])
    return frozenset(found)
