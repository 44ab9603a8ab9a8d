"""Entities as a server shows them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.control.entities.relations import ENTITY_KINDS, EntityRow, entities, entity
from penstock.control.entities.system import SystemView
from penstock.errors import PenstockError, nearest
from penstock.server.service import AttributeView, EntityView
from penstock.types import type_name


def entity_views(view: SystemView, kind: str | None, query: str | None) -> Sequence[EntityView]:
    """Return entities without their attributes. kind: those of one kind alone; query: those of one query, in any case
    of letters."""
    if kind is not None and kind not in ENTITY_KINDS:
        raise PenstockError("P0201", f"unknown kind of entity {kind[:100]}", hint=nearest(kind, ENTITY_KINDS))
    found = entities(view, kind)
    if query is not None:
        found = (one for one in found if query.lower() in {name.lower() for name in one.queries})
    return [_view(one) for one in found]


def entity_view(view: SystemView, id_: str) -> EntityView:
    """Return an entity with its attributes. Raises PenstockError P0201 for an unknown id."""
    found = entity(view, id_)
    if found is None:
        hint = "SELECT id, name FROM penstock.entities lists them"
        raise PenstockError("P0201", f"unknown entity {id_[:200]}", hint=hint)
    attributes = [
        AttributeView(
            one.name,
            found.value(one),
            type_name(one.type),
            one.unit,
            one.setting is not None,
            None if one.setting is None else one.setting.default,
            one.help,
        )
        for one in found.relation.attributes
    ]
    return _view(found, tuple(attributes))


def _view(one: EntityRow, attributes: tuple[AttributeView, ...] = ()) -> EntityView:
    return EntityView(
        one.id, one.relation.kind, one.relation.title(one.row), one.relation.qualified, one.queries, attributes
    )
