"""Load shedding by its definition: all arrivals of the relation, one after the other, every one scanning all held."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.algebra import Algebra, Project, RowWindow, Sample, Select, StreamScan, Window
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.shed import ENTRY_BYTES, Shed, bucket_budgets
from penstock.expressions.draws import draws
from penstock.expressions.value_sizes import value_bytes
from penstock.testing.approximation.shedding import HeldTuple, NaiveShedding, salted
from penstock.testing.approximation.whole_stretches import Fall, has_period
from penstock.testing.definitions.base import Bag, Relation, World, denote, minus, relation, values_of
from penstock.testing.definitions.nonretroactive import elements
from penstock.testing.definitions.rowwindow import as_arrived
from penstock.testing.scalars.values import Row, key_of
from penstock.types import END


@denote.register
def _(node: Shed, world: World) -> Relation:
    lives, _ = held_lives(node, world)
    instants = frozenset({ts for _, ts, _ in lives} | {end for _, _, end in lives if end < END})
    return Relation(instants, lambda tau: [row for row, start, end in lives if start <= tau < end])


def held_lives(node: Shed, world: World) -> tuple[list[tuple[Row, int, int]], list[Fall]]:
    """Return the tuples held, each from when until when, and how thresholds fall."""
    falls: list[Fall] = []
    arrivals = _arrivals(node, world)
    budgets = bucket_budgets(node.budget, node.buckets)
    parts = [
        NaiveShedding(node.policy, b, node.least, node.ordered, node.compact, 0, node.sample / 1e6) for b in budgets
    ]
    lives: list[tuple[Row, int, int]] = []  # (row, from, until)
    held: dict[tuple[int, int], int] = {}  # (bucket, number of arrival) -> place in `lives`
    for ts, exp, rank, size, row, clock, expires in arrivals:
        bucket = salted(rank, 4) % node.buckets
        part = parts[bucket]
        before = part.refuses_from
        dropped: list[HeldTuple] = part.arrive(rank, (row[-2], row[-1]), ts, expires, clock, size)
        if part.refuses_from < before:
            falls.append((ts, bucket, part.refuses_from))
        for t in dropped:
            if t is not part.last:
                place = held[bucket, t.number]
                lives[place] = (lives[place][0], lives[place][1], ts)
        if part.last in part.held:
            held[bucket, part.last.number] = len(lives)
            lives.append((row, ts, exp))
    return lives, falls


def lives(node: Algebra, world: World) -> list[tuple[int, int, Row]]:
    """Return (start, end, row) of every tuple of a relation."""
    if any(isinstance(one, Window) for one in operators(node)) and all(
        isinstance(one, Window | Project | Select | Sample | StreamScan) for one in operators(node)
    ):
        return [(start, end, row) for _, (start, end), row in elements(node, world) if start < end]
    return _differences(relation(node, world))


def _arrivals(node: Shed, world: World) -> list[tuple[int, int, int, int, Row, int, int]]:
    """Return (ts, expiration, rank of the value, weight, row) of every tuple of the relation, in order, and on the
    clock of the window the time of the arrival and its expiration."""
    if node.row_window is not None:
        numbered = _numbered(node.input, world)
        found = [(ts, exp, row) for _, ts, exp, row in numbered if has_period(row)]
        numbers = [number for number, _, _, row in numbered if has_period(row)]
    else:
        found = [one for one in lives(node.input, world) if has_period(one[2])]
        numbers = []
    columns = [pa.array([row[i] for _, _, row in found], node.schema.types[i]) for i in node.value]
    ranks = (draws(0, "", np.zeros(len(found), np.int64), columns) >> np.uint64(1)).astype(np.int64).tolist()
    sizes = value_bytes(columns, len(found)).tolist() if node.in_bytes else [0] * len(found)
    weights = [ENTRY_BYTES + size if node.in_bytes else 1 for size in sizes]
    if node.row_window is not None:
        rows = node.row_window.rows or 0
        every = zip(found, ranks, weights, numbers, strict=True)
        return [(ts, exp, rank, weight, row, n, n + rows) for (ts, exp, row), rank, weight, n in every]
    made = [
        (ts, exp, rank, weight, row, ts, exp)
        for (ts, exp, row), rank, weight in zip(found, ranks, weights, strict=True)
    ]
    return sorted(made, key=lambda one: (one[0], one[4][-2], one[2], one[4][-1], one[1]))


def _numbered(node: Algebra, world: World) -> list[tuple[int, int, int, Row]]:
    """Return (number of arrival, start, end, row) of the rows of a window that counts them, selected and computed."""
    if isinstance(node, RowWindow):
        arrived = as_arrived(node.input, world)
        ends = [ts for ts, _ in arrived[node.rows :]] + [END] * (node.rows or 0)
        return [(n, ts, end, row) for n, ((ts, row), end) in enumerate(zip(arrived, ends, strict=False), 1)]
    assert isinstance(node, Select | Project)
    below = _numbered(node.input, world)
    rows = [row for *_, row in below]
    if isinstance(node, Select):
        kept = values_of(node.predicate, rows)
        return [one for one, keep in zip(below, kept, strict=True) if keep is True]
    columns = [values_of(expression, rows) for expression in node.expressions]
    made = list(zip(*columns, strict=True)) if columns else [()] * len(rows)
    return [(n, ts, end, row) for (n, ts, end, _), row in zip(below, made, strict=True)]


def _differences(below: Relation) -> list[tuple[int, int, Row]]:
    """Return the lives by what differs from instant to instant: of equal rows the first leaves first."""
    instants = sorted(below.instants)
    open_rows: list[tuple[int, Row]] = []
    found: list[tuple[int, int, Row]] = []
    before: Bag = []
    for tau in instants:
        now = below.at(tau)
        for row in minus(before, now):
            place = next(k for k, (_, one) in enumerate(open_rows) if key_of(one) == key_of(row))
            start, one = open_rows.pop(place)
            found.append((start, tau, one))
        open_rows += [(tau, row) for row in minus(now, before)]
        before = now
    found += [(start, END, row) for start, row in open_rows]
    return found
