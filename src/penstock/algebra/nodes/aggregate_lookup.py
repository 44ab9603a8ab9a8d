"""Joins that are look-ups: rows that live for one instant, each of which reads one group of an aggregate.

`find_probe` recognizes such a join. An aggregate emits its row again at every change, also when a row of its window
expires, and a join then filters out the changes without a partner. Where the other side lives for single instants and
its key names the group, only the groups at those instants are read of the aggregate: the result follows from the groups
alone (`physical/operators/joins/aggregate_lookup.py`). No result is retracted, since an instant that is final does not
change.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import Algebra, is_static
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.nodes import Column, Expression
from penstock.expressions.user import UserCall
from penstock.tree import walk


@dataclass(frozen=True)
class AggregateLookup:
    """A join read as a look-up. asking: the probing side, which lives for instants; left: whether it is the left one;
    key: its columns, in the order of the group columns of `aggregate`; between: the operators between the aggregate and
    the join, the lowest first."""

    asking: Algebra
    left: bool
    key: tuple[int, ...]
    aggregate: Aggregate
    between: tuple[Select | Project, ...]

    @property
    def inputs(self) -> tuple[Algebra, Algebra]:
        """Return the side whose rows look groups up, and the input of the aggregate."""
        return self.asking, self.aggregate.input


def find_probe(node: Join | OuterJoin) -> AggregateLookup | None:
    """Return `node` as a look-up, None if it is not one."""
    if isinstance(node, OuterJoin):
        return _probe(node, True) if node.kind is OuterKind.LEFT else None
    return _probe(node, True) or _probe(node, False)


def _probe(node: Join | OuterJoin, left: bool) -> AggregateLookup | None:
    probing, grouped = (node.left, node.right) if left else (node.right, node.left)
    between: list[Select | Project] = []
    below = grouped
    while isinstance(below, Select | Project):
        between.insert(0, below)
        below = below.input
    if not isinstance(below, Aggregate) or not below.group or is_static(below) or not lives_an_instant(probing):
        return None
    if any(_must_stay(e) for operator in between for e in _expressions(operator)):
        return None
    pairs = [(i, j) if left else (j, i) for i, j in node.equal]
    key_of = {_group_column(j, between): i for i, j in pairs}
    if len(pairs) != len(below.group) or set(key_of) != set(range(len(below.group))):
        return None
    return AggregateLookup(probing, left, tuple(key_of[g] for g in range(len(below.group))), below, tuple(between))


def _group_column(column: int, between: list[Select | Project]) -> int | None:
    """Return the output column of the aggregate that the column `column` above `between` is; None if it is computed."""
    for operator in reversed(between):
        if isinstance(operator, Project):
            computed = operator.expressions[column]
            if not isinstance(computed, Column):
                return None
            column = computed.index
    return column


def _expressions(operator: Select | Project) -> tuple[Expression, ...]:
    return (operator.predicate,) if isinstance(operator, Select) else operator.expressions


def _must_stay(expression: Expression) -> bool:
    """Return whether the number of evaluations of `expression` matters: once per change, or once per probing row."""
    return volatile(expression) or any(isinstance(node, UserCall) for node in walk(expression))


def lives_an_instant(node: Algebra) -> bool:
    """Return whether every element of the relation `node`, however it is computed, has an end one tick after its
    beginning.

    More is required than that R(τ) is empty between arrivals (`Algebra.is_instantaneous`): equal tuples of neighbouring
    instants stay two elements. False is always a safe answer, and the one of an operator that does not say otherwise.
    """
    if isinstance(node, OuterJoin):
        # An operator with a reorder buffer may emit a tuple without a partner in several pieces; a look-up does not.
        return find_probe(node) is not None
    return node.lives_an_instant(lives_an_instant)
