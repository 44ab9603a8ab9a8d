"""Find what is declared at the server, as PostgreSQL's catalogs have it."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Sequence
from dataclasses import replace

from penstock.control.entities.attributes import CONNECTOR
from penstock.control.entities.relations import CONTROL_RELATIONS
from penstock.language.queries import CONTROL_SCHEMA
from penstock.language.quotes import quoted_parts
from penstock.pgwire.catalog.declarations.declared import (
    PUBLIC,
    SCHEMA_OIDS,
    CatalogImage,
    DeclaredColumn,
    DeclaredRelation,
)
from penstock.pgwire.values.arrow_types import modifier_of, wire_type_of
from penstock.pgwire.values.wire_types import wire_type
from penstock.server.service import CatalogView
from penstock.types import parse_result_type, type_name

_FIRST_OID = 16_384
_AS = re.compile(r"[()]|\bAS\b", re.IGNORECASE)


class Oids:
    """Oids of what is declared: the same for a name as long as the server runs. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(_FIRST_OID)
        self._known: dict[tuple[str, ...], int] = {}

    def of(self, *name: str) -> int:
        """Return the oid of a name."""
        with self._lock:
            if name not in self._known:
                self._known[name] = next(self._numbers)
            return self._known[name]


def catalog_image(relations: Sequence[DeclaredRelation], oids: Oids) -> CatalogImage:
    """Return the catalogs of what is declared."""
    schemas = dict(SCHEMA_OIDS)
    for one in relations:
        if one.schema not in schemas:
            schemas[one.schema] = oids.of("schema", one.schema)
    numbered = [
        replace(
            one,
            index=oids.of("index", str(one.oid)) if one.key else 0,
            constraint=oids.of("constraint", str(one.oid)) if one.key else 0,
            server=oids.of("server", one.connector) if one.kind == "f" else 0,
        )
        for one in relations
    ]
    return CatalogImage({one.oid: one for one in numbered}, {oid: name for name, oid in schemas.items()})


def declared_relations(view: CatalogView, oids: Oids) -> list[DeclaredRelation]:
    """Return the streams, relations, views and queries of a catalog."""

    def columns(named: Sequence[tuple[str, str]], key: Sequence[str] = ()) -> tuple[DeclaredColumn, ...]:
        return tuple(_column(name, type_, name in key) for name, type_ in named)

    found: list[DeclaredRelation] = []
    for source in view.sources:
        kind = "f" if source.is_stream else "r"
        found.append(
            DeclaredRelation(
                oids.of(PUBLIC, source.name.lower()),
                source.name,
                kind,
                columns(source.columns, source.primary_key),
                definition=source.sql,
                connector=source.connector,
            )
        )
    for one in view.views:
        oid = oids.of(PUBLIC, one.name.lower())
        found.append(DeclaredRelation(oid, one.name, "v", columns(one.columns), definition=_query_of(one.sql)))
    for query in view.queries:
        oid, comment = oids.of("query", query.id), query.attributes.get("comment", "")
        found.append(
            DeclaredRelation(
                oid,
                query.name,
                "m",
                columns(query.selected),
                definition=_query_of(query.sql),
                comment=comment,
                connector=query.sink,
            )
        )
    return [*found, *_control_relations(oids)]


def _control_relations(oids: Oids) -> list[DeclaredRelation]:
    """Return the control relations of the server, and the streams among them, of a schema of their own."""
    return [
        DeclaredRelation(
            oids.of(CONTROL_SCHEMA, one.name),
            one.name,
            "f" if one.timestamp else "r",
            tuple(_column(attribute.name, type_name(attribute.type), False) for attribute in one.attributes),
            CONTROL_SCHEMA,
            comment=one.help,
            connector=CONNECTOR,
        )
        for one in CONTROL_RELATIONS
    ]


def _query_of(declaration: str) -> str:
    """Return the query of a declaration: what stands behind its first AS that is in no parentheses and no quotes. A
    query alone is returned as it is."""
    plain = list(declaration)
    for part in quoted_parts(declaration):
        end = len(declaration) if part.end is None else part.end
        plain[part.start : end] = " " * (end - part.start)
    if not "".join(plain).lstrip().upper().startswith(("CREATE", "ALTER")):
        return declaration
    depth = 0
    for found in _AS.finditer("".join(plain)):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if not depth and found[0].upper() == "AS":
            return declaration[found.end() :].strip()
    return declaration


def _column(name: str, type_: str, is_key: bool) -> DeclaredColumn:
    if type_ == "NULL":
        return DeclaredColumn(name, wire_type("text"))
    arrow = parse_result_type(type_)
    return DeclaredColumn(name, wire_type_of(arrow), modifier_of(arrow), is_key)
