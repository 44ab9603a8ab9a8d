"""The join with a NON RETROACTIVE relation `[golab 3.3.1]` [semantics 3].

An update of such a relation (an NRR) changes only results of stream elements that arrive after it. So every element of
the stream is joined with the NRR as of the element's own timestamp, once; the result is valid as long as the element
is in its window, whatever becomes of the NRR. Nothing is retracted and nothing of the stream is stored. What several
streams give by a join comes with the latest of its elements. Over a row window, which ends elements by later ones,
results are kept until they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from penstock.algebra.nodes.base import RECORD, Algebra, ColumnPruning, Keys, Pruned, has_lives, inclusion_column
from penstock.algebra.nodes.base.checks import need_equal_types
from penstock.algebra.nodes.base.fields import NOT_IN_DATA, Condition, Pairs
from penstock.algebra.nodes.join import Join, pruned_sides
from penstock.algebra.nodes.preferences import PreferringLookUp
from penstock.algebra.nodes.rowwise import Project, Select, with_latest_arrival
from penstock.algebra.nodes.scans import RelationScan
from penstock.algebra.properties.boundedness import Boundedness
from penstock.algebra.properties.need import Needs, everything, longer, needs_of_relations, reach, together
from penstock.algebra.properties.timestamps import Risings
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import Column, remap
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class NRRJoin(Algebra):
    """A join with an NRR. Columns: the left ones, then the right ones. left: tuples that enter with elements of streams
    (`is_elementwise`); right: an NRR; equal, residual: as in `Join`. came: the column of left that holds the arrival
    time of its tuple, where a plan has one (`algebra/nodes/base/arrival_time.py`)."""

    in_language: ClassVar[str] = "a join with a NON RETROACTIVE relation"

    left: Algebra
    right: Algebra
    equal: Pairs = ()
    residual: Condition | None = None
    came: int | None = field(default=None, metadata=NOT_IN_DATA)

    def __post_init__(self) -> None:
        need_equal_types(self.left, self.right, self.equal)

    @property
    def needs(self) -> Needs:
        # A tuple of the left was joined with the NRR as of its own timestamp.
        left = needs_of_relations((self.left,))
        back = reach(left)
        right = everything(self.right.source_names) if back is None else longer(self.right.needs, back)
        return together([left, right])

    @property
    def schema(self) -> Schema:
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def pattern(self) -> Pattern:
        # [semantics 5]: an NRR does not add.
        return self.left.pattern

    @property
    def rising(self) -> Risings:
        return self.left.rising  # a row is joined when it enters

    @property
    def keys(self) -> Keys:
        return self._as_join.keys

    @property
    def boundedness(self) -> Boundedness:
        return self.left.boundedness

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.left)

    @property
    def results_have_lives(self) -> bool:
        # An element keeps its partners when the relation changes later.
        return has_lives(self.left)

    @property
    def is_elementwise(self) -> bool:
        return self.left.is_elementwise

    @property
    def over_one_window(self) -> bool:
        return self.came is None and self.left.over_one_window

    @property
    def ending_inputs(self) -> tuple[Algebra, ...]:
        # An update joins nothing by itself.
        return (self.left,)

    def with_arrival_time(self) -> Algebra:
        left = self.left.with_arrival_time()
        width, right = len(self.left.schema), len(self.right.schema)
        residual = None if self.residual is None else remap(self.residual, lambda i: i + (i >= width))
        looked_up = NRRJoin(left, self.right, self.equal, residual, width)
        kept = [*range(width), *range(width + 1, width + 1 + right)]
        return with_latest_arrival(looked_up, kept, [width], self.schema)

    def with_inclusion(self) -> Algebra | None:
        # Rows of the relation are not sampled: what an element gives is kept or dropped with it.
        left = self.left.with_inclusion()
        if left is None:
            return None
        width = len(self.left.schema)
        residual = None if self.residual is None else remap(self.residual, lambda i: i + (i >= width))
        looked_up = replace(self, left=left, residual=residual)
        columns = [Column(f.type, i + (i >= width), f.name) for i, f in enumerate(self.schema)]
        return Project(looked_up, (*columns, inclusion_column(width)), (*self.schema.fields, RECORD))

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        below = pruned_sides((self.left, self.right), self.equal, self.residual, needed, pruning)
        left, right = below.left.node, below.right.node
        return Pruned(
            replace(self, left=left, right=right, equal=below.equal, residual=below.residual), below.positions
        )

    def describe(self) -> Mapping[str, str]:
        return self._as_join.describe()

    @property
    def _as_join(self) -> Join:
        return Join(self.left, self.right, self.equal, self.residual)


def is_nrr(node: Algebra) -> bool:
    """Return whether `node` is an updated NON RETROACTIVE relation, or some rows or columns of one."""
    if isinstance(node, Select | Project):
        return is_nrr(node.input)
    return isinstance(node, RelationScan) and node.source.non_retroactive and not node.source.is_static


def unjoined(node: Algebra) -> Iterator[RelationScan]:
    """Return the NRRs below `node` that no stream meets."""
    if isinstance(node, RelationScan):
        if is_nrr(node):
            yield node
        return
    for child in node.inputs[:1] if isinstance(node, NRRJoin | PreferringLookUp) else node.inputs:
        yield from unjoined(child)
