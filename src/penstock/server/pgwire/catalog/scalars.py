"""Expressions of PostgreSQL as texts for SQLite, with their types.

Only what is known here is written; anything else is refused, so the text for SQLite has no part of a statement in it
but its literals, which are written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sqlglot import exp

from penstock.errors import nearest
from penstock.language.elsewhere import FUNCTIONS as ELSEWHERE
from penstock.server.pgwire.catalog import operations
from penstock.server.pgwire.catalog.functions import NATIVE_AGGREGATES
from penstock.server.pgwire.catalog.moments import MOMENT_TYPES
from penstock.server.pgwire.catalog.numeric_casts import INTEGERS, REALS
from penstock.server.pgwire.catalog.pure_functions import COLLECTING, CatalogFunction
from penstock.server.pgwire.catalog.scopes import FromScope, SqlColumn, field_of, folded, text_literal, type_word
from penstock.server.pgwire.catalog.typed_values import (
    BIGINT,
    BOOL,
    INT,
    REGISTERS,
    ROUNDING,
    TEXT,
    alike,
    as_common,
    as_number_of,
    as_type,
    is_vector,
    number_type,
    of_one_type,
    ordered,
    rounded,
    shown,
    summed,
    widest,
    with_length,
    with_modifier,
)
from penstock.server.pgwire.protocol.errors import WireError, unsupported
from penstock.server.pgwire.values.decimals import decimal_text, read_decimal
from penstock.server.pgwire.values.wire_types import WireType, type_named, type_of_oid, wire_type

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS",
    exp.NullSafeNEQ: "IS NOT",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
_FLOATING = frozenset({"float4", "float8"})
_OF_BITS = frozenset({"&", "|", "<<", ">>"})
#: Names that are values without parentheses.
_VALUES: dict[type[exp.Expr], str] = {
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentRole: "current_role",
    exp.CurrentDate: "current_date",
    exp.Localtimestamp: "localtimestamp",
}
_OPERATORS: dict[str, Callable[[exp.Expr, exp.Expr], exp.Expr]] = {
    "~": lambda a, b: exp.RegexpLike(this=a, expression=b),
    "!~": lambda a, b: exp.Not(this=exp.RegexpLike(this=a, expression=b)),
    "~*": lambda a, b: exp.RegexpILike(this=a, expression=b),
    "!~*": lambda a, b: exp.Not(this=exp.RegexpILike(this=a, expression=b)),
    "~~": lambda a, b: exp.Like(this=a, expression=b),
    "!~~": lambda a, b: exp.Like(this=a, expression=b, negate=True),
    "=": lambda a, b: exp.EQ(this=a, expression=b),
    "<>": lambda a, b: exp.NEQ(this=a, expression=b),
    "<": lambda a, b: exp.LT(this=a, expression=b),
    ">": lambda a, b: exp.GT(this=a, expression=b),
    "<=": lambda a, b: exp.LTE(this=a, expression=b),
    ">=": lambda a, b: exp.GTE(this=a, expression=b),
    "||": lambda a, b: exp.DPipe(this=a, expression=b),
    "+": lambda a, b: exp.Add(this=a, expression=b),
    "-": lambda a, b: exp.Sub(this=a, expression=b),
    "*": lambda a, b: exp.Mul(this=a, expression=b),
}


class QueryTranslator(Protocol):
    """What translates queries inside of expressions."""

    def query(self, node: exp.Expr, above: FromScope | None = None) -> tuple[str, Sequence[tuple[str, SqlColumn]]]: ...

    def ordering(self, node: exp.Order, scope: FromScope) -> str: ...


class Scalars:
    """Translates expressions. selects: translates queries inside them; functions: by name."""

    def __init__(self, selects: QueryTranslator, functions: Mapping[str, CatalogFunction]) -> None:
        self._selects = selects
        self._functions = functions

    def translate(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        """Return an expression for SQLite. Raises WireError 0A000 for what is not known."""
        return ordered(self._translated(node, scope))

    def _translated(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        if (mark := _COMPARISONS.get(type(node))) is not None:
            return self._comparison(node, mark, scope)
        if (mark := _ARITHMETIC.get(type(node))) is not None:
            return self._calculated(node, mark, scope)
        if (name := _VALUES.get(type(node))) is not None:
            return self._called(name, [], scope)
        method = _METHODS.get(type(node))
        if method is None:
            raise unsupported(f"{node.sql('postgres')[:100]} is not known over the catalogs")
        return method(self, node, scope)

    def condition(self, node: exp.Expr, scope: FromScope) -> str:
        """Return the text of a condition."""
        return self.translate(node, scope).text

    # -- values ------------------------------------------------------------------------------------------------

    def _literal(self, node: exp.Literal, scope: FromScope) -> SqlColumn:
        if node.is_string:
            return SqlColumn(text_literal(node.this), None)
        text = node.this
        if text.isdigit():
            whole = int(text) if len(text) < 40 else 1 << 63
            if whole < 1 << 63:
                return SqlColumn(str(whole), INT if whole < 1 << 31 else BIGINT)
        return SqlColumn(f"'{decimal_text(read_decimal(text))}'", wire_type("numeric"))

    def _boolean(self, node: exp.Boolean, scope: FromScope) -> SqlColumn:
        return SqlColumn("1" if node.this else "0", BOOL)

    def _null(self, node: exp.Null, scope: FromScope) -> SqlColumn:
        return SqlColumn("NULL", None)

    def _column(self, node: exp.Column, scope: FromScope) -> SqlColumn:
        name, table = folded(node.this), folded(node.args["table"]) if node.args.get("table") else None
        if table is None and not node.this.args.get("quoted") and name in ("user", "current_role", "session_user"):
            return self._called(name, [], scope)
        return scope.column(name, table)

    def _paren(self, node: exp.Paren, scope: FromScope) -> SqlColumn:
        inner = self.translate(node.this, scope)
        return SqlColumn(f"({inner.text})", inner.type, inner.fields)

    def _tuple(self, node: exp.Tuple, scope: FromScope) -> SqlColumn:
        return SqlColumn("(" + ", ".join(self.translate(one, scope).text for one in node.expressions) + ")", None)

    def _neg(self, node: exp.Neg, scope: FromScope) -> SqlColumn:
        inner = self.translate(node.this, scope)
        if inner.type is None or (isinstance(node.this, exp.Literal) and inner.type.name in INTEGERS):
            return SqlColumn(f"(- {inner.text})", inner.type)
        if inner.type is not None and inner.type.name == "interval":
            return operations.negated_interval(inner)
        return SqlColumn(f"pg_fn_pg_negated({inner.text}, '{number_type(inner.type)}')", inner.type)

    def _calculated(self, node: exp.Expr, mark: str, scope: FromScope) -> SqlColumn:
        """Return an operation of two numbers."""
        left, right = self.translate(node.this, scope), self.translate(node.expression, scope)
        if (of_time := operations.operation(mark, left, right)) is not None:
            return of_time
        left, right = as_type(left, right.type), as_type(right, left.type)
        type_ = widest(left.type, right.type)
        if type_ is not None and type_.name in _FLOATING:
            if mark == "%":
                raise WireError("42883", f"there is no operator {type_.shown} %", "cast to numeric", code="P0204")
            left, right = as_common(left, type_), as_common(right, type_)
        if type_ is None or mark in _OF_BITS:
            return SqlColumn(f"({left.text} {mark} {right.text})", type_)
        return SqlColumn(f"pg_fn_pg_calculated('{mark}', '{number_type(type_)}', {left.text}, {right.text})", type_)

    def _not_bits(self, node: exp.BitwiseNot, scope: FromScope) -> SqlColumn:
        inner = self.translate(node.this, scope)
        return SqlColumn(f"(~ {inner.text})", inner.type)

    def _array(self, node: exp.Array | exp.Anonymous, scope: FromScope) -> SqlColumn:
        parts = node.expressions
        if len(parts) == 1 and isinstance(parts[0], exp.Select | exp.SetOperation):
            return self._array_of_query(parts[0], scope)
        inner, element = of_one_type([self.translate(one, scope) for one in parts])
        array = type_of_oid((element or TEXT).array)
        return SqlColumn("pg_fn_pg_array_of(" + ", ".join(one.text for one in inner) + ")", array)

    def _array_of_query(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        text, columns = self._selects.query(node, scope)
        made = f"(SELECT coalesce(pg_fn_array_agg(c1), '[]') FROM ({text}))"
        return SqlColumn(made, type_of_oid((columns[0][1].type or TEXT).array))

    def _subquery(self, node: exp.Subquery, scope: FromScope) -> SqlColumn:
        text, columns = self._selects.query(node.this, scope)
        return SqlColumn(f"({text})", columns[0][1].type)

    def _exists(self, node: exp.Exists, scope: FromScope) -> SqlColumn:
        inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        return SqlColumn(f"EXISTS ({self._selects.query(inner, scope)[0]})", BOOL)

    # -- conditions --------------------------------------------------------------------------------------------

    def _and_or(self, node: exp.And | exp.Or, scope: FromScope) -> SqlColumn:
        # A chain of conditions is long in width, not in depth.
        mark = " AND " if isinstance(node, exp.And) else " OR "
        parts = [self.condition(one, scope) for one in node.flatten()]
        return SqlColumn("(" + mark.join(parts) + ")", BOOL)

    def _not(self, node: exp.Not, scope: FromScope) -> SqlColumn:
        return SqlColumn(f"(NOT {self.condition(node.this, scope)})", BOOL)

    def _is(self, node: exp.Is, scope: FromScope) -> SqlColumn:
        left, right = self.translate(node.this, scope), self.translate(node.expression, scope)
        negated = "NOT " if node.args.get("negate") else ""
        if isinstance(node.expression, exp.Boolean):
            word = "TRUE" if node.expression.this else "FALSE"
            return SqlColumn(f"({left.text} IS {negated}{word})", BOOL)
        return SqlColumn(f"({left.text} IS {negated}{right.text})", BOOL)

    def _comparison(self, node: exp.Expr, mark: str, scope: FromScope) -> SqlColumn:
        for side, other in ((node.expression, node.this), (node.this, node.expression)):
            every = isinstance(side, exp.All) or (isinstance(side, exp.Anonymous) and side.name.lower() == "all")
            if every or isinstance(side, exp.Any):
                array = side.expressions[0] if isinstance(side, exp.Anonymous) else side.this
                return self._quantified(other, mark, array, every, scope)
        left, right = alike(self.translate(node.this, scope), self.translate(node.expression, scope))
        return SqlColumn(f"({left.text} {mark} {right.text})", BOOL)

    def _quantified(self, node: exp.Expr, mark: str, array: exp.Expr, every: bool, scope: FromScope) -> SqlColumn:
        """Return `x = ANY (array)` or `x = ALL (array)`; the array may be a query."""
        while isinstance(array, exp.Paren):
            array = array.this
        left = self.translate(node, scope)
        if isinstance(array, exp.Subquery | exp.Select):
            inner = array.this if isinstance(array, exp.Subquery) else array
            rows, columns = self._selects.query(inner, scope)
            source, value = f"({rows})", SqlColumn("c1", columns[0][1].type)
        else:
            made = self.translate(array, scope)
            element = None if made.type is None else type_of_oid(made.type.element)
            source, value = f"json_each(pg_fn_pg_array({made.text}))", SqlColumn("value", element)
        left, value = alike(left, value)
        test = f"{left.text} {mark} {value.text}"
        if every:
            return SqlColumn(f"(NOT EXISTS (SELECT 1 FROM {source} WHERE NOT ({test})))", BOOL)
        return SqlColumn(f"EXISTS (SELECT 1 FROM {source} WHERE {test})", BOOL)

    def _between(self, node: exp.Between, scope: FromScope) -> SqlColumn:
        one = self.translate(node.this, scope)
        left, low = alike(one, self.translate(node.args["low"], scope))
        right, high = alike(one, self.translate(node.args["high"], scope))
        if left.text == right.text:
            return SqlColumn(f"({left.text} BETWEEN {low.text} AND {high.text})", BOOL)
        return SqlColumn(f"({left.text} >= {low.text} AND {right.text} <= {high.text})", BOOL)

    def _in(self, node: exp.In, scope: FromScope) -> SqlColumn:
        one = self.translate(node.this, scope)
        if (query := node.args.get("query")) is not None:
            inner = query.this if isinstance(query, exp.Subquery) else query
            return SqlColumn(f"({one.text} IN ({self._selects.query(inner, scope)[0]}))", BOOL)
        parts, type_ = of_one_type([one, *(self.translate(part, scope) for part in node.expressions)])
        left, _ = alike(one if one.type is not None else parts[0], SqlColumn("NULL", type_))
        rest = ", ".join(alike(part, left)[0].text for part in parts[1:])
        return SqlColumn(f"({left.text} IN ({rest}))", BOOL)

    def _like(self, node: exp.Expr, scope: FromScope, escape: SqlColumn | None = None) -> SqlColumn:
        names = {
            exp.Like: ("pg_like", 0),
            exp.ILike: ("pg_like", 1),
            exp.RegexpLike: ("pg_matches", 0),
            exp.RegexpILike: ("pg_matches", 1),
        }
        name, ignore_case = names[type(node)]  # type: ignore[index]
        left, right = self.translate(node.this, scope), self.translate(node.expression, scope)
        last = "" if escape is None else f", {escape.text}"
        text = f"pg_fn_{name}({left.text}, {right.text}, {ignore_case}{last})"
        return SqlColumn(f"(NOT {text})" if node.args.get("negate") else text, BOOL)

    def _escape(self, node: exp.Escape, scope: FromScope) -> SqlColumn:
        return self._like(node.this, scope, self.translate(node.expression, scope))

    def _operator(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        mark = str(node.args["operator"]).rpartition(".")[2]
        make = _OPERATORS.get(mark)
        if make is None:
            raise unsupported(f"the operator {mark} is not known over the catalogs")
        return self.translate(make(node.this, node.expression), scope)

    def _pipe(self, node: exp.DPipe, scope: FromScope) -> SqlColumn:
        left, right = self.translate(node.this, scope), self.translate(node.expression, scope)
        arrays = [one.type for one in (left, right) if one.type is not None and one.type.element]
        if arrays:
            return SqlColumn(f"pg_fn_array_cat({left.text}, {right.text})", arrays[0])
        return SqlColumn(f"({shown(left).text} || {shown(right).text})", TEXT)

    def _case(self, node: exp.Case, scope: FromScope) -> SqlColumn:
        subject = None if node.this is None else self.translate(node.this, scope)
        parts = ["CASE"]
        branches = node.args["ifs"]
        # The type of ELSE comes first.
        given = [] if node.args.get("default") is None else [node.args["default"]]
        given += [one.args["true"] for one in branches]
        values, type_ = of_one_type([self.translate(one, scope) for one in given])
        values = values[len(given) - len(branches) :] + values[: len(given) - len(branches)]
        for one, value in zip(branches, values, strict=False):
            test = self.translate(one.this, scope).text
            if subject is not None:
                test = " = ".join(side.text for side in alike(subject, self.translate(one.this, scope)))
            parts.append(f"WHEN {test} THEN {value.text}")
        if len(values) > len(branches):
            parts.append(f"ELSE {values[-1].text}")
        return SqlColumn("(" + " ".join([*parts, "END"]) + ")", type_)

    # -- casts -------------------------------------------------------------------------------------------------

    def _cast(self, node: exp.Cast, scope: FromScope) -> SqlColumn:
        word = type_word(node.to)
        target = type_named(word)
        inner = self.translate(node.this, scope)
        if word in ("regproc", "regoper", "regprocedure", "regoperator"):
            type_ = wire_type("regproc") if word.startswith("regproc") else TEXT
            return SqlColumn(f"pg_fn_pg_unqualified({inner.text})", type_)
        if inner.type is not None and inner.type.name == "regproc" and target is not None and target.name == "oid":
            return SqlColumn(f"pg_fn_pg_function_oid({inner.text})", target)
        if word in ("regrole", "regconfig", "regdictionary", "regcollation"):
            return SqlColumn(inner.text, inner.type)
        if target is None:
            known = {
                "sql_identifier": "name",
                "cardinal_number": "int4",
                "character_data": "varchar",
                "yes_or_no": "varchar",
            }
            if word not in known:
                raise WireError("42704", f"unknown type {word}", code="P0207")
            target = wire_type(known[word])
        if target.name in REGISTERS:
            return SqlColumn(f"pg_fn_pg_{target.name}({inner.text})", target)
        if target.name in INTEGERS or target.name in REALS:
            return with_modifier(as_number_of(inner, target), node.to)
        if target.name == "bool":
            if inner.type is not None and inner.type.name in REALS | {"int8", "int2", "oid"}:
                raise WireError("42846", f"a {inner.type.shown} cannot be cast to boolean", code="P0203")
            return SqlColumn(f"pg_fn_pg_bool({inner.text})", target)
        if target.element:
            return SqlColumn(f"pg_fn_pg_array({inner.text}, '{target.name}')", target)
        if target.name == "interval":
            return SqlColumn(f"pg_fn_pg_interval({shown(inner).text})", target)
        if target.name in MOMENT_TYPES:
            return SqlColumn(f"pg_fn_pg_moment({inner.text}, '{target.name}')", target)
        if target.name == "uuid":
            return SqlColumn(f"pg_fn_pg_uuid({shown(inner).text})", target)
        return with_length(SqlColumn(f"CAST({shown(inner).text} AS TEXT)", target), node.to)

    # -- functions ---------------------------------------------------------------------------------------------

    def _anonymous(self, node: exp.Anonymous, scope: FromScope) -> SqlColumn:
        name = node.name.lower()
        if name == "array":
            return self._array(node, scope)
        return self._called(name, node.expressions, scope)

    def _called(self, name: str, given: list[exp.Expr], scope: FromScope) -> SqlColumn:
        if name in ("any", "some", "all"):
            raise unsupported(f"{name.upper()} stands behind a comparison")
        found = self._functions.get(name)
        if name in operations.FUNCTIONS:
            return operations.called(name, [self.translate(one, scope) for one in given])
        if found is None:
            hint = ELSEWHERE.get(name.upper()) or nearest(name, self._functions)
            raise WireError("42883", f"unknown function {name}", hint, code="P0204")
        if found.is_set:
            raise unsupported(f"{name} returns rows: it stands in FROM, or by itself in SELECT")
        if name in NATIVE_AGGREGATES or name in COLLECTING:
            return self._aggregate(name, found, given, scope)
        if name in operations.JSON_FUNCTIONS:
            return operations.json_called(name, [self._row_or_value(one, scope) for one in given])
        inner = [self.translate(one, scope) for one in given]
        if name in ROUNDING:
            return rounded(name, inner)
        if found.result:
            type_: WireType | None = wire_type(found.result)
        else:
            inner, type_ = of_one_type(inner)
        if name in ("greatest", "least") and type_ is not None and type_.name == "numeric":
            name = f"pg_{name}"
        arguments = ", ".join(one.text for one in inner)
        text = f"{found.native or f'pg_fn_{name}'}({arguments})"
        if name in ("array_lower", "array_upper") and inner and is_vector(inner[0].type):
            text = f"({text} - 1)"
        return SqlColumn(text, type_)

    def _row_or_value(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        """Return an expression, or a row of what has its name in FROM."""
        item = scope.item(folded(node.this)) if isinstance(node, exp.Column) and not node.table else None
        return self.translate(node, scope) if item is None or item.alias in item.names else operations.whole_row(item)

    def _extract(self, node: exp.Extract, scope: FromScope) -> SqlColumn:
        return operations.extracted(text_literal(node.name.lower()), self.translate(node.expression, scope))

    def _interval(self, node: exp.Interval, scope: FromScope) -> SqlColumn:
        unit = node.args.get("unit")
        if (
            node.this is None
            or not isinstance(node.this, exp.Literal)
            or (unit is not None and not isinstance(unit, exp.Var))
        ):
            raise unsupported(f"{node.sql('postgres')[:100]} is not known over the catalogs", "INTERVAL '1 day'")
        text = f"pg_fn_pg_interval({text_literal(node.this.name)}, {text_literal('' if unit is None else unit.name)})"
        return SqlColumn(text, wire_type("interval"))

    def _at_time_zone(self, node: exp.AtTimeZone, scope: FromScope) -> SqlColumn:
        return operations.in_zone(self.translate(node.args["zone"], scope), self.translate(node.this, scope))

    def _aggregate(self, name: str, found: CatalogFunction, given: list[exp.Expr], scope: FromScope) -> SqlColumn:
        if len(given) == 1 and isinstance(given[0], exp.Star):
            return SqlColumn("count(*)", BIGINT)
        parts, keys, distinct = operations.aggregated(given)
        inner = [
            (self._row_or_value if name in operations.JSON_AGGREGATES else self.translate)(one, scope) for one in parts
        ]
        if not inner:
            raise WireError("42883", f"{name} needs an argument", code="P0204")
        if name in COLLECTING:
            return operations.collected(name, distinct, inner, [(one, self.translate(one.this, scope)) for one in keys])
        type_ = wire_type(found.result) if found.result else inner[0].type
        native = NATIVE_AGGREGATES.get(name) or f"pg_fn_{name}"
        if name in ("sum", "avg"):
            type_, native = summed(name, inner[0].type)
        arguments = f"DISTINCT {inner[0].text}" if distinct else ", ".join(one.text for one in inner)
        return SqlColumn(f"{native}({arguments})", type_)

    def _group_concat(self, node: exp.GroupConcat, scope: FromScope) -> SqlColumn:
        separator = node.args.get("separator")
        return self._called("string_agg", [node.this, *([separator] if separator is not None else [])], scope)

    def _inner(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        return self.translate(node.this, scope)

    def _array_agg(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        return self._called("array_agg", [node.this], scope)

    def _filter(self, node: exp.Filter, scope: FromScope) -> SqlColumn:
        inner = self._translated(node.this, scope)
        return SqlColumn(f"{inner.text} FILTER (WHERE {self.condition(node.expression.this, scope)})", inner.type)

    def _window(self, node: exp.Window, scope: FromScope) -> SqlColumn:
        inner = self._translated(node.this, scope)
        parts = [self.translate(one, scope).text for one in node.args.get("partition_by") or ()]
        text = f"PARTITION BY {', '.join(parts)}" if parts else ""
        if (order := node.args.get("order")) is not None:
            text += f" ORDER BY {self._selects.ordering(order, scope)}"
        if node.args.get("spec") is not None:
            raise unsupported("the frame of a window is not known over the catalogs")
        return SqlColumn(f"{inner.text} OVER ({text})", inner.type)

    def _dot(self, node: exp.Dot, scope: FromScope) -> SqlColumn:
        inner = node.expression
        if isinstance(inner, exp.Func):
            # The schema of a function.
            return self.translate(inner, scope)
        if isinstance(inner, exp.Identifier) and isinstance(node.this, exp.Paren):
            of, field = node.this.this, folded(inner)
            if isinstance(of, exp.Column) and not of.table and scope.item(folded(of.this)) is not None:
                return scope.column(field, folded(of.this))
            return field_of(self.translate(of, scope), field)
        raise unsupported(f"{node.sql('postgres')[:100]} is not known over the catalogs")

    def _bracket(self, node: exp.Bracket, scope: FromScope) -> SqlColumn:
        array = self.translate(node.this, scope)
        (index,) = node.expressions
        if isinstance(index, exp.Slice):
            ends = [index.args.get(one) for one in ("this", "expression")]
            texts = ["NULL" if one is None else self.translate(one, scope).text for one in ends]
            texts = [f"({one}) + 1" for one in texts] if is_vector(array.type) else texts
            return SqlColumn(f"pg_fn_pg_slice({', '.join([array.text, *texts])})", array.type)
        # The parser counts literals from 0.
        if isinstance(index, exp.Literal):
            number = str(int(index.this) + 1)
        elif isinstance(index, exp.Neg) and isinstance(index.this, exp.Literal):
            number = str(1 - int(index.this.this))
        else:
            number = self.translate(index, scope).text
        if is_vector(array.type):
            number = f"({number}) + 1"
        element = None if array.type is None else type_of_oid(array.type.element)
        return SqlColumn(f"pg_fn_pg_subscript({array.text}, {number})", element or TEXT)

    def _substring(self, node: exp.Substring, scope: FromScope) -> SqlColumn:
        parts = [node.this, node.args.get("start"), node.args.get("length")]
        return self._called("substr", [part for part in parts if part is not None], scope)

    def _position(self, node: exp.StrPosition, scope: FromScope) -> SqlColumn:
        return self._called("strpos", [node.this, node.args["substr"]], scope)

    def _trim(self, node: exp.Trim, scope: FromScope) -> SqlColumn:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "btrim")
        parts = [node.this, *([node.expression] if node.args.get("expression") is not None else [])]
        return self._called(name, parts, scope)

    def _coalesce(self, node: exp.Coalesce, scope: FromScope) -> SqlColumn:
        return self._called("coalesce", [node.this, *node.expressions], scope)


_METHODS: dict[type[exp.Expr], Callable[..., SqlColumn]] = {
    exp.Literal: Scalars._literal, exp.Boolean: Scalars._boolean, exp.Null: Scalars._null,
    exp.Column: Scalars._column, exp.Paren: Scalars._paren, exp.Tuple: Scalars._tuple, exp.Neg: Scalars._neg,
    exp.BitwiseNot: Scalars._not_bits, exp.Extract: Scalars._extract, exp.Interval: Scalars._interval,
    exp.AtTimeZone: Scalars._at_time_zone,
    exp.Array: Scalars._array, exp.Subquery: Scalars._subquery, exp.Exists: Scalars._exists, exp.And: Scalars._and_or,
    exp.Or: Scalars._and_or, exp.Not: Scalars._not, exp.Is: Scalars._is, exp.Between: Scalars._between,
    exp.In: Scalars._in, exp.Like: Scalars._like, exp.ILike: Scalars._like, exp.RegexpLike: Scalars._like,
    exp.RegexpILike: Scalars._like, exp.Escape: Scalars._escape,
    exp.Operator: Scalars._operator, exp.DPipe: Scalars._pipe, exp.Case: Scalars._case,
    exp.Cast: Scalars._cast, exp.Anonymous: Scalars._anonymous, exp.GroupConcat: Scalars._group_concat,
    exp.ArrayAgg: Scalars._array_agg, exp.Filter: Scalars._filter, exp.Window: Scalars._window, exp.Dot: Scalars._dot,
    exp.Bracket: Scalars._bracket, exp.Collate: Scalars._inner, exp.Substring: Scalars._substring,
    exp.StrPosition: Scalars._position, exp.Trim: Scalars._trim, exp.Coalesce: Scalars._coalesce,
}  # fmt: skip
