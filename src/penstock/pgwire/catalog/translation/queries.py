"""Queries over the catalogs, from PostgreSQL's words to DuckDB's.

The columns of every query are called `c1`, `c2`, ... in the text for DuckDB, and what stands in FROM `f1`, `f2`, ...;
what they are called in the statement, and their types, is returned beside it. So a name means what it means in
PostgreSQL, whatever DuckDB would take it for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from penstock.errors import nearest
from penstock.language.queries import CONTROL_SCHEMA
from penstock.pgwire.catalog.declarations.control_tables import control_columns
from penstock.pgwire.catalog.declarations.tables import system_columns
from penstock.pgwire.catalog.translation.aggregates import direction_of
from penstock.pgwire.catalog.translation.column_names import column_name
from penstock.pgwire.catalog.translation.expressions import Expressions, fields_of, returns_rows
from penstock.pgwire.catalog.translation.operations import RECORD_FUNCTIONS, record_columns
from penstock.pgwire.catalog.translation.scopes import (
    FromItem,
    FromScope,
    SqlColumn,
    SqlColumns,
    field_of,
    folded,
)
from penstock.pgwire.catalog.translation.typed_values import (
    BIGINT,
    INT,
    as_common,
    as_type,
    cast,
    common_type,
    of_one_type,
    ordered,
)
from penstock.pgwire.protocol.errors import WireError, unsupported
from penstock.pgwire.values.wire_types import WireType, wire_type

_JOINS = {"": "JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "FULL": "FULL JOIN"}
#: Parts of a SELECT without effect on tables that are never changed.
_WITHOUT_MEANING = frozenset({"locks", "kind", "hint", "operation_modifiers"})
_PARTS = frozenset(
    {
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "windows",
        "order",
        "limit",
        "offset",
        "distinct",
        "with_",
    }
)
#: Parts of what stands in FROM.
_OF_TABLES = frozenset(
    {"this", "db", "catalog", "alias", "joins", "only", "ordinality", "lateral", "view", "cross_apply"}
)
_GROUPS: dict[type[exp.Expr], str] = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}
_SETS: dict[type[exp.Expr], str] = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}


@dataclass
class Queries:
    """Translates one statement. tables: those of the catalogs and of the server's control that it reads."""

    tables: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._expressions = Expressions(self)
        self._names = 0

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def query(self, node: exp.Expr, above: FromScope | None = None) -> tuple[str, SqlColumns]:
        """Return a query for DuckDB, and its columns. Raises WireError."""
        while isinstance(node, exp.Subquery | exp.Paren) and not node.args.get("alias"):
            node = node.this
        scope = FromScope(above)
        head = self._with(node, scope)
        if isinstance(node, exp.SetOperation):
            text, columns = self._set_operation(node, scope)
        elif isinstance(node, exp.Values):
            text, columns = self._values(node, scope)
        elif isinstance(node, exp.Select):
            text, columns = self._select(node, scope)
        else:
            raise unsupported(f"{node.key.upper()} is not known over the catalogs")
        return head + text, columns

    def _with(self, node: exp.Expr, scope: FromScope) -> str:
        clause = node.args.get("with_")
        if clause is None:
            return ""
        parts = []
        for one in clause.expressions:
            name, inner, called = folded(one.args["alias"].this), one.this, self._name("w")
            given = [folded(column) for column in one.args["alias"].args.get("columns") or ()]
            if clause.args.get("recursive") and isinstance(inner, exp.SetOperation):
                scope.tables[name] = called, _renamed(self.query(inner.this, scope)[1], given)
            text, columns = self.query(inner, scope)
            scope.tables[name] = called, _renamed(columns, given)
            parts.append(f"{called}({_marks(columns)}) AS ({text})")
        return f"WITH {'RECURSIVE ' if clause.args.get('recursive') else ''}{', '.join(parts)} "

    def _set_operation(self, node: exp.SetOperation, scope: FromScope) -> tuple[str, SqlColumns]:
        left, columns = self.query(node.this, scope)
        right, others = self.query(node.expression, scope)
        if len(columns) != len(others):
            raise WireError("42601", "the sides of a set operation have different numbers of columns", code="P0305")
        types = [common_type([a.type, b.type]) for (_, a), (_, b) in zip(columns, others, strict=True)]
        merged = [(name, replace(column, type=type_)) for (name, column), type_ in zip(columns, types, strict=True)]
        word = _SETS[type(node)] + ("" if node.args.get("distinct") else " ALL")
        text = f"{_side(left, columns, types)} {word} {_side(right, others, types)}"
        inner = FromScope(scope, outputs=_outputs_of(merged))
        return text + self._tail(node, inner), merged

    def _values(self, node: exp.Values, scope: FromScope) -> tuple[str, SqlColumns]:
        rows = [
            [
                self._expressions.translate(one, scope)
                for one in (row.expressions if isinstance(row, exp.Tuple) else [row])
            ]
            for row in node.expressions
        ]
        if len({len(row) for row in rows}) > 1:
            raise WireError("42601", "the rows of VALUES have different numbers of columns", code="P0305")
        typed = [of_one_type(column) for column in zip(*rows, strict=True)]
        columns = [(f"column{n}", SqlColumn(f"c{n}", type_)) for n, (_, type_) in enumerate(typed, 1)]
        lines = (
            f"({', '.join(one.text for one in row)})" for row in zip(*(values for values, _ in typed), strict=True)
        )
        shown = ", ".join(ordered(column).text + f" AS {column.text}" for _, column in columns)
        text = f"SELECT {shown} FROM (VALUES {', '.join(lines)}) AS v({_marks(columns)})"
        return text + self._tail(node, FromScope(scope, outputs=_outputs_of(columns))), columns

    # -- SELECT ------------------------------------------------------------------------------------------------

    def _select(self, node: exp.Select, scope: FromScope) -> tuple[str, SqlColumns]:
        for name, value in node.args.items():
            if value and name not in _PARTS and name not in _WITHOUT_MEANING:
                raise unsupported(f"{name.upper().replace('_', ' ')} is not known over the catalogs")
        source = self._from(node, scope)
        scope.windows = {folded(one.this): one for one in node.args.get("windows") or ()}
        columns = self._outputs(node, scope)
        scope.outputs = _outputs_of(columns)
        text = "SELECT "
        if (distinct := node.args.get("distinct")) is not None:
            on = distinct.args.get("on")
            text += (
                "DISTINCT " if on is None else f"DISTINCT ON ({', '.join(self._first_of(on, node, columns, scope))}) "
            )
        text += ", ".join(f"{column.text} AS c{number}" for number, (_, column) in enumerate(columns, 1))
        text += f" FROM {source}" if source else ""
        if (where := node.args.get("where")) is not None:
            text += f" WHERE {self._expressions.condition(where.this, scope)}"
        if (group := node.args.get("group")) is not None:
            if any(group.args.get(one) for one in ("all", "totals")):
                raise unsupported("GROUP BY ALL is not known over the catalogs")
            text += f" GROUP BY {', '.join(self._group_key(one, dict(columns), scope) for one in group.expressions)}"
        if (having := node.args.get("having")) is not None:
            text += f" HAVING {self._expressions.condition(having.this, scope)}"
        return text + self._tail(node, scope), columns

    def _outputs(self, node: exp.Select, scope: FromScope) -> SqlColumns:
        columns: list[tuple[str, SqlColumn]] = []
        for one in node.expressions:
            inner, name = (one.this, folded(one.args["alias"])) if isinstance(one, exp.Alias) else (one, None)
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                table = folded(inner.args["table"]) if isinstance(inner, exp.Column) else None
                columns += self._all_of(table, scope)
                continue
            columns.append((name or column_name(inner), self._expressions.translate(inner, scope)))
        if not columns:
            # PostgreSQL allows a SELECT of nothing, for EXISTS.
            columns = [("?column?", SqlColumn("1", INT))]
        if len(columns) > 1_600:
            raise WireError("54011", "a query has 1,600 columns at most", code="P0105")
        return columns

    def _all_of(self, table: str | None, scope: FromScope) -> list[tuple[str, SqlColumn]]:
        items = [one for one in scope.items if table is None or one.alias == table]
        if not items:
            raise WireError("42P01", f"there is no {table or 'FROM'} for *", code="P0201")
        return [(name, column) for one in items for name, column in one.columns.items()]

    def _first_of(self, on: exp.Expr, node: exp.Select, columns: SqlColumns, scope: FromScope) -> list[str]:
        """Return the keys of DISTINCT ON, which have to be the first of ORDER BY. Raises WireError 42P10."""
        given = on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]

        def text_of(one: exp.Expr) -> str:
            if not isinstance(one, exp.Literal) or one.is_string:
                return self._key(one, scope, dict(columns))
            number = int(one.this) if one.this.isdigit() and len(one.this) < 10 else 0
            if not 0 < number <= len(columns):
                raise WireError("42P10", f"the answer has no column {one.this[:20]}", code="P0202")
            return columns[number - 1][1].text

        keys = [text_of(one) for one in given]
        left, order = set(keys), node.args.get("order")
        for one in order.expressions if order is not None else ():
            if left and (text := text_of(one.this)) not in keys:
                hint = "name the keys first, then what decides which row is kept"
                raise WireError("42P10", "the keys of DISTINCT ON have to be the first of ORDER BY", hint, code="P0305")
            left.discard(text if left else "")
        return keys

    # -- FROM --------------------------------------------------------------------------------------------------

    def _from(self, node: exp.Select, scope: FromScope) -> str:
        clause = node.args.get("from_")
        if clause is None:
            return ""
        return self._source(clause.this, scope) + "".join(
            self._join(one, scope) for one in node.args.get("joins") or ()
        )

    def _source(self, node: exp.Expr, scope: FromScope) -> str:
        """Return something in FROM with what is joined to it, and add it to the scope: also joins in parentheses."""
        inner = node.this if isinstance(node, exp.Subquery | exp.Paren) and not node.args.get("alias") else None
        if isinstance(inner, exp.Table | exp.Subquery):
            text = f"({self._source(inner, scope)})"
        else:
            text, item = self._item(node, scope)
            scope.items.append(item)
        return text + "".join(self._join(one, scope) for one in node.args.get("joins") or ())

    def _join(self, node: exp.Join, scope: FromScope) -> str:
        side, method = str(node.args.get("side") or "").upper(), str(node.args.get("method") or "").upper()
        condition = self._expressions.condition
        if isinstance(node.this, exp.Subquery) and node.this.this.args.get("joins") and not node.this.args.get("alias"):
            if node.args.get("using") or method:
                raise unsupported("USING and NATURAL before joins in parentheses are not known over the catalogs")
            text, on = self._source(node.this, scope), node.args.get("on")
            return f" {_JOINS[side]} {text} ON {'true' if on is None else condition(on, scope)}"
        if side in ("RIGHT", "FULL") and isinstance(node.this, exp.Lateral):
            raise WireError("42P10", f"LATERAL behind {side} JOIN cannot see what is before it", code="P0205")
        text, item = self._item(node.this, scope)
        shared = [folded(one) for one in node.args.get("using") or ()]
        if method == "NATURAL":
            shared = [name for name in item.columns if any(one.find(name) is not None for one in scope.items)]
        equalities = []
        for name in shared:
            left, right = scope.column(name, None), item.find(name)
            if right is None:
                raise WireError("42703", f"{item.alias} has no column {name}", code="P0202")
            equalities.append(f"{left.text} = {right.text}")
        if shared:
            kept = {name: column for name, column in item.columns.items() if name not in shared}
            item = FromItem(item.alias, kept, dict(item.columns))
        scope.items.append(item)
        if (on := node.args.get("on")) is not None:
            equalities.append(condition(on, scope))
        return f" {_JOINS[side]} {text} ON {' AND '.join(equalities) or 'true'}"

    def _item(self, node: exp.Expr, scope: FromScope) -> tuple[str, FromItem]:
        """Return something in FROM, and what it is called."""
        given = node.args.get("alias")
        alias = folded(given.this) if given is not None and given.this is not None else ""
        defined = list(given.args.get("columns") or ()) if given is not None else []
        names = [folded(one.this if isinstance(one, exp.ColumnDef) else one) for one in defined]
        if isinstance(node, exp.Table) and any(value and key not in _OF_TABLES for key, value in node.args.items()):
            raise unsupported(f"{node.sql('postgres')[:100]} in FROM is not known over the catalogs")
        called = node.this.expression if isinstance(node.this, exp.Dot) else node.this
        if isinstance(node, exp.Lateral) and isinstance(called, exp.Subquery):
            return self._rows(called.this, alias or "q", names, scope)
        if isinstance(node, exp.Subquery | exp.Values):
            inner = node.this if isinstance(node, exp.Subquery) else node
            if isinstance(inner, exp.Table):
                return self._item(inner, scope)
            inner = inner.copy() if isinstance(node, exp.Values) else inner
            # What stands beside it is not seen from inside.
            return self._rows(inner, alias or "q", names, scope.without_items())
        if isinstance(node, exp.Unnest):
            called = node
        if isinstance(node, exp.Lateral | exp.Unnest) or isinstance(called, exp.Func):
            offset = node.args.get("offset")
            ordinal = folded(offset) if isinstance(offset, exp.Expr) else ""
            if node.args.get("ordinality"):
                ordinal = names.pop() if len(names) > 1 else "ordinality"
            return self._function_item(called, alias, names, defined, scope, ordinal)
        if isinstance(node, exp.Table):
            return self._table(node, alias, names, scope)
        raise unsupported(f"{node.sql('postgres')[:100]} in FROM is not known over the catalogs")

    def _rows(self, node: exp.Expr, alias: str, names: Sequence[str], above: FromScope) -> tuple[str, FromItem]:
        text, columns = self.query(node, above)
        mark = self._name("f")
        return f"({text}) AS {mark}", _item_of(mark, alias, _renamed(columns, names))

    def _table(self, node: exp.Table, alias: str, names: Sequence[str], scope: FromScope) -> tuple[str, FromItem]:
        name, schema = folded(node.this), folded(node.args["db"]) if node.args.get("db") else None
        mark = self._name("f")
        if schema is None and (known := scope.table(name)) is not None:
            return f"{known[0]} AS {mark}", _item_of(mark, alias or name, _renamed(known[1], names))
        owner = schema or "pg_catalog"
        found = control_columns().get(name) if owner == CONTROL_SCHEMA else system_columns().get((owner, name))
        if found is None:
            near = list(control_columns()) if owner == CONTROL_SCHEMA else [table for _, table in system_columns()]
            raise WireError("42P01", f"there is no {owner}.{name}", nearest(name, near), code="P0201")
        self.tables.add((owner, name))
        columns = {
            names[n] if n < len(names) else column: ordered(SqlColumn(f'{mark}."{column}"', type_))
            for n, (column, type_) in enumerate(found.items())
        }
        hidden = {
            "tableoid": SqlColumn("0", wire_type("oid")),
            "xmin": SqlColumn("0", wire_type("xid")),
            "ctid": SqlColumn(f"{mark}.rowid", BIGINT),
        }
        return f'"pg {owner}"."{name}" AS {mark}', FromItem(alias or name, columns, hidden)

    def _function_item(
        self,
        node: exp.Expr,
        alias: str,
        names: Sequence[str],
        defined: Sequence[exp.Expr],
        scope: FromScope,
        ordinal: str,
    ) -> tuple[str, FromItem]:
        """Return a function in FROM: its rows, or the value that it returns. It sees what stands before it."""
        name = "unnest" if isinstance(node, exp.Unnest) else node.name.lower()
        if not isinstance(node, exp.Anonymous | exp.Unnest):
            name = column_name(node)
        alias, mark = alias or name, self._name("f")
        translate = self._expressions.translate
        if name in RECORD_FUNCTIONS:
            given = [translate(one, scope) for one in node.expressions]
            text, taken = record_columns(name, given, alias, defined)
            shown = [self._field_as(column, kind) for _, kind, column in taken]
            texts = ", ".join(f"{column.text} AS c{n}" for n, column in enumerate(shown, 1))
            columns = [(field, column) for (field, _, _), column in zip(taken, shown, strict=True)]
            return f"(SELECT {texts} FROM (SELECT unnest({text}) AS e)) AS {mark}", _item_of(mark, alias, columns)
        if name == "pg_show_all_settings":
            self.tables.add(("pg_catalog", "pg_settings"))
            settings = system_columns()["pg_catalog", "pg_settings"]
            found = {key: SqlColumn(f'{mark}."{key}"', type_) for key, type_ in settings.items()}
            return f'"pg pg_catalog"."pg_settings" AS {mark}', FromItem(alias, found)
        if isinstance(node, exp.Anonymous | exp.Unnest) and returns_rows(name):
            text, function, element = self._expressions.rows_of(name, node.expressions, scope)
            number = f", unnest(range(1, len({text}) + 1)) AS n" if ordinal else ""
            source, row = f"(SELECT unnest({text}) AS c1{number}) AS {mark}", SqlColumn(f"{mark}.c1", element)
            if name == "generate_series" and not ordinal:
                # As a table its rows are not all there at once.
                source = f"{function.text} AS {mark}(c1)"
                row = SqlColumn(f"{mark}.c1::INTEGER" if element is INT else row.text, element)
            if (fields := fields_of(function, element)) is not None:
                row = SqlColumn(row.text, wire_type("record"), fields)
                given_names = [*names, *list(fields)[len(names) :]]
                columns = [(one, field_of(row, key)) for one, key in zip(given_names, fields, strict=False)]
            else:
                plain = "value" if name.startswith("json") and "_array_elements" in name else alias
                columns = [(names[0] if names else plain, ordered(row))]
            more = {ordinal: SqlColumn(f"{mark}.n", BIGINT)} if ordinal else {}
            return source, FromItem(alias, dict(columns) | more, {alias: row})
        # A function that returns one value is a row of it.
        value = translate(node, scope)
        columns = [(names[0] if names else alias, ordered(SqlColumn(f"{mark}.c1", value.type, value.fields)))]
        return f"(SELECT {value.text} AS c1) AS {mark}", FromItem(alias, dict(columns), {alias: columns[0][1]})

    def _field_as(self, column: SqlColumn, kind: exp.Expr) -> SqlColumn:
        """Return a column that the statement defines, from the text of its field."""
        inner = FromScope(None)
        inner.items.append(FromItem("e", {"e": column}))
        return self._expressions.translate(exp.Cast(this=exp.column("e", quoted=True), to=kind.copy()), inner)

    # -- order and limits --------------------------------------------------------------------------------------

    def _tail(self, node: exp.Expr, scope: FromScope) -> str:
        text = ""
        if (order := node.args.get("order")) is not None:
            text += f" ORDER BY {self._ordering(order, scope, scope.outputs)}"
        limit, offset = node.args.get("limit"), node.args.get("offset")
        if limit is not None:
            count = limit.args.get("expression") or limit.args.get("count")
            options = limit.args.get("limit_options")
            if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
                raise unsupported("FETCH WITH TIES is not known over the catalogs")
            if count is not None and not isinstance(count, exp.Var | exp.Null):
                text += f" LIMIT {self._whole(count, scope)}"
        return text if offset is None else f"{text} OFFSET {self._whole(offset.expression, scope)}"

    def _whole(self, node: exp.Expr, scope: FromScope) -> str:
        """Return the number of a limit."""
        return cast(as_type(self._expressions.translate(node, scope), BIGINT), BIGINT).text

    def ordering(self, node: exp.Order, scope: FromScope) -> str:
        """Return the keys of ORDER BY of a window."""
        return self._ordering(node, scope, None)

    def _ordering(self, node: exp.Order, scope: FromScope, outputs: Mapping[str, SqlColumn] | None) -> str:
        """Return the keys of ORDER BY. outputs: the columns of the answer, by whose numbers and names it may be."""
        return ", ".join(f"{self._key(one.this, scope, outputs)}{direction_of(one)}" for one in node.expressions)

    def _key(self, node: exp.Expr, scope: FromScope, outputs: Mapping[str, SqlColumn] | None) -> str:
        """Return a key of ORDER BY: the number or the name of a column of the answer, or an expression."""
        if outputs is not None and isinstance(node, exp.Literal) and not node.is_string:
            return str(int(node.this))
        if outputs is not None and isinstance(node, exp.Column) and not node.args.get("table"):
            found = outputs.get(folded(node.this))
            if found is not None:
                return found.text
        return self._expressions.translate(node, scope).text

    def _group_key(self, node: exp.Expr, columns: Mapping[str, SqlColumn], scope: FromScope) -> str:
        """Return a key of GROUP BY. A name is that of a column in FROM before it is one of the answer."""
        if (word := _GROUPS.get(type(node))) is not None or isinstance(node, exp.Tuple):
            return (
                f"{word or ''} ({', '.join(self._group_key(one, columns, scope) for one in node.expressions)})".strip()
            )
        if isinstance(node, exp.Literal) and not node.is_string:
            return str(int(node.this))
        if isinstance(node, exp.Column) and not node.args.get("table"):
            name = folded(node.this)
            if name in columns and not any(one.find(name) is not None for one in scope.items):
                return columns[name].text
        return self._expressions.translate(node, scope).text


