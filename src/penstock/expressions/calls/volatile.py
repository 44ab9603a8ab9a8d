"""Volatile functions: two calls with equal arguments may differ."""

from __future__ import annotations

from penstock.expressions.calls.functions import row_of
from penstock.expressions.nodes import Call, Expression
from penstock.expressions.user import UserCall
from penstock.tree import Node, derived, walk


def volatile(expression: Expression) -> bool:
    """Return whether two evaluations over equal rows may differ, because `expression` contains a volatile function."""
    return _volatile(expression)


@derived
def _volatile(node: Node) -> bool:
    """Return the same for any node, stored in each: rules ask repeatedly, and expressions share their parts."""
    return _volatile_name(node) is not None or any(map(_volatile, node.children))


def volatile_calls(expression: Expression) -> list[str]:
    """Return the names of the volatile functions in `expression`, the language's and the user's."""
    return [name for node in walk(expression) if (name := _volatile_name(node)) is not None]


def _volatile_name(node: Node) -> str | None:
    if isinstance(node, UserCall):
        return node.function.name if node.function.volatile else None
    row = row_of(node.function) if isinstance(node, Call) else None
    return row.name if row is not None and row.volatile else None
