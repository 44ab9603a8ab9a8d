"""Rows and groups that are held until promises end them: joins, GROUP BY, DISTINCT and CLOSED [docs/promises.md]."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from penstock.algebra import (
    Algebra,
    Distinct,
    Join,
    Project,
    Select,
    UnionAll,
    Window,
)
from penstock.algebra.nodes.promised import ClosedRows, ClosingGroups, JoinResult, Leaving, PromisedJoin
from penstock.algebra.properties.promises import (
    Clustered,
    ForeignKey,
    Ordered,
    Unique,
)
from penstock.testing.aggregates.definitions import aggregate
from penstock.testing.definitions.base import Bag, Relation, Stream, World, denote, values_of, windowed
from penstock.testing.definitions.core import boundary, validity
from penstock.testing.definitions.semi_and_outer_joins import partners
from penstock.testing.promises.closings import first_closing, first_of, late, settling, value_of, whole
from penstock.testing.scalars.values import Row, key_of
from penstock.types import END


@dataclass(frozen=True)
class Element:
    """A row of a relation. ts: the timestamp of its element, from which on it is held; start, end: its validity."""

    ts: int
    start: int
    end: int
    row: Row


@singledispatch
def elements_of(node: Algebra, world: World) -> list[Element]:
    """Return the rows of a relation that enter with elements."""
    raise TypeError(f"rows of {type(node).__name__} do not leave by promises")


@elements_of.register
def _(node: Window, world: World) -> list[Element]:
    below = denote(node.input, world)
    assert isinstance(below, Stream), "a window stands on a stream"
    return [Element(ts, *validity(node, ts), row) for ts, row in below.elements]


def _through(node: Select | Project, world: World) -> list[Element]:
    """Return what a selection or projection makes of the rows of its input."""
    found = []
    for one in elements_of(node.input, world):
        if isinstance(node, Select):
            rows = [one.row] if values_of(node.predicate, [one.row]) == [True] else []
        else:
            rows = [tuple(values_of(expression, [one.row])[0] for expression in node.expressions)]
        found += [Element(one.ts, one.start, one.end, row) for row in rows]
    return found


elements_of.register(Select)(_through)
elements_of.register(Project)(_through)


@elements_of.register
def _(node: UnionAll, world: World) -> list[Element]:
    return [one for member in node.members for one in elements_of(member, world)]


@elements_of.register
def _(node: Distinct, world: World) -> list[Element]:
    first: dict[Row, Element] = {}
    for one in sorted(elements_of(node.input, world), key=lambda element: element.start):
        first.setdefault(key_of(one.row), one)
    return list(first.values())


@elements_of.register
def _(node: Join, world: World) -> list[Element]:
    sides = elements_of(node.left, world), elements_of(node.right, world)
    found = partners([one.row for one in sides[0]], [one.row for one in sides[1]], node.equal, node.residual)
    return [_pair(sides[0][i], sides[1][j]) for i, places in enumerate(found) for j in places]


def _pair(one: Element, other: Element) -> Element:
    start, end = max(one.start, other.start), min(one.end, other.end)
    return Element(max(one.ts, other.ts), start, end, one.row + other.row)


# --- joins


@dataclass(frozen=True)
class Meetings:
    """What a join with promises did.

    Args:
        sides: the rows of both sides.
        until: by side and row the last instant at which it answers look-ups; END for one that stays.
        pairs: (position left, position right, instant) of the pairs, for which `residual` holds.
    """

    sides: tuple[list[Element], list[Element]]
    until: tuple[list[int], list[int]]
    pairs: list[tuple[int, int, int]]

    def held(self, side: int, instant: int) -> int:
        """Return how many rows of a side are held after an instant."""
        rows = zip(self.sides[side], self.until[side], strict=True)
        return sum(one.ts <= instant < min(until, one.end - 1) for one, until in rows)


def meetings(node: PromisedJoin, world: World) -> Meetings:
    """Go through the instants of a join: look-ups see what stood before, and closings take effect afterwards."""
    sides = elements_of(node.left, world), elements_of(node.right, world)
    until = tuple([_last_instant(node, side, one, world) for one in sides[side]] for side in (0, 1))
    once = {one.side for one in node.leaving if isinstance(one.promise.promise, Unique)}
    pairs: list[tuple[int, int, int]] = []
    for t in sorted({one.start for side in sides for one in side}):
        there = [
            [i for i, one in enumerate(sides[side]) if one.start <= t < one.end and t <= until[side][i]]
            for side in (0, 1)
        ]
        rows = [[sides[side][i].row for i in there[side]] for side in (0, 1)]
        equal = partners(rows[0], rows[1], node.equal, None)
        whole_match = partners(rows[0], rows[1], node.equal, node.residual)
        for a, places in enumerate(equal):
            for b in places:
                left, right = there[0][a], there[1][b]
                if max(sides[0][left].start, sides[1][right].start) < t:
                    continue  # they met before
                if b in whole_match[a]:
                    pairs.append((left, right, t))
        found = [{there[0][a] for a, places in enumerate(equal) if places}, {there[1][b] for p in equal for b in p}]
        for side in once:
            for i in found[side]:
                until[side][i] = min(until[side][i], t)
    return Meetings(sides, (until[0], until[1]), pairs)


def _last_instant(node: PromisedJoin, side: int, one: Element, world: World) -> int:
    """Return the instant after which a row leaves by closings of values, or by being settled."""
    instants = [late(_ends(leaving, one, world)) for leaving in node.leaving if leaving.side == side]
    return min(instants, default=END)


def _ends(leaving: Leaving, one: Element, world: World) -> int | None:
    promise = leaving.promise.promise
    if isinstance(promise, Unique):
        return None  # by what it finds
    if isinstance(promise, ForeignKey):
        references = [base.promise for base in leaving.promise.bases]
        settled = [
            settling(of, world.accepted_of(of.parent), one.ts) for of in references if isinstance(of, ForeignKey)
        ]
        no_value = whole(one.row, leaving.promise.columns) is None
        closed = None if no_value or None in settled else max(map(late, settled))
    else:
        closed = first_closing(leaving.promise, value_of(leaving.promise, one.row, leaving.columns), one.ts, world)
    if closed is None:
        return None
    shifted = closed if leaving.slide is None else boundary(closed, leaving.slide, leaving.align)
    return max(one.start, shifted)


@denote.register
def _(node: PromisedJoin, world: World) -> Relation:
    found = meetings(node, world)
    if node.joined is JoinResult.INNER:
        return windowed([(one.ts, (one.start, one.end), one.row) for one in elements_of(node, world)])
    lives: list[tuple[int, tuple[int, int], Row]] = []
    if node.joined in (JoinResult.LEFT, JoinResult.FULL):
        lives += [
            (t, (t, min(found.sides[0][i].end, found.sides[1][j].end)), found.sides[0][i].row + found.sides[1][j].row)
            for i, j, t in found.pairs
        ]
    lives += _alone(node, found, 0)
    if node.joined is JoinResult.FULL:
        lives += _alone(node, found, 1)
    return windowed(lives)


def _alone(node: PromisedJoin, found: Meetings, side: int) -> list[tuple[int, tuple[int, int], Row]]:
    """Return the rows of one side with and without a partner, as the kind of the join has them. A partner that came is
    never absent again."""
    lives = []
    for i, one in enumerate(found.sides[side]):
        met = min((pair[2] for pair in found.pairs if pair[side] == i), default=END)
        before, after = (one.start, min(met, one.end)), (met, one.end)
        if node.joined in (JoinResult.LEFT, JoinResult.FULL):
            pad = (None,) * len((node.right, node.left)[side].schema)
            lives.append((one.ts, before, one.row + pad if side == 0 else pad + one.row))
        elif node.joined is JoinResult.MARK:
            lives += [(one.ts, before, (*one.row, False)), (one.ts, after, (*one.row, True))]
        else:
            lives.append((one.ts, after if node.joined is JoinResult.SEMI else before, one.row))
    return lives


@elements_of.register
def _(node: PromisedJoin, world: World) -> list[Element]:
    assert node.joined is JoinResult.INNER, "other joins retract rows"
    found = meetings(node, world)
    return [_pair(found.sides[0][i], found.sides[1][j]) for i, j, _ in found.pairs]


# --- CLOSED in WHERE


@elements_of.register
def _(node: ClosedRows, world: World) -> list[Element]:
    entered = []
    for one in elements_of(node.input, world):
        closed = [first_of(promises, one.row, one.ts, world) for promises in node.closing]
        if None not in closed:
            entered.append(Element(one.ts, max(one.start, *map(late, closed)), one.end, one.row))
    return entered


@denote.register
def _(node: ClosedRows, world: World) -> Relation:
    return windowed([(one.ts, (one.start, one.end), one.row) for one in elements_of(node, world)])


# --- groups


@dataclass(frozen=True)
class Group:
    """A group from its first row to its closing. rows: in the order in which they enter; until: the instant of its
    closing, whose rows it has too; END for one that is open."""

    rows: list[Element]
    until: int


def groups_of(node: ClosingGroups, world: World) -> list[Group]:
    """Return the groups. A row after the closing of its group begins it again."""
    open_groups: dict[Row, Group] = {}
    made: list[Group] = []
    for one in sorted(elements_of(node.input, world), key=lambda element: element.start):
        key = key_of(tuple(one.row[c] for c in node.group))
        group = open_groups.get(key)
        if group is None or one.start > group.until:
            closed = first_of(node.closing, one.row, one.ts, world)
            group = Group([], END if closed is None else max(one.start, closed))
            open_groups[key] = group
            made.append(group)
        group.rows.append(one)
    return made


def _row_of(node: ClosingGroups, group: Group, instant: int) -> Row:
    rows = [one for one in group.rows if one.start <= instant]
    own: Bag = [one.row for one in rows]
    lives = [(one.start, one.end) for one in rows]
    return tuple(own[0][c] for c in node.group) + tuple(aggregate(a, own, values_of, lives) for a in node.aggregates)


@denote.register
def _(node: ClosingGroups, world: World) -> Relation:
    if node.final or not node.aggregates:
        return windowed([(one.ts, (one.start, one.end), one.row) for one in elements_of(node, world)])
    groups = groups_of(node, world)
    instants = frozenset(one.start for group in groups for one in group.rows)

    def at(tau: int) -> Bag:
        return [_row_of(node, group, tau) for group in groups if group.rows[0].start <= tau]

    return Relation(instants, at)


@elements_of.register
def _(node: ClosingGroups, world: World) -> list[Element]:
    assert node.final or not node.aggregates, "rows of groups change"
    found = []
    for group in groups_of(node, world):
        first = group.rows[0]
        if not node.final:
            found.append(Element(first.ts, first.start, END, first.row))
        elif group.until < END:
            found.append(Element(group.until, group.until, END, _row_of(node, group, group.until)))
    return found


def longest_within(node: ClosedRows | ClosingGroups) -> int:
    """Return the longest time after its last row at which time closes a value; 0 where only rows do."""
    if isinstance(node, ClosingGroups):
        closing = node.closing if node.final else ()
    else:
        closing = tuple(one for condition in node.closing for one in condition)
    promises = [base.promise for one in closing for base in one.bases]
    return max((one.within.ticks or 0 for one in promises if isinstance(one, Clustered | Ordered)), default=0)


def held_rows(node: PromisedJoin, world: World, instant: int) -> tuple[int, int]:
    """Return how many rows of the left and of the right are held after an instant."""
    found = meetings(node, world)
    return found.held(0, instant), found.held(1, instant)
