"""What is declared, as \\d and the completion show it: of a session in this process, or of a server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.language.catalog import Catalog
from penstock.language.keywords import KEYWORDS
from penstock.redaction import redacted_text
from penstock.types import Schema, type_name

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class DeclaredObject:
    """A stream, relation, view or query.

    Args:
        kind: `stream`, `relation`, `view` or `query`.
        connector: of a source, or of a query's sink.
        columns: (name, type).
        text: the statement that declares it.
        state: of a query that runs at a server.
    """

    name: str
    kind: str
    connector: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    text: str = ""
    state: str = ""

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


@dataclass(frozen=True)
class Declared:
    """All declarations, by name in lower case. functions: (name, kind) of users' functions."""

    objects: Mapping[str, DeclaredObject] = field(default_factory=dict)
    functions: tuple[tuple[str, str], ...] = ()


def declared_by_name(objects: Iterable[DeclaredObject], functions: Iterable[tuple[str, str]] = ()) -> Declared:
    return Declared({one.name.lower(): one for one in objects}, tuple(functions))


def declared_of(catalog: Catalog) -> Declared:
    """Return what the catalog of a session declares."""
    objects = [
        DeclaredObject(
            source.name,
            "stream" if source.is_stream else "relation",
            source.connector,
            _columns(source.columns),
            redacted_text(catalog.texts.get(key, "")),
        )
        for key, source in catalog.sources.items()
    ]
    for view in catalog.views.values():
        columns = tuple(zip(view.names, (type_name(kind) for kind in view.root.schema.types), strict=True))
        objects.append(DeclaredObject(view.name, "view", "", columns, redacted_text(view.text)))
    for query in catalog.queries.values():
        columns = _columns(query.root.schema)
        objects.append(DeclaredObject(query.name, "query", query.sink.connector, columns, redacted_text(query.text)))
    functions = tuple((user.name, user.kind.lower()) for user in catalog.functions.values())
    return declared_by_name(objects, functions)


def quoted(name: str) -> str:
    """Return a name as it is written: in backticks where it is not plain, or a keyword."""
    if _PLAIN.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return f"`{name.replace('`', '``')}`"


def _columns(schema: Schema) -> tuple[tuple[str, str], ...]:
    return tuple(zip(schema.names, (type_name(kind) for kind in schema.types), strict=True))
