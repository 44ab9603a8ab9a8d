"""Functions that look up what is declared, or what the connection has set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pgwire.catalog.database.python_functions import parse_ident, quote_ident
from penstock.pgwire.catalog.database.requests import DatabaseSession
from penstock.pgwire.catalog.declarations.declared import PUBLIC, CatalogImage, DeclaredRelation, shown_type
from penstock.pgwire.catalog.declarations.tables import system_oids
from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.values.wire_types import type_named, type_of_oid


class Lookups:
    """See the module. image: what is declared; changed: what the statement has set."""

    #: Functions whose results differ between statements.
    of_session = frozenset({"px_setting", "px_set", "px_may"})

    def __init__(self) -> None:
        self.image = CatalogImage({}, {})
        self.changed: list[tuple[str, str]] = []
        self._session: DatabaseSession | None = None
        self._system = {oid: key for key, oid in system_oids().items()}

    def begin(self, session: DatabaseSession) -> None:
        """Begin a statement of a connection."""
        self._session, self.changed = session, []

    def functions(self) -> dict[str, tuple[str, Callable[..., Any], bool]]:
        """Return the functions by name: the type of the result for DuckDB, what is called, and whether it is with
        NULL."""
        texts = (
            "format_type",
            "types",
            "viewdef",
            "description",
            "constraint",
            "index",
            "regclass_name",
            "regtype_name",
            "regnamespace_name",
            "setting",
            "set",
        )
        oids = ("to_regclass", "regclass", "regtype", "regnamespace")
        flags = ("visible", "may")
        kinds = {**dict.fromkeys(texts, "VARCHAR"), **dict.fromkeys(oids, "BIGINT"), **dict.fromkeys(flags, "BOOLEAN")}
        return {f"px_{name}": (kind, getattr(self, f"_{name}"), False) for name, kind in kinds.items()}

    # -- the connection ----------------------------------------------------------------------------------------

    def _setting(self, name: str, missing_ok: bool = False) -> str | None:
        assert self._session is not None, "a statement has begun"
        settings = {**{key.lower(): value for key, value in self._session.settings.items()}, **dict(self.changed)}
        value = settings.get(name.lower())
        if value is None and not missing_ok:
            raise WireError("42704", f"there is no setting {name}", code="P0104")
        return value

    def _set(self, name: str, value: str, _: bool = False) -> str:
        self.changed.append((name.lower(), value))
        return value

    def _may(self, *arguments: str) -> bool:
        assert self._session is not None, "a statement has begun"
        words = (word.strip() for word in str(arguments[-1]).lower().split(","))
        return self._session.can_write or all(word in ("select", "usage") for word in words)

    # -- names and oids ----------------------------------------------------------------------------------------

    def _to_regclass(self, name: str) -> int | None:
        if name.isdigit():
            return int(name)
        *schema, table = parse_ident(name)
        found = self.image.named(table, schema[-1] if schema else None)
        if found is not None:
            return found.oid
        return system_oids().get((schema[-1] if schema else "pg_catalog", table))

    def _regclass(self, name: str) -> int:
        found = self._to_regclass(name)
        if found is None:
            raise WireError("42P01", f"there is no relation {name}", code="P0201")
        return found

    def _regclass_name(self, oid: int) -> str:
        known = self.image.relations.get(oid)
        if known is not None:
            # As PostgreSQL: with its schema where the search path has it not.
            return ("" if known.schema == PUBLIC else f"{quote_ident(known.schema)}.") + quote_ident(known.name)
        return "-" if not oid else self._system[oid][1] if oid in self._system else str(oid)

    def _regtype(self, name: str) -> int | None:
        found = type_named(name)
        return int(name) if name.isdigit() else None if found is None else found.oid

    def _regtype_name(self, oid: int) -> str:
        return self._format_type(oid, -1)

    def _format_type(self, oid: int, modifier: int) -> str:
        found = type_of_oid(oid)
        return "-" if not oid else "???" if found is None else shown_type(found, modifier)

    def _types(self, oids: list[int]) -> str:
        return ", ".join(self._format_type(oid, -1) for oid in oids)

    def _regnamespace(self, name: str) -> int | None:
        if name.isdigit():
            return int(name)
        schema_name = parse_ident(name)[-1]
        return next((oid for oid, schema in self.image.schemas.items() if schema == schema_name), None)

    def _regnamespace_name(self, oid: int) -> str:
        return self.image.schemas.get(oid, str(oid))

    # -- what is declared --------------------------------------------------------------------------------------

    def _viewdef(self, oid: int) -> str | None:
        one = self.image.relations.get(oid)
        return None if one is None or one.kind not in "vm" else one.definition

    def _visible(self, oid: int) -> bool:
        one = self.image.relations.get(oid)
        return (self._system.get(oid, (PUBLIC, ""))[0] if one is None else one.schema) in ("pg_catalog", PUBLIC)

    def _description(self, oid: int) -> str | None:
        one = self.image.relations.get(oid)
        return None if one is None else one.comment or None

    def _keyed(self, oid: int) -> tuple[DeclaredRelation | None, list[str]]:
        """Return the relation whose primary key a constraint or an index is, and the columns of the key."""
        one = next((one for one in self.image.relations.values() if oid and oid in (one.index, one.constraint)), None)
        return one, [] if one is None else [quote_ident(one.columns[number - 1].name) for number in one.key]

    def _constraint(self, oid: int) -> str | None:
        one, columns = self._keyed(oid)
        return None if one is None else f"PRIMARY KEY ({', '.join(columns)})"

    def _index(self, oid: int, number: int) -> str | None:
        one, columns = self._keyed(oid)
        if one is None or number:
            return columns[number - 1] if 0 < number <= len(columns) else None
        name, table = quote_ident(f"{one.name}_pkey"), quote_ident(one.name)
        return f"CREATE UNIQUE INDEX {name} ON {one.schema}.{table} USING btree ({', '.join(columns)})"
