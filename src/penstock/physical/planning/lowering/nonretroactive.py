"""Joins with NON RETROACTIVE relations: of one window in time, which follows the join, and of any other.

An element is joined with the relation as of its own timestamp, which a SLIDE rounds; selections and projections read
one element alone. So the stream below a window in time is lowered first, then the operators above the window, and the
window last. Row windows count elements and joins need their windows, so these come first, and carry the timestamps as a
column.
"""

from __future__ import annotations

from penstock.algebra import (
    Algebra,
    ArrivalTime,
    FrequencyWindow,
    NRRJoin,
    Pattern,
    Project,
    RowWindow,
    Select,
    TimeModelWindow,
)
from penstock.algebra.nodes.base import operators
from penstock.expressions.nodes import Column
from penstock.physical.plan.joins.specs import NRRJoinSpec
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower, meet
from penstock.physical.planning.lowering.frequency import arrived, waiting
from penstock.physical.planning.lowering.rowwindow import row_window, stamped
from penstock.physical.planning.lowering.rowwise import projected, selected, windowed


@lower.register
def _nrr_join(node: NRRJoin, builder: Builder) -> Lowered:
    if node.came is not None:
        return _lookup_by_arrival(node, node.came, builder)
    if not node.over_one_window:
        kept = tuple(Column(f.type, i, f.name) for i, f in enumerate(node.schema))
        return builder.lower(Project(node.with_arrival_time(), kept, node.schema.fields))
    return windowed(_window_of(node), node, _before_window(node, builder), builder)


def _lookup_by_arrival(node: NRRJoin, arrival_column: int, builder: Builder) -> Lowered:
    stream, relation = builder.lower(node.left), builder.lower(node.right)
    left_key, right_key = tuple(pair[0] for pair in node.equal), tuple(pair[1] for pair in node.equal)
    stage, edges, parts = meet(stream, relation, left_key, right_key)
    width = len(node.left.schema)
    strict = node.left.pattern is Pattern.STRICT
    late = any(isinstance(w, FrequencyWindow) and w.jumps for w in operators(node.left))
    waiting_edges = [Edge(waiting(node.left, builder).step, Exchange(()))] if late else []
    spec = NRRJoinSpec(
        left_key, right_key, node.residual, arrival_column, _longest_slide(node.left), strict, width, late
    )
    step = builder.add(spec, [*edges, *waiting_edges], stage, node)
    return Lowered(step, stage, frozenset({parts[0], tuple(width + c for c in parts[1])}))


def _longest_slide(node: Algebra) -> int:
    """Return for at most how many ticks after its arrival a tuple of `node` may become visible."""
    return max((w.slide or 0 for w in operators(node) if isinstance(w, TimeModelWindow)), default=0)


@lower.register
def _stamped(node: ArrivalTime, builder: Builder) -> Lowered:
    window = node.input
    if isinstance(window, FrequencyWindow):
        return arrived(node, builder)
    if isinstance(window, RowWindow):
        return row_window(window, node, builder)
    assert isinstance(window, TimeModelWindow)
    return windowed(window, node, stamped(window.input, builder.lower(window.input), builder), builder)


def _window_of(node: Algebra) -> TimeModelWindow:
    while not isinstance(node, TimeModelWindow):
        node = node.inputs[0]
    return node


def _before_window(node: Algebra, builder: Builder) -> Lowered:
    """Return the elements of `node` with the timestamps they have in the stream."""
    if isinstance(node, TimeModelWindow):
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
    return Lowered(step, stage, frozenset({parts[0], tuple(width + c for c in parts[1])}))
