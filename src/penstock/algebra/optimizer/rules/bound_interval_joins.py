"""Joins whose condition bounds the time between their rows, over windows of that length."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join, never_loses
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.nodes.windows import unbounded
from penstock.algebra.optimizer.rules.windows_of_time import changed_outside_rstream, in_window
from penstock.algebra.properties.timestamps import offset_of, shifted
from penstock.expressions.nodes import Call, Expression, columns_of, conjuncts
from penstock.types import LONGEST_TICKS

#: Comparisons, each with the one whose sides are exchanged.
_TURNED = {"GE": "LE", "LE": "GE", "GT": "LT", "LT": "GT", "EQ": "EQ"}


@dataclass
class _Distance:
    """How much later than a left row its partner enters: from -`back` to `ahead` ticks, None where that has no end."""

    back: int | None = None
    ahead: int | None = None

    def narrow(self, comparison: str, distance: int) -> None:
        """Take into account that `left + distance <comparison> right` holds of the instants of partners."""
        if comparison in ("GE", "GT", "EQ"):
            ahead = distance - (comparison == "GT")
            self.ahead = ahead if self.ahead is None else min(self.ahead, ahead)
        if comparison in ("LE", "LT", "EQ"):
            back = -distance - (comparison == "LT")
            self.back = back if self.back is None else min(self.back, back)


def bound_interval_joins(root: Algebra) -> Algebra:
    """A [RANGE UNBOUNDED] join B [RANGE UNBOUNDED], where the condition has b.ts BETWEEN a.ts - l AND a.ts + u, is all
    that A [RANGE u + 1 tick] join B [RANGE l + 1 tick] ever returns.

    Law: a pair enters with the later of its rows. When b comes at b.ts, its partners a have b.ts <= a.ts + u, so they
    are still in their window; and the other way round. Of a bound on one side alone the other keeps its rows. A row of
    A with a partner (EXISTS) stays, so B is kept for l + u + 1 ticks: then no partner leaves before a. An outer join
    and NOT EXISTS are final when a row of A enters if no partner comes later (u <= 0), so A is needed at its own
    instant.
    Unsound for:
    - an RSTREAM above, which is evaluated at every arrival on its own windows;
    - an outer join or NOT EXISTS whose partners may come later: what is without a partner at the end stays;
    - columns that do not hold the instant at which rows enter;
    - INT columns that are moved by a constant, whose sum may leave the type.
    """
    return changed_outside_rstream(root, _changed)


def _changed(node: Algebra) -> Algebra:
    if not isinstance(node, Join | SemiJoin | OuterJoin) or not all(map(never_loses, node.inputs)):
        return node
    if node.is_complete_at_once:
        return node
    reach = _reach(node)
    if isinstance(node, Join):
        return _inner(node, reach)
    if reach.back is None or reach.ahead is None:
        return node
    if isinstance(node, SemiJoin) and node.kind is SemiKind.SEMI:
        return _ever(node, reach.ahead, reach.back + max(reach.ahead, 0))
    decided = reach.ahead <= 0 and not (isinstance(node, OuterJoin) and (node.kind is OuterKind.FULL or node.single))
    return _ever(node, 0, reach.back) if decided else node


def _reach(node: Join | SemiJoin | OuterJoin) -> _Distance:
    width = len(node.left.schema)
    times = {**node.left.timestamps, **shifted(node.right.timestamps, width)}
    found = _Distance()
    for left, right in node.equal:
        if left in times and width + right in times:
            found.narrow("EQ", times[left] - times[width + right])
    for part in () if node.residual is None else conjuncts(node.residual):
        if not isinstance(part, Call) or part.function not in _TURNED:
            continue
        one, other = part.arguments
        offsets = offset_of(one, times), offset_of(other, times)
        sides = _side(one, width), _side(other, width)
        if offsets[0] is None or offsets[1] is None or set(sides) != {0, 1}:
            continue
        if sides[0] == 0:
            found.narrow(part.function, offsets[0] - offsets[1])
        else:
            found.narrow(_TURNED[part.function], offsets[1] - offsets[0])
    return found


def _side(part: Expression, width: int) -> int | None:
    """Return of which side an expression reads columns: 0 for the left; None for both, or none."""
    read = {int(column >= width) for column in columns_of(part)}
    return read.pop() if len(read) == 1 else None


def _inner(node: Join, reach: _Distance) -> Algebra:
    left = _kept(node.left, reach.ahead)
    right = _kept(node.right, reach.back)
    if left is node.left and right is node.right:
        return node
    return _emitted(replace(node, left=left, right=right))


def _ever(node: SemiJoin | OuterJoin, ahead: int, back: int) -> Algebra:
    """Return all rows that a join over windows of these lengths ever has."""
    left, right = _kept(node.left, ahead), _kept(node.right, back)
    if left is node.left or right is node.right:
        return node
    return _emitted(replace(node, left=left, right=right))


def _emitted(joined: Algebra) -> Algebra:
    """Return all rows that a join ever has. Rows hold their instants, so equal ones come together and none is lost."""
    return unbounded(RelationToStream(joined, StreamKind.ISTREAM, settled=True))


def _kept(side: Algebra, ticks: int | None) -> Algebra:
    """Return a side whose rows stay for so many ticks after their own instant; itself where it cannot be so."""
    if ticks is None or ticks + 1 >= LONGEST_TICKS:
        return side
    return in_window(side, max(ticks, 0) + 1) or side
