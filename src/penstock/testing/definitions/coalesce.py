"""Coalescing and gaps [semantics 4.5]: the maximal periods of every value, computed anew at every instant, and those
between; and the inclusion records of what a budget keeps by the hashes of values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algebra import Coalesce, Gaps, SessionWindow, Shed, StretchChances
from penstock.expressions.draws import draws
from penstock.testing.approximation.shedding import salted
from penstock.testing.approximation.whole_stretches import (
    Fall,
    HeldGranule,
    OpenStretch,
    buckets_of,
    held_granules,
    kept_stretches,
    weighed,
)
from penstock.testing.definitions.base import Bag, Relation, World, denote, relation, windowed
from penstock.testing.definitions.sessions import held_sessions
from penstock.testing.definitions.shed import held_lives, lives
from penstock.testing.scalars.values import Row, key_of
from penstock.types import END


@denote.register
def _(node: Coalesce, world: World) -> Relation:
    below, closed = relation(node.input, world), node.closed
    if node.budget is not None and closed is not None:
        return windowed([(0, life, row) for life, row, _ in closed_stretches(node, world)])
    if node.budget is not None:
        held, _ = granules_held(node, world)
        instants = {g.end for g in held} | {g.until for g in held}
        return Relation(frozenset(instants), lambda tau: stretches([g.member for g in held if g.end <= tau < g.until]))
    if closed is None:
        return Relation(below.instants, lambda tau: stretches(below.at(tau)))
    found = {closed.closes(row[-1]) for tau in below.instants for row in stretches(below.at(tau))}
    return Relation(
        below.instants | (found - {END}),
        lambda tau: [row for row in stretches(below.at(tau)) if closed.closes(row[-1]) <= tau],
    )


def closed_stretches(node: Coalesce, world: World) -> list[tuple[tuple[int, int], Row, OpenStretch[Row]]]:
    """Return (life, row, stretch) of the stretches that are emitted once under a budget."""
    closed, budget = node.closed, node.budget
    assert closed is not None and budget is not None
    arrivals = weighed(lives(node.input, world), node.value, node.schema.types, budget.in_bytes)
    kept = kept_stretches(arrivals, budget, closed.closes)
    return [((closed.closes(s.end), END), (*s.members[0][:-2], s.begin, s.end), s) for s in kept]


def granules_held(node: Coalesce, world: World) -> tuple[list[HeldGranule[Row]], list[Fall]]:
    """Return the granules that a budget of runs holds, and how thresholds fall."""
    granules, budget = node.granule_window, node.budget
    assert budget is not None and granules is not None and granules.slide is not None
    arrivals = weighed(lives(node.input, world), node.value, node.schema.types, budget.in_bytes)
    length = granules.lifetime or granules.slide
    return held_granules(arrivals, *buckets_of(budget), granules.slide, length, budget.least)


def stretches(rows: Bag) -> Bag:
    """Return `rows`, whose last two columns are periods, coalesced."""
    values: dict[Row, Bag] = {}
    for row in rows:
        if row[-2] is not None and row[-1] is not None and row[-2] < row[-1]:
            values.setdefault(key_of(row[:-2]), []).append(row)
    found = []
    for members in values.values():
        first, (begin, end) = members[0][:-2], (None, None)
        for row in sorted(members, key=lambda member: member[-2]):
            if end is not None and row[-2] <= end:
                end = max(end, row[-1])
                continue
            if end is not None:
                found.append((*first, begin, end))
            begin, end = row[-2:]
        found.append((*first, begin, end))
    return found


@denote.register
def _(node: Gaps, world: World) -> Relation:
    below = relation(node.input, world)

    def at(tau: int) -> Bag:
        found: Bag = []
        for ordered in _by_value(below.at(tau)):
            found += [(*row[:-2], row[-1], following[-2]) for row, following in pairwise(ordered)]
            last = ordered[-1]
            if not node.only_ended and node.closing.closes(last[-1]) <= min(tau, END - 1):
                found.append((*last[:-2], last[-1], END))
        return found

    closed = {node.closing.closes(row[-1]) for tau in below.instants or {0} for row in below.at(tau)}
    return Relation(below.instants | (set() if node.only_ended else closed - {END}), at)


def _by_value(rows: Bag) -> list[list[Row]]:
    """Return the stretches of every value in the order of time."""
    values: dict[Row, list[Row]] = {}
    for row in rows:
        values.setdefault(key_of(row[:-2]), []).append(row)
    return [sorted(found, key=lambda row: row[-2]) for found in values.values()]


@denote.register
def _(node: StretchChances, world: World) -> Relation:
    drawn = node.input
    if isinstance(drawn, SessionWindow) and node.once:
        kept = [s for s in held_sessions(drawn, world)[0] if s.until == END]
        return windowed(
            [
                (row[-2], (s.end, s.end + 1), (*row[:-3], s.begin, s.end, record(s.rank, s.emitted_below)))
                for s in kept
                for row in s.members
            ]
        )
    if isinstance(drawn, Coalesce) and node.once:
        closed = closed_stretches(drawn, world)
        return windowed([(0, life, (*row, record(s.rank, s.emitted_below))) for life, row, s in closed])
    below, falls = relation(drawn, world), _falls(node, world)

    def at(tau: int) -> Bag:
        rows = below.at(tau)
        thresholds = [
            min([t for ts, b, t in falls if b == bucket and ts <= tau], default=2**63) for bucket in range(node.buckets)
        ]
        return [
            (*row, record(rank, thresholds[salted(rank, 4) % node.buckets]))
            for row, rank in zip(rows, _ranks(node, rows), strict=True)
        ]

    return Relation(below.instants | frozenset(ts for ts, _, _ in falls), at)


def _falls(node: StretchChances, world: World) -> list[Fall]:
    """Return how the thresholds of the budget fall."""
    drawn = node.input.input if isinstance(node.input, Gaps) else node.input
    if isinstance(drawn, Coalesce) and drawn.budget is not None:
        return granules_held(drawn, world)[1]
    if isinstance(drawn, SessionWindow):
        return held_sessions(drawn, world)[1]
    assert isinstance(drawn, Coalesce) and isinstance(drawn.input, Shed)
    return held_lives(drawn.input, world)[1]


def _ranks(node: StretchChances, rows: Sequence[Row]) -> list[int]:
    """Return the hash of the value of each row."""
    types = node.schema.types
    columns = [pa.array([row[i] for row in rows], types[i]) for i in node.drawn.drawn_columns]
    found: list[int] = (draws(0, "", np.zeros(len(rows), np.int64), columns) >> np.uint64(1)).tolist()
    return found


def record(rank: int, threshold: int) -> bytes:
    """Return the record of a value that is kept below a threshold."""
    return struct.pack("<dqqq", min(1.0, threshold / 2.0**63), rank, 0, 0)
