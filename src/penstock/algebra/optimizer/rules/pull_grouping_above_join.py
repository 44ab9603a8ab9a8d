"""GROUP BY above a join instead of below it."""

from __future__ import annotations

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.optimizer.rules.above_join import key_and_condition, pulled_above
from penstock.algebra.optimizer.rules.negation import unprojected
from penstock.algebra.optimizer.rules.support import column, is_volatile
from penstock.expressions.nodes import AggregateCall, Column, Expression, columns_of, is_small, remap, substitute


def pull_grouping_above_join(node: Algebra) -> tuple[Algebra, ...]:
    """γg(R) ⋈ S = γ_(g, S)(R ⋈ S) where S has a key among the columns that it is joined on, and the join reads columns
    of g only, on either side.

    Law: all tuples of a group agree in g, so all meet the same one tuple of S, or none. γ replaces a tuple whenever an
    element comes, so below the join every element makes two of them; above it the join receives elements with known
    expirations `[golab 3.5.3]`. Not where the condition of the join would repeat large expressions of a projection
    between the two (`is_small`).
    Unsound for: S without such a key (a group that meets two tuples of S would count its tuples twice); a join on an
    aggregate (`n = s.n` is decided by the group, not by its tuples); ungrouped aggregates; volatile expressions.
    """
    return pulled_above(node, _pulled)


def _pulled(join: Join, from_left: bool) -> Algebra | None:
    grouped, values = unprojected(join.left if from_left else join.right)
    other = join.right if from_left else join.left
    reached = {j if from_left else i for i, j in join.equal}
    if not isinstance(grouped, Aggregate) or not grouped.group or not any(key <= reached for key in other.keys):
        return None
    if any(map(is_volatile, grouped.aggregates)) or frozenset() in other.keys:
        return None
    groups = len(grouped.group)
    keys, condition = key_and_condition(join, from_left, values)
    if not all(isinstance(key, Column) for key in keys):
        return None
    if any(c >= groups for expression in (*keys, *condition) for c in columns_of(expression)):
        return None
    return _rebuilt(join, grouped, values, other, keys, from_left)


def _rebuilt(
    join: Join, grouped: Aggregate, values: tuple[Expression, ...], other: Algebra, keys: list[Expression], left: bool
) -> Algebra | None:
    below = grouped.input
    own, wide, groups = len(below.schema), len(other.schema), len(grouped.group)
    start, aside = (0, own) if left else (wide, 0)
    key_columns = [grouped.group[c] for key in keys for c in columns_of(key)]
    pairs = zip(key_columns, ((j if left else i) for i, j in join.equal), strict=True)
    equal = tuple((p, o) if left else (o, p) for p, o in pairs)
    other_columns = tuple(column(field, aside + i) for i, field in enumerate(other.schema))
    # Before grouping, a group column is the column it groups by; the aggregates are not read.
    early = tuple(remap(v, lambda c: start + grouped.group[c] if c < groups else c) for v in values)
    columns = early + other_columns if left else other_columns + early
    residual = None if join.residual is None else substitute(join.residual, columns)
    if residual is not None and join.residual is not None and not is_small(residual, join.residual, columns):
        return None
    joined = Join(*((below, other) if left else (other, below)), equal, residual)
    calls = tuple(
        c for c in (remap(a, lambda i: start + i) for a in grouped.aggregates) if isinstance(c, AggregateCall)
    )
    group = tuple(start + i for i in grouped.group) + tuple(aside + i for i in range(wide))
    above = Aggregate(joined, group, calls, grouped.names)
    moved = tuple(remap(v, lambda c: c if c < groups else c + wide) for v in values)
    kept = tuple(column(field, groups + i) for i, field in enumerate(other.schema))
    return Project(above, (*moved, *kept) if left else (*kept, *moved), join.schema.fields)
