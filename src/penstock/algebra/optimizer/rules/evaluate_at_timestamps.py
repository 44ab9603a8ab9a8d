"""Groups, duplicates and partners that share the instant at which they enter, found in that instant alone."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra, ArrivalTime, is_static
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, SemiJoin
from penstock.algebra.nodes.set_operations import Except, Intersect, UnionAll
from penstock.algebra.nodes.windows import Window, WindowKind, unbounded


def evaluate_at_timestamps(node: Algebra) -> Algebra:
    """op(S [RANGE UNBOUNDED], ..) = ISTREAM(op(S [NOW], ..)) [RANGE UNBOUNDED], where op groups by, compares or joins
    on a column that holds the instant at which rows enter.

    Law: rows that op puts together agree in that column, so they enter at one instant τ, and no later row joins them;
    nothing leaves. So what op finds of them in S [NOW] at τ is what it finds for ever. The results of two instants
    differ in that column, so ISTREAM loses none. State: the rows of one instant.
    Unsound for:
    - S [RANGE UNBOUNDED SLIDE 5], whose rows enter at a boundary, not at the timestamp that they hold;
    - a join on other columns, whose partners come later;
    - an aggregate of panes, whose value depends on how long rows are valid;
    - columns with different offsets from that instant: a.window_start = b.window_end.
    """
    if not isinstance(node, Aggregate | Distinct | Join | SemiJoin | OuterJoin | Except | Intersect):
        return node
    if not node.is_complete_at_once or not node.is_plain_sql:
        return node
    inputs = [_of_now(child) for child in node.inputs]
    found = [one for one in inputs if one is not None]
    if len(found) < len(inputs):
        return node
    if isinstance(node, Aggregate | Distinct):
        now: Algebra = replace(node, input=found[0])
    else:
        now = replace(node, left=found[0], right=found[1])
    return unbounded(RelationToStream(now, StreamKind.ISTREAM))


def _of_now(node: Algebra) -> Algebra | None:
    """Return the rows of a relation that enter at the present instant, as a relation; None where they do not follow
    from those of its streams."""
    if isinstance(node, Window):
        grows = node.kind is WindowKind.UNBOUNDED and node.slide is None
        return replace(node, kind=WindowKind.NOW) if grows else None
    if isinstance(node, Select | Project | ArrivalTime):
        below = _of_now(node.input)
        return None if below is None else replace(node, input=below)
    if isinstance(node, UnionAll):
        members = [_of_now(member) for member in node.members]
        found = tuple(one for one in members if one is not None)
        return UnionAll(found) if len(found) == len(members) else None
    if isinstance(node, NRRJoin) or (isinstance(node, Join) and is_static(node.right)):
        left = _of_now(node.left)
        return None if left is None else replace(node, left=left)
    if isinstance(node, Join) and is_static(node.left):
        right = _of_now(node.right)
        return None if right is None else replace(node, right=right)
    return None
