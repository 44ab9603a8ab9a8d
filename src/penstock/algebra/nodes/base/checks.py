"""What operators require of their inputs and of their fields, checked when one is made.

Whoever makes an operator adds the place: the binder that in the text, a plan as data the JSON pointer.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.algebra.nodes.base.algebra import Algebra
from penstock.errors import PenstockError
from penstock.expressions.coercion import BIGINT
from penstock.types import type_name


class OperatorError(PenstockError):
    """Operators that do not fit together, or a field that does not fit. field: it, and places within it."""

    field: tuple[str | int, ...] = ()


def refused(
    message: str, code: str = "P0341", hint: str | None = None, at: tuple[str | int, ...] = ()
) -> OperatorError:
    """Return the error of an operator that cannot be made."""
    error = OperatorError(code, message, hint=hint)
    error.field = at
    return error


def need_stream(node: Algebra) -> None:
    """Raise PenstockError P0301 for an input that is a relation."""
    if not node.is_stream:
        raise refused("the input is a relation, and a stream is needed", "P0301")


def need_relations(nodes: Sequence[Algebra], code: str = "P0341") -> None:
    """Raise PenstockError for an input that is a stream."""
    for node in nodes:
        if node.is_stream:
            raise refused("the input is a stream, and a relation is needed", code, "put a window between")


def need_period(node: Algebra, what: str) -> None:
    """Raise PenstockError P0341 where the last two columns of an input are no period in ticks."""
    types = node.schema.types
    if len(types) < 2 or {*types[-2:]} != {BIGINT}:
        raise refused(f"the last two columns of {what} are a period, two BIGINTs")


def need_alike(nodes: Sequence[Algebra]) -> None:
    """Raise PenstockError P0305 where two members of a set operation have columns of different types."""
    need_relations(nodes)
    first = nodes[0].schema.types
    for number, node in enumerate(nodes):
        if node.schema.types != first:
            message = f"input {number} has columns ({_types(node)}), the first one ({_types(nodes[0])})"
            raise refused(message, "P0305", "project them to the same types")


def need_equal_types(left: Algebra, right: Algebra, equal: Sequence[tuple[int, int]]) -> None:
    """Raise PenstockError P0203 where two columns of an equi-join have different types."""
    need_relations((left, right))
    for number, (i, j) in enumerate(equal):
        types = left.schema[i].type, right.schema[j].type
        if types[0] != types[1]:
            message = f"a {type_name(types[0])} is compared with a {type_name(types[1])}"
            raise refused(message, "P0203", "write it as a residual, or project them to one type", ("equal", number))


def _types(node: Algebra) -> str:
    return ", ".join(map(type_name, node.schema.types))
