"""Constant folding and simplifications that preserve the value of every row, NULL included.

Each rule states why it is sound under three-valued logic. Unsound candidates are left alone: `x = x` is NULL for a NULL
x, so is `x * 0`, and `x AND NOT x` may be NULL.
"""

from __future__ import annotations

import decimal
from typing import cast

import pyarrow as pa

from penstock.expressions.calls.functions import row_of
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.coercion import BOOLEAN, as_decimal, is_decimal, is_float, is_integer
from penstock.expressions.evaluation.evaluate import constant
from penstock.expressions.nodes import MIRRORED, Call, Cast, Expression, Literal
from penstock.tree import Node, derived

TRUE, FALSE = Literal(BOOLEAN, True), Literal(BOOLEAN, False)
UNKNOWN = Literal(BOOLEAN, None)

#: Largest number of characters of a text that a plan contains in place of the call that computes it.
_LONGEST = 4096

_NEGATIONS = {
    "EQ": "NE",
    "NE": "EQ",
    "LT": "GE",
    "GE": "LT",
    "GT": "LE",
    "LE": "GT",
    "IS_NULL": "IS_NOT_NULL",
    "IS_NOT_NULL": "IS_NULL",
}


def fold(expression: Expression) -> Expression:
    """Return an expression of the same type with the same value over every row, with no constant left uncomputed."""
    # Two volatile parts are independent draws, even if they are written alike.
    return expression if volatile(expression) else cast(Expression, _folded(expression))


def _folded(node: Node) -> Node:
    return _simpler(node) or node


@derived
def _simpler(node: Node) -> Node | None:
    """Return `node` folded, operands first; None if that is the node itself.

    The result is stored in the node: expressions that rules have substituted into each other share their parts, and are
    folded again in every round.
    """
    result = _fold(node.with_children(tuple(map(_folded, node.children))))
    return None if result is node else result


def _fold(node: Node) -> Node:
    if isinstance(node, Cast):
        return _cast(node)
    if isinstance(node, Call):
        rule = _RULES.get(node.function)
        simpler = rule(node) if rule else node
        return _constant(simpler) if isinstance(simpler, Call) else simpler
    return node


def _constant(node: Call) -> Expression:
    # Every function of the table depends on its arguments alone.
    if all(isinstance(a, Literal) for a in node.arguments):
        return _literal(node)
    return node


def _literal(node: Expression) -> Expression:
    try:
        value = constant(node).as_py()
    except (OverflowError, ValueError):
        return node  # a time outside of Python's years
    # A long text is computed when a row needs it, because plans are hashed, printed and sent.
    return node if isinstance(value, str | bytes) and len(value) > _LONGEST else Literal(node.type, value)


def _cast(node: Cast) -> Expression:
    inner = node.argument
    if inner.type == node.type:
        return inner
    if isinstance(inner, Literal):
        return _literal(node)
    # A cast through a type that holds every value of the first changes nothing: INT -> BIGINT -> DOUBLE.
    if isinstance(inner, Cast) and _holds(inner.argument.type, inner.type):
        return _cast(Cast(node.type, inner.argument)) if _alike(inner.argument.type, node.type) else node
    return node


def _holds(narrow: pa.DataType, wide: pa.DataType) -> bool:
    return is_integer(narrow) and is_integer(wide) and narrow.bit_width <= wide.bit_width


def _alike(source: pa.DataType, target: pa.DataType) -> bool:
    return source == target or ((is_integer(target) or is_float(target) or is_decimal(target)) and is_integer(source))


def _and(node: Call) -> Expression:
    # FALSE AND x is FALSE also for a NULL x; TRUE AND x is x; x AND x is x in all three values.
    return _connected(node, FALSE, TRUE)


def _or(node: Call) -> Expression:
    # The dual of AND: TRUE OR x is TRUE also for a NULL x.
    return _connected(node, TRUE, FALSE)


def _connected(node: Call, decisive: Literal, neutral: Literal) -> Expression:
    left, right = node.arguments
    if decisive in (left, right):
        return decisive
    if left in (neutral, right):
        return right
    return left if right == neutral else node


