"""Joins of a window with a relation by updates take their results back themselves.

A result of such a join ends when its row leaves the window, or when its partner leaves the relation. The second is
emitted as a negative tuple; so is the first, where whatever is above only emits the changes of the result: the row that
leaves the window meets the relation once more, and finds what it was joined with. Else each query keeps a copy of its
results until they end, beside the window of which they are made, which all queries share.

What is computed of a result is computed again at its end. So it is not done where that need not give the same, or
calls what users have written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from penstock.algebra import Algebra, Join, Pattern, Project, RelationToStream, Select, StreamKind
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.scans import RelationScan
from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.expressions.nodes import Expression
from penstock.expressions.user import UserCall
from penstock.physical.planning.lowering.stores import stored_side
from penstock.tree import walk


def joins_taking_back(roots: Iterable[Algebra], stores: Collection[str]) -> dict[str, int]:
    """Return the names of the joins of `roots` that take their results back, each with 1.

    Args:
        stores: the names of the window stores that are read.
    """
    fit: dict[str, int] = {}
    others: set[str] = set()
    for root in roots:
        if not root.is_stream and (join := _join_below(root)) is not None:
            fit.update(_if_it_can(root, join, stores))
        for node in operators(root):
            if isinstance(node, Select | Project):
                continue
            for below in node.inputs:
                join = _join_below(below)
                if join is None:
                    continue
                if isinstance(node, RelationToStream) and node.kind is not StreamKind.RSTREAM:
                    fit.update(_if_it_can(below, join, stores))
                else:
                    others.add(choice_of(join))
    return {name: count for name, count in fit.items() if name not in others}


def choice_of(join: Join) -> str:
    """Return the name among the choices of a plan (`Generation.grains`) of a join that takes its results back."""
    return f"taken back {join.fingerprint}"


def taken_back(relation: Algebra, choices: Collection[str]) -> Join | None:
    """Return the join of whose results `relation` consists, if by the choices of a plan it retracts them."""
    join = _join_below(relation)
    return join if join is not None and choice_of(join) in choices else None


def _join_below(node: Algebra) -> Join | None:
    """Return the join of whose results `node` selects and projects rows."""
    while isinstance(node, Select | Project):
        node = node.input
    return node if isinstance(node, Join) else None


def _if_it_can(relation: Algebra, join: Join, stores: Collection[str]) -> dict[str, int]:
    """Return the name of the join below `relation`, if it can take its results back."""
    sides = [stored_side(join, port) for port in (0, 1)]
    read = [side is not None and side.name in stores for side in sides]
    if read not in ([True, False], [False, True]) or join.pattern is not Pattern.STRICT:
        return {}
    own = (join.left, join.right)[read.index(False)]
    while isinstance(own, Select | Project):
        own = own.input
    pure = not any(is_volatile(e) or _calls_a_user(e) for e in _computed(relation))
    return {choice_of(join): 1} if isinstance(own, RelationScan) and pure else {}


def _computed(node: Algebra) -> Iterator[Expression]:
    """Yield what is computed of a result of the join below `node`."""
    while isinstance(node, Select | Project):
        yield from (node.predicate,) if isinstance(node, Select) else node.expressions
        node = node.input
    if isinstance(node, Join) and node.residual is not None:
        yield node.residual


def _calls_a_user(expression: Expression) -> bool:
    return any(isinstance(one, UserCall) for one in walk(expression))
