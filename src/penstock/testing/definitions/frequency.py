"""CSQL: the frequency operator and the sequence model [semantics 6], by definition.

A query in the sequence model is denoted on its own line of instants, where the operators mean what they mean on ticks:
only its windows and its evaluation differ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from penstock.algebra import Algebra, Arrivals, AtInstants, Frequency, FrequencyWindow, Sequenced
from penstock.algebra.nodes.frequency import own_frequency_windows
from penstock.algebra.nodes.frequent import blocks_of_rows
from penstock.testing.definitions.base import (
    InstantLine,
    Relation,
    Stream,
    World,
    denote,
    first_instant,
    minus,
    relation,
    steps,
)
from penstock.testing.definitions.core import boundary
from penstock.testing.definitions.results import Life, _lives
from penstock.testing.definitions.rowwindow import as_arrived
from penstock.testing.scalars.values import Row, key_of, value_order
from penstock.types import END


@denote.register
def _(node: Frequency, world: World) -> Stream:
    elements = [(ts, row) for ts, row in as_arrived(node.input, world) if ts <= world.final]
    if node.slot is not None:
        last: dict[tuple[int, Row], tuple[int, Row]] = {}
        for number, (ts, row) in enumerate(elements):
            last[boundary(ts, node.slot, 0), part(row, node.partition)] = (number, row)
        return Stream([(slot, row) for (slot, _), (_, row) in sorted(last.items(), key=lambda e: (e[0][0], e[1][0]))])
    assert node.rows is not None
    count: dict[Row, int] = {}
    picked = []
    for ts, row in elements:
        substream = part(row, node.partition)
        count[substream] = count.get(substream, 0) + 1
        if count[substream] % node.rows == 0:
            picked.append((ts, row))
    return Stream(picked)


def part(row: Row, columns: tuple[int, ...]) -> Row:
    """Return the substream of a row."""
    return key_of(tuple(row[i] for i in columns))


@denote.register
def _(node: Sequenced, world: World) -> Stream:
    line = line_of(node, world)
    inner = World(world.rows, len(line.ticks), line, firsts=world.firsts, shards=world.shards)
    answer = denote(node.body, inner)
    assert isinstance(answer, Stream)
    ordered = sorted(answer.elements, key=lambda element: (element[0], value_order(element[1])))
    return Stream([(line.ticks[instant - 1], row) for instant, row in ordered])


def line_of(node: Sequenced, world: World) -> InstantLine:
    """Return all elements and boundaries up to the end of time: a boundary follows the elements of its tick."""
    found: list[tuple[int, int, int, Row | None]] = []
    for place, stream in enumerate(node.streams):
        found += [(ts, 0, place, row) for ts, row in as_arrived(stream, world) if ts <= world.final]
    start = first_instant(node, world)
    ticks = {
        tick
        for slide, align in node.periods
        for tick in (range(boundary(start, slide, align), world.final + 1, slide) if start is not None else ())
    }
    found += [(tick, 1, 0, None) for tick in ticks]
    found.sort(key=lambda event: event[:3])
    arrived: list[list[tuple[int, Row]]] = [[] for _ in node.streams]
    boundaries: dict[tuple[int, int], list[int]] = {period: [] for period in node.periods}
    for instant, (ts, _, place, row) in enumerate(found, 1):
        if row is not None:
            arrived[place].append((instant, row))
        else:
            for slide, align in node.periods:
                if boundary(ts, slide, align) == ts:
                    boundaries[slide, align].append(instant)
    return InstantLine([event[0] for event in found], arrived, boundaries)


def line_around(world: World) -> InstantLine:
    assert world.line is not None, "stands inside a query in the sequence model only"
    return world.line


@denote.register
def _(node: Arrivals, world: World) -> Stream:
    return Stream(line_around(world).arrived[node.place])


@denote.register
def _(node: FrequencyWindow, world: World) -> Relation:
    line = line_around(world)
    below = denote(node.input, world)
    assert isinstance(below, Stream)
    elements = below.elements
    substreams = {part(row, node.by) for _, row in elements}
    evaluated = {s: list(evaluations(node, s, elements, line)) for s in substreams}

    numbers = {instant: number for number, (instant, _) in enumerate(elements)}

    def shown(instant: int) -> list[tuple[int, Row]]:
        return [e for s in substreams for e in content(node, s, elements, last_of(evaluated[s], instant), line)]

    def blocks(instant: int) -> list[tuple[int, int]]:
        assert node.every is not None
        return [(numbers[i] // node.every, numbers[i] // node.every) for i, _ in shown(instant)]

    panes = blocks if blocks_of_rows(node) is not None else None
    return Relation(frozenset(range(1, len(line.ticks) + 1)), lambda instant: [row for _, row in shown(instant)], panes)


def evaluations(
    node: FrequencyWindow, substream: Row, elements: list[tuple[int, Row]], line: InstantLine
) -> Iterator[int]:
    """Yield the evaluation instants of the window, or of its `substream`."""
    if node.every is not None:
        own = [instant for instant, row in elements if part(row, node.by) == substream]
        yield from own[node.every - 1 :: node.every]
    elif node.slide is not None:
        yield from line.boundaries[node.slide, node.align]
    else:
        yield from range(1, len(line.ticks) + 1)


def last_of(instants: list[int], instant: int) -> int:
    """Return the last of `instants`, which ascend, up to `instant`; 0, at which nothing has arrived, if none is."""
    return instants[place - 1] if (place := bisect_right(instants, instant)) else 0


def content(
    node: FrequencyWindow, substream: Row, elements: list[tuple[int, Row]], instant: int, line: InstantLine
) -> list[tuple[int, Row]]:
    """Return the window's content of `substream` as of the evaluation instant `instant`."""
    arrived = [(i, row) for i, row in elements if i <= instant and part(row, node.by) == substream]
    if node.rows is not None:
        partitions: dict[Row, list[tuple[int, Row]]] = {}
        for i, row in elements:
            if i <= instant:
                partitions.setdefault(part(row, node.partition), []).append((i, row))
        last = {i for members in partitions.values() for i, _ in members[-node.rows :]}
        arrived = [(i, row) for i, row in arrived if i in last]
    if node.length is not None:
        arrived = [(i, row) for i, row in arrived if line.ticks[i - 1] + node.length > line.ticks[instant - 1]]
    return arrived


