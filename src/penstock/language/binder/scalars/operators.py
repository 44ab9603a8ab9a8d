"""Columns, literals, operators, predicates, CASE and CAST: sqlglot's nodes bound, one function a kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation

import pyarrow as pa
from sqlglot import exp

from penstock.errors import nearest
from penstock.expressions.calls.functions import build_call
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.coercion import is_numeric
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Cast, Column, Expression, Literal
from penstock.expressions.values.zones import checked_zone
from penstock.language.binder.context import BindingFailed
from penstock.language.binder.scalars import lengths, periods
from penstock.language.binder.scalars.binder import Binding, ScalarBinder, lost_text, name_of
from penstock.language.binder.scalars.intervals import moved
from penstock.language.binder.scalars.local_time import cast_in
from penstock.language.binder.subqueries.unplacing import ClauseSubqueries, embedded_tree
from penstock.language.dialect import Cql, span_of
from penstock.language.elsewhere import NAMES
from penstock.language.queries import EmbeddedQuery, Name
from penstock.language.text import TextSpan
from penstock.types import parse_type, type_name


def _column(binder: ScalarBinder, node: exp.Expr) -> Expression:
    if node.args.get("db") is not None or not isinstance(node.this, exp.Identifier):
        raise BindingFailed  # reported by unsupported.py
    name = name_of(node.this)
    table = node.args.get("table")
    qualifier = name_of(table) if table is not None else None
    if qualifier is None and (output := binder.output(name)) is not None:
        return output
    if (item := binder.aliased_item(node)) is not node:
        return replace(binder, aliases={}).bind(item)
    named = binder.earlier.get(name.key) if qualifier is None and not binder.scope.can_resolve(name) else None
    if named is not None:
        return _earlier_item(binder, named, name)
    if qualifier is None and name.key in binder.unseen and not binder.scope.knows(name):
        hint = "WHERE comes before the select list: repeat the expression, or select from a query in FROM"
        binder.context.fail("P0202", f"{name.text} is defined only in the select list", name.span, hint)
    entry = binder.scope.resolve(name, qualifier, binder.context)
    column = entry.column()
    if isinstance(column, Column):
        binder.column_spans.append((column, span_of(node)))
    return column


def _earlier_item(binder: ScalarBinder, item: exp.Expr, name: Name) -> Expression:
    """Return the expression of an item before this one, whose name this one reads."""
    bound = replace(binder, earlier={}).bind(item)
    if volatile(bound):
        hint = "a query in FROM computes it once: SELECT .. FROM (SELECT .. AS name FROM ..) AS q"
        message = f"{name.text} is volatile: it cannot be read in a later item, which would compute it again"
        binder.context.fail("P0321", message, name.span, hint)
    return bound


def _literal(binder: ScalarBinder, node: exp.Expr) -> Expression:
    if node.is_string:
        _perhaps_a_column(binder, node)
        return Literal(pa.string(), node.this)
    found = number(str(node.this)) or _not_a_number(binder, node)
    if isinstance(found.value, float) and math.isinf(found.value):
        hint = "the largest DOUBLE is 1.8e308"
        binder.context.warn(f"{node.this} is beyond DOUBLE: it is infinite here", span_of(node), hint)
    return found


def _perhaps_a_column(binder: ScalarBinder, node: exp.Expr) -> None:
    """Warn of "text" that equals the name of a column: in other systems it would be that column."""
    span, text = span_of(node), str(node.this)
    if binder.context.source.text[span.start : span.start + 1] == '"' and binder.scope.can_resolve(
        Name(text, False, span)
    ):
        hint = f"backticks name columns: `{text}`; write '{text}' for the text"
        binder.context.warn(f'"{text}" is a text, not the column {text}', span, hint)


def _not_a_number(binder: ScalarBinder, node: exp.Expr) -> Literal:
    binder.context.fail("P0101", f"{node.this} is no number", span_of(node))


def number(text: str) -> Literal | None:
    """Return a literal of Spark's numeric types: INT, BIGINT or DECIMAL by size; DECIMAL with a point; DOUBLE with an
    exponent.
    """
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
        binder.context.fail("P0101", "these are not hexadecimal digits", span_of(node), "as in X'1CF7'")


def _unary(name: str) -> Binding:
    return lambda binder, node: binder.call(name, node, [binder.bind(node.this)])


def _binary(name: str) -> Binding:
    return lambda binder, node: binder.call(name, node, binder.bind_all([node.this, node.expression]))


def _quotient(name: str) -> Binding:
    plain = _binary(name)

    def bind(binder: ScalarBinder, node: exp.Expr) -> Expression:
        divisor = node.expression.unnest()
        found = number(divisor.this) if isinstance(divisor, exp.Literal) and not divisor.is_string else None
        if found is not None and not found.value:
            binder.context.warn("a division by zero is NULL", span_of(node), "divide by another number")
        return plain(binder, node)

    return bind


def _chain(name: str) -> Binding:
    """Return the binding of AND or OR: a long chain is bound without recursion, to a balanced tree."""

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
    """Return the AND or OR of `parts`, as a balanced tree."""
    combined = list(parts)
    while len(combined) > 1:
        halves = [combined[i : i + 2] for i in range(0, len(combined), 2)]
        combined = [binder.call(name, node, pair) if len(pair) == 2 else pair[0] for pair in halves]
    return combined[0]


def _like(name: str) -> Binding:
    def bind(binder: ScalarBinder, node: exp.Expr) -> Expression:
        right = node.expression
        listed = isinstance(right, exp.Any | exp.All) and not isinstance(right.this.unnest(), EmbeddedQuery)
        patterns = _listed(binder, right) if listed else [right]
        bound = binder.bind_all([node.this, *patterns])
        calls = [binder.call(name, node, [bound[0], pattern]) for pattern in bound[1:]]
        for pattern in patterns:
            text = str(pattern.this) if isinstance(pattern, exp.Literal) and pattern.is_string else ""
            if "*" in text and "%" not in text and "_" not in text:
                message = f"{text!r} has no % and no _, so it matches only itself"
                binder.context.warn(message, span_of(pattern), "% stands for any characters, _ for one")
        if node.args.get("negate"):
            calls = [binder.call("NOT", node, [call]) for call in calls]
        return _all_of(binder, "AND" if isinstance(right, exp.All) else "OR", node, calls)

    return bind


def _listed(binder: ScalarBinder, node: exp.Expr) -> list[exp.Expr]:
    """Return the values in the brackets after ANY or ALL. Raises PenstockError P0101 where there are none."""
    inner = node.this
    values = list(inner.expressions) if isinstance(inner, exp.Tuple) else [inner]
    if not values:
        binder.context.fail("P0101", "ANY and ALL need at least one value to compare with", span_of(node))
    return values


def _escape(binder: ScalarBinder, node: exp.Expr) -> Expression:
    like = node.this
    name = {exp.Like: "LIKE", exp.ILike: "ILIKE"}.get(type(like))
    if name is None:
        binder.context.fail("P0101", "ESCAPE belongs to LIKE", span_of(node))
    call = binder.call(name, node, binder.bind_all([like.this, like.expression, node.expression]))
    return binder.call("NOT", node, [call]) if like.args.get("negate") else call


def _is(binder: ScalarBinder, node: exp.Expr) -> Expression:
    right = node.expression
    negate = bool(node.args.get("negate"))
    if isinstance(right, exp.Null):
        return binder.call("IS_NOT_NULL" if negate else "IS_NULL", node, [binder.bind(node.this)])
    if not isinstance(right, exp.Boolean):
        binder.context.fail("P0101", "IS is followed by [NOT] NULL, TRUE, FALSE or DISTINCT FROM", span_of(right))
    equality = binder.call("EQ_NULL_SAFE", node, binder.bind_all([node.this, right]))
    return binder.call("NOT", node, [equality]) if negate else equality


def _not(binder: ScalarBinder, node: exp.Expr) -> Expression:
    inner = node.this.unnest()
    if isinstance(inner, exp.In) and any(isinstance(value, exp.Null) for value in inner.expressions):
        hint = "leave NULL out, and ask for it by IS NOT NULL"
        binder.context.warn("NOT IN with NULL among its values is never true", span_of(inner), hint)
    return binder.call("NOT", node, [binder.bind(node.this)])


def _not_same(binder: ScalarBinder, node: exp.Expr) -> Expression:
    same = binder.call("EQ_NULL_SAFE", node, binder.bind_all([node.this, node.expression]))
    return binder.call("NOT", node, [same])


def _in(binder: ScalarBinder, node: exp.Expr) -> Expression:
    query = node.args.get("query")
    lengths.refuse_open(binder, node.this)
    if query is not None:
        return _compared(binder, node, node.this, query, "EQ")
    row = node.this.unnest()
    if isinstance(row, exp.Tuple):
        return _all_of(binder, "OR", node, [_with_row(binder, node, "EQ", row, other) for other in node.expressions])
    _refuse_unquoted(binder, [node.this, *node.expressions])
    return binder.call("IN", node, binder.bind_all([node.this, *node.expressions]))


def _compared(binder: ScalarBinder, node: exp.Expr, left: exp.Expr, query: exp.Expr, comparison: str) -> Expression:
    """Return whether a row of `query` compares with `left`, a value or a row of values."""
    row = left.unnest()
    values = row.expressions if isinstance(row, exp.Tuple) else [left]
    operands = binder.context.attempt(lambda: binder.bind_all(values))
    tree, span = embedded_tree(query), span_of(query)
    subqueries = _subqueries(binder, span)
    return subqueries.contains(
        operands,
        tree,
        span,
        lambda left_values, right_values: _rows(binder, node, comparison, left_values, right_values),
    )


def _with_row(binder: ScalarBinder, node: exp.Expr, name: str, row: exp.Expr, other: exp.Expr) -> Expression:
    """Return the comparison of the row `row` with another row of values."""
    listed = other.unnest()
    if not isinstance(listed, exp.Tuple):
        hint = f"a row of {len(row.expressions)} values is compared with rows, as in (a, b) IN ((1, 2), (3, 4))"
        binder.context.fail("P0203", "this is not a row of values", span_of(other), hint)
    if len(row.expressions) != len(listed.expressions):
        message = f"a row of {len(row.expressions)} values is compared with one of {len(listed.expressions)}"
        binder.context.fail("P0203", message, span_of(other))
    return _rows(binder, node, name, binder.bind_all(row.expressions), binder.bind_all(listed.expressions))


def _row_with_query(
    binder: ScalarBinder, node: exp.Expr, name: str, row: exp.Expr, query: exp.Expr, query_first: bool = False
) -> Expression:
    """Bind (a, b) = (SELECT c, d ...), whose query has at most one row. query_first: the query is the left operand."""
    row_values = binder.context.attempt(lambda: binder.bind_all(row.expressions))
    span = span_of(query)
    query_values = _subqueries(binder, span).row(len(row.expressions), embedded_tree(query), span)
    if row_values is None:
        raise BindingFailed
    return (
        _rows(binder, node, name, query_values, row_values)
        if query_first
        else _rows(binder, node, name, row_values, query_values)
    )


#: comparison -> the one that is TRUE where it is FALSE.
_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE"}
#: comparison of rows -> that of a column which decides before the last one.
_STRICT = {"LT": "LT", "LE": "LT", "GT": "GT", "GE": "GT"}


def _rows(
    binder: ScalarBinder, node: exp.Expr, name: str, left: Sequence[Expression], right: Sequence[Expression]
) -> Expression:
    """Return the SQL comparison of two rows of values of equal width: equal where all columns are; less by the first
    column that differs, NULL where a NULL precedes that.
    """
    if name == "EQ":
        return _all_of(binder, "AND", node, [binder.call("EQ", node, [a, b]) for a, b in zip(left, right, strict=True)])
    if name == "NE":
        return _all_of(binder, "OR", node, [binder.call("NE", node, [a, b]) for a, b in zip(left, right, strict=True)])
    compared = binder.call(name, node, [left[-1], right[-1]])
    for a_value, b_value in reversed(list(zip(left[:-1], right[:-1], strict=True))):
        tied = binder.call("AND", node, [binder.call("EQ", node, [a_value, b_value]), compared])
        compared = binder.call("OR", node, [binder.call(_STRICT[name], node, [a_value, b_value]), tied])
    return compared


def _comparison(name: str) -> Binding:
    """Return the binding of a comparison; also of rows, and with ANY, SOME or ALL of a subquery or a list."""
    plain = _binary(name)

    def bind(binder: ScalarBinder, node: exp.Expr) -> Expression:
        left, right = node.this, node.expression
        if isinstance(right, exp.Any | exp.All):
            return _quantified(binder, node, name)
        of_length = lengths.compared(binder, node)
        if of_length is not None:
            return of_length
        first, second = left.unnest(), right.unnest()
        if isinstance(first, exp.Tuple) and isinstance(second, exp.Tuple):
            return _with_row(binder, node, name, first, second)
        if isinstance(first, exp.Tuple) and isinstance(second, EmbeddedQuery | exp.Subquery):
            return _row_with_query(binder, node, name, first, right)
        if isinstance(second, exp.Tuple) and isinstance(first, EmbeddedQuery | exp.Subquery):
            return _row_with_query(binder, node, name, second, left, query_first=True)
        if name in _STRICT and isinstance(left, exp.LT | exp.LTE | exp.GT | exp.GTE):
            hint = "two comparisons are joined by AND: 5 < a AND a < 10"
            binder.context.fail(
                "P0203", "a comparison is TRUE or FALSE, and is not compared again", span_of(node), hint
            )
        _refuse_unquoted(binder, [left, right])
        bound = plain(binder, node)
        _warn_of_comparison(binder, node, bound)
        return bound

    return bind


def _refuse_unquoted(binder: ScalarBinder, nodes: Sequence[exp.Expr]) -> None:
    """Refuse, with P0202, an unknown name that is compared with a column of texts: probably a text without quotes."""
    unknown = [node for node in nodes if _is_unknown(binder, node)]
    if not unknown:
        return
    known: list[exp.Expr] = [node for node in nodes if isinstance(node, exp.Column) and node not in unknown]
    if not any(pa.types.is_string(bound.type) for bound in binder.bind_all(known)):
        # It fails, as it has what is unknown.
        binder.bind_all([node for node in nodes if node not in known])
        return
    name = name_of(unknown[0].this)
    meant = nearest(name.text, [entry.name for entry in binder.scope.entries if entry.named]) or ""
    hint = f"{meant} " * meant.startswith("did you") + f"a text stands in quotes: '{name.text}'"
    binder.context.fail("P0202", f"unknown column {name.text}", name.span, hint)


def _is_unknown(binder: ScalarBinder, node: exp.Expr) -> bool:
    """Return whether `node` is a name alone that means no column, and nothing that other systems have."""
    if not isinstance(node, exp.Column) or node.args.get("table") or not isinstance(node.this, exp.Identifier):
        return False
    name = name_of(node.this)
    elsewhere = name.key in binder.aliases or name.key in binder.unseen or name.key.upper() in NAMES
    output = any(name.matches(known) for known, _ in binder.outputs) or name.key in binder.lost
    return not elsewhere and not output and not binder.scope.knows(name)


def _warn_of_comparison(binder: ScalarBinder, node: exp.Expr, bound: Expression) -> None:
    """Warn of a comparison with NULL, and of a text that is read as a number."""
    sides = (node.this.unnest(), node.expression.unnest())
    if any(isinstance(side, exp.Null) for side in sides):
        hint = "write IS NULL or IS NOT NULL"
        binder.context.warn("a comparison with NULL is NULL, never true", span_of(node), hint)
    columns = [child.argument if isinstance(child, Cast) else child for child in bound.children]
    if all(isinstance(column, Column) for column in columns) and len(columns) == 2 and columns[0] == columns[1]:
        shown, again = (binder.context.source.slice(span_of(side)) for side in sides)
        message = f"{shown} is compared with itself" if shown == again else f"{shown} and {again} are the same column"
        hint = "name the source of the other side, as in a.k = b.k"
        binder.context.warn(message, span_of(node), hint)
    for side, other, operand in zip(sides, reversed(sides), bound.children, strict=False):
        plain = other.this if isinstance(other, exp.Neg) else other
        beside = isinstance(plain, exp.Literal) and not plain.is_string and isinstance(side, exp.Column)
        if beside and isinstance(operand, Cast) and pa.types.is_string(operand.argument.type):
            shown = binder.context.source.slice(span_of(side))
            message = f"{shown} is a text: what is no number in it is NULL here"
            hint = f"compare with a text in quotes, or write CAST({shown} AS DOUBLE), which means the same"
            binder.context.warn(message, span_of(node), hint)
        elif _joins(side, other) and isinstance(operand, Cast) and pa.types.is_string(operand.argument.type):
            shown, partner = (binder.context.source.slice(span_of(one)) for one in (side, other))
            message = f"{shown} is a text, and {partner} is none: what is no number in it joins nothing"
            hint = f"CAST({shown} AS DOUBLE) means the same; is {shown} the column you mean?"
            binder.context.warn(message, span_of(node), hint)


def _joins(side: exp.Expr, other: exp.Expr) -> bool:
    """Return whether the sides of a comparison are columns of two relations, as far as the text shows."""
    if not (isinstance(side, exp.Column) and isinstance(other, exp.Column)):
        return False
    return bool(side.table and other.table) and side.table.lower() != other.table.lower()


def _quantified(binder: ScalarBinder, node: exp.Expr, name: str) -> Expression:
    """Bind a comparison with ANY or ALL values of a subquery or a list."""
    left, right = node.this, node.expression
    every = isinstance(right, exp.All)
    if not isinstance(right.this, exp.Tuple):
        contained = _compared(binder, node, left, right, _OPPOSITE[name] if every else name)
        return binder.call("NOT", node, [contained]) if every else contained
    row = left.unnest()
    if isinstance(row, exp.Tuple):
        parts = [_with_row(binder, node, name, row, other) for other in _listed(binder, right)]
    else:
        operand, *others = binder.bind_all([left, *_listed(binder, right)])
        parts = [binder.call(name, node, [operand, other]) for other in others]
    return _all_of(binder, "AND" if every else "OR", node, parts)


def _misplaced_row(binder: ScalarBinder, node: exp.Expr) -> Expression:
    hint = "rows of values are compared, as in (a, b) IN (SELECT c, d FROM ...) or (a, b) < (1, 2)"
    binder.context.fail("P0203", "a row of values is not a value", span_of(node), hint)


def _misplaced_all(binder: ScalarBinder, node: exp.Expr) -> Expression:
    word = "ALL" if isinstance(node, exp.All) else "ANY"
    hint = f"write a > {word} (SELECT b FROM ...), a > {word} (1, 2) or a LIKE {word} ('x%', 'y%')"
    binder.context.fail("P0101", f"{word} is only allowed right of a comparison", span_of(node), hint)


def _exists(binder: ScalarBinder, node: exp.Expr) -> Expression:
    return _subqueries(binder, span_of(node)).exists(embedded_tree(node), span_of(node))


def _scalar_subquery(binder: ScalarBinder, node: exp.Expr) -> Expression:
    return _subqueries(binder, span_of(node)).scalar(embedded_tree(node), span_of(node))


#: What to do instead, by what takes no subqueries.
_WITHOUT_SUBQUERIES = {
    "a change of rows": "UPDATE and DELETE read the row alone that they change: SELECT the value first, and write it",
    "a row of VALUES": "write SELECT .. UNION ALL SELECT ..",
    "VALUES": "SELECT the value first, and write it; a continuous query is CREATE QUERY name INTO ... AS SELECT ...",
}


def _subqueries(binder: ScalarBinder, span: TextSpan) -> ClauseSubqueries:
    subqueries = binder.inner_subqueries if binder.inside else binder.subqueries
    if subqueries is None:
        hint = _WITHOUT_SUBQUERIES.get(
            binder.aggregates or "",
            "subqueries are allowed everywhere in a query except in a window; a query in FROM can compute the value",
        )
        binder.context.fail("P0312", "a subquery is not allowed here", span, hint)
    return subqueries


def _between(binder: ScalarBinder, node: exp.Expr) -> Expression:
    row = node.this.unnest()
    if isinstance(row, exp.Tuple):
        ends = (("GE", node.args["low"]), ("LE", node.args["high"]))
        return _all_of(binder, "AND", node, [_with_row(binder, node, name, row, end) for name, end in ends])
    lengths.refuse_open(binder, node.this)
    value, low, high = binder.bind_all([node.this, node.args["low"], node.args["high"]])
    above = binder.call("GE", node, [value, low])
    both = binder.call("AND", node, [above, binder.call("LE", node, [value, high])])
    # Texts are compared as such here, which is not how numbers in quotes are compared with the value.
    fixed = isinstance(low, Literal) and isinstance(high, Literal) and low.type == high.type
    alike = fixed and not (pa.types.is_string(low.type) and is_numeric(value.type))
    if alike and fold(build_call("GT", [low, high])) == Literal(pa.bool_(), True):
        message = "the lower bound of BETWEEN is the greater one, so it is never true"
        binder.context.warn(message, span_of(node), "write the lower bound first")
    return both


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
            bound[i] = binder.call("EQ", parts[i], [value, bound[i]], written="CASE")
    return binder.call("CASE", node, bound)


def _equality(name: str) -> Binding:
    """Return the binding of = or <>, between values or between periods."""

    def bind(binder: ScalarBinder, node: exp.Expr) -> Expression:
        of_periods = periods.equal(binder, node)
        if of_periods is None:
            return compared(binder, node)
        return of_periods if name == "EQ" else binder.call("NOT", node, [of_periods])

    compared = _comparison(name)
    return bind


def _cast(binder: ScalarBinder, node: exp.Expr) -> Expression:
    of_period = periods.whole_units(binder, node)
    if of_period is not None:
        return of_period
    argument = binder.bind(node.this)
    target = node.args["to"]
    type_ = binder.context.guard(span_of(target), lambda: parse_type(target.sql(dialect=Cql)))
    try_ = isinstance(node, exp.TryCast)
    bound = binder.context.guard(span_of(node), lambda: cast_in(binder.context.zone, argument, type_, try_))
    # DATE '..', which has the place of its text, says that it is one; a CAST may be meant to be NULL.
    if span_of(node) == span_of(node.this) and (text := lost_text(bound)) is not None:
        name = type_name(bound.type)
        binder.context.warn(f"{text.value!r} is no {name}: it is NULL here", span_of(node.this), f"write a {name}")
    return bound


def _at_time_zone(binder: ScalarBinder, node: exp.Expr) -> Expression:
    time, zone = binder.bind_all([node.this, node.args["zone"]])
    binder.context.guard(span_of(node.args["zone"]), lambda: checked_zone(fold(zone)))
    return binder.call("AT_TIME_ZONE", node, [time, zone])


OPERATORS: Mapping[type[exp.Expr], Binding] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.HexString: _hexadecimal,
    exp.Null: lambda binder, node: Literal(pa.null(), None),
    exp.Boolean: lambda binder, node: Literal(pa.bool_(), bool(node.this)),
    exp.Paren: lambda binder, node: binder.bind(node.this),
    exp.Neg: _unary("NEG"),
    exp.Not: _not,
    exp.BitwiseNot: _unary("BIT_NOT"),
    exp.Add: moved("ADD"),
    exp.Sub: moved("SUB"),
    exp.Mul: _binary("MUL"),
    exp.Div: _quotient("DIV"),
    exp.IntDiv: _quotient("INT_DIV"),
    exp.Mod: _quotient("MOD"),
    exp.BitwiseAnd: _binary("BIT_AND"),
    exp.BitwiseOr: _binary("BIT_OR"),
    exp.BitwiseXor: _binary("BIT_XOR"),
    exp.BitwiseLeftShift: _binary("SHIFTLEFT"),
    exp.BitwiseRightShift: _binary("SHIFTRIGHT"),
    exp.DPipe: _binary("CONCAT"),
    exp.JSONExtract: _binary("JSON_GET"),
    exp.JSONExtractScalar: _binary("JSON_GET_TEXT"),
    exp.EQ: _equality("EQ"),
    exp.NEQ: _equality("NE"),
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
    exp.AtTimeZone: _at_time_zone,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}
