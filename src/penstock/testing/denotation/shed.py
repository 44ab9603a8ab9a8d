"""Load shedding by its definition: all arrivals of the relation, one after the other, every one scanning all held."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.shed import ENTRY_BYTES, Shed, bucket_budgets
from penstock.expressions.draws import draws
from penstock.expressions.value_sizes import value_bytes
from penstock.testing.denotation.base import Bag, Relation, World, denote, minus, relation
from penstock.testing.shedding import HeldTuple, NaiveShedding, salted
from penstock.testing.values import Row, key_of
from penstock.types import END


@denote.register
def _(node: Shed, world: World) -> Relation:
    below = relation(node.input, world)
    arrivals = _arrivals(node, below)
    budgets = bucket_budgets(node.budget, node.buckets)
    parts = [
        NaiveShedding(node.policy, b, node.least, node.ordered, node.compact, 0, node.sample / 1e6) for b in budgets
    ]
    lives: list[tuple[Row, int, int]] = []  # (row, from, until)
    held: dict[tuple[int, int], int] = {}  # (bucket, number of arrival) -> place in `lives`
    for ts, exp, rank, size, row in arrivals:
        bucket = salted(rank, 4) % node.buckets
        part = parts[bucket]
        number = part._arrived
        refused = rank >= part._threshold
        held[bucket, number] = len(lives)
        dropped: list[HeldTuple] = part.arrive(rank, (row[-2], row[-1]), ts, exp, weight=size)
        lives.append((row, ts, ts if refused else exp))
        for t in dropped:
            place = held[bucket, t.number]
            lives[place] = (lives[place][0], lives[place][1], ts)
    if node.compact:
        lives = _without_equals(node, arrivals, lives)
    instants = frozenset({ts for _, ts, _ in lives} | {end for _, _, end in lives if end < END})
    return Relation(instants, lambda tau: [row for row, start, end in lives if start <= tau < end])


def _without_equals(
    node: Shed, arrivals: list[tuple[int, int, int, int, Row]], lives: list[tuple[Row, int, int]]
) -> list[tuple[Row, int, int]]:
    """End an arrival that equals a tuple that is held with that tuple."""
    last: dict[object, int] = {}
    made = list(lives)
    for k, (ts, exp, _, _, row) in enumerate(arrivals):
        key = (key_of(row), exp)
        before = last.get(key)
        if before is not None and made[before][2] > ts:
            made[k] = (row, ts, made[before][2])
        else:
            last[key] = k
    return made


def _arrivals(node: Shed, below: Relation) -> list[tuple[int, int, int, int, Row]]:
    """Return (ts, expiration, rank of the value, weight, row) of every tuple of the relation, in order."""
    instants = sorted(below.instants)
    open_rows: list[tuple[int, Row]] = []
    found: list[tuple[int, int, Row]] = []
    before: Bag = []
    for tau in instants:
        now = below.at(tau)
        for row in minus(before, now):
            # Of equal rows the first leaves first: expirations of a window are in the order of arrival.
            place = next(k for k, (_, one) in enumerate(open_rows) if key_of(one) == key_of(row))
            start, one = open_rows.pop(place)
            found.append((start, tau, one))
        open_rows += [(tau, row) for row in minus(now, before)]
        before = now
    found += [(start, END, row) for start, row in open_rows]
    found = [one for one in found if _has_period(one[2])]
    columns = [pa.array([row[i] for _, _, row in found], node.schema.types[i]) for i in node.value]
    ranks = (draws(0, "", np.zeros(len(found), np.int64), columns) >> np.uint64(1)).astype(np.int64).tolist()
    sizes = value_bytes(columns, len(found)).tolist() if node.in_bytes else [0] * len(found)
    made = [
        (ts, exp, rank, ENTRY_BYTES + size if node.in_bytes else 1, row)
        for (ts, exp, row), rank, size in zip(found, ranks, sizes, strict=True)
    ]
    return sorted(made, key=lambda one: (one[0], one[4][-2], one[2], one[4][-1], one[1]))


def _has_period(row: Row) -> bool:
    return row[-2] is not None and row[-1] is not None and row[-2] < row[-1]
