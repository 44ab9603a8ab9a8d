"""SELECT over the catalogs, from PostgreSQL's words to SQLite's.

The columns of every query are called `c1`, `c2`, ... in the text for SQLite; what they are called in the statement, and
their types, is returned beside it. So a name means what it means in PostgreSQL, whatever SQLite would take it for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from penstock.errors import nearest
from penstock.language.queries import CONTROL_SCHEMA
from penstock.server.pgwire.catalog.control_tables import control_columns
from penstock.server.pgwire.catalog.first_rows import FirstRows
from penstock.server.pgwire.catalog.operations import nulls_of
from penstock.server.pgwire.catalog.pure_functions import CatalogFunction
from penstock.server.pgwire.catalog.scalars import Scalars
from penstock.server.pgwire.catalog.scopes import (
    RECORD_FUNCTIONS,
    FromItem,
    FromScope,
    SqlColumn,
    field_of,
    folded,
    quoted_name,
    record_item,
    record_of,
    set_item,
    type_word,
)
from penstock.server.pgwire.catalog.tables import system_columns
from penstock.server.pgwire.catalog.typed_values import (
    as_common,
    as_number_of,
    common_type,
    is_vector,
    of_one_type,
    ordered,
)
from penstock.server.pgwire.protocol.errors import WireError, unsupported
from penstock.server.pgwire.values.wire_types import WireType, type_named, type_of_oid, wire_type

#: The names and the columns of a query's rows.
SqlColumns = list[tuple[str, SqlColumn]]
_JOINS = {"": "JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "FULL": "FULL JOIN"}
#: Parts of a SELECT without effect on tables that are never changed.
_WITHOUT_MEANING = frozenset({"locks", "kind", "hint", "operation_modifiers"})
_PARTS = frozenset(
    {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_"}
)


_NAMES: dict[type[exp.Expr], str] = {
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentCatalog: "current_catalog",
    exp.GroupConcat: "string_agg",
    exp.ArrayAgg: "array_agg",
    exp.Array: "array",
    exp.Substring: "substring",
    exp.Trim: "btrim",
    exp.Coalesce: "coalesce",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Extract: "extract",
    exp.AtTimeZone: "timezone",
    exp.CurrentDate: "current_date",
    exp.Localtimestamp: "localtimestamp",
    exp.Interval: "interval",
    exp.StrPosition: "position",
}


class Selects:
    """Translates queries. functions: by name; tables: whether there are any."""

    def __init__(self, functions: Mapping[str, CatalogFunction]) -> None:
        self._functions = functions
        self.scalars = Scalars(self, functions)
        self._sets = 0

    def query(self, node: exp.Expr, above: FromScope | None = None) -> tuple[str, SqlColumns]:
        """Return a query for SQLite, and its columns. Raises WireError."""
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
            name, inner = one.alias.lower(), one.this
            given = [folded(column) for column in one.args["alias"].args.get("columns") or ()]
            if clause.args.get("recursive") and isinstance(inner, exp.SetOperation):
                scope.tables[name] = self._renamed(self.query(inner.this, scope)[1], given)
            text, columns = self.query(inner, scope)
            scope.tables[name] = self._renamed(columns, given)
            marks = ", ".join(f"c{number}" for number in range(1, len(columns) + 1))
            parts.append(f"{quoted_name(name)}({marks}) AS ({text})")
        return f"WITH {'RECURSIVE ' if clause.args.get('recursive') else ''}{', '.join(parts)} "

    @staticmethod
    def _renamed(columns: SqlColumns, names: Sequence[str]) -> SqlColumns:
        return [(names[n] if n < len(names) else name, column) for n, (name, column) in enumerate(columns)]

    def _set_operation(self, node: exp.SetOperation, scope: FromScope) -> tuple[str, SqlColumns]:
        left, columns = self.query(node.this, scope)
        right, others = self.query(node.expression, scope)
        if len(columns) != len(others):
            raise WireError("42601", "the sides of a set operation have different numbers of columns", code="P0305")
        word = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}[type(node)]
        if not node.args.get("distinct"):
            word += " ALL"
        if word in ("EXCEPT ALL", "INTERSECT ALL"):
            raise unsupported(f"{word} is not known over the catalogs")
        merged = [
            (name, SqlColumn(column.text, common_type([column.type, other.type])))
            for (name, column), (_, other) in zip(columns, others, strict=True)
        ]
        types = [column.type for _, column in merged]
        sides = [
            _side(side, text, [column.type for _, column in given], types)
            for side, text, given in ((node.this, left, columns), (node.expression, right, others))
        ]
        text = f" {word} ".join(sides)
        inner = FromScope(scope, outputs={name: SqlColumn(f"c{n}", c.type) for n, (name, c) in enumerate(merged, 1)})
        return text + self._tail(node, inner), merged

    def _values(self, node: exp.Values, scope: FromScope) -> tuple[str, SqlColumns]:
        rows = [
            [self.scalars.translate(one, scope) for one in (row.expressions if isinstance(row, exp.Tuple) else [row])]
            for row in node.expressions
        ]
        if len({len(row) for row in rows}) > 1:
            raise WireError("42601", "the rows of VALUES have different numbers of columns", code="P0305")
        typed = [of_one_type(column) for column in zip(*rows, strict=True)]
        rows = [list(row) for row in zip(*(values for values, _ in typed), strict=True)]
        columns = [
            (f"column{number}", SqlColumn(one.text, type_))
            for number, (one, (_, type_)) in enumerate(zip(rows[0], typed, strict=True), 1)
        ]
        head = ", ".join(f"{column.text} AS c{number}" for number, (_, column) in enumerate(columns, 1))
        others = [" UNION ALL SELECT " + ", ".join(column.text for column in row) for row in rows[1:]]
        return f"SELECT {head}" + "".join(others), columns

    # -- SELECT ------------------------------------------------------------------------------------------------

    def _select(self, node: exp.Select, scope: FromScope) -> tuple[str, SqlColumns]:
        for name, value in node.args.items():
            if value and name not in _PARTS and name not in _WITHOUT_MEANING:
                raise unsupported(f"{name.upper().replace('_', ' ')} is not known over the catalogs")
        source = self._from(node, scope)
        columns, sets = self._outputs(node, scope)
        source += sets
        scope.outputs = {name: SqlColumn(f"c{n}", column.type) for n, (name, column) in enumerate(columns, 1)}
        distinct = node.args.get("distinct")
        on = None if distinct is None else distinct.args.get("on")
        columns = [(name, ordered(column)) for name, column in columns]
        shown = ", ".join(f"{column.text} AS c{number}" for number, (_, column) in enumerate(columns, 1))
        first = FirstRows(self, node, on, columns, scope) if on is not None else None
        text = f"SELECT {'DISTINCT ' if distinct is not None and first is None else ''}{shown}"
        text += first.keys if first is not None else ""
        text += f" FROM {source}" if source else ""
        if (where := node.args.get("where")) is not None:
            text += f" WHERE {self.scalars.condition(where.this, scope)}"
        if (group := node.args.get("group")) is not None:
            keys = [self._group_key(one, dict(columns), scope) for one in group.expressions]
            text += f" GROUP BY {', '.join(keys)}"
        if (having := node.args.get("having")) is not None:
            text += f" HAVING {self.scalars.condition(having.this, scope)}"
        if first is not None:
            return first.of(text) + self._limits(node, scope), columns
        return text + self._tail(node, scope), columns

    def _outputs(self, node: exp.Select, scope: FromScope) -> tuple[SqlColumns, str]:
        """Return the columns of a SELECT, and what its functions that return rows add to FROM."""
        columns: SqlColumns = []
        sets: list[str] = []
        for one in node.expressions:
            inner, name = (one.this, folded(one.args["alias"])) if isinstance(one, exp.Alias) else (one, None)
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                table = folded(inner.args["table"]) if isinstance(inner, exp.Column) else None
                columns += self._all_of(table, scope)
                continue
            field = inner.expression if isinstance(inner, exp.Dot) and isinstance(inner.this, exp.Paren) else None
            called = self._set_of(inner.this.this if field is not None else inner)
            if called is None:
                column = self.scalars.translate(inner, scope)
            else:
                column = self._expanded(called, folded(field) if field is not None else None, scope, sets)
            columns.append((name or _name_of(inner), column))
        if not columns:
            # PostgreSQL allows a SELECT of nothing, for EXISTS.
            columns = [("?column?", SqlColumn("1", wire_type("int4")))]
        if len(columns) > 1_600:
            raise WireError("54011", "a query has 1,600 columns at most", code="P0105")
        if not scope.items and sets:
            return columns, sets[0].removeprefix(" JOIN ").rpartition(" ON ")[0] + "".join(sets[1:])
        return columns, "".join(sets)

    def _all_of(self, table: str | None, scope: FromScope) -> SqlColumns:
        items = [one for one in scope.items if table is None or one.alias == table]
        if not items:
            raise WireError("42P01", f"there is no {table or 'FROM'} for *", code="P0201")
        return [(name, column) for one in items for name, column in one.columns.items()]

    def _set_of(self, node: exp.Expr) -> exp.Expr | None:
        """Return the call of a function that returns rows, None for another expression."""
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            node = node.expression
        if isinstance(node, exp.Anonymous):
            found = self._functions.get(node.name.lower())
            return node if found is not None and found.is_set else None
        return node if isinstance(node, exp.Unnest) else None

    def _expanded(self, node: exp.Expr, field: str | None, scope: FromScope, sets: list[str]) -> SqlColumn:
        """Return a column with a row for each of those that a function returns; several go on side by side."""
        alias = f"set{self._sets}"
        self._sets += 1
        text, function, element = self._set_text(node, scope)
        # Within its arguments there may be others.
        before = sets[-1].rpartition(" AS ")[2].partition(" ON ")[0] if sets else ""
        sets.append(f" JOIN json_each({text}) AS {alias} ON " + (f"{alias}.key = {before}.key" if sets else "1"))
        if function.fields is None:
            return SqlColumn(f"{alias}.value", element)
        record = record_of(f"{alias}.value", function, element)
        return record if field is None else field_of(record, field)

    def _set_text(self, node: exp.Expr, scope: FromScope) -> tuple[str, CatalogFunction, WireType | None]:
        """Return the JSON array of the rows of a function, and their type."""
        name = "unnest" if isinstance(node, exp.Unnest) else node.name.lower()
        function = self._functions[name]
        given = [self.scalars.translate(one, scope) for one in node.expressions]
        element = wire_type(function.result) if function.result else None
        if name in ("unnest", "_pg_expandarray") and given and given[0].type is not None:
            element = type_of_oid(given[0].type.element)
        texts = [one.text for one in given]
        if name == "generate_subscripts" and given and is_vector(given[0].type):
            texts = [given[0].text, "1", "0"]
        return f"pg_fn_{name}({', '.join(texts)})", function, element

    # -- FROM --------------------------------------------------------------------------------------------------

    def _from(self, node: exp.Select, scope: FromScope) -> str:
        clause = node.args.get("from_")
        if clause is None:
            return ""
        text = self._source(clause.this, scope)
        for one in node.args.get("joins") or ():
            text += self._join(one, scope)
        return text

    def _source(self, node: exp.Expr, scope: FromScope) -> str:
        """Return something in FROM with what is joined to it, and add it to the scope: also joins in parentheses."""
        inner = node.this if isinstance(node, exp.Subquery | exp.Paren) and not node.args.get("alias") else None
        if isinstance(inner, exp.Table | exp.Subquery):
            text = f"({self._source(inner, scope)})"
        else:
            text, item = self._item(node, scope)
            scope.items.append(item)
        for one in node.args.get("joins") or ():
            text += self._join(one, scope)
        return text

    def _join(self, node: exp.Join, scope: FromScope) -> str:
        side, method = str(node.args.get("side") or "").upper(), str(node.args.get("method") or "").upper()
        if isinstance(node.this, exp.Subquery) and node.this.this.args.get("joins") and not node.this.args.get("alias"):
            if node.args.get("using") or method:
                raise unsupported("USING and NATURAL before joins in parentheses are not known over the catalogs")
            text, on = self._source(node.this, scope), node.args.get("on")
            return f" {_JOINS[side]} {text} ON {'1' if on is None else self.scalars.condition(on, scope)}"
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
            equalities.append(self.scalars.condition(on, scope))
        return f" {_JOINS[side]} {text} ON {' AND '.join(equalities) or '1'}"

    def _item(self, node: exp.Expr, scope: FromScope) -> tuple[str, FromItem]:
        """Return something in FROM, and what it is called."""
        given = node.args.get("alias")
        alias = folded(given.this) if given is not None and given.this is not None else ""
        names = [_column_name(one) for one in given.args.get("columns") or ()] if given is not None else []
        if isinstance(called := node.this, exp.Dot):
            called = called.expression
        if isinstance(called, exp.Anonymous) and called.name.lower() in RECORD_FUNCTIONS:
            defined = given.args.get("columns") if given is not None else None
            return record_item(
                called.name.lower(), called.expressions, alias, defined or (), scope, self.scalars.translate
            )
        if isinstance(node, exp.Lateral):
            inner = called
            if isinstance(inner, exp.Subquery):
                return self._lateral(inner, alias or "q", names, scope)
            return self._function_item(inner, alias, names, scope)
        if isinstance(node, exp.Unnest):
            offset = node.args.get("offset")
            return self._function_item(node, alias, names, scope, folded(offset) if offset else "")
        if isinstance(node, exp.Subquery | exp.Values):
            inner = node.this if isinstance(node, exp.Subquery) else node
            if isinstance(inner, exp.Table):
                return self._item(inner, scope)
            # What stands beside it is not seen from inside.
            text, columns = self.query(inner.copy() if isinstance(node, exp.Values) else inner, scope.without_items())
            return f"({text}) AS {quoted_name(alias or 'q')}", _item_of(alias or "q", self._renamed(columns, names))
        if isinstance(node, exp.Table):
            if isinstance(node.this, exp.Anonymous | exp.Unnest):
                return self._function_item(node.this, alias, names, scope)
            return self._table(node, alias, names, scope)
        raise unsupported(f"{node.sql('postgres')[:100]} in FROM is not known over the catalogs")

    def _lateral(self, node: exp.Subquery, alias: str, names: Sequence[str], scope: FromScope) -> tuple[str, FromItem]:
        """Return a query that sees what stands before it. In FROM of SQLite's only functions do: the rows of the query
        are the elements of an array."""
        text, columns = self.query(node.this, scope)
        marks = ", ".join(f"c{number}" for number in range(1, len(columns) + 1))
        value = f"{quoted_name(alias)}.value"
        named = {
            name: SqlColumn(f"json_extract({value}, '$[{number}]')", column.type, column.fields)
            for number, (name, column) in enumerate(self._renamed(columns, names))
        }
        made = f"json_each((SELECT pg_fn_pg_rows({marks}) FROM ({text})))"
        return f"{made} AS {quoted_name(alias)}", FromItem(alias, named)

    def _table(self, node: exp.Table, alias: str, names: Sequence[str], scope: FromScope) -> tuple[str, FromItem]:
        name, schema = folded(node.this), folded(node.args["db"]) if node.args.get("db") else None
        if schema is None and (known := scope.table(name)) is not None:
            alias = alias or name
            return f"{quoted_name(name)} AS {quoted_name(alias)}", _item_of(alias, self._renamed(list(known), names))
        owner = schema or "pg_catalog"
        found = control_columns().get(name) if owner == CONTROL_SCHEMA else system_columns().get((owner, name))
        if found is None:
            near = list(control_columns()) if owner == CONTROL_SCHEMA else [table for _, table in system_columns()]
            raise WireError("42P01", f"there is no {owner}.{name}", nearest(name, near), code="P0201")
        alias = alias or name
        mark = quoted_name(alias)
        columns = {
            names[n] if n < len(names) else column: SqlColumn(f"{mark}.{quoted_name(column)}", type_)
            for n, (column, type_) in enumerate(found.items())
        }
        hidden = {
            "tableoid": SqlColumn("0", wire_type("oid")),
            "xmin": SqlColumn("0", wire_type("xid")),
            "ctid": SqlColumn(f"{mark}.rowid", wire_type("int8")),
        }
        return f"{owner}.{quoted_name(name)} AS {mark}", FromItem(alias, columns, hidden)

    def _function_item(
        self, node: exp.Expr, alias: str, names: Sequence[str], scope: FromScope, ordinal: str = ""
    ) -> tuple[str, FromItem]:
        called = self._set_of(node)
        if called is not None:
            text, function, element = self._set_text(called, scope)
            alias = alias or ("unnest" if isinstance(called, exp.Unnest) else called.name.lower())
            return f"json_each({text}) AS {quoted_name(alias)}", set_item(alias, names, function, element, ordinal)
        # A function that returns one value is a row of it.
        value = self.scalars.translate(node, scope)
        alias = alias or node.name.lower()
        item = set_item(alias, names, CatalogFunction("text", is_set=True), value.type)
        return f"json_each(json_array({value.text})) AS {quoted_name(alias)}", item

    # -- order and limits --------------------------------------------------------------------------------------

    def _tail(self, node: exp.Expr, scope: FromScope) -> str:
        text = ""
        if (order := node.args.get("order")) is not None:
            text += f" ORDER BY {self.ordering(order, scope)}"
        return text + self._limits(node, scope)

    def _limits(self, node: exp.Expr, scope: FromScope) -> str:
        text = ""
        limit, offset = node.args.get("limit"), node.args.get("offset")
        count = None if limit is None else limit.args.get("expression") or limit.args.get("count")
        if isinstance(count, exp.Var | exp.Null):
            count = None
        if count is not None or offset is not None:
            most = "-1" if count is None else self._whole(count, scope)
            text += f" LIMIT {most}"
        if offset is not None:
            text += f" OFFSET {self._whole(offset.expression, scope)}"
        return text

    def _whole(self, node: exp.Expr, scope: FromScope) -> str:
        """Return the number of a limit."""
        return as_number_of(self.scalars.translate(node, scope), wire_type("int8")).text

    def ordering(self, node: exp.Order, scope: FromScope) -> str:
        """Return the keys of ORDER BY."""
        keys = []
        for one in node.expressions:
            down = " DESC" if one.args.get("desc") else ""
            keys.append(f"{self._key(one.this, scope)}{down} NULLS {nulls_of(one)}")
        return ", ".join(keys)

    def _group_key(self, node: exp.Expr, columns: Mapping[str, SqlColumn], scope: FromScope) -> str:
        """Return a key of GROUP BY. A name is that of a column in FROM before it is one of the answer; SQLite's names
        of both are alike, so what stands for the latter is its expression."""
        if isinstance(node, exp.Literal) and not node.is_string:
            return str(int(node.this))
        if isinstance(node, exp.Column) and not node.args.get("table"):
            name = folded(node.this)
            if name in columns and not any(one.find(name) is not None for one in scope.items):
                return columns[name].text
        return self.scalars.translate(node, scope).text

    def _key(self, node: exp.Expr, scope: FromScope) -> str:
        """Return a key of ORDER BY: the number or the name of a column of the answer, or an expression."""
        if isinstance(node, exp.Literal) and not node.is_string:
            return str(int(node.this))
        if isinstance(node, exp.Column) and not node.args.get("table"):
            found = scope.outputs.get(folded(node.this))
            if found is not None:
                return found.text
        return self.scalars.translate(node, scope).text


def _side(node: exp.Expr, text: str, given: Sequence[WireType | None], types: Sequence[WireType | None]) -> str:
    """Return a side of a set operation. SQLite takes that of a recursive one as it is, and any other in parentheses
    where it has parts of its own that stand behind SELECT. given: the types of its columns; types: of the whole."""
    shown = [
        f"{as_common(SqlColumn(f'c{number}', one), type_).text} AS c{number}"
        for number, (one, type_) in enumerate(zip(given, types, strict=True), 1)
    ]
    if any(one != f"c{number} AS c{number}" for number, one in enumerate(shown, 1)):
        return f"SELECT {', '.join(shown)} FROM ({text})"
    while isinstance(node, exp.Subquery | exp.Paren):
        node = node.this
    is_plain = isinstance(node, exp.Select) and not any(node.args.get(n) for n in ("order", "limit", "offset", "with_"))
    return text if is_plain else f"SELECT * FROM ({text})"


def _item_of(alias: str, columns: SqlColumns) -> FromItem:
    mark = quoted_name(alias)
    return FromItem(
        alias,
        {name: SqlColumn(f"{mark}.c{n}", column.type, column.fields) for n, (name, column) in enumerate(columns, 1)},
    )


def _column_name(node: exp.Expr) -> str:
    return folded(node.this if isinstance(node, exp.ColumnDef) else node)


def _name_of_type(to: exp.Expr) -> str:
    """Return what PostgreSQL calls a cast of a value that has no name."""
    word = type_word(to)
    found = type_named(word)
    element = None if found is None else type_of_oid(found.element)
    return word.strip('"') if found is None else found.name if element is None else element.name


def _name_of(node: exp.Expr) -> str:
    """Return what PostgreSQL calls a column without a name of its own."""
    return _named(node)[0] or "?column?"


def _named(node: exp.Expr) -> tuple[str, bool]:
    """Return the name of an expression, empty for none; and whether it is weak: a cast around it replaces it."""
    while isinstance(node, exp.Paren | exp.Collate):
        node = node.this
    if isinstance(node, exp.Column):
        return folded(node.this), False
    if isinstance(node, exp.Dot):
        return _named(node.expression) if isinstance(node.expression, exp.Func) else (folded(node.expression), False)
    if isinstance(node, exp.Anonymous):
        return node.name.lower(), False
    if isinstance(node, exp.Cast):
        inner, is_weak = _named(node.this)
        return (inner, False) if inner and not is_weak else (_name_of_type(node.to), True)
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        last, is_weak = ("", True) if default is None else _named(default)
        return (last, False) if last and not is_weak else ("case", True)
    if isinstance(node, exp.Exists):
        return "exists", False
    if isinstance(node, exp.Subquery):
        select = node.this
        one = select.expressions[0] if isinstance(select, exp.Select) and select.expressions else None
        if one is None:
            return "", True
        return (folded(one.args["alias"]), False) if isinstance(one, exp.Alias) else (_name_of(one), False)
    if isinstance(node, exp.Window | exp.Filter | exp.Bracket):
        return _named(node.this)
    return _NAMES.get(type(node), ""), isinstance(node, exp.Interval)
