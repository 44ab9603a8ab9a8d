"""Periods that last until the next element, and rows that have lasted [semantics 4.5], by their definitions."""

from __future__ import annotations

from penstock.algebra import Algebra, EndedPeriods, Lasting, Lives, UntilNext
from penstock.testing.definitions.base import Bag, Relation, Stream, World, denote, relation, windowed
from penstock.testing.definitions.core import boundary
from penstock.testing.scalars.values import Row, key_of
from penstock.types import END


def ended(node: UntilNext | EndedPeriods, world: World) -> list[tuple[int, int, Row]]:
    """Return (begin, end, row) of every element; END where the end does not come."""
    below = denote(node.input, world)
    assert isinstance(below, Stream), "the next element is one of a stream"
    times: dict[Row, list[int]] = {}
    for ts, row in below.elements:
        times.setdefault(key_of(tuple(row[i] for i in node.by)), []).append(ts)
    found = []
    for ts, row in below.elements:
        later = [other for other in times[key_of(tuple(row[i] for i in node.by))] if other > ts]
        most = END if node.at_most is None else ts + node.at_most
        found.append((ts, min([*later, most, END]), row))
    return found


@denote.register
def _(node: EndedPeriods, world: World) -> Stream:
    return Stream([(end, (*row, begin, end)) for begin, end, row in ended(node, world) if end < END])


@denote.register
def _(node: UntilNext, world: World) -> Relation:
    def rounded(tick: int) -> int:
        return tick if node.slide is None or tick == END else boundary(tick, node.slide, node.align)

    def after(tick: int) -> int:
        return END if node.length is None or tick == END else rounded(min(END, tick + node.length))

    shown = []
    for begin, end, row in ended(node, world):
        start, known = rounded(begin), rounded(end)
        if node.lives is Lives.WINDOW:
            gone = after(begin)
            lives = [((start, min(known, gone)), END), ((max(known, start), gone), end)]
        elif node.lives is Lives.BOTH:
            lives = [((start, known), END), ((known, after(end)), end)]
        else:
            lives = [((start, known), END)]
        shown += [(begin, life, (*row, begin, until)) for life, until in lives]
    return windowed(shown)


@denote.register
def _(node: Lasting, world: World) -> Relation:
    below = relation(node.input, world)

    def due(row: Row) -> int:
        tick = min(END, row[-2] + node.least)
        return tick if node.slide is None or tick == END else boundary(tick, node.slide, node.align)

    def holds(row: Row, tau: int) -> bool:
        return row[-1] - row[-2] >= node.least if row[-1] != END else due(row) <= tau

    def at(tau: int) -> Bag:
        return [row for row in below.at(tau) if None not in row[-2:] and holds(row, tau)]

    known = [row for tau in (below.instants or {0}) for row in below.at(tau) if None not in row[-2:]]
    return Relation(below.instants | {tick for tick in map(due, known) if tick != END}, at)


def last_end(node: Algebra, last: int) -> int:
    """Return the instant at which what arrived at `last` at the latest has ended in `node`."""
    slide, align = (None, 0) if isinstance(node, EndedPeriods) else (node.slide, node.align)  # type: ignore[attr-defined]  # its callers know the node
    if isinstance(node, Lasting):
        lengths = [node.least]
    else:
        assert isinstance(node, UntilNext | EndedPeriods)
        most = node.at_most or 0
        window = 0 if isinstance(node, EndedPeriods) else node.length or 0
        both = isinstance(node, UntilNext) and node.lives is Lives.BOTH
        lengths = [most + window] if both else [most, window]
    ends = [min(END, last + length) for length in lengths]
    return max(ends) if slide is None else max(boundary(end, slide, align) for end in ends)
