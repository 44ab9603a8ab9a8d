"""Joins with NON RETROACTIVE relations: the window comes after them.

An element meets the relation at its own timestamp, which a SLIDE rounds away; selections and projections look at one
element alone. So the stream below the window is lowered first, then what stands above it, and the window last.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Algebra, NRRJoin, Project, Select, Window
from penstock.physical.lowering.builder import Builder, Lowered, lower
from penstock.physical.lowering.joins import meet
from penstock.physical.lowering.rowwise import projected, selected, windowed
from penstock.physical.plan import NRRJoinSpec


@lower.register
def _nrr_join(node: NRRJoin, builder: Builder) -> Lowered:
    return windowed(_window_of(node), node, _before_window(node, builder), builder)


def _window_of(node: Algebra) -> Window:
    while not isinstance(node, Window):
        node = node.inputs[0]
    return node


def _before_window(node: Algebra, builder: Builder) -> Lowered:
    """The elements of `node` with the timestamps they have in the stream."""
    if isinstance(node, Window):
        return builder.lower(node.input)
    below = _before_window(node.inputs[0], builder)
    if isinstance(node, Select):
        return selected(node, below, builder)
    if isinstance(node, Project):
        return projected(node, below, builder)
    assert isinstance(node, NRRJoin)
    relation = builder.lower(node.right)
    left_key, right_key = tuple(pair[0] for pair in node.equal), tuple(pair[1] for pair in node.equal)
    stage, edges, parts = meet(below, relation, left_key, right_key)
    step = builder.add(NRRJoinSpec(left_key, right_key, node.residual), edges, stage, node)
    width = len(node.left.schema)
    return replace(below, step=step, stage=stage, partitions=frozenset({parts[0], tuple(width + c for c in parts[1])}))
