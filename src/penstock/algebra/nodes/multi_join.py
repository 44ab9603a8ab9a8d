"""The join of three and more relations at once: no order, and no intermediate results `[golab 5]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from penstock.algebra.nodes.base import (
    Algebra,
    ColumnPruning,
    Keys,
    Pruned,
    column_labels,
    has_lives,
    stored_sides,
)
from penstock.algebra.nodes.join import joins_elements
from penstock.algebra.nodes.rowwise import with_latest_arrival
from penstock.algebra.properties.boundedness import Boundedness
from penstock.algebra.properties.cardinality import Estimate, joined
from penstock.algebra.properties.computation import Computation
from penstock.algebra.properties.need import Needs, needs_of_relations
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern, worst
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import Call, Expression, columns_of, conjuncts, remap
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class MultiJoin(Algebra):
    """Inner join of `members`, none of which is static. Columns: those of the first member, then of the second, ...

    classes: sets of columns that must be equal (and not NULL), each as one position per member, in that member's own
    row, or None where the member has no part in it; the columns of a class have one type. residual: any further
    condition over the joined row, or None.
    """

    members: tuple[Algebra, ...]
    classes: tuple[tuple[int | None, ...], ...]
    residual: Expression | None = None

    @property
    def needs(self) -> Needs:
        return needs_of_relations(self.inputs)

    @property
    def schema(self) -> Schema:
        return Schema(tuple(field for member in self.members for field in member.schema))

    @property
    def offsets(self) -> tuple[int, ...]:
        """Return where each member's columns begin in the joined row."""
        return offsets(self.members)

    @property
    def common(self) -> tuple[int, ...]:
        """Return the classes in which every member takes part."""
        return tuple(n for n, columns in enumerate(self.classes) if None not in columns)

    @property
    def pattern(self) -> Pattern:
        pattern = worst(member.pattern for member in self.members)
        return Pattern.WEAK if pattern is Pattern.WEAKEST else pattern

    @property
    def stored(self) -> tuple[Boundedness, ...]:
        return stored_sides(self.members)

    @property
    def keys(self) -> Keys:
        shifted = [
            [frozenset(c + offset for c in key) for key in member.keys]
            for member, offset in zip(self.members, self.offsets, strict=True)
        ]
        return frozenset(frozenset[int]().union(*combination) for combination in product(*shifted))

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return any(map(holds, self.members))

    @property
    def results_have_lives(self) -> bool:
        return self.pattern is not Pattern.STRICT and all(map(has_lives, self.members))

    @property
    def may_be_kept(self) -> bool:
        return True

    @property
    def is_elementwise(self) -> bool:
        return joins_elements(self)

    def with_arrival_time(self) -> Algebra:
        member = [n for n, m in enumerate(self.members) for _ in m.schema]
        residual = None if self.residual is None else remap(self.residual, lambda i: i + member[i])
        below = MultiJoin(tuple(m.with_arrival_time() for m in self.members), self.classes, residual)
        arrivals = [start + len(m.schema) - 1 for start, m in zip(below.offsets, below.members, strict=True)]
        return with_latest_arrival(below, [i + member[i] for i in range(len(member))], arrivals, self.schema)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        read = needed | (columns_of(self.residual) if self.residual is not None else frozenset())
        members: list[Pruned] = []
        positions: dict[int, int] = {}
        width = 0
        for number, (member, start) in enumerate(zip(self.members, self.offsets, strict=True)):
            keys = {own for columns in self.classes if (own := columns[number]) is not None}
            inside = {i - start for i in read if start <= i < start + len(member.schema)}
            thin = pruning.narrowed(member, frozenset(inside | keys))
            positions |= {start + old: width + new for old, new in thin.positions.items()}
            width += len(thin.node.schema)
            members.append(thin)
        classes = tuple(
            tuple(None if own is None else thin.positions[own] for own, thin in zip(columns, members, strict=True))
            for columns in self.classes
        )
        residual = None if self.residual is None else remap(self.residual, lambda i: positions[i])
        return Pruned(MultiJoin(tuple(thin.node for thin in members), classes, residual), positions)

    def computation(self, column: int) -> Computation:
        member = max(i for i, start in enumerate(self.offsets) if start <= column)
        return Computation(((member, column - self.offsets[member]),), copied=True)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        part = 1.0
        for columns in self.classes:
            values = sorted(m.distinct[p] for m, p in zip(inputs, columns, strict=True) if p is not None)
            for value in values[1:]:
                part /= value
        return joined(inputs, inputs, part, self.residual)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        parts = [" = ".join(labels[c] for c in self.class_columns(n)) for n in range(len(self.classes))]
        for part in () if self.residual is None else conjuncts(self.residual):
            text = to_sql(part, labels)
            parts.append(f"({text})" if isinstance(part, Call) and part.function == "OR" else text)
        return {"on": " AND ".join(parts) or "every combination"}

    def class_columns(self, number: int) -> Iterator[int]:
        """Return the columns of a class, as positions in the joined row."""
        for offset, column in zip(self.offsets, self.classes[number], strict=True):
            if column is not None:
                yield offset + column


def offsets(members: tuple[Algebra, ...]) -> tuple[int, ...]:
    """Return where the columns of each of `members` begin when their rows stand side by side."""
    starts, width = [], 0
    for member in members:
        starts.append(width)
        width += len(member.schema)
    return tuple(starts)
