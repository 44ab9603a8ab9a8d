"""Only the columns that are read."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.algebra.nodes.base import Algebra, Pruned
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.optimizer.rules.support import column, over_inputs
from penstock.tree import derived


def prune_columns(root: Algebra) -> Algebra:
    """Scans read, and joins, aggregates and unions receive, only columns that are read above them.

    Law: π is linear in multiplicities, so a column that is not read may be dropped anywhere below, as long as bags stay
    bags. A projection that only renames or reorders is dissolved on the way and put back where the shape of the row
    counts.
    Unsound below:
    - DISTINCT: δ{(1,a),(1,b)} has two tuples, δ{1} has one;
    - a RelationToStream: if (1,a) leaves and (1,b) enters at one instant, ISTREAM emits (1,b); pruned to the first
      column, 1 leaves and 1 enters, which cancel. The root's changes are netted alike. All their columns are read;
    - group columns of an aggregate, partition columns of a row window: they make the groups;
    - a row window or a frequency operator over a stream without an order of arrival: elements of one instant are
      ordered by all their values; with one, ROWS 1 of (1,b) (2,a) is (2,a) also where only the letter is read;
    - a relation with updates: a `-` deletes a row that equals it in all columns, not in those that are read.
    An NRR's rows are distinguished by columns that are not read, too, but as of one instant it is a bag like any other.
    A relation keeps at least one column. Each operator declares which columns it reads (`Algebra.pruned`).
    """
    return _PRUNING.chosen(root, range(len(root.schema)), named=True)


@derived
def _by_need(node: Algebra) -> dict[frozenset[int], Pruned]:
    """Return what `node` has been pruned to so far, by the columns that were needed of it."""
    return {}


class _Pruning:
    """What operators ask for below themselves (`ColumnPruning`)."""

    def pruned(self, node: Algebra, needed: frozenset[int]) -> Pruned:
        """Return `node` with at least the `needed` columns; the result is kept with the node, as its fingerprint is,
        since a node may have many parents."""
        known = _by_need(node)
        if needed not in known:
            known[needed] = node.pruned(needed, self)
        return known[needed]

    def narrowed(self, node: Algebra, needed: frozenset[int]) -> Pruned:
        below = self.pruned(node, needed)
        used = sorted({below.positions[i] for i in needed})
        if not used or len(used) == len(below.node.schema):
            return below
        return Pruned(_projected(below.node, used), {i: used.index(below.positions[i]) for i in needed})

    def chosen(self, node: Algebra, columns: Sequence[int], named: bool) -> Algebra:
        below = self.pruned(node, frozenset(columns))
        positions = [below.positions[i] for i in columns]
        fields, schema = tuple(node.schema[i] for i in columns), below.node.schema
        if positions == list(range(len(schema))) and (not named or schema.names == tuple(f.name for f in fields)):
            return below.node
        return Project(below.node, tuple(column(schema[i], i) for i in positions), fields)

    def whole(self, node: Algebra) -> Pruned:
        read = over_inputs(node, lambda child: self.chosen(child, range(len(child.schema)), named=True))
        return Pruned(read, {i: i for i in range(len(node.schema))})


_PRUNING = _Pruning()


def _projected(node: Algebra, columns: Sequence[int]) -> Project:
    schema = node.schema
    return Project(node, tuple(column(schema[i], i) for i in columns), tuple(schema[i] for i in columns))
