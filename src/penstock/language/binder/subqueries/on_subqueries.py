"""JOIN ... ON with subqueries in the condition: first the pairs that satisfy it, then the kind of join over them.

An outer join consists of its pairs and, padded with NULLs, the rows of a side that are in no pair. Whether a row has a
partner is decided by its values, so equal rows agree, and comparing all columns identifies them.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.algebra import Algebra, Project, SemiKind, UnionAll
from penstock.algebra.null_safe import same, zero_of
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import Context
from penstock.language.binder.inputs.joins import join_two, semi_join
from penstock.language.binder.inputs.keyed import columns
from penstock.language.binder.placeholders import attached_in
from penstock.language.binder.subqueries.unplacing import Applied, ClauseSubqueries
from penstock.language.queries import JoinKind
from penstock.language.text import TextSpan


def picked_pairs(node: Algebra, conditions: Sequence[Expression], subqueries: ClauseSubqueries) -> Algebra:
    """Return the rows of `node`, a join, for which all `conditions` are TRUE."""
    applied = Applied(node, subqueries)
    applied.keep(conditions)
    width = len(node.schema)
    if len(applied.node.schema) == width:
        return applied.node
    return Project(applied.node, columns(applied.node, range(width)), node.schema.fields)


def joined_by_pairs(
    kind: JoinKind,
    left: Algebra,
    right: Algebra,
    conditions: Sequence[Expression],
    subqueries: ClauseSubqueries,
    span: TextSpan,
) -> Algebra:
    """Return the join of `kind` over the columns of left and right, of left alone for SEMI and ANTI. Raises
    BindingFailed after P0312.
    """
    context = subqueries.context
    pairs = join_two(left, right, [c for c in conditions if not attached_in(c)])
    pairs = picked_pairs(pairs, [c for c in conditions if attached_in(c)], subqueries)
    return made_of_pairs(kind, left, right, pairs, context, span)


def made_of_pairs(
    kind: JoinKind, left: Algebra, right: Algebra | None, pairs: Algebra, context: Context, span: TextSpan
) -> Algebra:
    """Return the join of `kind` whose matching rows are `pairs`. `right`: for RIGHT and FULL."""
    if kind in (JoinKind.INNER, JoinKind.CROSS):
        return pairs
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        return _with_partner(left, pairs, 0, SemiKind[kind.name], context, span)
    parts = [pairs]
    if kind in (JoinKind.LEFT, JoinKind.FULL):
        parts.append(_padded(_with_partner(left, pairs, 0, SemiKind.ANTI, context, span), pairs, 0))
    if right is not None and kind in (JoinKind.RIGHT, JoinKind.FULL):
        start = len(left.schema)
        parts.append(_padded(_with_partner(right, pairs, start, SemiKind.ANTI, context, span), pairs, start))
    return UnionAll(tuple(parts))


def _with_partner(
    side: Algebra, pairs: Algebra, start: int, kind: SemiKind, context: Context, span: TextSpan
) -> Algebra:
    """Return the rows of a side that are in a pair or, by `kind`, are not. `start`: the position of its columns in
    `pairs`.
    """
    if any(zero_of(f.type) is None for f in side.schema):
        hint = "leave the arrays out, by a query in FROM that selects the other columns"
        context.fail("P0312", "a subquery in the ON of a join over arrays, which cannot be compared", span, hint)
    width = len(side.schema)
    conditions = [
        part
        for i, f in enumerate(side.schema)
        for part in same(Column(f.type, i, f.name), Column(f.type, width + start + i, f.name))
    ]
    return semi_join(side, pairs, tuple(conditions), kind)


def _padded(side: Algebra, pairs: Algebra, start: int) -> Algebra:
    """Return the rows of a side over the columns of `pairs`, NULL in those of the other side."""
    own = columns(side, range(len(side.schema)))
    cells = tuple(
        own[i - start] if start <= i < start + len(own) else Literal(f.type, None) for i, f in enumerate(pairs.schema)
    )
    return Project(side, cells, pairs.schema.fields)
