"""Budgets of whole stretches and sessions by their definition: every arrival examines all open ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.shed import ENTRY_BYTES, StretchBudget, bucket_budgets
from penstock.expressions.draws import draws
from penstock.expressions.value_sizes import value_bytes
from penstock.testing.approximation.shedding import salted
from penstock.testing.scalars.values import Row
from penstock.types import END

T = TypeVar("T")
Fall = tuple[int, int, int]
"""(instant, bucket, the hash from which on its values are refused)"""


@dataclass
class OpenStretch(Generic[T]):
    """The open stretch of a value. until: the instant at which it is dropped; emitted_below: the threshold at which it
    was emitted."""

    rank: int
    begin: int
    end: int
    weight: int
    members: list[T] = field(default_factory=list)
    until: int = END
    emitted_below: int = 2**63


@dataclass(frozen=True)
class StretchArrival(Generic[T]):
    """An element with the period [ts, end) or, of a stretch, [begin, end); rank: a hash of its value."""

    rank: int
    ts: int
    begin: int
    end: int
    weight: int
    member: T


def stretches_within(
    arrivals: list[StretchArrival[T]], budget: StretchBudget, closes: Callable[[int], int], at_most: int | None = None
) -> tuple[list[OpenStretch[T]], list[Fall]]:
    """Return the stretches that were held, some of them until they were dropped, and how thresholds fall.

    Args:
        budget: counts stretches, or under `compact 'false'` their elements.
        closes: returns the instant at which a stretch that ends at a tick is closed.
        at_most: how long a stretch may be.
    """
    budgets, bucket_of = buckets_of(budget)
    held: list[OpenStretch[T]] = []
    open_: list[OpenStretch[T]] = []
    falls: list[Fall] = []
    refused_from = [2**63] * len(budgets)

    def close(stretches: list[OpenStretch[T]]) -> None:
        for s in stretches:
            s.emitted_below = refused_from[bucket_of(s.rank)]
            held.append(s)

    for one in sorted(arrivals, key=lambda a: (a.ts, a.begin, a.rank, a.end)):
        close([s for s in open_ if closes(s.end) < one.ts])
        open_ = [s for s in open_ if closes(s.end) >= one.ts]
        bucket = bucket_of(one.rank)
        if one.rank < refused_from[bucket]:
            own = next((s for s in open_ if s.rank == one.rank), None)
            if own is not None and (one.begin > own.end or (at_most is not None and one.begin >= own.begin + at_most)):
                close([own])
                open_.remove(own)
                own = None
            if own is None:
                own = OpenStretch(one.rank, one.begin, one.begin, one.weight)
                open_.append(own)
            elif not budget.compact:
                own.weight += one.weight
            own.end = max(own.end, one.end)
            if at_most is not None:
                own.end = min(own.end, own.begin + at_most)
            own.members.append(one.member)
        while sum(s.weight for s in open_ if bucket_of(s.rank) == bucket) > budgets[bucket]:
            refused_from[bucket] = max(s.rank for s in open_ if bucket_of(s.rank) == bucket)
            falls.append((one.ts, bucket, refused_from[bucket]))
            for going in [s for s in open_ if s.rank == refused_from[bucket]]:
                going.until = one.ts
                held.append(going)
                open_.remove(going)
    close(open_)
    return held, falls


def kept_stretches(
    arrivals: list[StretchArrival[T]], budget: StretchBudget, closes: Callable[[int], int], at_most: int | None = None
) -> list[OpenStretch[T]]:
    """Return the stretches that are emitted at their end: those that were not dropped before."""
    return [one for one in stretches_within(arrivals, budget, closes, at_most)[0] if one.until == END]


@dataclass
class HeldGranule(Generic[T]):
    """A granule of a value that is held, the period [end - slide, end), until it leaves or is dropped."""

    rank: int
    end: int
    weight: int
    member: T
    until: int


def held_granules(
    arrivals: list[StretchArrival[T]],
    budgets: list[int],
    bucket_of: Callable[[int], int],
    slide: int,
    length: int,
    least: int,
) -> tuple[list[HeldGranule[T]], list[Fall]]:
    """Return the granules that are held for a while, where entries are runs of granules of one value, and how
    thresholds fall.

    Args:
        slide, length: of a granule, and of the window.
        least: runs that have ended and are shorter go first, then whole values.
    """
    falls: list[Fall] = []
    every: list[HeldGranule[T]] = []
    refused_from = [2**63] * len(budgets)
    for one in sorted(arrivals, key=lambda a: (a.ts, a.rank)):
        at, bucket = one.ts, bucket_of(one.rank)
        held = [g for g in every if g.until > at and bucket_of(g.rank) == bucket]
        if one.rank < refused_from[bucket] and not any((g.rank, g.end) == (one.rank, at) for g in held):
            held.append(HeldGranule(one.rank, at, one.weight, one.member, at + length))
            every.append(held[-1])
        while sum(run[0].weight for run in _runs(held, slide)) > budgets[bucket]:
            ended = [run for run in _runs(held, slide) if run[-1].end < at - slide and slide * len(run) < least]
            going = min(ended, key=lambda run: (run[-1].end, run[-1].rank), default=[])
            if not going:
                refused_from[bucket] = max(g.rank for g in held)
                falls.append((at, bucket, refused_from[bucket]))
                going = [g for g in held if g.rank == refused_from[bucket]]
            for g in going:
                g.until = at
            held = [g for g in held if g.until > at]
    return every, falls


def _runs(held: list[HeldGranule[T]], slide: int) -> list[list[HeldGranule[T]]]:
    runs: list[list[HeldGranule[T]]] = []
    for g in sorted(held, key=lambda g: (g.rank, g.end)):
        if runs and (runs[-1][-1].rank, runs[-1][-1].end) == (g.rank, g.end - slide):
            runs[-1].append(g)
        else:
            runs.append([g])
    return runs


def weighed(
    found: list[tuple[int, int, Row]], value: Sequence[int], types: Sequence[pa.DataType], in_bytes: bool
) -> list[StretchArrival[Row]]:
    """Return tuples (ts, expiration, row) as arrivals of stretches, those without a period left out. value: the
    columns that are equal in a stretch; types: of all columns."""
    found = [one for one in found if has_period(one[2])]
    columns = [pa.array([row[i] for *_, row in found], types[i]) for i in value]
    ranks = (draws(0, "", np.zeros(len(found), np.int64), columns) >> np.uint64(1)).astype(np.int64).tolist()
    sizes = value_bytes(columns, len(found)).tolist() if in_bytes else [0] * len(found)
    return [
        StretchArrival(rank, ts, row[-2], row[-1], ENTRY_BYTES + size if in_bytes else 1, row)
        for (ts, _, row), rank, size in zip(found, ranks, sizes, strict=True)
    ]


def buckets_of(budget: StretchBudget) -> tuple[list[int], Callable[[int], int]]:
    """Return the budgets of the buckets, and which one a hash belongs to."""
    return bucket_budgets(budget.budget, budget.buckets), lambda rank: salted(rank, 4) % budget.buckets


def has_period(row: Row) -> bool:
    """Return whether the last two columns of a row are a period."""
    return row[-2] is not None and row[-1] is not None and row[-2] < row[-1]
