"""Groups, duplicates and partners that share the instant at which they enter, found in that instant alone."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, SemiJoin
from penstock.algebra.nodes.set_operations import Except, Intersect
from penstock.algebra.nodes.windows import unbounded
from penstock.algebra.optimizer.rules.windows_of_time import changed_outside_rstream, in_window


def evaluate_at_timestamps(root: Algebra) -> Algebra:
    """op(S [RANGE UNBOUNDED], ..) = ISTREAM(op(S [NOW], ..)) [RANGE UNBOUNDED], where op groups by, compares or joins
    on a column that holds the instant at which rows enter.

    Law: rows that op puts together agree in that column, so they enter at one instant τ, and no later row joins them;
    nothing leaves. So what op finds of them in S [NOW] at τ is what it finds for ever. The results of two instants
    differ in that column, so ISTREAM loses none. State: the rows of one instant.
    Unsound for:
    - an RSTREAM above, which is evaluated at every arrival on its own windows;
    - S [RANGE UNBOUNDED SLIDE 5], whose rows enter at a boundary, not at the timestamp that they hold;
    - a join on other columns, whose partners come later;
    - an aggregate of panes, whose value depends on how long rows are valid;
    - columns with different offsets from that instant: a.window_start = b.window_end.
    """
    return changed_outside_rstream(root, _changed)


def _changed(node: Algebra) -> Algebra:
    if not isinstance(node, Aggregate | Distinct | Join | SemiJoin | OuterJoin | Except | Intersect):
        return node
    if not node.is_complete_at_once or not node.is_plain_sql:
        return node
    inputs = [in_window(child, 1) for child in node.inputs]
    found = [one for one in inputs if one is not None]
    if len(found) < len(inputs):
        return node
    if isinstance(node, Aggregate | Distinct):
        now: Algebra = replace(node, input=found[0])
    else:
        now = replace(node, left=found[0], right=found[1])
    return unbounded(RelationToStream(now, StreamKind.ISTREAM, settled=True))
