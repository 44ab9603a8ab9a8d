"""Window stores: joins of windows of any length over one stream read the rows of the longest [bulletin 2.2].

A window in time without SLIDE decides about each element alone, as selections and projections do, so the rows below it
can be stored and the window applied where they are read. A store is worth it where several joins read it, now or, in a
run whose queries come and go, later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.algebra import Algebra, Join, Project, Select, Window
from penstock.algebra.analysis.operator_keys import operator_key
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.scans import StreamScan
from penstock.physical.plan.joins.ranges import find_ranges
from penstock.physical.plan.joins.specs import WindowStoreSpec
from penstock.physical.plan.plan import Edge
from penstock.physical.planning.lowering.builder import Builder


@dataclass(frozen=True)
class StoredSide:
    """A side of a join that can be read in a store. rows: the stream whose rows are stored; length: of the window."""

    rows: Algebra
    length: int
    key: tuple[int, ...]

    @property
    def operator(self) -> str:
        """Return what the choices of the store go by: it is the same for windows of every length."""
        return f"{operator_key(self.rows)}.WindowStore {','.join(map(str, self.key))}"

    @property
    def name(self) -> str:
        """Return the name of the store among the choices of a plan (`Generation.grains`)."""
        return f"store {self.rows.fingerprint} {','.join(map(str, self.key))}"


def stored_side(node: Join, port: int) -> StoredSide | None:
    """Return how a side of an equi-join can be read in a store; None where it cannot."""
    side = (node.left, node.right)[port]
    window = window_of(side)
    if window is None or window.lifetime is None or not node.equal:
        return None
    if find_ranges(node.residual, len(node.left.schema)) is not None:
        return None
    return StoredSide(without_window(side), window.lifetime, tuple(pair[port] for pair in node.equal))


def shared_stores(roots: Iterable[Algebra], always: bool) -> dict[str, int]:
    """Return the names of the stores that the joins of `roots` read, each with how many do.

    Args:
        always: also those that one join reads, since others may come.
    """
    joins: dict[str, Join] = {}
    for root in roots:
        joins.update({node.fingerprint: node for node in operators(root) if isinstance(node, Join)})
    sides = (stored_side(node, port) for node in joins.values() for port in (0, 1))
    read = Counter(side.name for side in sides if side is not None)
    return {name: count for name, count in read.items() if always or count > 1}


def arriving(side: StoredSide, node: Algebra, builder: Builder) -> Algebra:
    """Return the window whose rows go to the store of a side: the first over its stream, as a store looks at timestamps
    alone. So rows are sent once for windows of several lengths, and with those that other operators read."""
    return builder.stored.setdefault(side.rows.fingerprint, node)


def window_store(side: StoredSide, edge: Edge, stage: int, node: Algebra, builder: Builder) -> int:
    """Return the step of the store of a join's side; it computes the longest window that is read there.

    Args:
        edge: on which the rows of the stream arrive at `stage`.
        node: the side.
    """
    spec = WindowStoreSpec(side.key, side.rows.schema.types)
    owner = builder.choices.owner(side.operator)
    for i, step in enumerate(builder.steps):
        if (step.spec, step.inputs, step.stage, step.choices.owner) == (spec, (edge,), stage, owner):
            window, known = window_of(node), window_of(builder.nodes[i])
            assert window is not None and known is not None
            if (window.lifetime or 0) > (known.lifetime or 0):
                builder.nodes[i] = node
            return step.id
    return builder.add(spec, [edge], stage, node, operator=side.operator)


def window_of(node: Algebra) -> Window | None:
    """Return the window in time without SLIDE over a declared stream of which `node` selects and projects rows. None
    also where rows of the stream are checked."""
    window: Window | None = None
    while isinstance(node, Select | Project | Window):
        if isinstance(node, Window):
            window = node if window is None and node.slide is None else None
            if window is None:
                return None
        node = node.input
    return window if isinstance(node, StreamScan) and not node.checks else None


def without_window(node: Algebra) -> Algebra:
    """Return the rows of `node` (`window_of`) as those of the stream below its window."""
    if isinstance(node, Window):
        return node.input
    assert isinstance(node, Select | Project)
    return replace(node, input=without_window(node.input))
