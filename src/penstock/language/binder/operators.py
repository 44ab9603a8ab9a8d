"""Columns, literals, operators, predicates, CASE and CAST: sqlglot's nodes bound, one function a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation

import pyarrow as pa
from sqlglot import exp

from penstock.expressions.functions import build_cast
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import Refused
from penstock.language.binder.intervals import moved
from penstock.language.binder.scalars import Binding, ScalarBinder, name_of
from penstock.language.binder.subqueries import Subqueries, embedded_tree
from penstock.language.dialect import Cql, span_of
from penstock.language.queries import EmbeddedQuery
from penstock.language.text import Span
from penstock.types import parse_type


def _column(binder: ScalarBinder, node: exp.Expr) -> Expression:
    if node.args.get("db") is not None or not isinstance(node.this, exp.Identifier):
        raise Refused  # unsupported.py has said why
    name = name_of(node.this)
    table = node.args.get("table")
    qualifier = name_of(table) if table is not None else None
    if qualifier is None and (output := binder.output(name)) is not None:
        return output
    if (item := binder.meant(node)) is not node:
        return replace(binder, aliases={}).bind(item)
    if qualifier is None and name.key in binder.unseen and not binder.scope.knows(name):
        hint = "WHERE comes before the select list: repeat the expression, or select from a query in FROM"
        binder.context.fail("P0202", f"{name.text} is named in the select list only", name.span, hint)
    entry = binder.scope.resolve(name, qualifier, binder.context)
    column = entry.column()
    if isinstance(column, Column):
        binder.places.append((column, span_of(node)))
    return column


def _literal(binder: ScalarBinder, node: exp.Expr) -> Expression:
    if node.is_string:
        return Literal(pa.string(), node.this)
    return number(str(node.this)) or _not_a_number(binder, node)


def _not_a_number(binder: ScalarBinder, node: exp.Expr) -> Expression:
    binder.context.fail("P0101", f"{node.this} is no number", span_of(node))


def number(text: str) -> Literal | None:
    """Spark's types of numbers: INT, BIGINT or DECIMAL by size; DECIMAL with a point; DOUBLE with an exponent."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    if "e" in text.lower():
        return Literal(pa.float64(), float(text))
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    if scale == 0 and "." not in text:
        whole = int(value)
        if abs(whole) < 2**31:
            return Literal(pa.int32(), whole)
        if abs(whole) < 2**63:
            return Literal(pa.int64(), whole)
    precision = max(len(digits), scale)
    if precision > 38:
        return Literal(pa.float64(), float(text))
    return Literal(pa.decimal128(precision, scale), value)


def _hexadecimal(binder: ScalarBinder, node: exp.Expr) -> Expression:
    digits = str(node.this)
    try:
        return Literal(pa.binary(), bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)))
    except ValueError:
        binder.context.fail("P0101", "these are no hexadecimal digits", span_of(node), "as in X'1CF7'")


def _unary(name: str) -> Binding:
    return lambda binder, node: binder.call(name, node, [binder.bind(node.this)])


def _binary(name: str) -> Binding:
    return lambda binder, node: binder.call(name, node, binder.bind_all([node.this, node.expression]))


def _chain(name: str) -> Binding:
    """AND and OR: a long chain is bound without recursion, to a balanced tree."""

    def bind(binder: ScalarBinder, node: exp.Expr) -> Expression:
        operands: list[exp.Expr] = []
        left = node
        while type(left) is type(node):
            operands.append(left.expression)
            left = left.this
        nodes = [left, *reversed(operands)]
        return _all_of(binder, name, node, binder.bind_all(nodes))

    return bind


