"""All control relations, and the two that list their entities and attributes.

To add an attribute, write its row in the table of its relation; to add a relation, write its table and add it to
`CONTROL_RELATIONS`. SELECT, UPDATE, the HTTP forms and docs/control-relations.md follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.control.entities.attributes import (
    COUNT,
    FLAG,
    REAL,
    TEXT,
    Attribute,
    AttributeSetting,
    ControlRelation,
    never,
    unmeasured,
)
from penstock.control.entities.batches import BATCH_LOG, BATCHES
from penstock.control.entities.constraints import CONSTRAINTS
from penstock.control.entities.plan import (
    OPERATOR_SHARDS,
    OPERATORS,
    PLAN_EDGES,
    QUERY_OPERATORS,
    QUEUES,
    SHARDS,
    STAGES,
    OperatorRow,
)
from penstock.control.entities.preferences import PREFERENCES, SUMMARIES
from penstock.control.entities.queries import APPROXIMATIONS, QUERIES, QueryRow
from penstock.control.entities.running import (
    COMMANDS,
    DEAD_LETTERS,
    SESSIONS,
    SETTINGS,
    SNAPSHOTS,
    SUBSCRIPTIONS,
    TOKENS,
    VERSIONS,
)
from penstock.control.entities.sources import COLUMNS, FUNCTIONS, RELATIONS, STREAMS, VIEWS
from penstock.control.entities.synopses import SYNOPSES
from penstock.control.entities.system import SystemView
from penstock.errors import PenstockError
from penstock.language.catalog import ControlTable
from penstock.language.statements import Statement
from penstock.types import type_name

# Of what no version has so far: they are empty, with the columns that they will have.
_TYPES: dict[str, pa.DataType] = {"t": TEXT, "n": COUNT, "x": REAL, "b": FLAG}


def _empty(name: str, what: str, columns: str) -> ControlRelation[Any]:
    """Return a relation without rows. columns: each as `name:type`, with a letter of `_TYPES`."""
    pairs = (column.split(":") for column in columns.split())
    attributes = tuple(unmeasured(column, _TYPES[type_], f"of {what}") for column, type_ in pairs)
    return ControlRelation(name, f"Always empty: this version has no {what}.", attributes, never)


ARCHIVES = _empty(
    "archives",
    "archives",
    "name:t on_object:t lifetime:t key:t g:n e:n layout:t strategy:t rows:n bytes:n blocks_read:n blocks_written:n"
    " last_update:n",
)
ARCHIVE_PARTS = _empty(
    "archive_parts",
    "archives",
    "archive:t part:t insertion_from:n insertion_until:n expiration_from:n expiration_until:n rows:n bytes:n",
)
PERIODIC = _empty(
    "periodic", "periodic queries", "group:t query:t window:n slide:n period:n deadline:n runs:n late:n latency:x"
)
POLICIES = _empty("policies", "scheduling policies", "name:t kind:t parameters:t")

#: Those whose rows are the entities of the others.
_OBJECTS: tuple[ControlRelation[Any], ...] = (
    QUERIES, STREAMS, RELATIONS, COLUMNS, VIEWS, FUNCTIONS, OPERATORS, OPERATOR_SHARDS, QUERY_OPERATORS, PLAN_EDGES,
    QUEUES, SYNOPSES, STAGES, SHARDS, POLICIES, ARCHIVES, ARCHIVE_PARTS, CONSTRAINTS, APPROXIMATIONS,
    PREFERENCES, SUMMARIES, SNAPSHOTS, PERIODIC, COMMANDS, VERSIONS, SESSIONS, SUBSCRIPTIONS, TOKENS, DEAD_LETTERS,
    SETTINGS, BATCHES, BATCH_LOG,
)  # fmt: skip


@dataclass(frozen=True)
class EntityRow:
    """An entity: a row of a control relation."""

    relation: ControlRelation[Any]
    row: object

    @property
    def id(self) -> str:
        return self.relation.id_of(self.row)

    @property
    def queries(self) -> tuple[str, ...]:
        """Return the names of the queries that it belongs to."""
        if isinstance(self.row, QueryRow):
            return (self.row.name,)
        return self.row.readers if isinstance(self.row, OperatorRow) else ()

    def value(self, attribute: Attribute[Any]) -> str | None:
        """Return the value of an attribute as text."""
        value = attribute.read(self.row)
        return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


#: The kinds of entities.
ENTITY_KINDS = tuple(dict.fromkeys(relation.kind for relation in _OBJECTS if relation.kind))


def entities(view: SystemView, kind: str | None = None) -> Iterator[EntityRow]:
    """Yield the entities. kind: those of one kind alone."""
    for relation in _OBJECTS:
        if relation.kind and kind in (None, relation.kind):
            yield from (EntityRow(relation, row) for row in relation.rows(view))


def entity(view: SystemView, id_: str) -> EntityRow | None:
    """Return the entity with an id; None where there is none."""
    kind = id_.partition(":")[0]
    return next((one for one in entities(view, kind) if one.id == id_), None)


ENTITIES: ControlRelation[EntityRow] = ControlRelation(
    "entities",
    "Everything that works or holds something and has an id of its own.",
    (
        Attribute("id", TEXT, "its id, `kind:key`, which is never used for anything else", lambda row: row.id),
        Attribute("kind", TEXT, "its kind", lambda row: row.relation.kind),
        Attribute("name", TEXT, "its name for people", lambda row: row.relation.title(row.row)),
        Attribute("relation", TEXT, "the control relation that lists it", lambda row: row.relation.qualified),
    ),
    entities,
)


@dataclass(frozen=True)
class AttributeRow:
    """An attribute of an entity."""

    entity: EntityRow
    attribute: Attribute[Any]


def _attributes(view: SystemView) -> Iterable[AttributeRow]:
    return [AttributeRow(one, attribute) for one in entities(view) for attribute in one.relation.attributes]


def _default(row: AttributeRow) -> str | None:
    setting = row.attribute.setting
    return None if setting is None else setting.default


def _together(row: AttributeRow) -> int:
    setting = row.attribute.setting
    return 1 if setting is None or setting.together is None else setting.together(row.entity.row)


def _is_settable(row: AttributeRow) -> bool:
    setting = row.attribute.setting
    return setting is not None and setting.is_for(row.entity.row)


def _set(row: AttributeRow, value: str) -> Statement | Sequence[Statement]:
    setting = row.attribute.setting
    if setting is None:
        settable = ", ".join(one.name for one in row.entity.relation.attributes if one.setting is not None)
        hint = f"what can be set of it: {settable}" if settable else "nothing of it can be set"
        raise PenstockError("P0752", f"{row.attribute.name} of {row.entity.id} cannot be set", hint=hint)
    return setting.statement(row.entity.row, value)


ATTRIBUTES: ControlRelation[AttributeRow] = ControlRelation(
    "attributes",
    "The attributes of all entities, a row each: what their relations list, as texts.",
    (
        Attribute("entity", TEXT, "the id of the entity", lambda row: row.entity.id),
        Attribute("attribute", TEXT, "its name", lambda row: row.attribute.name),
        Attribute(
            "value",
            TEXT,
            "its value as text",
            lambda row: row.entity.value(row.attribute),
            setting=AttributeSetting(
                _set, "as the attribute is set in the relation of its entity", together=_together, default_of=_default
            ),
        ),
        Attribute("type", TEXT, "its type", lambda row: type_name(row.attribute.type)),
        Attribute("unit", TEXT, "its unit; NULL for none", lambda row: row.attribute.unit or None),
        Attribute("settable", FLAG, "whether UPDATE may set it of this entity", _is_settable),
        Attribute(
            "default_value",
            TEXT,
            "the value of a settable one that is not set",
            lambda row: None if row.attribute.setting is None else row.attribute.setting.default,
        ),
        Attribute("origin", TEXT, "where it is read", lambda row: row.attribute.origin.value),
        Attribute("help", TEXT, "what it is", lambda row: row.attribute.help),
    ),
    _attributes,
    title=lambda row: f"{row.attribute.name} of {row.entity.id}",
    confirms=True,
)

CONTROL_RELATIONS: tuple[ControlRelation[Any], ...] = (*_OBJECTS, ENTITIES, ATTRIBUTES)
BY_NAME = {one.qualified: one for one in CONTROL_RELATIONS}


def control_tables() -> dict[str, ControlTable]:
    """Return the control relations as statements are bound against them, by name with the schema."""
    return {name: one.declared for name, one in BY_NAME.items()}
