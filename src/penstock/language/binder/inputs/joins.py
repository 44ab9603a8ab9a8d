"""Conditions to joins: left-deep binary joins, each condition placed in the first join that has all its columns.

An equality of an expression of the left with one of the right becomes a pair of the equi-join; a side other than a
plain column is computed by a projection below. Every other condition over two inputs is part of the join's residual;
conditions over one input stay above, for the optimizer's push-down. Outer and semi-joins decompose their own conditions
in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.algebra import (
    Algebra,
    Join,
    NRRJoin,
    OuterJoin,
    OuterKind,
    Project,
    Select,
    SemiJoin,
    SemiKind,
    is_nrr,
)
from penstock.algebra.nodes.base import common_domain
from penstock.expressions.nodes import Expression, columns_of, conjunction, conjuncts, remap
from penstock.language.binder.context import Context
from penstock.language.binder.inputs.inputs import FromInput, Inputs
from penstock.language.binder.inputs.keyed import columns, keyed_sides
from penstock.language.binder.inputs.nonretroactive import attach
from penstock.language.binder.inputs.promised import joined_by_promises


def build_joins(inputs: Inputs, where: Expression | None, context: Context) -> Algebra:
    """Return one relation over the columns of all inputs, with every condition applied. Raises BindingFailed after
    P0302.
    """
    conditions = [part for c in (*inputs.conditions, *((where,) if where else ())) for part in conjuncts(c)]
    if len(inputs.members) > 1 and any(is_nrr(member.node) for member in inputs.members):
        joined = attach(inputs.members, conditions, join_two, context)
        node = _left_deep(joined.members, joined.conditions, context)
        fields = tuple(f for member in inputs.members for f in member.node.schema)
        return (
            node
            if joined.positions == sorted(joined.positions)
            else Project(node, columns(node, joined.positions), fields)
        )
    return _by_promises(inputs.members, conditions, context)


def _by_promises(inputs: Sequence[FromInput], conditions: list[Expression], context: Context) -> Algebra:
    """Return the join of all inputs, by promises of streams where a rule holds."""
    internal = any(member.internal is not None for member in inputs)  # its results do not end with their rows
    if internal or not any(member.node.promises for member in inputs):
        return _left_deep(inputs, conditions, context)
    placed, remaining = joined_by_promises(inputs, conditions, context)
    if len(placed) == len(inputs):
        return _left_deep(inputs, conditions, context)
    order = [place for one in placed for place in one.places]
    node = _left_deep([one.member for one in placed], [remap(c, order.index) for c in remaining], context)
    if order == sorted(order):
        return node
    positions = [order.index(place) for place in range(len(order))]
    return Project(node, columns(node, positions), tuple(node.schema[i] for i in positions))


def _left_deep(inputs: Sequence[FromInput], conditions: list[Expression], context: Context) -> Algebra:
    owner = [i for i, member in enumerate(inputs) for _ in member.node.schema]
    placed: dict[int, list[Expression]] = {}
    above: list[Expression] = []
    for condition in conditions:
        members = {owner[c] for c in columns_of(condition)}
        if len(members) > 1:
            placed.setdefault(max(members), []).append(condition)
        else:
            above.append(condition)
    node = inputs[0].node
    for i, member in enumerate(inputs[1:], 1):
        left = node
        context.guard(member.span, lambda: common_domain((left, member.node)))  # noqa: B023
        node = join_two(node, member.node, placed.get(i, []))
    remaining = conjunction(tuple(above))
    return Select(node, remaining) if remaining is not None else node


def join_two(
    left: Algebra, right: Algebra, conditions: list[Expression], kind: type[Join] | type[NRRJoin] = Join
) -> Algebra:
    """Return the join of two inputs, over the columns of the left followed by those of the right."""
    keyed = keyed_sides(left, right, conditions)
    node: Algebra = kind(keyed.left, keyed.right, keyed.equal, keyed.residual)
    return keyed.without_keys(node, [*range(keyed.width), *keyed.right_places])


def outer_join(
    left: Algebra, right: Algebra, conditions: tuple[Expression, ...], kind: OuterKind, single: str = ""
) -> Algebra:
    """Return the outer join under all `conditions`, over the columns of left and right. single: as in `OuterJoin`."""
    if kind is OuterKind.LEFT:
        right, conditions = _pushed_right(left, right, conditions)
    keyed = keyed_sides(left, right, conditions)
    if single and any(key <= {j for _, j in keyed.equal} for key in keyed.right.keys):
        single = ""  # by its key there is at most one partner
    node = OuterJoin(keyed.left, keyed.right, keyed.equal, keyed.residual, kind, single)
    return keyed.without_keys(node, [*range(keyed.width), *keyed.right_places])


def semi_join(left: Algebra, right: Algebra, conditions: tuple[Expression, ...], kind: SemiKind) -> Algebra:
    """Return the semi-join under all `conditions`, over the columns of left, and the mark."""
    right, conditions = _pushed_right(left, right, conditions)
    keyed = keyed_sides(left, right, conditions)
    node = SemiJoin(keyed.left, keyed.right, keyed.equal, keyed.residual, kind)
    mark = [len(keyed.left.schema)] if kind is SemiKind.MARK else []
    return keyed.without_keys(node, [*range(keyed.width), *mark])


def _pushed_right(
    left: Algebra, right: Algebra, conditions: tuple[Expression, ...]
) -> tuple[Algebra, tuple[Expression, ...]]:
    """Move conditions over the right side alone into a selection below it, where they limit the possible partners."""
    width = len(left.schema)
    mine = tuple(c for c in conditions if columns_of(c) and min(columns_of(c)) >= width)
    predicate = conjunction(tuple(remap(c, lambda i: i - width) for c in mine))
    remaining = tuple(c for c in conditions if c not in mine)
    return (Select(right, predicate) if predicate is not None else right), remaining