def _all_of(binder: ScalarBinder, name: str, node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    """The AND or OR of `parts`, as a balanced tree."""
    found = list(parts)
    while len(found) > 1:
        halves = [found[i : i + 2] for i in range(0, len(found), 2)]
        found = [binder.call(name, node, pair) if len(pair) == 2 else pair[0] for pair in halves]
    return found[0]


def _like(name: str) -> Binding:
    def bind(binder: ScalarBinder, node: exp.Expr) -> Expression:
        right = node.expression
        listed = isinstance(right, exp.Any | exp.All) and right.find(EmbeddedQuery) is None
        patterns = _listed(right) if listed else [right]
        bound = binder.bind_all([node.this, *patterns])
        found = [binder.call(name, node, [bound[0], pattern]) for pattern in bound[1:]]
        if node.args.get("negate"):
            found = [binder.call("NOT", node, [one]) for one in found]
        return _all_of(binder, "AND" if isinstance(right, exp.All) else "OR", node, found)

    return bind


def _listed(node: exp.Expr) -> list[exp.Expr]:
    """The values in the brackets behind ANY or ALL."""
    inner = node.this
    return list(inner.expressions) if isinstance(inner, exp.Tuple) else [inner]


def _escape(binder: ScalarBinder, node: exp.Expr) -> Expression:
    like = node.this
    name = {exp.Like: "LIKE", exp.ILike: "ILIKE"}.get(type(like))
    if name is None:
        binder.context.fail("P0101", "ESCAPE belongs to LIKE", span_of(node))
    found = binder.call(name, node, binder.bind_all([like.this, like.expression, node.expression]))
    return binder.call("NOT", node, [found]) if like.args.get("negate") else found


def _is(binder: ScalarBinder, node: exp.Expr) -> Expression:
    right = node.expression
    negate = bool(node.args.get("negate"))
    if isinstance(right, exp.Null):
        return binder.call("IS_NOT_NULL" if negate else "IS_NULL", node, [binder.bind(node.this)])
    if not isinstance(right, exp.Boolean):
        binder.context.fail("P0101", "IS is followed by [NOT] NULL, TRUE, FALSE or DISTINCT FROM", span_of(right))
    found = binder.call("EQ_NULL_SAFE", node, binder.bind_all([node.this, right]))
    return binder.call("NOT", node, [found]) if negate else found


def _not_same(binder: ScalarBinder, node: exp.Expr) -> Expression:
    same = binder.call("EQ_NULL_SAFE", node, binder.bind_all([node.this, node.expression]))
    return binder.call("NOT", node, [same])


def _in(binder: ScalarBinder, node: exp.Expr) -> Expression:
    query = node.args.get("query")
    if query is not None:
        return _compared(binder, node, node.this, query, "EQ")
    if isinstance(node.this, exp.Tuple):
        return _row_in(binder, node, node.this)
    return binder.call("IN", node, binder.bind_all([node.this, *node.expressions]))


def _compared(binder: ScalarBinder, node: exp.Expr, left: exp.Expr, query: exp.Expr, comparison: str) -> Expression:
    """Whether a row of `query` compares with `left`, a value or a row of values."""
    values = left.expressions if isinstance(left, exp.Tuple) else [left]
    operands = binder.context.attempt(lambda: binder.bind_all(values))
    tree, span = embedded_tree(query), span_of(query)
    found = _subqueries(binder, span)
    return found.contains(operands, tree, span, lambda one, other: binder.call(comparison, node, [one, other]))


def _row_in(binder: ScalarBinder, node: exp.Expr, row: exp.Expr) -> Expression:
    """(a, b) IN ((1, 2), (3, 4))."""
    others = [other.unnest() for other in node.expressions]
    for other in others:
        if not isinstance(other, exp.Tuple):
            hint = f"a row of {len(row.expressions)} values is compared with rows, as in (a, b) IN ((1, 2), (3, 4))"
            binder.context.fail("P0203", "this is no row of values", span_of(other), hint)
    found = [_rows_equal(binder, node, row, other) for other in others]
    return _all_of(binder, "OR", node, found)


def _rows_equal(binder: ScalarBinder, node: exp.Expr, row: exp.Expr, other: exp.Expr) -> Expression:
    if len(row.expressions) != len(other.expressions):
        message = f"a row of {len(row.expressions)} values is compared with one of {len(other.expressions)}"
        binder.context.fail("P0203", message, span_of(other))
    return _all_equal(binder, node, binder.bind_all(row.expressions), binder.bind_all(other.expressions))


def _row_equals_query(binder: ScalarBinder, node: exp.Expr, row: exp.Expr, query: exp.Expr) -> Expression:
    """(a, b) = (SELECT c, d ...), which has one row at most."""
    ones = binder.context.attempt(lambda: binder.bind_all(row.expressions))
    span = span_of(query)
    others = _subqueries(binder, span).row(len(row.expressions), embedded_tree(query), span)
    if ones is None:
        raise Refused
    return _all_equal(binder, node, ones, others)


def _all_equal(
    binder: ScalarBinder, node: exp.Expr, ones: Sequence[Expression], others: Sequence[Expression]
) -> Expression:
    found = [binder.call("EQ", node, [a, b]) for a, b in zip(ones, others, strict=True)]
    return _all_of(binder, "AND", node, found)


#: comparison -> what is TRUE where it is FALSE.
_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE"}


def _comparison(name: str) -> Binding:
    """A comparison; of rows, and with ANY, SOME or ALL of a subquery's values, too."""
    plain = _binary(name)

    def bind(binder: ScalarBinder, node: exp.Expr) -> Expression:
        left, right = node.this, node.expression
        if isinstance(right, exp.Any | exp.All):
            if isinstance(right, exp.Any):
                return _compared(binder, node, left, _values_of(binder, right), name)
            other = _compared(binder, node, left, _values_of(binder, right), _OPPOSITE[name])
            return binder.call("NOT", node, [other])
        if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple) and name in ("EQ", "NE"):
            found = _rows_equal(binder, node, left, right)
            return found if name == "EQ" else binder.call("NOT", node, [found])
        for row, other in ((left, right), (right, left)):
            if name in ("EQ", "NE") and isinstance(row, exp.Tuple) and isinstance(other.unnest(), EmbeddedQuery):
                found = _row_equals_query(binder, node, row, other)
                return found if name == "EQ" else binder.call("NOT", node, [found])
        return plain(binder, node)

    return bind


def _values_of(binder: ScalarBinder, node: exp.Expr) -> exp.Expr:
    """The subquery behind ANY or ALL."""
    if node.find(EmbeddedQuery) is None:
        word = "ALL" if isinstance(node, exp.All) else "ANY"
        hint = f"write a = {word} (SELECT b FROM ...); for a list of values write IN"
        binder.context.fail("P0101", f"{word} stands before a query", span_of(node), hint)
    return node


