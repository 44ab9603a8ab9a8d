"""Row logs: aggregates over windows of several lengths of one stream read the rows of the longest [bulletin 2.2].

As with window stores (`stores.py`), a window in time without SLIDE decides about each element alone, so the
accumulator rows below it can be kept in order of time and the window applied where they are read. A log is worth it
where windows of several lengths read it, now or, in a run whose queries come and go, later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.algebra import Aggregate, Algebra, Window
from penstock.algebra.nodes.base import operators
from penstock.physical.plan.aggregates import AccumulatorRowsSpec, LoggedAggregateSpec, RowLogSpec
from penstock.physical.plan.plan import Edge
from penstock.physical.plan.state.aggregate_layout import plan_lanes
from penstock.physical.planning.lowering.aggregate_input import lane_names, lane_types
from penstock.physical.planning.lowering.builder import Builder, Lowered, moved_partitions
from penstock.physical.planning.lowering.stores import window_of, without_window
from penstock.physical.planning.lowering.user_aggregates import has_user_aggregates


def shared_logs(roots: Iterable[Algebra], always: bool) -> dict[str, int]:
    """Return the names of the logs that the aggregates of `roots` read, each with how many lengths of windows do.

    Args:
        always: also those that windows of one length read, since others may come.
    """
    lengths: dict[str, set[int]] = {}
    for root in roots:
        for node in operators(root):
            if isinstance(node, Aggregate) and (window := _logged(node)) is not None:
                lengths.setdefault(_name(node), set()).add(window.lifetime or 0)
    return {name: len(found) for name, found in lengths.items() if always or len(found) > 1}


def lower_logged(node: Aggregate, builder: Builder) -> Lowered | None:
    """Return `node` as a reader of a log; None where it reads none."""
    window = _logged(node)
    if window is None or window.lifetime is None or _name(node) not in builder.grains:
        return None
    log = _log(node, builder)
    plan = plan_lanes(node.group, node.aggregates, strict=False)
    spec = LoggedAggregateSpec(plan, True, lane_types(node, plan), length=window.lifetime)
    return replace(log, step=builder.add(spec, [Edge(log.step)], log.stage, node))


def _logged(node: Aggregate) -> Window | None:
    """Return the window whose rows an aggregate may read in a log."""
    window = window_of(node.input)
    return None if window is None or window.lifetime is None or has_user_aggregates(node) else window


def _name(node: Aggregate) -> str:
    """Return the name of the log of an aggregate among the choices of a plan (`Generation.grains`)."""
    names = tuple(f"a{i}" for i in range(len(node.names)))
    return f"log {replace(node, input=without_window(node.input), names=names).fingerprint}"


def _log(node: Aggregate, builder: Builder) -> Lowered:
    """Return the step of the log, which computes the longest window that is read there."""
    name = _name(node) + builder.choices.variant(node.input)
    if name not in builder.known:
        rows = without_window(node.input)
        plan = plan_lanes(node.group, node.aggregates, strict=False)
        types = lane_types(node, plan)
        names = lane_names(node, types)
        edge, stage, partitions = builder.keyed(builder.lower(rows), node.group)
        step = builder.add(AccumulatorRowsSpec(plan, False), [edge], stage, rows, types, names)
        step = builder.add(RowLogSpec(plan, types), [Edge(step)], stage, node.input, types, names)
        positions = {column: i for i, column in reversed(list(enumerate(node.group)))}
        builder.known[name] = Lowered(step, stage, moved_partitions(partitions, positions))
    log = builder.known[name]
    place = log.step - builder.first
    window, known = window_of(node.input), window_of(builder.nodes[place])
    assert window is not None and known is not None
    if (window.lifetime or 0) > (known.lifetime or 0):
        builder.nodes[place] = node.input
    return log
