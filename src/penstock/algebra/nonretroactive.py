"""The join with a NON RETROACTIVE relation `[golab 3.3.1]` (LANGUAGE 3).

An update of such a relation (an NRR) changes only results of stream elements that arrive after it. So every element of
the stream meets the NRR as it is at the element's own timestamp, once; the result lives as long as the element does in
its window, whatever becomes of the NRR. Nothing is taken back and nothing of the stream is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.algebra.join import Join
from penstock.algebra.nodes import Algebra, Keys
from penstock.algebra.pattern import Pattern
from penstock.algebra.rowwise import Project, Select
from penstock.algebra.scans import RelationScan
from penstock.algebra.windows import Window
from penstock.expressions.nodes import Expression
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class NRRJoin(Algebra):
    """Columns: the left ones, then the right ones. left: elements of one window (`is_elementwise`); right: an NRR;
    equal, residual: as in `Join`."""

    left: Algebra
    right: Algebra
    equal: tuple[tuple[int, int], ...]
    residual: Expression | None = None

    @property
    def schema(self) -> Schema:
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def pattern(self) -> Pattern:
        # LANGUAGE 5: an NRR does not add.
        return self.left.pattern

    @property
    def keys(self) -> Keys:
        return self._as_join.keys

    def describe(self) -> Mapping[str, str]:
        return self._as_join.describe()

    @property
    def _as_join(self) -> Join:
        return Join(self.left, self.right, self.equal, self.residual)


def is_nrr(node: Algebra) -> bool:
    """Whether `node` is an updated NON RETROACTIVE relation, or some rows or columns of one."""
    if isinstance(node, Select | Project):
        return is_nrr(node.input)
    return isinstance(node, RelationScan) and node.source.non_retroactive and not node.source.is_static


def is_elementwise(node: Algebra) -> bool:
    """Whether every element of the relation `node` comes from one element of one time window over a stream, so that it
    has a timestamp of its own."""
    if isinstance(node, Select | Project):
        return is_elementwise(node.input)
    if isinstance(node, NRRJoin):
        return is_elementwise(node.left)
    return isinstance(node, Window)


def unjoined(node: Algebra) -> Iterator[RelationScan]:
    """The NRRs below `node` that no stream meets."""
    if isinstance(node, RelationScan):
        if is_nrr(node):
            yield node
        return
    for child in node.inputs[:1] if isinstance(node, NRRJoin) else node.inputs:
        yield from unjoined(child)