def _renamed(columns: SqlColumns, names: Sequence[str]) -> SqlColumns:
    return [(names[n] if n < len(names) else name, column) for n, (name, column) in enumerate(columns)]


def _marks(columns: SqlColumns) -> str:
    return ", ".join(f"c{number}" for number in range(1, len(columns) + 1))


def _outputs_of(columns: SqlColumns) -> dict[str, SqlColumn]:
    return {name: SqlColumn(f"c{number}", column.type) for number, (name, column) in enumerate(columns, 1)}


def _side(text: str, given: SqlColumns, types: Sequence[WireType | None]) -> str:
    """Return a side of a set operation. given: its columns; types: of the whole."""
    sides = [
        as_common(ordered(SqlColumn(f"c{number}", column.type)), type_).text
        for number, ((_, column), type_) in enumerate(zip(given, types, strict=True), 1)
    ]
    if any(side != f"c{number}" for number, side in enumerate(sides, 1)):
        return f"(SELECT {', '.join(f'{side} AS c{number}' for number, side in enumerate(sides, 1))} FROM ({text}))"
    return f"({text})"


def _item_of(mark: str, alias: str, columns: SqlColumns) -> FromItem:
    return FromItem(
        alias,
        {name: ordered(SqlColumn(f"{mark}.c{n}", one.type, one.fields)) for n, (name, one) in enumerate(columns, 1)},
    )
