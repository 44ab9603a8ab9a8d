"""The inclusion records of what a budget keeps by the hashes of values (`algebra/nodes/stretch_chances.py`)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra import Coalesce, Gaps, SessionWindow, Shed, StretchChances
from penstock.expressions.draws import draws
from penstock.testing.approximation.shedding import salted
from penstock.testing.approximation.whole_stretches import Fall
from penstock.testing.denotation.base import Bag, Relation, World, denote, relation, windowed
from penstock.testing.denotation.coalesce import closed_stretches, granules_held
from penstock.testing.denotation.sessions import held_sessions
from penstock.testing.denotation.shed import held_lives
from penstock.testing.values import Row
from penstock.types import END


@denote.register
def _(node: StretchChances, world: World) -> Relation:
    drawn = node.input
    if isinstance(drawn, SessionWindow) and node.once:
        kept = [s for s in held_sessions(drawn, world)[0] if s.until == END]
        return windowed([
            (row[-2], (s.end, s.end + 1), (*row[:-3], s.begin, s.end, record(s.rank, s.told_below)))
            for s in kept for row in s.members
        ])  # fmt: skip
    if isinstance(drawn, Coalesce) and node.once:
        told = closed_stretches(drawn, world)
        return windowed([(0, life, (*row, record(s.rank, s.told_below))) for life, row, s in told])
    below, falls = relation(drawn, world), _falls(node, world)

    def at(tau: int) -> Bag:
        rows = below.at(tau)
        thresholds = [min([t for ts, b, t in falls if b == bucket and ts <= tau], default=2**63)
                      for bucket in range(node.buckets)]  # fmt: skip
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
