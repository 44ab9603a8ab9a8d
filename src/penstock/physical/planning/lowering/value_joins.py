"""Joins of streams without windows of whose values the query itself leaves finitely many `[golab 2.2.1]`.

π[A](σ[A = D AND A > 10 AND D < 20](S × T)): of S and T the numbers of rows by value are enough, since rows of one value
meet the same rows at the same instants. Below DISTINCT it is enough that there was a row; and of a column that is only
compared by order with one of the other side, and not answered, the least value or the greatest:
δ(π[A](σ[B < D AND A > 10 AND A < 20](S × T))) needs the least B of every A, and the greatest D.

Unsound for: rows that end (a count says not which rows it is of); A > 10 alone, which leaves infinitely many values; a
random draw in the condition, which is one for every pair of rows.
"""

from __future__ import annotations

from penstock.algebra import Algebra, Distinct, Join, Pattern, Project, is_static
from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.algebra.properties.domains import number_of_values
from penstock.expressions.nodes import FLIPPED, Call, Column, Expression, columns_of, conjuncts
from penstock.physical.plan.joins.specs import DecidingExtreme, ValueJoinSpec
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.lowering.builder import Builder, Lowered, meet
from penstock.physical.planning.lowering.rowwise import projected as lower_projected


def value_join(node: Join, builder: Builder) -> ValueJoinSpec | None:
    """Return a join that stores the numbers of rows by value; None where values of a side may be infinitely many."""
    if not _may_hold_values(node, builder):
        return None
    most = [_values(side, None) for side in (node.left, node.right)]
    return None if most[0] is None or most[1] is None else _spec(node, False, (None, None), (most[0], most[1]))


def lower_distinct_pairs(node: Distinct, builder: Builder) -> Lowered | None:
    """Lower what is below a DISTINCT over a join, without all of its duplicates; None where that is stored as ever."""
    projected = node.input if isinstance(node.input, Project) else None
    join = node.input if projected is None else projected.input
    if not isinstance(join, Join) or not _may_hold_values(join, builder):
        return None
    read = set(range(len(join.schema)))
    if projected is not None:
        if any(map(is_volatile, projected.expressions)):
            return None
        read = {column for e in projected.expressions for column in columns_of(e)}
    spec = _without_duplicates(join, read)
    if spec is None:
        return None
    name = f"different pairs of {node.input.fingerprint}{builder.choices.variant(join)}"
    if name not in builder.known:
        pairs = lower_value_join(join, spec, builder)
        builder.known[name] = pairs if projected is None else lower_projected(projected, pairs, builder)
    return builder.known[name]


def lower_value_join(node: Join, spec: ValueJoinSpec, builder: Builder) -> Lowered:
    """Lower a join whose rows are stored as `spec` says."""
    width = len(node.left.schema)
    left, right = builder.lower(node.left), builder.lower(node.right)
    stage, edges, parts = meet(left, right, spec.left_key, spec.right_key)
    lie = frozenset({parts[0], tuple(width + c for c in parts[1])})
    return Lowered(builder.add(spec, edges, stage, node), stage, lie)


def _may_hold_values(node: Join, builder: Builder) -> bool:
    if builder.inputs_static or builder.strategy is not Strategy.PATTERN or any(map(is_static, node.inputs)):
        return False
    lasting = all(side.pattern is Pattern.MONOTONIC for side in node.inputs)
    return lasting and (node.residual is None or not is_volatile(node.residual))


def _without_duplicates(node: Join, read: set[int]) -> ValueJoinSpec | None:
    """Return a join whose duplicates do not count; None where values of a side may be infinitely many.

    Args:
        read: the columns of a pair that are answered.
    """
    width = len(node.left.schema)
    parts = () if node.residual is None else conjuncts(node.residual)
    candidates = [(None, None), *(pair for pair in (_by_order(part, width) for part in parts) if pair is not None)]
    keys = {i for i, _ in node.equal} | {width + j for _, j in node.equal}
    for extremes in candidates:
        columns = {one.column + width * port for port, one in enumerate(extremes) if one is not None}
        elsewhere = [p for p in parts if columns_of(p) & columns]
        if columns & (read | keys) or len(elsewhere) > 1:
            continue
        most = [_values(side, one) for side, one in zip((node.left, node.right), extremes, strict=True)]
        if most[0] is not None and most[1] is not None:
            return _spec(node, True, extremes, (most[0], most[1]))
    return None


def _by_order(part: Expression, width: int) -> tuple[DecidingExtreme, DecidingExtreme] | None:
    """Return the extremes that decide a comparison by order of a column of each side; None for another condition."""
    if not isinstance(part, Call) or part.function not in FLIPPED:
        return None
    one, other = part.arguments
    function = part.function
    if not isinstance(one, Column) or not isinstance(other, Column) or (one.index < width) == (other.index < width):
        return None
    if one.index >= width:
        one, other, function = other, one, FLIPPED[function]
    less = function in ("LT", "LE")
    return DecidingExtreme(one.index, not less), DecidingExtreme(other.index - width, less)


def _values(side: Algebra, extreme: DecidingExtreme | None) -> int | None:
    """Return how many different rows a side can have, but for the column `extreme`; None for more than are few."""
    columns = [c for c in range(len(side.schema)) if extreme is None or c != extreme.column]
    return number_of_values(side.domains, columns)


def _spec(
    node: Join, once: bool, extremes: tuple[DecidingExtreme | None, DecidingExtreme | None], most: tuple[int, int]
) -> ValueJoinSpec:
    left_key, right_key = tuple(pair[0] for pair in node.equal), tuple(pair[1] for pair in node.equal)
    types = node.left.schema.types, node.right.schema.types
    return ValueJoinSpec(
        left_key, right_key, *types, node.residual, (False, False), once=once, extremes=extremes, most=most
    )
