"""Conditions to joins: left-deep binary joins, each condition placed in the first join that sees all its columns.

An equality of one expression of the left with one of the right becomes a pair of the equi-join; a side that is no plain
column is computed by a projection below. Everything else that spans two inputs is the join's residual; what spans one
stays above, for the optimizer's push-down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from penstock.algebra import Algebra, Join, NRRJoin, Project, Select, is_nrr
from penstock.algebra.nodes import common_domain
from penstock.expressions.nodes import Call, Column, Expression, columns_of, conjunction, conjuncts, remap
from penstock.expressions.text import to_sql
from penstock.language.binder.context import Context
from penstock.language.binder.nonretroactive import attach
from penstock.language.binder.sources import Input, Inputs
from penstock.types import Field


def build_joins(inputs: Inputs, where: Expression | None, context: Context) -> Algebra:
    """One relation over the columns of all inputs, with every condition applied. Raises Refused after P0302."""
    conditions = [part for c in (*inputs.conditions, *((where,) if where else ())) for part in conjuncts(c)]
    if len(inputs.members) > 1 and any(is_nrr(member.node) for member in inputs.members):
        found = attach(inputs.members, conditions, partial(join_two, kind=NRRJoin), context)
        node = _left_deep(found.members, found.conditions, context)
        fields = tuple(f for member in inputs.members for f in member.node.schema)
        return node if found.place == sorted(found.place) else Project(node, _columns(node, found.place), fields)
    return _left_deep(inputs.members, conditions, context)


def _left_deep(inputs: Sequence[Input], conditions: list[Expression], context: Context) -> Algebra:
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
    rest = conjunction(tuple(above))
    return Select(node, rest) if rest is not None else node


@dataclass
class _Side:
    """One input of a join, and the key columns computed for it."""

    node: Algebra
    computed: list[Expression]

    @property
    def width(self) -> int:
        return len(self.node.schema)

    def key(self, expression: Expression) -> int:
        """The position of `expression` among this side's columns, computed ones behind the others."""
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
        columns = _columns(self.node, range(self.width))
        return Project(self.node, (*columns, *self.computed), self.node.schema.fields + fields)


def join_two(
    left: Algebra, right: Algebra, conditions: list[Expression], kind: type[Join] | type[NRRJoin] = Join
) -> Algebra:
    """The join of two inputs over the columns of both, the right ones behind the left ones."""
    one, other = _Side(left, []), _Side(right, [])
    equal: list[tuple[int, int]] = []
    residual: list[Expression] = []
    for condition in conditions:
        pair = _equality(condition, one.width)
        if pair is None:
            residual.append(condition)
        elif (keys := (one.key(pair[0]), other.key(pair[1]))) not in equal:
            equal.append(keys)
    extra = len(one.computed)
    width = one.width
    moved = [remap(c, lambda i: i if i < width else i + extra) for c in residual]
    node: Algebra = kind(one.projected(), other.projected(), tuple(equal), conjunction(tuple(moved)))
    if not extra and not other.computed:
        return node
    kept = [*range(width), *range(width + extra, width + extra + other.width)]
    return Project(node, _columns(node, kept), tuple(node.schema[i] for i in kept))


def _equality(condition: Expression, width: int) -> tuple[Expression, Expression] | None:
    """(left expression, right expression over the right input) when `condition` equates two values of one type."""
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


def _columns(node: Algebra, positions: range | list[int]) -> tuple[Column, ...]:
    return tuple(Column(node.schema[i].type, i, node.schema[i].name) for i in positions)
