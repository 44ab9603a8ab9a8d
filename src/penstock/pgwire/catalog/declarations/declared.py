"""The declarations of the server as PostgreSQL's catalogs have them: relations with oids, columns and comments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.pgwire.values.wire_types import WireType

DATABASE, PUBLIC = "penstock", "public"
DATABASE_OID, OWNER_OID = 5, 10
#: Oids of schemas; others follow those of declarations.
SCHEMA_OIDS = {"pg_catalog": 11, "public": 2200, "information_schema": 13_000}


@dataclass(frozen=True)
class DeclaredColumn:
    """A column. modifier: of its type, -1 for none."""

    name: str
    type: WireType
    modifier: int = -1
    is_key: bool = False


@dataclass(frozen=True)
class DeclaredRelation:
    """A relation of the catalogs.

    Args:
        kind: as pg_class has it: `r` a relation, `f` a stream, `v` a view, `m` a query with its results.
        connector: from which it reads or into which it writes; empty for a view.
        index, constraint: oids of those of its primary key; server: of that of its connector.
    """

    oid: int
    name: str
    kind: str
    columns: tuple[DeclaredColumn, ...]
    schema: str = PUBLIC
    definition: str = ""
    comment: str = ""
    connector: str = ""
    index: int = 0
    constraint: int = 0
    server: int = 0

    @property
    def key(self) -> tuple[int, ...]:
        """Return the numbers of the columns of its primary key, from 1."""
        return tuple(index for index, column in enumerate(self.columns, 1) if column.is_key)


@dataclass(frozen=True)
class CatalogImage:
    """What is declared, by oid, and the names of schemas by theirs."""

    relations: Mapping[int, DeclaredRelation]
    schemas: Mapping[int, str]

    def named(self, name: str, schema: str | None = None) -> DeclaredRelation | None:
        """Return a declared relation by its name, in any case of letters. schema: `public` where none is given."""
        lower = name.lower()
        for one in self.relations.values():
            if one.name.lower() == lower and one.schema == (schema or PUBLIC):
                return one
        return None


def shown_type(type_: WireType, modifier: int = -1) -> str:
    """Return a type as format_type writes it."""
    if type_.name == "numeric" and modifier >= 4:
        return f"numeric({modifier - 4 >> 16},{modifier - 4 & 0xFFFF})"
    return type_.shown