def _not(node: Call) -> Expression:
    (inner,) = node.arguments
    if isinstance(inner, Call):
        # NOT NOT x is x, NULL stays NULL.
        if inner.function == "NOT":
            return inner.arguments[0]
        # Comparisons are total on values that are not NULL (NaN included), and NULL with a NULL either way.
        if inner.function in _NEGATIONS:
            return Call(BOOLEAN, _NEGATIONS[inner.function], inner.arguments)
    return node


def _case(node: Call) -> Expression:
    pairs = len(node.arguments) // 2
    kept: list[Expression] = []
    otherwise: Expression | None = node.arguments[-1] if len(node.arguments) % 2 else None
    for number in range(pairs):
        condition, value = node.arguments[2 * number : 2 * number + 2]
        if condition in (FALSE, UNKNOWN):
            continue  # the branch is never taken: only TRUE takes one
        if condition == TRUE:
            otherwise = value  # always taken when reached: later branches are unreachable
            break
        kept += [condition, value]
    if not kept:
        return Literal(node.type, None) if otherwise is None else otherwise
    arguments = tuple(kept) if otherwise is None else (*kept, otherwise)
    return node if arguments == node.arguments else Call(node.type, "CASE", arguments)


def _coalesce(node: Call) -> Expression:
    kept: list[Expression] = []
    for argument in node.arguments:
        if isinstance(argument, Literal) and argument.value is None:
            continue  # never the first that is not NULL
        if argument not in kept:
            kept.append(argument)
        if isinstance(argument, Literal):
            break  # never NULL: later arguments are unreachable
    if not kept:
        return Literal(node.type, None)
    if len(kept) == 1:
        return kept[0]
    return node if tuple(kept) == node.arguments else Call(node.type, "COALESCE", tuple(kept))


def _comparison(node: Call) -> Expression:
    """Rewrite the comparison of an integer column with a decimal constant (`a > 1.5`) to one of integers (`a > 1`)."""
    if isinstance(node.arguments[0], Literal) and not isinstance(node.arguments[1], Literal):
        mirrored = Call(node.type, MIRRORED[node.function], (node.arguments[1], node.arguments[0]))
        simpler = _comparison(mirrored)
        return node if simpler is mirrored else simpler
    left, right = node.arguments
    if not (isinstance(left, Cast) and isinstance(right, Literal) and isinstance(right.value, decimal.Decimal)):
        return node
    source = left.argument.type
    # Only where the cast preserves every value: otherwise it is NULL for some, which no integer comparison is.
    if not is_integer(source) or left.type.precision - left.type.scale < as_decimal(source).precision:
        return node
    whole = _ROUNDING.get(node.function)
    value = int(right.value.to_integral_value(whole))
    # x = 1.5 is FALSE for every x but NULL: leave it as it is.
    exact = whole is not None or value == right.value
    if not exact or not -(2 ** (source.bit_width - 1)) <= value < 2 ** (source.bit_width - 1):
        return node
    return Call(node.type, node.function, (left.argument, Literal(source, value)))


#: Over whole x: x > 1.5 is x > 1 and x <= 1.5 is x <= 1, but x < 1.5 is x < 2 and x >= 1.5 is x >= 2.
_ROUNDING = {
    "GT": decimal.ROUND_FLOOR,
    "LE": decimal.ROUND_FLOOR,
    "LT": decimal.ROUND_CEILING,
    "GE": decimal.ROUND_CEILING,
}


def _is_null(node: Call) -> Expression:
    return FALSE if _never_null(node.arguments[0]) else node


def _is_not_null(node: Call) -> Expression:
    return TRUE if _never_null(node.arguments[0]) else node


def _never_null(expression: Expression) -> bool:
    row = row_of(expression.function) if isinstance(expression, Call) else None
    return row is not None and row.never_null


_RULES = {
    "AND": _and,
    "OR": _or,
    "NOT": _not,
    "CASE": _case,
    "IF": _case,
    "COALESCE": _coalesce,
    "NVL": _coalesce,
    "IS_NULL": _is_null,
    "IS_NOT_NULL": _is_not_null,
    **dict.fromkeys(MIRRORED, _comparison),
}
