"""The declarations after some transactions, of which others that were accepted before them may be missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.control.registry import EarlierPromises, Registry, declared, unbound
from penstock.control.stored_catalog import CatalogChange, StoredObject
from penstock.errors import as_known
from penstock.language.catalog import Catalog

#: The parts of a catalog that are kept by the names of declarations other than functions.
_BY_NAME = ("sources", "views", "queries", "texts", "reads", "registered", "summaries", "beside", "unbound")
_OF_FUNCTIONS = ("functions", "unbound_functions")
_FUNCTIONS = ("FUNCTION", "AGGREGATE")


@dataclass(frozen=True)
class BoundChange:
    """What a transaction changes. bound: the declarations after it, bound; those that it changes are taken from it."""

    change: CatalogChange = field(default_factory=CatalogChange)
    bound: Catalog = field(default_factory=Catalog)


def with_changes(registry: Registry, changes: Iterable[BoundChange]) -> Registry:
    """Return the declarations after some transactions, in order."""
    stored = registry.stored
    parts: dict[str, dict[str, Any]] = {
        name: dict(getattr(registry.bound, name)) for name in (*_BY_NAME, *_OF_FUNCTIONS)
    }
    errors = dict(registry.errors)
    for one in changes:
        changed = [stored.objects[number.id] for number in one.change.objects if number.id in stored.objects]
        removed = [stored.objects[number] for number in one.change.removed if number in stored.objects]
        kept = {each.key for each in one.change.objects}
        for former in (*changed, *removed):
            # What keeps its name keeps its place in the order of declarations.
            if former.key not in kept:
                _remove(parts, former)
            errors.pop(former.id, None)
        stored = stored.changed(one.change)
        for each in one.change.objects:
            if not _take(parts, each, one.bound) and each.id in registry.errors:
                errors[each.id] = registry.errors[each.id]
    return replace(registry, stored=stored, bound=replace(registry.bound, **parts), errors=errors)


def bound_change(registry: Registry, change: CatalogChange) -> BoundChange:
    """Bind what a transaction of the log changes. Raises ScriptErrors and PenstockError for what cannot be bound; a
    declaration that could not be bound before may stay so."""
    bound = registry.bound
    for number in [*change.removed, *(one.id for one in change.objects)]:
        former = registry.stored.objects.get(number)
        if former is not None:
            bound = bound.without_function(former.name) if former.kind in _FUNCTIONS else bound.without(former.name)
    then = EarlierPromises(registry.stored.changed(change))
    for one in sorted(change.objects, key=_order):
        try:
            bound = declared(one, bound, then)
        except Exception as error:
            if one.id not in registry.errors:
                raise
            bound = bound.with_unbound(unbound(one, as_known(error, f"internal error at {one.name}")))
    return BoundChange(change, bound)


def _order(one: StoredObject) -> int:
    return {"QUERY": 3, "VIEW": 2, "SUMMARY": 2, "STREAM": 1, "RELATION": 1}.get(one.kind, 0)


def _remove(parts: dict[str, dict[str, Any]], one: StoredObject) -> None:
    for name in _OF_FUNCTIONS if one.kind in _FUNCTIONS else _BY_NAME:
        parts[name].pop(one.name.lower(), None)


def _take(parts: dict[str, dict[str, Any]], one: StoredObject, bound: Catalog) -> bool:
    """Take a declaration from `bound`; return whether it is there."""
    key = one.name.lower()
    names = _OF_FUNCTIONS if one.kind in _FUNCTIONS else _BY_NAME
    for name in names:
        values = getattr(bound, name)
        if key in values:
            parts[name][key] = values[key]
        else:
            parts[name].pop(key, None)
    return any(
        key in parts[name] for name in ("functions", "sources", "views", "queries", "summaries") if name in names
    )
