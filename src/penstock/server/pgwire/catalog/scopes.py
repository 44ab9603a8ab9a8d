"""Names in a statement over the catalogs: what a FROM clause offers, and where a column is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.errors import nearest
from penstock.server.pgwire.catalog.pure_functions import CatalogFunction
from penstock.server.pgwire.protocol.errors import WireError, unsupported
from penstock.server.pgwire.values.wire_types import WireType, wire_type


@dataclass(frozen=True)
class SqlColumn:
    """A column or the value of an expression.

    Args:
        text: for SQLite.
        type: None for a text without one yet.
        fields: the types of the fields of a record, which is a JSON object.
    """

    text: str
    type: WireType | None
    fields: Mapping[str, WireType | None] | None = None


@dataclass(frozen=True)
class FromItem:
    """What a FROM clause has: a name, and columns in their order. names: further ones by which columns are found."""

    alias: str
    columns: Mapping[str, SqlColumn]
    names: Mapping[str, SqlColumn] = field(default_factory=dict)

    def find(self, name: str) -> SqlColumn | None:
        return self.columns.get(name) or self.names.get(name)


@dataclass
class FromScope:
    """The items of a SELECT, and the one around it. tables: of WITH, by name."""

    above: FromScope | None = None
    items: list[FromItem] = field(default_factory=list)
    tables: dict[str, Sequence[tuple[str, SqlColumn]]] = field(default_factory=dict)
    outputs: dict[str, SqlColumn] = field(default_factory=dict)

    def without_items(self) -> FromScope:
        """Return what a query in FROM sees: everything around this SELECT, and nothing of its FROM."""
        return FromScope(self.above, tables=dict(self.tables))

    def item(self, name: str) -> FromItem | None:
        """Return what is called so in FROM, unless it is a column in a nearer one."""
        scope: FromScope | None = self
        while scope is not None:
            if any(name in one.columns for one in scope.items):
                return None
            found = next((one for one in scope.items if one.alias == name), None)
            if found is not None:
                return found
            scope = scope.above
        return None

    def table(self, name: str) -> Sequence[tuple[str, SqlColumn]] | None:
        """Return the columns of a table of WITH."""
        scope: FromScope | None = self
        while scope is not None:
            if name in scope.tables:
                return scope.tables[name]
            scope = scope.above
        return None

    def column(self, name: str, table: str | None) -> SqlColumn:
        """Return a column. Raises WireError 42703, 42P01, 42702."""
        scope: FromScope | None = self
        while scope is not None:
            items = [one for one in scope.items if table is None or one.alias == table]
            found = [column for one in items if (column := one.find(name)) is not None]
            if len(found) > 1 and len({one.text for one in found}) > 1 and table is None:
                found = [column for one in items if (column := one.columns.get(name)) is not None] or found
            if len(found) > 1 and table is None and len({one.text for one in found}) > 1:
                raise WireError("42702", f"{name} is ambiguous: it may be several columns", code="P0205")
            if found:
                return found[0]
            if table is not None and items:
                hint = nearest(name, items[0].columns)
                raise WireError("42703", f"{table} has no column {name}", hint, code="P0202")
            if table is None and (whole := next((one for one in scope.items if one.alias == name), None)) is not None:
                return _whole(whole)
            scope = scope.above
        if table is not None:
            raise WireError("42P01", f"there is no {table} in FROM", code="P0201")
        known = [column for one in self.items for column in one.columns]
        raise WireError("42703", f"unknown column {name}", nearest(name, known), code="P0202")


def _whole(item: FromItem) -> SqlColumn:
    """Return the value that the name of an item stands for: that of its only column."""
    if len(item.columns) == 1:
        return next(iter(item.columns.values()))
    raise unsupported(f"{item.alias} stands for whole rows, which are no values")


def set_item(
    alias: str, names: Sequence[str], function: CatalogFunction, type_: WireType | None, ordinal: str = ""
) -> FromItem:
    """Return the item of a function that returns rows.

    Args:
        names: of its columns, as the statement gives them.
        ordinal: the name of the column with the number of the row; empty for none.
    """
    quoted = quoted_name(alias)
    if function.fields is not None:
        given = list(names) + list(function.fields)[len(names) :]
        record = record_of(f"{quoted}.value", function, type_)
        columns = {name: field_of(record, field) for name, field in zip(given, function.fields, strict=False)}
        return FromItem(alias, columns, {alias: record})
    value = SqlColumn(f"{quoted}.value", type_)
    columns = {names[0] if names else alias: value}
    if ordinal:
        columns[ordinal] = SqlColumn(f"({quoted}.key + 1)", wire_type("int8"))
    return FromItem(alias, columns, {alias: value})


def record_item(
    name: str,
    given: Sequence[exp.Expr],
    alias: str,
    columns: Sequence[exp.Expr],
    scope: FromScope,
    translate: Callable[[exp.Expr, FromScope], SqlColumn],
) -> tuple[str, FromItem]:
    """Return one of RECORD_FUNCTIONS in FROM, and what it is called. Each field is a text that is cast to the type of
    its column.

    Args:
        given: its arguments.
        columns: as the statement defines them.
        translate: returns an expression for SQLite.

    Raises:
        WireError: 42601 where no columns are defined, 42883.
    """
    if len(given) != 1:
        raise WireError("42883", f"{name} has one argument", code="P0204")
    if not columns or not all(isinstance(one, exp.ColumnDef) and one.kind is not None for one in columns):
        hint = f"write {name}(..) AS {alias or 'x'}(name type, ..)"
        raise WireError("42601", f"{name} needs the names and types of its columns", hint, code="P0204")
    alias = alias or name
    defined = [(folded(one.this), one.kind) for one in columns if isinstance(one, exp.ColumnDef) and one.kind]
    described = json.dumps([[field, type_word(kind) in ("json", "jsonb")] for field, kind in defined])
    value = f"{quoted_name(alias)}.value"
    fields = {
        field: SqlColumn(f"json_extract({value}, '$[{n}]')", wire_type("text")) for n, (field, _) in enumerate(defined)
    }
    inner = FromScope(None)
    inner.items.append(FromItem(alias, fields))
    found = {
        field: translate(exp.Cast(this=exp.Column(this=exp.to_identifier(field, quoted=True)), to=kind.copy()), inner)
        for field, kind in defined
    }
    text = f"pg_fn_pg_record_set({translate(given[0], scope).text}, {text_literal(described)}, '{name}')"
    return f"json_each({text}) AS {quoted_name(alias)}", FromItem(alias, found)


#: Functions that take JSON apart, into columns that the statement defines.
RECORD_FUNCTIONS = frozenset({"json_to_record", "json_to_recordset", "jsonb_to_record", "jsonb_to_recordset"})


def record_of(text: str, function: CatalogFunction, element: WireType | None) -> SqlColumn:
    """Return a row of a function that returns records. element: of the array that it takes apart, if it is one."""
    words = function.fields or {}
    fields = {name: element if word == "anyelement" else wire_type(word) for name, word in words.items()}
    return SqlColumn(text, wire_type("record"), fields)


def field_of(value: SqlColumn, field: str) -> SqlColumn:
    """Return a field of a record. Raises WireError 42703, 42809."""
    if value.fields is None:
        shown = "this" if value.type is None else f"a value of type {value.type.shown}"
        raise WireError("42809", f".{field} stands behind a record, and {shown} is none", code="P0204")
    if field not in value.fields:
        raise WireError("42703", f"there is no field {field}", nearest(field, value.fields), code="P0202")
    return SqlColumn(f"json_extract({value.text}, {text_literal('$.' + field)})", value.fields[field])


def quoted_name(name: str) -> str:
    """Return a name for SQLite. In double quotes SQLite takes an unknown name for a text."""
    return "[" + name.replace("]", "") + "]"


def folded(identifier: exp.Expr) -> str:
    """Return a name: in lower case unless it is quoted."""
    return str(identifier.name) if identifier.args.get("quoted") else str(identifier.name).lower()


def text_literal(text: str) -> str:
    """Return a text for SQLite."""
    return "'" + text.replace("'", "''") + "'"


def type_word(to: exp.Expr) -> str:
    """Return the name of a type as the statement has it, without its schema and length."""
    kind = to.args.get("kind")
    if isinstance(kind, exp.Dot):
        kind = kind.expression
    if isinstance(kind, exp.Identifier):
        return '"char"' if kind.args.get("quoted") and kind.name == "char" else kind.name.lower()
    if isinstance(kind, str):
        return kind.rpartition(".")[2].strip('"').lower()
    text = to.sql("postgres").lower()
    return text.partition("(")[0].strip() + ("[]" if text.endswith("[]") and "(" in text else "")
