"""Joins of two relations; validity intervals intersect [semantics 2]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.algebra.nodes.base import (
    PREFERENCE_DRAWS,
    RECORD,
    Algebra,
    ColumnPruning,
    Keys,
    Pruned,
    has_lives,
    inclusion_column,
    is_static,
    operators,
    stays_or_passes,
    stored_sides,
)
from penstock.algebra.nodes.base.checks import need_equal_types
from penstock.algebra.nodes.base.fields import Condition, Pairs
from penstock.algebra.nodes.rowwise import Project, with_latest_arrival
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import STORED_AND_LOOKED_UP, Estimate, agreeing, joined
from penstock.algebra.properties.computation import Computation
from penstock.algebra.properties.domains import Domains, equal_domains, narrowed, number_of_values
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.timestamps import NO_RISINGS, Risings, equates_timestamps, shifted
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import Call, Column, Expression, columns_of, conjuncts, remap
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class Join(Algebra):
    """Inner join. Columns: the left ones, then the right ones.

    equal: pairs (left position, right position in the right input) of the equi-join; the two columns have the same
    type. residual: any further condition over the joined row, or None.
    """

    left: Algebra
    right: Algebra
    equal: Pairs = ()
    residual: Condition | None = None

    def __post_init__(self) -> None:
        need_equal_types(self.left, self.right, self.equal)

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def schema(self) -> Schema:
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def pattern(self) -> Pattern:
        return joined_pattern(self.left, self.right)

    @property
    def is_complete_at_once(self) -> bool:
        """Return whether partners enter together, and no row leaves."""
        return joins_at_once(self.left, self.right, self.equal)

    @property
    def rising(self) -> Risings:
        left, right = (shifted(side.rising, width) for side, width in self._places)
        if joins_at_once(self.left, self.right, self.equal, stays_or_passes):
            return {**left, **right}
        return left if is_static(self.right) else right if is_static(self.left) else NO_RISINGS

    @property
    def _places(self) -> tuple[tuple[Algebra, int], ...]:
        """Return both sides, each with the number of columns before its own."""
        return (self.left, 0), (self.right, len(self.left.schema))

    @property
    def keys(self) -> Keys:
        width = len(self.left.schema)
        return frozenset(
            left | frozenset(width + c for c in right) for left in self.left.keys for right in self.right.keys
        )

    @property
    def stored(self) -> tuple[Boundedness, ...]:
        few = [number_of_values(side.domains, range(len(side.schema))) for side in self.inputs]
        if None not in few:
            return tuple(Boundedness(Grade.BOUNDED, f"at most {number:,} values", length=None) for number in few)
        return stored_sides(self.inputs)

    @property
    def domains(self) -> Domains:
        pairs = equal_domains(self.left.domains, self.right.domains, self.equal)
        return pairs if self.residual is None else narrowed(pairs, self.residual)

    @property
    def enters_with_elements(self) -> bool:
        return all(side.enters_with_elements for side in self.inputs)

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        # The joined tuple lives within both sides, so one side is enough.
        return holds(self.left) or holds(self.right)

    def lives_an_instant(self, holds: Callable[[Algebra], bool]) -> bool:
        # A joined tuple lives as long as both of its parents do.
        return holds(self.left) or holds(self.right)

    @property
    def results_have_lives(self) -> bool:
        # Where rows of both sides end early, a pair may have been retracted before it was emitted.
        ends_known = self.pattern is not Pattern.STRICT or any(map(is_static, self.inputs))
        return ends_known and has_lives(self.left) and has_lives(self.right)

    @property
    def may_be_kept(self) -> bool:
        return True

    @property
    def may_stand_over_internal(self) -> bool:
        return True

    @property
    def is_elementwise(self) -> bool:
        return joins_elements(self)

    def with_arrival_time(self) -> Algebra:
        """Return the join with arrival times. A static relation precedes everything, so it adds nothing."""
        width, right = len(self.left.schema), len(self.right.schema)
        left_side, right_side = (side if is_static(side) else side.with_arrival_time() for side in self.inputs)
        shift = len(left_side.schema) - width
        residual = None if self.residual is None else remap(self.residual, lambda i: i if i < width else i + shift)
        arrivals = [width] * shift + ([] if is_static(self.right) else [width + shift + right])
        kept = [*range(width), *range(width + shift, width + shift + right)]
        return with_latest_arrival(Join(left_side, right_side, self.equal, residual), kept, arrivals, self.schema)

    def with_inclusion(self) -> Algebra | None:
        left, right = (side.with_inclusion() for side in self.inputs)
        if left is None and right is None:
            return None
        if left is not None and right is not None:
            _refuse_same_draws(self.left, self.right)
        width, other, shift = len(self.left.schema), len(self.right.schema), int(left is not None)
        residual = None if self.residual is None else remap(self.residual, lambda i: i if i < width else i + shift)
        joined_rows = Join(left or self.left, right or self.right, self.equal, residual)
        records: list[Expression] = [inclusion_column(i) for i in [width] * shift]
        records += [inclusion_column(width + shift + other)] if right is not None else []
        record = records[0] if len(records) == 1 else Call(RECORD.type, "INCLUSION_OF_PAIR", tuple(records))
        kept = [*range(width), *range(width + shift, width + shift + other)]
        columns = tuple(Column(f.type, i, f.name) for f, i in zip(self.schema, kept, strict=True))
        return Project(joined_rows, (*columns, record), (*self.schema.fields, RECORD))

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        below = pruned_sides((self.left, self.right), self.equal, self.residual, needed, pruning)
        joined_rows = Join(below.left.node, below.right.node, below.equal, below.residual)
        return Pruned(joined_rows, below.positions)

    def computation(self, column: int) -> Computation:
        width = len(self.left.schema)
        return Computation(((0, column) if column < width else (1, column - width),), copied=True)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        return estimated_pairs(self.left, self.right, self.equal, self.residual, inputs)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        """Return the cost; a side that is joined with a table is not stored."""
        times = 1 if is_static(self.left) or is_static(self.right) else STORED_AND_LOOKED_UP
        return times * self.received(inputs) + own.emitted

    def describe(self) -> Mapping[str, str]:
        return {"on": condition_text(self.left, self.right, self.equal, self.residual)}


@dataclass(frozen=True)
class PrunedSides:
    """The sides of a join, pruned. positions: of the columns of the joined row; equal, residual: the condition over
    the sides."""

    left: Pruned
    right: Pruned
    positions: Mapping[int, int]
    equal: Pairs
    residual: Expression | None


def pruned_sides(
    sides: tuple[Algebra, Algebra],
    equal: Pairs,
    residual: Expression | None,
    read: frozenset[int],
    pruning: ColumnPruning,
) -> PrunedSides:
    """Return the two `sides` of a join with the columns `read` of the joined row, and those of the condition."""
    width = len(sides[0].schema)
    read = read | (frozenset() if residual is None else columns_of(residual))
    left = pruning.narrowed(sides[0], frozenset(i for i in read if i < width) | {i for i, _ in equal})
    right = pruning.narrowed(sides[1], frozenset(i - width for i in read if i >= width) | {j for _, j in equal})
    offset = len(left.node.schema)
    positions = dict(left.positions) | {width + i: offset + new for i, new in right.positions.items()}
    moved = None if residual is None else remap(residual, lambda i: positions[i])
    return PrunedSides(left, right, positions, tuple((left.positions[i], right.positions[j]) for i, j in equal), moved)


def _refuse_same_draws(left: Algebra, right: Algebra) -> None:
    """Raise PenstockError P0355 where two inputs of a join are sampled by the same draws of their elements."""
    drawn = ({o.drawn_by for o in operators(side) if o.drawn_by is not None} for side in (left, right))
    same = set.intersection(*drawn)
    if same:
        name = min(same)[0].removesuffix("/rows")
        if name.startswith(PREFERENCE_DRAWS):
            hint = "name the two in views with different names, or leave ESTIMATE out"
            raise PenstockError("P0355", "ESTIMATE over two preferences with the same draws", hint=hint)
        hint = "draw one of them by another seed: SAMPLE(10) REPEATABLE(1)"
        raise PenstockError("P0355", f"ESTIMATE over two samples of {name} with the same draws", hint=hint)


def joins_elements(node: Algebra) -> bool:
    """Return whether all inputs of the join `node` that change enter with elements of streams (`is_elementwise`)."""
    moving = [child for child in node.inputs if not is_static(child)]
    return bool(moving) and all(child.is_elementwise for child in moving)


def estimated_pairs(
    left: Algebra, right: Algebra, equal: Pairs, residual: Expression | None, inputs: Sequence[Estimate]
) -> Estimate:
    """Return what is expected of the pairs of `left` and `right`, of which `inputs` are expected."""
    moving = [expected for expected, side in zip(inputs, (left, right), strict=True) if not is_static(side)]
    return joined(inputs, moving, agreeing(inputs[0], inputs[1], equal), residual)


def condition_text(left: Algebra, right: Algebra, equal: Pairs, residual: Expression | None) -> str:
    """Return the condition under which two relations are joined, as SQL."""
    names = left.schema.names + right.schema.names
    width = len(left.schema)
    labels = [
        name if names.count(name) == 1 else f"{'left' if i < width else 'right'}.{name}" for i, name in enumerate(names)
    ]
    parts = [f"{labels[i]} = {labels[width + j]}" for i, j in equal]
    for part in () if residual is None else conjuncts(residual):
        text = to_sql(part, labels)
        parts.append(f"({text})" if isinstance(part, Call) and part.function == "OR" else text)
    return " AND ".join(parts) or "every pair"


def never_loses(node: Algebra) -> bool:
    """Return whether no row of the relation leaves."""
    return node.pattern is Pattern.MONOTONIC


def joins_at_once(
    left: Algebra, right: Algebra, equal: Iterable[tuple[int, int]], holds: Callable[[Algebra], bool] = never_loses
) -> bool:
    """Return whether rows of two relations that agree in the columns `equal` enter together, and `holds` is true of
    both: where no row leaves, what a join finds of a row is final when it enters."""
    return holds(left) and holds(right) and equates_timestamps(left.timestamps, right.timestamps, equal)


def joined_pattern(left: Algebra, right: Algebra) -> Pattern:
    """Return the pattern of rows that live as long as a tuple of either side [semantics 5]: MON of MON and MON, else
    WK."""
    inputs = (left.pattern, right.pattern)
    if Pattern.STRICT in inputs:
        return Pattern.STRICT
    # A static side does not add to the other's pattern.
    for side, other in ((left, right), (right, left)):
        if is_static(side):
            return other.pattern
    return Pattern.MONOTONIC if max(inputs) is Pattern.MONOTONIC else Pattern.WEAK
