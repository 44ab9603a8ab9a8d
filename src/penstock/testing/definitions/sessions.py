"""Session windows [semantics 4.5]: one pass over the elements of each partition; and `[VALID]`, by definition."""

from __future__ import annotations

from penstock.algebra import SessionWindow, ValidWindow
from penstock.testing.approximation.whole_stretches import Fall, OpenStretch, stretches_within, weighed
from penstock.testing.definitions.base import Bag, Relation, Stream, World, denote, relation, windowed
from penstock.testing.scalars.values import Row, key_of
from penstock.types import END


@denote.register
def _(node: SessionWindow, world: World) -> Relation:
    shown = []
    for first, end, until, members in sessions(node, world):
        for ts, row in members:
            period = (first, END) if node.open else (first, end)
            life = (ts, min(end, until)) if node.open else (end, end + 1)
            if life[0] < life[1] and (node.open or until == END):
                shown.append((ts, life, (*row[:-1], *period)))
    return windowed(shown)


def sessions(node: SessionWindow, world: World) -> list[tuple[int, int, int, list[tuple[int, Row]]]]:
    """Return (begin, end, the instant at which a budget drops it, elements) of every session."""
    if node.budget is not None:
        kept, _ = held_sessions(node, world)
        return [(s.begin, s.end, s.until, [(row[-2], row[:-2]) for row in s.members]) for s in kept]
    below = denote(node.input, world)
    assert isinstance(below, Stream), "sessions are of a stream"
    partitions: dict[Row, list[tuple[int, Row]]] = {}
    for ts, row in sorted(below.elements, key=lambda element: element[0]):
        if row[-1] is not None and row[-1] > 0:
            partitions.setdefault(key_of(tuple(row[i] for i in node.partition)), []).append((ts, row))
    found: list[tuple[int, int, int, list[tuple[int, Row]]]] = []
    for members in partitions.values():
        first, end = members[0][0], members[0][0]
        held: list[tuple[int, Row]] = []
        for ts, row in members:
            if ts > end or (node.at_most is not None and ts >= first + node.at_most):
                found.append((first, end, END, held))
                first, end, held = ts, ts, []
            end = max(end, min(ts + row[-1], END))
            if node.at_most is not None:
                end = min(end, first + node.at_most)
            held.append((ts, row))
        found.append((first, end, END, held))
    return found


def held_sessions(node: SessionWindow, world: World) -> tuple[list[OpenStretch[Row]], list[Fall]]:
    """Return the sessions that a budget holds, some until it drops them, and how thresholds fall. The members end with
    the period of each element alone."""
    below, budget = denote(node.input, world), node.budget
    assert isinstance(below, Stream) and budget is not None
    there = [(ts, row) for ts, row in below.elements if row[-1] is not None and row[-1] > 0]
    periods = [(ts, END, (*row, ts, min(ts + row[-1], END))) for ts, row in there]
    arrivals = weighed(periods, node.partition, node.input.schema.types, budget.in_bytes)
    return stretches_within(arrivals, budget, lambda end: end, node.at_most)


@denote.register
def _(node: ValidWindow, world: World) -> Relation:
    if node.input.is_stream:
        below = denote(node.input, world)
        assert isinstance(below, Stream)
        there = [(ts, row) for ts, row in below.elements if None not in row[-2:]]
        return windowed([(ts, (max(ts, row[-2]), row[-1]), row) for ts, row in there])
    rows = relation(node.input, world)

    def at(tau: int) -> Bag:
        return [row for row in rows.at(tau) if None not in row[-2:] and row[-2] <= tau < row[-1]]

    known = [row for tau in (rows.instants or {0}) for row in rows.at(tau)]
    bounds = {tick for row in known for tick in row[-2:] if tick is not None}
    return Relation(rows.instants | frozenset(bounds - {END}), at)