def _misplaced_row(binder: ScalarBinder, node: exp.Expr) -> Expression:
    hint = "rows of values stand left of IN, = and <>, as in (a, b) IN (SELECT c, d FROM ...)"
    binder.context.fail("P0203", "a row of values is no value", span_of(node), hint)


def _misplaced_all(binder: ScalarBinder, node: exp.Expr) -> Expression:
    word = "ALL" if isinstance(node, exp.All) else "ANY"
    hint = f"write a > {word} (SELECT b FROM ...), or a LIKE {word} ('x%', 'y%')"
    binder.context.fail("P0101", f"{word} stands right of a comparison", span_of(node), hint)


def _exists(binder: ScalarBinder, node: exp.Expr) -> Expression:
    return _subqueries(binder, span_of(node)).exists(embedded_tree(node), span_of(node))


def _scalar_subquery(binder: ScalarBinder, node: exp.Expr) -> Expression:
    return _subqueries(binder, span_of(node)).scalar(embedded_tree(node), span_of(node))


def _subqueries(binder: ScalarBinder, span: Span) -> Subqueries:
    found = binder.inner_subqueries if binder.inside else binder.subqueries
    if found is None:
        hint = "it may stand anywhere in a query but in a window; a query in FROM can compute the value"
        binder.context.fail("P0312", "a subquery may not stand here", span, hint)
    return found


def _between(binder: ScalarBinder, node: exp.Expr) -> Expression:
    value, low, high = binder.bind_all([node.this, node.args["low"], node.args["high"]])
    above = binder.call("GE", node, [value, low])
    return binder.call("AND", node, [above, binder.call("LE", node, [value, high])])


def _case(binder: ScalarBinder, node: exp.Expr) -> Expression:
    operand = node.this
    parts: list[exp.Expr] = []
    for branch in node.args["ifs"]:
        parts += [branch.this, branch.args["true"]]
    if node.args.get("default") is not None:
        parts.append(node.args["default"])
    bound = binder.bind_all(([operand] if operand is not None else []) + parts)
    if operand is not None:
        value, bound = bound[0], bound[1:]
        for i in range(0, len(node.args["ifs"]) * 2, 2):
            bound[i] = binder.call("EQ", parts[i], [value, bound[i]])
    return binder.call("CASE", node, bound)


def _cast(binder: ScalarBinder, node: exp.Expr) -> Expression:
    argument = binder.bind(node.this)
    target = node.args["to"]
    type_ = binder.context.guard(span_of(target), lambda: parse_type(target.sql(dialect=Cql)))
    try_ = isinstance(node, exp.TryCast)
    return binder.context.guard(span_of(node), lambda: build_cast(argument, type_, try_=try_))


OPERATORS: Mapping[type[exp.Expr], Binding] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.RawString: lambda binder, node: Literal(pa.string(), node.this),
    exp.HexString: _hexadecimal,
    exp.Null: lambda binder, node: Literal(pa.null(), None),
    exp.Boolean: lambda binder, node: Literal(pa.bool_(), bool(node.this)),
    exp.Paren: lambda binder, node: binder.bind(node.this),
    exp.Neg: _unary("NEG"),
    exp.Not: _unary("NOT"),
    exp.BitwiseNot: _unary("BIT_NOT"),
    exp.Add: moved("ADD"),
    exp.Sub: moved("SUB"),
    exp.Mul: _binary("MUL"),
    exp.Div: _binary("DIV"),
    exp.IntDiv: _binary("INT_DIV"),
    exp.Mod: _binary("MOD"),
    exp.BitwiseAnd: _binary("BIT_AND"),
    exp.BitwiseOr: _binary("BIT_OR"),
    exp.BitwiseXor: _binary("BIT_XOR"),
    exp.BitwiseLeftShift: _binary("SHIFTLEFT"),
    exp.BitwiseRightShift: _binary("SHIFTRIGHT"),
    exp.DPipe: _binary("CONCAT"),
    exp.EQ: _comparison("EQ"),
    exp.NEQ: _comparison("NE"),
    exp.LT: _comparison("LT"),
    exp.LTE: _comparison("LE"),
    exp.GT: _comparison("GT"),
    exp.GTE: _comparison("GE"),
    exp.NullSafeEQ: _binary("EQ_NULL_SAFE"),
    exp.NullSafeNEQ: _not_same,
    exp.And: _chain("AND"),
    exp.Or: _chain("OR"),
    exp.Is: _is,
    exp.In: _in,
    exp.Any: _misplaced_all,
    exp.All: _misplaced_all,
    exp.Tuple: _misplaced_row,
    exp.Exists: _exists,
    exp.Subquery: _scalar_subquery,
    EmbeddedQuery: _scalar_subquery,
    exp.Between: _between,
    exp.Like: _like("LIKE"),
    exp.ILike: _like("ILIKE"),
    exp.RegexpLike: _like("RLIKE"),
    exp.Escape: _escape,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}