@_lives.register
def _(node: FrequencyWindow, world: World) -> list[Life]:
    return [life for _, life in arrived_lives(node, world)]


def arrived_lives(node: FrequencyWindow, world: World) -> list[tuple[int, Life]]:
    """Return the elements that the window ever shows, each with its instant of arrival and its consecutive instants in
    it.
    """
    line = line_around(world)
    below = denote(node.input, world)
    assert isinstance(below, Stream)
    there: dict[int, list[int]] = {}
    rows = dict(below.elements)
    for substream in {part(row, node.by) for _, row in below.elements}:
        evaluated = list(evaluations(node, substream, below.elements, line))
        for instant in range(1, len(line.ticks) + 1):
            for i, _ in content(node, substream, below.elements, last_of(evaluated, instant), line):
                there.setdefault(i, []).append(instant)
    final = len(line.ticks)
    return [(i, (seen[0], END if seen[-1] == final else seen[-1] + 1, rows[i])) for i, seen in there.items()]


@denote.register
def _(node: AtInstants, world: World) -> Stream:
    below = relation(node.input, world)
    if node.groups:
        return Stream(
            [
                (instant, row)
                for instant, substream in sorted(_evaluated_substreams(node, world))
                for row in below.at(instant)
                if part(row, node.groups) == substream
            ]
        )
    start = first_instant(node, world)
    course = steps(below, start)
    # Rows that are valid from the beginning have not changed.
    changed = {tau for tau, before, now in course if tau != start and (minus(now, before) or minus(before, now))}
    instants = set(_evaluated(node.input, world)) | (changed if node.emits_changes else set())
    return Stream([(instant, row) for instant in sorted(instants) for row in below.at(instant)])


def _evaluated_substreams(node: AtInstants, world: World) -> Iterator[tuple[int, Row]]:
    """Yield the evaluations of the one window below, each with its substream."""
    line = line_around(world)
    (window,) = dict.fromkeys(own_frequency_windows(node))
    below = denote(window.input, world)
    assert isinstance(below, Stream)
    for substream in {part(row, window.by) for _, row in below.elements}:
        yield from ((instant, substream) for instant in evaluations(window, substream, below.elements, line))


def _evaluated(node: Algebra, world: World) -> Iterator[int]:
    """Yield the evaluation instants of the windows below.

    A window without a frequency is evaluated wherever its stream has an element: elsewhere only changes count.
    """
    line = line_around(world)
    if isinstance(node, FrequencyWindow):
        below = denote(node.input, world)
        assert isinstance(below, Stream)
        if node.every is None and node.slide is None:
            yield from (instant for instant, _ in below.elements)
        else:
            for substream in {part(row, node.by) for _, row in below.elements} | {()}:
                yield from evaluations(node, substream, below.elements, line)
    else:
        for child in node.inputs:
            yield from _evaluated(child, world)


def last_boundaries(node: Frequency | Sequenced, last: int) -> list[int]:
    """Return the last evaluations of `node`'s frequencies in time when the last element has the timestamp `last`."""
    if isinstance(node, Frequency):
        return [last if node.slot is None else boundary(last, node.slot, 0)]
    ends = [(last + (w.length or 0), w.slide, w.align) for w in node.windows]
    return [last, *(boundary(end, slide, align) for end, slide, align in ends if slide is not None)]
