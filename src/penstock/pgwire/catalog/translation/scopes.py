"""Names in a statement over the catalogs: what a FROM clause offers, and where a column is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from penstock.errors import nearest
from penstock.pgwire.protocol.errors import WireError, unsupported
from penstock.pgwire.values.wire_types import WireType


@dataclass(frozen=True)
class SqlColumn:
    """A column or the value of an expression.

    Args:
        text: for DuckDB.
        type: None for a text without one yet.
        fields: the types of the fields of a record.
        around: of the call of an aggregate, what is calculated of its value; `{}` stands for the call, behind which
            FILTER and OVER may be written.
    """

    text: str
    type: WireType | None
    fields: Mapping[str, WireType | None] | None = None
    around: str = ""

    def whole(self) -> SqlColumn:
        """Return the value with what stands around it."""
        return replace(self, text=self.around.replace("{}", self.text, 1), around="") if self.around else self


#: The names and the columns of a query's rows.
SqlColumns = Sequence[tuple[str, SqlColumn]]


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
    """The items of a SELECT, and the one around it.

    Args:
        tables: of WITH, by name: what each is called for DuckDB, and its columns.
        outputs: the columns of the answer.
        windows: those of WINDOW.
    """

    above: FromScope | None = None
    items: list[FromItem] = field(default_factory=list)
    tables: dict[str, tuple[str, SqlColumns]] = field(default_factory=dict)
    outputs: dict[str, SqlColumn] = field(default_factory=dict)
    windows: dict[str, exp.Window] = field(default_factory=dict)

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

    def table(self, name: str) -> tuple[str, SqlColumns] | None:
        """Return a table of WITH."""
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
            if len(found) > 1 and table is None:
                found = [column for one in items if (column := one.columns.get(name)) is not None] or found
            if len({one.text for one in found}) > 1 and table is None:
                raise WireError("42702", f"{name} is ambiguous: it may be several columns", code="P0205")
            if found:
                return found[0]
            if table is not None and items:
                hint = nearest(name, items[0].columns)
                raise WireError("42703", f"{table} has no column {name}", hint, code="P0202")
            if table is None and (whole := next((one for one in scope.items if one.alias == name), None)) is not None:
                if len(whole.columns) == 1:
                    return next(iter(whole.columns.values()))
                raise unsupported(f"{name} stands for whole rows, which are no values")
            scope = scope.above
        if table is not None:
            raise WireError("42P01", f"there is no {table} in FROM", code="P0201")
        known = [column for one in self.items for column in one.columns]
        raise WireError("42703", f"unknown column {name}", nearest(name, known), code="P0202")


def field_of(value: SqlColumn, name: str) -> SqlColumn:
    """Return a field of a record. Raises WireError 42703, 42809."""
    if value.fields is None:
        shown = "this" if value.type is None else f"a value of type {value.type.shown}"
        raise WireError("42809", f".{name} stands behind a record, and {shown} is none", code="P0204")
    if name not in value.fields:
        raise WireError("42703", f"there is no field {name}", nearest(name, value.fields), code="P0202")
    return SqlColumn(f"struct_extract({value.text}, {text_literal(name)})", value.fields[name])


def folded(identifier: exp.Expr) -> str:
    """Return a name: in lower case unless it is quoted."""
    return str(identifier.name) if identifier.args.get("quoted") else str(identifier.name).lower()


def text_literal(text: str) -> str:
    """Return a text for DuckDB."""
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
