"""Row windows, samples of streams, and the results of INTERNAL windows [semantics 4.1]."""

from __future__ import annotations

import struct
from itertools import compress

import numpy as np
import pyarrow as pa

from penstock.algebra import (
    Algebra,
    IndividualResults,
    Internal,
    RelationToStream,
    RowWindow,
    Sample,
    StreamKind,
)
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.frequent import blocks_of_rows
from penstock.expressions.draws import draws, universe
from penstock.testing.definitions.base import Bag, Relation, Stream, World, denote, windowed
from penstock.testing.definitions.core import boundaries, lasting, validity
from penstock.testing.scalars.values import Row, key_of, value_order
from penstock.types import END


@denote.register
def _(node: RowWindow, world: World) -> Relation:
    """Return, of every partition at τ, the last rows as of the last multiple of the step, without those whose RANGE has
    passed.

    With a SLIDE in time the last boundary decides instead.
    """
    partitions = partitioned(node, world)
    elements = [element for members in partitions for element in members]

    def at(tau: int) -> Bag:
        seen = tau if node.slide is None else node.align + (tau - node.align) // node.slide * node.slide
        return [row for members in partitions for row in last_rows(node, members, seen)]

    starts = {boundaries(node, ts, END)[0] for ts, _ in elements}
    ends = (
        set()
        if node.lifetime is None or node.length is None
        else {boundaries(node, ts, min(END, ts + node.length))[1] for ts, _ in elements}
    )

    def blocks(tau: int) -> list[tuple[int, int]]:
        assert node.step is not None
        (members,) = partitions or ([],)
        last = len([None for ts, _ in members if ts <= tau]) // node.step * node.step
        return [(n // node.step, n // node.step) for n in range(last - len(at(tau)), last)]

    return Relation(frozenset(starts | ends), at, blocks if blocks_of_rows(node) is not None else None)


@validity.register
def _(window: RowWindow, ts: int) -> tuple[int, int]:
    return lasting(window, ts, window.length)


def partitioned(node: RowWindow, world: World) -> list[list[tuple[int, Row]]]:
    """Return the elements of every partition in order of (timestamp, arrival), or of (timestamp, values)."""
    partitions: dict[Row, list[tuple[int, Row]]] = {}
    for ts, row in as_arrived(node.input, world):
        partitions.setdefault(key_of(tuple(row[i] for i in node.partition)), []).append((ts, row))
    return list(partitions.values())


def as_arrived(stream: Algebra, world: World) -> list[tuple[int, Row]]:
    """Return the elements of `stream` in order of (timestamp, arrival), or of (timestamp, values)."""
    below = denote(stream, world)
    assert isinstance(below, Stream), f"{type(stream).__name__} is no stream"
    elements = sorted(below.elements, key=lambda element: element[0])
    if in_arrival_order(stream) is None:
        elements = sorted(elements, key=lambda element: (element[0], value_order(element[1])))
    return elements


def last_rows(node: RowWindow, members: list[tuple[int, Row]], tau: int) -> Bag:
    """Return the window's content of one partition at τ; its elements are in order of (timestamp, arrival)."""
    arrived = [(ts, row) for ts, row in members if ts <= tau]
    counted = len(arrived) // (node.step or 1) * (node.step or 1)
    if node.rows is None:  # a RANGE as of the arrival of the last of these
        held = arrived[:counted]
        return [row for ts, row in held if node.length is None or held[-1][0] < ts + node.length]
    held = arrived[max(0, counted - node.rows) : counted]
    return [row for ts, row in held if node.length is None or tau < ts + node.length]


@denote.register
def _(node: Sample, world: World) -> Stream:
    below = denote(node.input, world)
    assert isinstance(below, Stream), "a sample is drawn from a stream"
    if not below.elements:
        return below
    rows = [row for _, row in below.elements]
    columns = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(node.input.schema.types)]
    ticks = np.array([ts for ts, _ in below.elements], np.int64)
    if node.by:
        drawn = universe(node.seed, [columns[i] for i in node.by], len(rows))
    else:
        drawn = draws(node.seed, node.name, ticks, columns)
    share = node.percent / 100
    chosen = [share == 1 or int(draw) < int(share * 2**64) for draw in drawn]
    elements = list(compress(below.elements, chosen))
    if not node.records:
        return Stream(elements)
    clusters = [int(draw) for draw in compress(drawn.view(np.int64), chosen)]
    records = [struct.pack("<dqqq", float(share), cluster, 0, 0) for cluster in clusters]
    return Stream([(ts, (*row, record)) for (ts, row), record in zip(elements, records, strict=True)])


@denote.register
def _(node: Internal, world: World) -> Relation:
    """Return all results so far: those that WSTREAM would window, or those that ISTREAM would emit."""
    results = IndividualResults(node.input) if node.by_life else RelationToStream(node.input, StreamKind.ISTREAM)
    came = denote(results, world)
    assert isinstance(came, Stream)
    return windowed([(ts, (ts, END), row) for ts, row in came.elements])
