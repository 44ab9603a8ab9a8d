"""Conditions to joins: left-deep binary joins, each condition placed in the first join that has all its columns.

An equality of an expression of the left with one of the right becomes a pair of the equi-join; a side other than a
plain column is computed by a projection below. Every other condition over two inputs is part of the join's residual;
conditions over one input stay above, for the optimizer's push-down. Outer and semi-joins decompose their own conditions
in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
from penstock.algebra.nodes.base.fields import Pairs
from penstock.expressions.nodes import Call, Column, Expression, Literal, columns_of, conjunction, conjuncts, remap
from penstock.expressions.text import to_sql
from penstock.language.binder.context import Context
from penstock.language.binder.inputs.inputs import FromInput, Inputs
from penstock.language.binder.inputs.nonretroactive import attach
from penstock.types import Field


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
    return _left_deep(inputs.members, conditions, context)


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


@dataclass
class _Side:
    """One input of a join, and the key columns computed for it."""

    node: Algebra
    computed: list[Expression]

    @property
    def width(self) -> int:
        return len(self.node.schema)

    def key(self, expression: Expression) -> int:
        """Return the position of `expression` among this side's columns; computed ones follow the others."""
        if isinstance(expression, Column):
            return expression.index
        if expression not in self.computed:
            self.computed.append(expression)
        return self.width + self.computed.index(expression)

    def projected(self) -> Algebra:
        if not self.computed:
            return self.node
        names = self.node.schema.names
        fields = tuple(Field(to_sql(e, names), e.type) for e in self.computed)
        kept = columns(self.node, range(self.width))
        return Project(self.node, (*kept, *self.computed), self.node.schema.fields + fields)


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


@dataclass(frozen=True)
class KeyedSides:
    """Two inputs with their key columns computed. width: of the left input without them."""

    left: Algebra
    right: Algebra
    equal: Pairs
    residual: Expression | None
    width: int
    right_places: range
    """positions of the right input's own columns in left + right"""

    def without_keys(self, node: Algebra, kept: list[int]) -> Algebra:
        """Return `node` with its columns `kept` only."""
        if kept == list(range(len(node.schema))):
            return node
        return Project(node, columns(node, kept), tuple(node.schema[i] for i in kept))


def keyed_sides(left: Algebra, right: Algebra, conditions: Iterable[Expression]) -> KeyedSides:
    """Return two inputs with the columns that `conditions` over both equate; computed ones follow the others."""
    first, second = _Side(left, []), _Side(right, [])
    equal: list[tuple[int, int]] = []
    residual: list[Expression] = []
    for condition in conditions:
        pair = _equality(condition, first.width)
        if isinstance(condition, Literal) and condition.value is True:
            continue
        if pair is None:
            residual.append(condition)
        elif (keys := (first.key(pair[0]), second.key(pair[1]))) not in equal:
            equal.append(keys)
    extra = len(first.computed)
    width = first.width
    moved = [remap(c, lambda i: i if i < width else i + extra) for c in residual]
    right_columns = range(width + extra, width + extra + second.width)
    return KeyedSides(
        first.projected(), second.projected(), tuple(equal), conjunction(tuple(moved)), width, right_columns
    )


def _equality(condition: Expression, width: int) -> tuple[Expression, Expression] | None:
    """Return (left expression, right expression over the right input) when `condition` equates two values
    of one type.
    """
    if not isinstance(condition, Call) or condition.function != "EQ":
        return None
    first, second = condition.arguments
    if first.type != second.type:
        return None
    sides = [{c >= width for c in columns_of(e)} for e in (first, second)]
    if sides == [{True}, {False}]:
        first, second = second, first
    elif sides != [{False}, {True}]:
        return None
    return first, remap(second, lambda i: i - width)


def columns(node: Algebra, positions: Iterable[int]) -> tuple[Column, ...]:
    return tuple(Column(node.schema[i].type, i, node.schema[i].name) for i in positions)
