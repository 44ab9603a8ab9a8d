"""Expressions of PostgreSQL as texts for DuckDB, with their types.

Only what is known here is written; anything else is refused, so the text for DuckDB has no part of a statement in it
but its literals, which are written anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from penstock.errors import nearest
from penstock.language.elsewhere import FUNCTIONS as ELSEWHERE
from penstock.pgwire.catalog.translation import aggregates, moments, operations
from penstock.pgwire.catalog.translation.functions import AGGREGATES, OF_WINDOWS, CatalogFunction, functions
from penstock.pgwire.catalog.translation.scopes import (
    FromScope,
    SqlColumn,
    SqlColumns,
    field_of,
    folded,
    text_literal,
    type_word,
)
from penstock.pgwire.catalog.translation.typed_values import (
    BIGINT,
    BOOL,
    FLOATING,
    INT,
    INTERVAL,
    NUMERIC,
    REAL,
    TEXT,
    alike,
    as_common,
    as_type,
    cast,
    element_of,
    is_vector,
    literal_of,
    made,
    name_of,
    number_type,
    of_one_type,
    ordered,
    shown,
    widest,
    with_modifier,
)
from penstock.pgwire.protocol.errors import WireError, unsupported
from penstock.pgwire.values.decimals import read_decimal, sorted_text
from penstock.pgwire.values.duck_types import duck_type
from penstock.pgwire.values.wire_types import INTEGERS, WireType, type_named, type_of_oid, wire_type

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
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
    "~~*": lambda a, b: exp.ILike(this=a, expression=b),
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
_OF_BITS = frozenset({"&", "|", "<<", ">>"})
_LIKES: dict[type[exp.Expr], str] = {exp.Like: "LIKE", exp.ILike: "ILIKE", exp.RegexpLike: "s", exp.RegexpILike: "si"}
_ALIASES = {"sql_identifier": "name", "cardinal_number": "int4", "character_data": "varchar", "yes_or_no": "varchar"}


class QueryTranslator(Protocol):
    """What translates queries inside of expressions."""

    def query(self, node: exp.Expr, above: FromScope | None = None) -> tuple[str, SqlColumns]: ...

    def ordering(self, node: exp.Order, scope: FromScope) -> str: ...


class Expressions:
    """Translates expressions. queries: translates queries inside them."""

    def __init__(self, queries: QueryTranslator) -> None:
        self._queries = queries

    def translate(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        """Return an expression for DuckDB. Raises WireError 0A000 for what is not known."""
        return ordered(self._translated(node, scope).whole())

    def _translated(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        if (mark := _COMPARISONS.get(type(node))) is not None:
            return self._comparison(node, mark, scope)
        if (mark := _ARITHMETIC.get(type(node))) is not None:
            return self._calculated(node, mark, scope)
        if (name := _VALUES.get(type(node))) is not None:
            return self.called(name, [], scope)
        method = _METHODS.get(type(node))
        if method is None:
            raise unsupported(f"{node.sql('postgres')[:100]} is not known over the catalogs")
        return method(self, node, scope)

    def condition(self, node: exp.Expr, scope: FromScope) -> str:
        """Return the text of a condition."""
        return as_type(self.translate(node, scope), BOOL).text

    def _both(self, node: exp.Expr, scope: FromScope) -> tuple[SqlColumn, SqlColumn]:
        return self.translate(node.this, scope), self.translate(node.expression, scope)

    # -- values ------------------------------------------------------------------------------------------------

    def _literal(self, node: exp.Literal, scope: FromScope) -> SqlColumn:
        if node.is_string:
            return SqlColumn(text_literal(node.this), None)
        text = node.this
        if text.isdigit():
            whole = int(text) if len(text) < 40 else 1 << 63
            if whole < 1 << 63:
                return SqlColumn(str(whole), INT if whole < 1 << 31 else BIGINT)
        return SqlColumn(f"'{sorted_text(read_decimal(text))}'", NUMERIC)

    def _boolean(self, node: exp.Boolean, scope: FromScope) -> SqlColumn:
        return SqlColumn("true" if node.this else "false", BOOL)

    def _null(self, node: exp.Null, scope: FromScope) -> SqlColumn:
        return SqlColumn("NULL", None)

    def _column(self, node: exp.Column, scope: FromScope) -> SqlColumn:
        name, table = folded(node.this), folded(node.args["table"]) if node.args.get("table") else None
        if table is None and not node.this.args.get("quoted") and name in ("user", "current_role", "session_user"):
            return self.called(name, [], scope)
        return scope.column(name, table)

    def _paren(self, node: exp.Paren, scope: FromScope) -> SqlColumn:
        inner = self.translate(node.this, scope)
        return replace(inner, text=f"({inner.text})")

    def _tuple(self, node: exp.Tuple, scope: FromScope) -> SqlColumn:
        return SqlColumn("(" + ", ".join(self.translate(one, scope).text for one in node.expressions) + ")", None)

    def _neg(self, node: exp.Neg, scope: FromScope) -> SqlColumn:
        inner = self.translate(node.this, scope)
        if name_of(inner) == "numeric":
            return made("px_decimal", NUMERIC, "'-'", f"'{sorted_text(read_decimal('0'))}'", inner.text)
        if inner.type is not None and inner.type is not INTERVAL:
            number_type(inner.type)
        if name_of(inner) in INTEGERS and not isinstance(node.this, exp.Literal):
            # DuckDB negates the least number of a type to one of a larger type.
            return SqlColumn(f"(0::{duck_type(inner.type)} - {inner.text})", inner.type)
        return SqlColumn(f"(- {inner.text})", inner.type)

    def _calculated(self, node: exp.Expr, mark: str, scope: FromScope) -> SqlColumn:
        """Return an operation of two values."""
        left, right = self._both(node, scope)
        if (of_time := moments.operation(mark, left, right)) is not None:
            return of_time
        if mark == "-" and name_of(left) == "jsonb":
            raise unsupported("- of jsonb is not known over the catalogs")
        left, right = as_type(left, right.type), as_type(right, left.type)
        type_ = widest(left.type, right.type)
        if type_ is None:
            raise WireError("42725", f"the operator {mark} of two texts is not unique", "cast them", code="P0204")
        name = number_type(type_)
        left, right = as_common(left, type_), as_common(right, type_)
        if name in FLOATING:
            if mark == "%":
                raise WireError("42883", f"there is no operator {type_.shown} %", "cast to numeric", code="P0204")
            return made("px_calculated", type_, f"'{mark}'", left.text, right.text, f"'{name}'")
        if name == "numeric":
            if mark in _OF_BITS:
                raise WireError("42883", f"there is no operator numeric {mark}", "cast to bigint", code="P0204")
            return made("px_decimal", type_, f"'{mark}'", left.text, right.text)
        sides = [f"{one.text}::{duck_type(type_)}" for one in (left, right)]
        return SqlColumn(f"({sides[0]} {'//' if mark == '/' else mark} {sides[1]})", type_)

    def _not_bits(self, node: exp.BitwiseNot, scope: FromScope) -> SqlColumn:
        inner = self.translate(node.this, scope)
        return SqlColumn(f"(~ {inner.text})", inner.type)

    def _array(self, node: exp.Array | exp.Anonymous, scope: FromScope) -> SqlColumn:
        parts = node.expressions
        if len(parts) == 1 and isinstance(parts[0], exp.Select | exp.SetOperation):
            text, columns = self._queries.query(parts[0], scope)
            return SqlColumn(f"ARRAY({text})", type_of_oid((columns[0][1].type or TEXT).array))
        inner, element = of_one_type([self.translate(one, scope) for one in parts])
        array = type_of_oid((element or TEXT).array)
        return SqlColumn("[" + ", ".join(one.text for one in inner) + f"]::{duck_type(element)}[]", array)

    def _subquery(self, node: exp.Subquery, scope: FromScope) -> SqlColumn:
        text, columns = self._queries.query(node.this, scope)
        return SqlColumn(f"({text})", columns[0][1].type)

    def _exists(self, node: exp.Exists, scope: FromScope) -> SqlColumn:
        inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        return SqlColumn(f"EXISTS ({self._queries.query(inner, scope)[0]})", BOOL)

    # -- conditions --------------------------------------------------------------------------------------------

    def _and_or(self, node: exp.And | exp.Or, scope: FromScope) -> SqlColumn:
        # A chain of conditions is long in width, not in depth.
        mark = " AND " if isinstance(node, exp.And) else " OR "
        return SqlColumn("(" + mark.join(self.condition(one, scope) for one in node.flatten()) + ")", BOOL)

    def _not(self, node: exp.Not, scope: FromScope) -> SqlColumn:
        return SqlColumn(f"(NOT {self.condition(node.this, scope)})", BOOL)

    def _is(self, node: exp.Is, scope: FromScope) -> SqlColumn:
        negated = "NOT " if node.args.get("negate") else ""
        if isinstance(node.expression, exp.Boolean):
            word = "TRUE" if node.expression.this else "FALSE"
            return SqlColumn(f"({self.condition(node.this, scope)} IS {negated}{word})", BOOL)
        if not isinstance(node.expression, exp.Null):
            raise unsupported(f"{node.sql('postgres')[:100]} is not known over the catalogs")
        return SqlColumn(f"({self.translate(node.this, scope).text} IS {negated}NULL)", BOOL)

    def _comparison(self, node: exp.Expr, mark: str, scope: FromScope) -> SqlColumn:
        for side, other in ((node.expression, node.this), (node.this, node.expression)):
            every = isinstance(side, exp.All) or (isinstance(side, exp.Anonymous) and side.name.lower() == "all")
            if every or isinstance(side, exp.Any):
                array = side.expressions[0] if isinstance(side, exp.Anonymous) else side.this
                return self._quantified(other, mark, array, every, scope)
        left, right = alike(*self._both(node, scope))
        return SqlColumn(f"({left.text} {mark} {right.text})", BOOL)

    def _quantified(self, node: exp.Expr, mark: str, array: exp.Expr, every: bool, scope: FromScope) -> SqlColumn:
        """Return `x = ANY (array)` or `x = ALL (array)`; the array may be a query."""
        while isinstance(array, exp.Paren):
            array = array.this
        left = self.translate(node, scope)
        if isinstance(array, exp.Subquery | exp.Select):
            text, columns = self._queries.query(array.this if isinstance(array, exp.Subquery) else array, scope)
            left, value = alike(left, replace(columns[0][1], text="c1"))
            text = text if value.text == "c1" else f"SELECT {value.text} FROM ({text})"
            return SqlColumn(f"({left.text} {mark} {'ALL' if every else 'ANY'} ({text}))", BOOL)
        given = self.translate(array, scope)
        if given.type is None:
            given = cast(given, type_of_oid((left.type or TEXT).array) or wire_type("_text"))
        left, value = alike(left, ordered(SqlColumn("e", element_of(given) or TEXT)))
        if left.text.find("SELECT ") < 0:
            # What is no member of an array that has NULL in it is taken for none.
            test = f"{left.text} {mark} {value.text}"
            kept = f"len(list_filter({given.text}, lambda e: {f'NOT ({test})' if every else test}))"
            return SqlColumn(f"({kept} = 0)" if every else f"({kept} > 0)", BOOL)
        rows = f"SELECT {value.text} FROM (SELECT unnest({given.text}) AS e)"
        return SqlColumn(f"({left.text} {mark} {'ALL' if every else 'ANY'} ({rows}))", BOOL)

    def _between(self, node: exp.Between, scope: FromScope) -> SqlColumn:
        one = self.translate(node.this, scope)
        left, low = alike(one, self.translate(node.args["low"], scope))
        right, high = alike(one, self.translate(node.args["high"], scope))
        return SqlColumn(f"({left.text} >= {low.text} AND {right.text} <= {high.text})", BOOL)

    def _in(self, node: exp.In, scope: FromScope) -> SqlColumn:
        one = self.translate(node.this, scope)
        if (query := node.args.get("query")) is not None:
            text, columns = self._queries.query(query.this if isinstance(query, exp.Subquery) else query, scope)
            left, value = alike(one, replace(columns[0][1], text="c1")) if len(columns) == 1 else (one, None)
            text = text if value is None or value.text == "c1" else f"SELECT {value.text} FROM ({text})"
            return SqlColumn(f"({left.text} IN ({text}))", BOOL)
        parts, type_ = of_one_type([one, *(self.translate(part, scope) for part in node.expressions)])
        left, _ = alike(one if one.type is not None else parts[0], SqlColumn("NULL", type_))
        rest = ", ".join(alike(part, left)[0].text for part in parts[1:])
        return SqlColumn(f"({left.text} IN ({rest}))", BOOL)

    def _like(self, node: exp.Expr, scope: FromScope, escape: SqlColumn | None = None) -> SqlColumn:
        left, right = self._both(node, scope)
        word = _LIKES[type(node)]
        if word in ("s", "si"):
            pattern = right.text
            if literal_of(node.expression) is None or "***:" in pattern:
                pattern = f"regexp_replace({pattern}, '^\\*\\*\\*:', '')"
            text = f"regexp_matches({left.text}, {pattern}, '{word}')"
        else:
            mark = "'\\'" if escape is None else escape.text
            text = f"({left.text} {word} {right.text} ESCAPE {mark})"
        return SqlColumn(f"(NOT {text})" if node.args.get("negate") else text, BOOL)

    def _escape(self, node: exp.Escape, scope: FromScope) -> SqlColumn:
        return self._like(node.this, scope, self.translate(node.expression, scope))

    def _operator(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        mark = str(node.args["operator"]).rpartition(".")[2]
        make = _OPERATORS.get(mark)
        if make is None:
            raise unsupported(f"the operator {mark} is not known over the catalogs")
        return self._translated(make(node.this, node.expression), scope)

    def _pipe(self, node: exp.DPipe, scope: FromScope) -> SqlColumn:
        left, right = self._both(node, scope)
        if any(one.type is not None and one.type.element for one in (left, right)):
            return operations.appended(left, right)
        return SqlColumn(f"({shown(left).text} || {shown(right).text})", TEXT)

    def _of_two(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        """Return an operation that is of arrays or of JSON."""
        return operations.operation(type(node), *self._both(node, scope))

    def _json_part(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        return operations.json_part(node, self.translate(node.this, scope), lambda one: self.translate(one, scope))

    def _case(self, node: exp.Case, scope: FromScope) -> SqlColumn:
        subject = None if node.this is None else self.translate(node.this, scope)
        branches, default = node.args["ifs"], node.args.get("default")
        # The type of ELSE comes first.
        given = [*([] if default is None else [default]), *(one.args["true"] for one in branches)]
        values, type_ = of_one_type([self.translate(one, scope) for one in given])
        parts = ["CASE"]
        for one, value in zip(branches, values[len(given) - len(branches) :], strict=True):
            if subject is None:
                test = self.condition(one.this, scope)
            else:
                test = " = ".join(side.text for side in alike(subject, self.translate(one.this, scope)))
            parts.append(f"WHEN {test} THEN {value.text}")
        if default is not None:
            parts.append(f"ELSE {values[0].text}")
        return SqlColumn("(" + " ".join([*parts, "END"]) + ")", type_)

    # -- casts -------------------------------------------------------------------------------------------------

    def _cast(self, node: exp.Cast, scope: FromScope) -> SqlColumn:
        word, inner = type_word(node.to), self.translate(node.this, scope)
        target = type_named(_ALIASES.get(word, word))
        if word in ("regproc", "regoper", "regprocedure", "regoperator"):
            type_ = wire_type("regproc") if word.startswith("regproc") else TEXT
            return SqlColumn(f"regexp_replace({shown(inner).text}, '^.*\\.', '')", type_)
        if name_of(inner) == "regproc" and target is not None and target.name == "oid":
            return made("px_function_oid", target, inner.text)
        if word in ("regrole", "regconfig", "regdictionary", "regcollation"):
            return inner
        if target is None:
            raise WireError("42704", f"unknown type {word}", code="P0207")
        return with_modifier(cast(inner, target), node.to)

    def _interval(self, node: exp.Interval, scope: FromScope) -> SqlColumn:
        unit = node.args.get("unit")
        text = None if node.this is None else literal_of(node.this)
        if text is None or (unit is not None and not isinstance(unit, exp.Var)):
            raise unsupported(f"{node.sql('postgres')[:100]} is not known over the catalogs", "INTERVAL '1 day'")
        return moments.interval(text, "" if unit is None else unit.name)

    def _extract(self, node: exp.Extract, scope: FromScope) -> SqlColumn:
        return moments.extracted(node.name.lower(), self.translate(node.expression, scope))

    def _at_time_zone(self, node: exp.AtTimeZone, scope: FromScope) -> SqlColumn:
        return moments.in_zone(self.translate(node.args["zone"], scope), self.translate(node.this, scope))

    # -- functions ---------------------------------------------------------------------------------------------

    def _anonymous(self, node: exp.Anonymous, scope: FromScope) -> SqlColumn:
        name = node.name.lower()
        return self._array(node, scope) if name == "array" else self.called(name, node.expressions, scope)

    def called(self, name: str, given: Sequence[exp.Expr], scope: FromScope) -> SqlColumn:
        """Return the call of a function or an aggregate. Raises WireError 42883."""
        if name in ("any", "some", "all"):
            raise unsupported(f"{name.upper()} stands behind a comparison")
        if name in AGGREGATES or name in aggregates.NAMES:
            return self._aggregate(name, given, scope)
        if name in operations.OF_RECORDS:
            return operations.json_called(name, [self._row_or_value(one, scope) for one in given])
        if name == "pg_typeof" and len(given) == 1:
            type_ = self.translate(given[0], scope).type
            return SqlColumn(str(705 if type_ is None else type_.oid), wire_type("regtype"))
        if name == "mod" and len(given) == 2:
            return self._calculated(exp.Mod(this=given[0].copy(), expression=given[1].copy()), "%", scope)
        if name in moments.FUNCTIONS:
            literals = [literal_of(one) for one in given[:1]]
            return moments.called(name, literals, [self.translate(one, scope) for one in given])
        arguments = [self.translate(one, scope) for one in given]
        if name in operations.FUNCTIONS:
            return operations.called(name, arguments)
        if returns_rows(name):
            text, function, element = self.rows_of(name, given, scope)
            fields = fields_of(function, element)
            type_ = wire_type("record") if fields is not None else element
            return ordered(SqlColumn(f"unnest({text})", type_, fields))
        found = function_of(name, len(given))
        text = filled(name, found, arguments)
        if name in ("array_lower", "array_upper") and is_vector(arguments[0]):
            text = f"({text} - 1)"
        return SqlColumn(text or f"{name}()", wire_type(found.result))

    def rows_of(
        self, name: str, given: Sequence[exp.Expr], scope: FromScope
    ) -> tuple[str, CatalogFunction, WireType | None]:
        """Return the list of the rows of a function, and their type."""
        arguments = [self.translate(one, scope) for one in given]
        if name == "generate_series":
            return operations.series(arguments)
        function = function_of(name, len(given))
        element = wire_type(function.result) if function.result else None
        if name in ("unnest", "_pg_expandarray") and arguments:
            element = element_of(arguments[0])
        if not function.text:
            types = ", ".join(
                f"{field} {duck_type(wire_type(word))}" for field, word in (function.fields or {}).items()
            )
            return f"[]::STRUCT({types})[]", function, element
        text = filled(name, function, arguments)
        if name == "generate_subscripts":
            text = f"range(0, len({arguments[0].text}))" if is_vector(arguments[0]) else text
        return text, function, element

    def _row_or_value(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        """Return an expression, or a row of what has its name in FROM."""
        item = scope.item(folded(node.this)) if isinstance(node, exp.Column) and not node.table else None
        return self.translate(node, scope) if item is None or item.alias in item.names else operations.whole_row(item)

    def _aggregate(self, name: str, given: Sequence[exp.Expr], scope: FromScope) -> SqlColumn:
        if len(given) == 1 and isinstance(given[0], exp.Star):
            return SqlColumn("count(*)", BIGINT)
        parts, keys = list(given), []
        for number, one in enumerate(parts):
            if isinstance(one, exp.Order):
                keys, parts[number] = one.expressions, one.this
        distinct = bool(parts) and isinstance(parts[0], exp.Distinct)
        parts = [*parts[0].expressions, *parts[1:]] if distinct else parts
        inner = [(self._row_or_value if "json" in name else self.translate)(one, scope) for one in parts]
        if not inner:
            raise WireError("42883", f"{name} needs an argument", code="P0204")
        ordering = [(self.translate(one.this, scope), aggregates.direction_of(one)) for one in keys]
        return aggregates.called(name, distinct, inner, ordering)

    def _group_concat(self, node: exp.GroupConcat, scope: FromScope) -> SqlColumn:
        separator = node.args.get("separator")
        return self.called("string_agg", [node.this, *([separator] if separator is not None else [])], scope)

    def _inner(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        return self.translate(node.this, scope)

    def _array_agg(self, node: exp.Expr, scope: FromScope) -> SqlColumn:
        return self.called("array_agg", [node.this], scope)

    def _filter(self, node: exp.Filter, scope: FromScope) -> SqlColumn:
        inner = self._translated(node.this, scope)
        return replace(inner, text=f"{inner.text} FILTER (WHERE {self.condition(node.expression.this, scope)})")

    def _within_group(self, node: exp.WithinGroup, scope: FromScope) -> SqlColumn:
        name, given = node.this.name.lower(), node.this.expressions
        if name not in ("percentile_cont", "percentile_disc", "mode") or len(node.expression.expressions) != 1:
            raise unsupported(f"{node.sql('postgres')[:100]} is not known over the catalogs")
        key = node.expression.expressions[0]
        inner = self.translate(key.this, scope)
        if name == "percentile_cont":
            inner = cast(inner, REAL)
        arguments = ", ".join(cast(self.translate(one, scope), REAL).text for one in given)
        text = f"{name}({arguments}) WITHIN GROUP (ORDER BY {inner.text}{aggregates.direction_of(key)})"
        return SqlColumn(text, inner.type)

    def _window(self, node: exp.Window, scope: FromScope) -> SqlColumn:
        name = node.this.name.lower() if isinstance(node.this, exp.Anonymous) else ""
        if name in OF_WINDOWS or name == "ntile":
            given = [self.translate(one, scope) for one in node.this.expressions]
            whole = ", ".join(cast(one, INT).text for one in given[1:2])
            values, type_ = of_one_type([*given[:1], *given[2:3]]) if name != "ntile" else ([cast(given[0], INT)], INT)
            texts = [values[0].text, *([whole] if whole else []), *(one.text for one in values[1:])]
            inner = SqlColumn(f"{name}({', '.join(texts)})", type_)
            inner = inner if name != "ntile" else SqlColumn(inner.text, INT, around="{}::INTEGER")
        else:
            inner = self._translated(node.this, scope)
        return replace(inner, text=f"{inner.text} OVER ({self._over(node, scope)})")

    def _over(self, node: exp.Window, scope: FromScope) -> str:
        """Return what stands in the parentheses of OVER; of a name what WINDOW has."""
        named = node.args.get("alias")
        texts = []
        if named is not None:
            found = scope.windows.get(folded(named))
            if found is None:
                raise WireError("42704", f"there is no window {folded(named)}", code="P0202")
            texts.append(self._over(found, scope))
        if parts := node.args.get("partition_by"):
            texts.append(f"PARTITION BY {', '.join(self.translate(one, scope).text for one in parts)}")
        if (order := node.args.get("order")) is not None:
            texts.append(f"ORDER BY {self._queries.ordering(order, scope)}")
        if (spec := node.args.get("spec")) is not None:
            ends = [self._frame_end(spec, end, scope) for end in ("start", "end")]
            frame = f"BETWEEN {ends[0]} AND {ends[1] or 'CURRENT ROW'}"
            excluded = f" EXCLUDE {spec.args['exclude']}" if spec.args.get("exclude") else ""
            texts.append(f"{str(spec.args['kind']).upper()} {frame}{excluded}")
        return " ".join(texts)

    def _frame_end(self, spec: exp.WindowSpec, end: str, scope: FromScope) -> str:
        value, side = spec.args.get(end), spec.args.get(f"{end}_side")
        if isinstance(value, exp.Expr):
            value = self.translate(value, scope).text
        return f"{value or ''} {str(side or '').upper()}".strip()

    def _dot(self, node: exp.Dot, scope: FromScope) -> SqlColumn:
        inner = node.expression
        if isinstance(inner, exp.Func):
            # The schema of a function.
            return self._translated(inner, scope)
        if isinstance(inner, exp.Identifier) and isinstance(node.this, exp.Paren):
            of, field = node.this.this, folded(inner)
            if isinstance(of, exp.Column) and not of.table and scope.item(folded(of.this)) is not None:
                return scope.column(field, folded(of.this))
            return field_of(self.translate(of, scope), field)
        raise unsupported(f"{node.sql('postgres')[:100]} is not known over the catalogs")

    def _bracket(self, node: exp.Bracket, scope: FromScope) -> SqlColumn:
        array = self.translate(node.this, scope)
        (index,) = node.expressions
        more = 1 if is_vector(array) else 0
        if isinstance(index, exp.Slice):
            ends = [index.args.get(one) for one in ("this", "expression")]
            first, last = ("" if one is None else f"{self.translate(one, scope).text} + {more}" for one in ends)
            bounds = f"{f'greatest({first}, 1)' if first else ''}:{f'greatest({last}, 0)' if last else ''}"
            return SqlColumn(f"{array.text}[{bounds}]", array.type)
        if name_of(array) == "jsonb":
            return operations.json_part(
                exp.JSONExtract(this=node.this, expression=index), array, lambda one: self.translate(one, scope)
            )
        # The parser counts literals from 0.
        if isinstance(index, exp.Literal):
            number = str(int(index.this) + 1 + more)
        elif isinstance(index, exp.Neg) and isinstance(index.this, exp.Literal):
            number = str(1 - int(index.this.this) + more)
        else:
            number = f"({self.translate(index, scope).text} + {more})"
        # DuckDB counts negative ones from the end.
        return SqlColumn(f"CASE WHEN {number} > 0 THEN {array.text}[{number}] END", element_of(array) or TEXT)

    def _substring(self, node: exp.Substring, scope: FromScope) -> SqlColumn:
        start = node.args.get("start")
        if start is not None and node.args.get("length") is None and literal_of(start) is not None:
            return operations.substring_of_pattern(self.translate(node.this, scope), str(start.this))
        parts = [node.this, start, node.args.get("length")]
        return self.called("substr", [part for part in parts if part is not None], scope)

    def _position(self, node: exp.StrPosition, scope: FromScope) -> SqlColumn:
        return self.called("strpos", [node.this, node.args["substr"]], scope)

    def _trim(self, node: exp.Trim, scope: FromScope) -> SqlColumn:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "btrim")
        parts = [node.this, *([node.expression] if node.args.get("expression") is not None else [])]
        return self.called(name, parts, scope)

    def _coalesce(self, node: exp.Coalesce, scope: FromScope) -> SqlColumn:
        return self.called("coalesce", [node.this, *node.expressions], scope)

    def _unnest(self, node: exp.Unnest, scope: FromScope) -> SqlColumn:
        return self.called("unnest", node.expressions, scope)


def fields_of(function: CatalogFunction, element: WireType | None) -> dict[str, WireType | None] | None:
    """Return the types of the fields of a function's rows, None where a row is one value. element: of the array that it
    takes apart."""
    if function.fields is None:
        return None
    return {name: element if word == "anyelement" else wire_type(word) for name, word in function.fields.items()}


def function_of(name: str, count: int) -> CatalogFunction:
    """Return the function that is called with so many arguments. Raises WireError 42883."""
    known = functions()
    found = known.get(f"{name} {count}") or known.get(name)
    if found is None:
        hint = ELSEWHERE.get(name.upper()) or nearest(name, [one for one in known if " " not in one])
        raise WireError("42883", f"unknown function {name}", hint, code="P0204")
    return found


def returns_rows(name: str) -> bool:
    """Return whether a function returns rows."""
    found = functions().get(name)
    return name == "generate_series" or (found is not None and found.is_set)


def filled(name: str, found: CatalogFunction, given: Sequence[SqlColumn]) -> str:
    """Return the text of a call. Raises WireError 42883."""
    kinds = found.given.split()
    repeated = kinds[-1][:-1] if kinds and kinds[-1].endswith("*") else None
    least = sum(not kind.endswith(("?", "*")) for kind in kinds)
    if len(given) < least or (len(given) > len(kinds) and repeated is None):
        raise WireError("42883", f"there is no function {name} with {len(given)} arguments", code="P0204")
    texts = []
    for place, one in enumerate(given):
        kind = kinds[place].rstrip("?*") if place < len(kinds) else repeated or "any"
        texts.append(_argument(name, one, kind))
    if not found.text:
        return ""
    return re.sub(r"\{(\d?)\}", lambda at: texts[int(at[1])] if at[1] else ", ".join(texts), found.text)


#: Functions that PostgreSQL has for `numeric` too.
_OF_NUMERIC = frozenset({"sqrt", "exp", "ln", "log", "log10", "power", "pow", "sign"})


def _argument(name: str, one: SqlColumn, kind: str) -> str:
    """Return an argument as a value of the type that a function takes."""
    if kind == "any":
        return one.text
    if kind == "shown":
        return shown(one).text
    if kind == "texts":
        return operations.texts_of(one).text
    target = wire_type(kind)
    if kind == "text" and one.type is not None and duck_type(one.type) != "VARCHAR":
        raise WireError("42883", f"there is no function {name}({one.type.shown})", "cast it to text", code="P0204")
    if kind == "float8" and name_of(one) == "numeric" and name in _OF_NUMERIC:
        raise unsupported(f"{name} of a numeric is not known over the catalogs", "cast it to float8")
    return cast(one, target).text if one.text != "NULL" else f"NULL::{duck_type(target)}"


_METHODS: dict[type[exp.Expr], Callable[..., SqlColumn]] = {
    exp.Literal: Expressions._literal, exp.Boolean: Expressions._boolean, exp.Null: Expressions._null,
    exp.Column: Expressions._column, exp.Paren: Expressions._paren, exp.Tuple: Expressions._tuple,
    exp.Neg: Expressions._neg, exp.BitwiseNot: Expressions._not_bits, exp.Extract: Expressions._extract,
    exp.Interval: Expressions._interval, exp.AtTimeZone: Expressions._at_time_zone, exp.Array: Expressions._array,
    exp.Subquery: Expressions._subquery, exp.Exists: Expressions._exists, exp.And: Expressions._and_or,
    exp.Or: Expressions._and_or, exp.Not: Expressions._not, exp.Is: Expressions._is, exp.Between: Expressions._between,
    exp.In: Expressions._in, exp.Escape: Expressions._escape, **dict.fromkeys(_LIKES, Expressions._like),
    exp.Operator: Expressions._operator, exp.DPipe: Expressions._pipe, exp.Case: Expressions._case,
    exp.Cast: Expressions._cast, exp.Anonymous: Expressions._anonymous, exp.GroupConcat: Expressions._group_concat,
    exp.ArrayAgg: Expressions._array_agg, exp.Filter: Expressions._filter, exp.Window: Expressions._window,
    exp.WithinGroup: Expressions._within_group, exp.Dot: Expressions._dot, exp.Bracket: Expressions._bracket,
    exp.Collate: Expressions._inner, exp.Substring: Expressions._substring, exp.StrPosition: Expressions._position,
    exp.Trim: Expressions._trim, exp.Coalesce: Expressions._coalesce, exp.Unnest: Expressions._unnest,
    **dict.fromkeys(operations.OPERATIONS, Expressions._of_two),
    exp.JSONExtract: Expressions._json_part, exp.JSONExtractScalar: Expressions._json_part,
    exp.JSONBExtract: Expressions._json_part, exp.JSONBExtractScalar: Expressions._json_part,
}  # fmt: skip
