"""Reject, with P0901 at its place, every scalar expression in a statement that the binder does not implement.

It works by tables of what IS implemented: kinds of nodes with their arguments. Everything else is rejected, so what
sqlglot's grammar reads is never ignored. That every field of the trees of queries and statements is bound, a test makes
sure of.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from penstock.errors import PenstockError
from penstock.expressions.aggregates import aggregate_function
from penstock.language.binder.scalars.calls import function_name
from penstock.language.binder.scalars.expressions import BINDERS
from penstock.language.binder.scalars.summary_estimates import estimate_parts, hint_of_estimate
from penstock.language.dialect import span_of
from penstock.language.elsewhere import CLAUSES, FUNCTIONS
from penstock.language.queries import EmbeddedQuery
from penstock.language.text import LEAVES, TextSpan, fields_compared

Refusal = tuple[PenstockError, TextSpan]

_NO_ARGUMENTS: frozenset[str] = frozenset()
_TWO = frozenset({"this", "expression"})

#: Arguments of each kind of node that the binder reads. Kinds not listed have `this` and `expression`.
ARGUMENTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"this", "table"}),
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Null: _NO_ARGUMENTS,
    exp.Div: _TWO | {"typed", "safe"},
    exp.DPipe: _TWO | {"safe"},
    exp.Is: _TWO | {"negate"},
    exp.Like: _TWO | {"negate"},
    exp.ILike: _TWO | {"negate"},
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.Exists: frozenset({"this"}),
    exp.Any: frozenset({"this"}),
    exp.All: frozenset({"this"}),
    exp.Tuple: frozenset({"expressions"}),
    exp.Subquery: frozenset({"this"}),
    EmbeddedQuery: frozenset({"cql"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true"}),
    exp.AtTimeZone: frozenset({"this", "zone"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.HexString: frozenset({"this", "is_integer"}),
    exp.Interval: frozenset({"this", "unit", "fraction_in_string"}),
    exp.Trim: frozenset({"this", "position", "expression"}),
    exp.Substring: frozenset({"this", "start", "length"}),
    exp.StrPosition: frozenset({"this", "substr", "position"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.Order: frozenset({"this", "expressions"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.DataType: frozenset(exp.DataType.arg_types),  # the type's text is parsed by types.parse_type
    exp.Star: _NO_ARGUMENTS,
    exp.Where: frozenset({"this"}),
    exp.Var: frozenset({"this"}),
}
_PARTS = frozenset(
    {exp.DataType, exp.Identifier, exp.If, exp.Distinct, exp.Order, exp.Ordered, exp.Star, exp.Where, exp.Var}
)
_NAMES: dict[type[exp.Expr], str] = {
    exp.Window: "a window function (OVER)",
    exp.Limit: "LIMIT in an aggregate",
    exp.IgnoreNulls: "IGNORE NULLS",
    exp.RespectNulls: "RESPECT NULLS",
    exp.Dot: "a name of several parts",
    exp.Alias: "a named argument",
    exp.National: "a national string",
    exp.Coalesce: "??",
    exp.Concat: "adjacent strings",
    **dict.fromkeys((exp.StrToDate, exp.StrToTime), "a second argument of CAST"),
}
_SHOWN_ARGUMENTS: dict[tuple[type[exp.Expr], str], str] = {
    (exp.Column, "db"): "a name of more than two parts",
    (exp.In, "field"): "IN without parentheses",
}


def refusals(part: object) -> Iterator[Refusal]:
    """Yield everything in a statement that is not implemented, with its place."""
    if isinstance(part, exp.Expr):
        yield from scalar_refusals(part)
        for embedded in part.find_all(EmbeddedQuery):
            yield from refusals(embedded.tree)
    elif isinstance(part, tuple):
        for one in part:
            yield from refusals(one)
    elif type(part) not in LEAVES:
        for name in fields_compared(type(part)) or ():
            yield from refusals(getattr(part, name))


def scalar_refusals(root: exp.Expr) -> Iterator[Refusal]:
    """Yield what in a scalar expression is not implemented. The operands of a rejected node are not checked."""
    stack = [root]
    while stack:
        node = stack.pop()
        refusal = _node_refusal(node)
        if refusal is not None:
            yield refusal
            continue
        known = ARGUMENTS.get(type(node), _TWO)
        for key, value in node.args.items():
            if value is None or value is False or value == []:
                continue
            if key not in known:
                yield _argument_refusal(node, key, value)
            elif type(node) is not exp.DataType:
                stack.extend(
                    part for part in (value if isinstance(value, list) else [value]) if isinstance(part, exp.Expr)
                )


def _node_refusal(node: exp.Expr) -> Refusal | None:
    """Return the rejection of the node as such, whatever its arguments."""
    kind = type(node)
    if kind is exp.Dot and estimate_parts(node) is None and not _is_in_estimate(node):
        return not_yet(_NAMES[kind], span_of(node), _hint_of_parts(node))
    if kind not in BINDERS and kind not in _PARTS:
        return not_yet(_NAMES.get(kind, "this expression"), span_of(node))
    misplaced = _misplaced(node)
    return None if misplaced is None else (misplaced, span_of(node))


def _hint_of_parts(node: exp.Expr) -> str | None:
    """Return the hint of a function of another system with a name such as HLL_COUNT.INIT."""
    call = node.expression
    if (hint := hint_of_estimate(node)) is not None:
        return hint
    if not isinstance(node.this, exp.Column | exp.Identifier) or not isinstance(call, exp.Anonymous):
        return None
    return FUNCTIONS.get(f"{node.this.name}_{function_name(call)}".upper())


def _is_in_estimate(node: exp.Expr) -> bool:
    return node.parent is not None and estimate_parts(node.parent) is not None


def _argument_refusal(node: exp.Expr, key: str, value: object) -> Refusal:
    name = _SHOWN_ARGUMENTS.get((type(node), key), "this form of the expression")
    place = value if isinstance(value, exp.Expr) and key != "db" else node
    return not_yet(name, span_of(place), hint_of_estimate(node))


def _misplaced(node: exp.Expr) -> PenstockError | None:
    """Return the error for DISTINCT, ORDER BY or * outside calls of aggregates."""
    if not isinstance(node, exp.Star | exp.Distinct | exp.Order):
        return None
    parent = node.parent
    if isinstance(node, exp.Order):
        # The binder checks whether the call is one of an aggregate.
        fits = isinstance(parent, exp.Anonymous | exp.WithinGroup)
        return None if fits else PenstockError("P0304", "ORDER BY follows FROM or is last in an aggregate")
    if isinstance(parent, exp.Order):  # DISTINCT x ORDER BY y
        parent = parent.parent
    alone = isinstance(parent, exp.Anonymous) and len(parent.expressions) == 1
    name = function_name(parent).upper() if isinstance(parent, exp.Anonymous) else ""
    if isinstance(node, exp.Star):
        function = aggregate_function(name)
        fits = alone and function is not None and function.of_rows
        hint = f"name a column, as in {name}(x)" if name else "name the columns"
        return None if fits else PenstockError("P0304", "* is only allowed in a select list or in COUNT(*)", hint=hint)
    # The binder checks whether the call is one of an aggregate, possibly a user-defined one.
    return None if alone else PenstockError("P0304", "DISTINCT follows SELECT or is first in an aggregate")


def not_yet(name: str, span: TextSpan, hint: str | None = None) -> Refusal:
    """Return the rejection of the feature `name`."""
    return PenstockError("P0901", f"{name} is not supported yet", hint=hint or CLAUSES.get(name)), span
