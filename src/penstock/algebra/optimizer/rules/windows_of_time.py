"""Streams without windows under windows in time, for rules by which rows are no longer needed after a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.algebra.nodes.base import Algebra, ArrivalTime, is_static, operators
from penstock.algebra.nodes.internal import own_operators
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.set_operations import UnionAll
from penstock.algebra.nodes.windows import Window, WindowKind
from penstock.tree import Node, transform_up


def in_window(node: Algebra, ticks: int) -> Algebra | None:
    """Return the rows of a relation that only grows, for `ticks` from the instant at which they enter; None where they
    do not follow from those of its streams."""
    if isinstance(node, Window):
        grows = node.kind is WindowKind.UNBOUNDED and node.slide is None
        if not grows:
            return None
        return replace(node, kind=WindowKind.NOW) if ticks == 1 else replace(node, kind=WindowKind.RANGE, length=ticks)
    if isinstance(node, Select | Project | ArrivalTime):
        below = in_window(node.input, ticks)
        return None if below is None else replace(node, input=below)
    if isinstance(node, UnionAll):
        members = [in_window(member, ticks) for member in node.members]
        found = tuple(one for one in members if one is not None)
        return UnionAll(found) if len(found) == len(members) else None
    if isinstance(node, NRRJoin) or (isinstance(node, Join) and is_static(node.right)):
        left = in_window(node.left, ticks)
        return None if left is None else replace(node, left=left)
    if isinstance(node, Join) and is_static(node.left):
        right = in_window(node.right, ticks)
        return None if right is None else replace(node, right=right)
    return None


def changed_outside_rstream(root: Algebra, change: Callable[[Algebra], Algebra]) -> Algebra:
    """Return a plan with `change` of its operators; the plan itself where an RSTREAM reads one that changes: it is
    evaluated at the arrivals of its own windows, of which the change leaves others."""
    for node in operators(root):
        reads_all = isinstance(node, RelationToStream) and node.kind is StreamKind.RSTREAM
        if reads_all and any(change(one) is not one for child in node.inputs for one in own_operators(child)):
            return root

    def changed(node: Node) -> Node:
        return change(node) if isinstance(node, Algebra) else node

    return transform_up(root, changed)
