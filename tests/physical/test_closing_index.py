"""The index of closings finds what the definition does, however its elements are cut [docs/promises.md]."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.properties.promises import Clustered, Ordered, Within
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.synopses.promises.closing_index import ClusteredIndex, OrderedIndex, closing_index
from penstock.physical.synopses.promises.element_counts import ElementCounts
from penstock.testing.promises.closings import cluster_closings, order_closing, whole
from penstock.testing.scalars.values import Row
from penstock.types import BEGIN, END

Rows = list[tuple[int, Row]]
Index = ClusteredIndex | OrderedIndex
#: Values of one column, by type.
VALUES: dict[pa.DataType, Sequence[Any]] = {
    pa.int64(): (1, 2, 3, -(2**63), 2**63 - 1, None),
    pa.float64(): (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, None),
    pa.string(): ("", "a", "aaaaaaaaaaaa", "aaaaaaaaaaab", "é", None),
    pa.decimal128(30, 2): (Decimal("0.01"), Decimal(-5), Decimal("12345678901234567890.12"), None),
    pa.bool_(): (True, False, None),
}
WITHIN = (
    *(Within(rows) for rows in (0, 0, 1, 2, 3, 6, 40, 2**60 - 1)),
    *(Within(None, ticks) for ticks in (0, 0, 1, 3, 40, 2**60 - 1)),
)


def _drawn(random: Random, most: int) -> tuple[Rows, list[pa.DataType]]:
    """Return rows of up to `most` columns, some at one instant, and the types of their columns."""
    types = random.sample(list(VALUES), random.randrange(1, most + 1))
    span = random.choice((3, 12, 30))
    times = sorted(random.randrange(span) for _ in range(random.randrange(0, 25)))
    return [(ts, tuple(random.choice(VALUES[kind]) for kind in types)) for ts in times], types


def _rounds(rows: Rows, random: Random) -> Iterator[tuple[int, Rows]]:
    """Yield (heartbeat, the rows that it has reached), rows of one instant in any order; then it goes on."""
    left, heartbeat = list(rows), -1
    while left:
        heartbeat += random.choice((0, 1, 1, 2, 5))
        reached = [row for row in left if row[0] <= heartbeat]
        left = [row for row in left if row[0] > heartbeat]
        yield heartbeat, random.sample(reached, len(reached))
    yield heartbeat + 50, []


def _columns(rows: Sequence[Row], types: Sequence[pa.DataType]) -> list[pa.Array]:
    return [pa.array([row[c] for row in rows], kind) for c, kind in enumerate(types)]


class _Shard:
    """An index with its N, whose state may be written and read back before a round."""

    def __init__(self, promise: Clustered | Ordered, types: Sequence[pa.DataType]) -> None:
        self._promise, self._types = promise, types
        self.index, self.counts = closing_index(promise, types), ElementCounts()
        self._values: dict[tuple[int, int], Row] = {}

    def reload(self) -> None:
        index, counts = closing_index(self._promise, self._types), ElementCounts()
        index.restore(*self.index.snapshot())
        counts.restore(*self.counts.snapshot())
        assert index.rows == self.index.rows
        self.index, self.counts = index, counts

    def advance(self, heartbeat: int, rows: Rows, every: Rows) -> list[tuple[Row, int]]:
        """Return the closings of a round of which `rows` are in this shard."""
        self.counts.advance(np.array([ts for ts, _ in every], np.int64))
        ts = np.array([at for at, _ in rows], np.int64)
        columns = _columns([row for _, row in rows], self._types)
        first, second = fingerprints(columns, len(rows))
        self._values |= dict(
            zip(zip(first.tolist(), second.tolist(), strict=True), (row for _, row in rows), strict=True)
        )
        self.index.advance(heartbeat, columns, ts, self.counts)
        if not isinstance(self.index, ClusteredIndex):
            return []
        found = self.index.closings
        assert found.instants.tolist() == sorted(found.instants)
        values = [self._values[key] for key in zip(found.first.tolist(), found.second.tolist(), strict=True)]
        return list(
            zip((whole(value, range(len(value))) or () for value in values), found.instants.tolist(), strict=True)
        )

    def asked(self, rows: Rows) -> tuple[list[int], list[int]]:
        """Return the first closing of each row's value from it on, and since when it was open."""
        columns, ts = _columns([row for _, row in rows], self._types), np.array([at for at, _ in rows], np.int64)
        return self.index.until(columns, ts).tolist(), self.index.since(columns, ts).tolist()


@pytest.mark.parametrize("seed", range(200))
def test_clusters_are_closed_as_defined(seed: int) -> None:
    random = Random(seed)
    rows, types = _drawn(random, 2)
    places = tuple(range(len(types)))
    promise = Clustered(places, random.choice(WITHIN))
    defined = cluster_closings(promise, rows)
    shards = [_Shard(promise, types) for _ in range(random.randrange(1, 4))]
    shard_of: dict[Row | None, int] = {}
    closed: list[tuple[Row, int]] = []
    labels: dict[tuple[Row, int], set[int]] = {}
    for heartbeat, reached in _rounds(rows, random):
        for number, shard in enumerate(shards):
            if random.random() < 0.3:
                shard.reload()
            own = [
                row
                for row in reached
                if shard_of.setdefault(whole(row[1], places), random.randrange(len(shards))) == number
            ]
            closed += shard.advance(heartbeat, own, reached)
            for (ts, row), until, since in zip(own, *shard.asked(own), strict=True):
                value = whole(row, places)
                instants = [] if value is None else defined.get(value, [])
                expected = next((t for t in instants if ts <= t <= heartbeat), END)
                assert until == expected
                if value is None:
                    assert since == BEGIN
                else:
                    labels.setdefault((value, sum(t < ts for t in instants)), set()).add(since)
            open_values = {whole(row, places) for ts, row in rows if ts <= heartbeat} - {None}
            still = {v for v in open_values if v and _is_open(v, heartbeat, rows, places, defined)}
        assert sum(shard.index.rows for shard in shards) == len(still)
    every = [(value, t) for value, instants in defined.items() for t in instants if t <= heartbeat]
    assert sorted(closed, key=repr) == sorted(every, key=repr)
    # One label a time in which a value was open, and different ones.
    assert all(len(one) == 1 for one in labels.values())
    by_value = [(value, next(iter(one))) for (value, _), one in labels.items()]
    assert len(set(by_value)) == len(by_value)


def _is_open(value: Row, instant: int, rows: Rows, places: Sequence[int], closed: Any) -> bool:
    last = max(ts for ts, row in rows if ts <= instant and whole(row, places) == value)
    return not any(last <= t <= instant for t in closed.get(value, ()))


@pytest.mark.parametrize("seed", range(200))
def test_orders_are_closed_as_defined(seed: int) -> None:
    random = Random(seed)
    rows, types = _drawn(random, 1)
    promise = Ordered((0,), random.random() < 0.4, random.choice(WITHIN))
    shard = _Shard(promise, types)
    values = [(value,) for value in VALUES[types[0]]]
    defined = {value: None if whole(value, (0,)) is None else order_closing(promise, rows, value) for value in values}
    before = -1
    labels: dict[tuple[Any, int], set[int]] = {}
    for heartbeat, reached in _rounds(rows, random):
        if random.random() < 0.3:
            shard.reload()
        shard.advance(heartbeat, reached, reached)
        asked = [(ts, value) for value in values for ts in range(before + 1, heartbeat + 1)]
        for (ts, value), until, since in zip(asked, *shard.asked(asked), strict=True):
            at = defined[value]
            assert until == (END if at is None or at > heartbeat else max(at, ts))
            labels.setdefault((repr(value), 0 if at is None or at >= ts else ts), set()).add(since)
        before = heartbeat
    assert all(len(one) == 1 for one in labels.values())


def test_what_is_kept_follows_from_what_is_open() -> None:
    shard = _Shard(Clustered((0,), Within(10)), [pa.int64()])
    for i in range(300):
        rows: Rows = [(i, (i + k,)) for k in range(5)]
        shard.advance(i, rows, rows)
        shard.index.snapshot()
        assert shard.index.rows <= 20
    assert shard.index.nbytes < 20_000


def test_an_order_keeps_what_will_raise_the_bound() -> None:
    shard = _Shard(Ordered((0,), False, Within(1000)), [pa.int64()])
    for i in range(1000):
        rows: Rows = [(i, (value,)) for value in (i // 100, 0)]
        shard.advance(i, rows, rows)
    assert shard.index.rows <= 10


def test_nothing_new_is_written_of_an_order_that_stands() -> None:
    index, counts = OrderedIndex(Ordered((0,)), pa.int64()), ElementCounts()
    one = pa.array([5], pa.int64())
    index.advance(1, [one], np.array([1]), counts)
    first = index.snapshot()
    index.advance(2, [one], np.array([2]), counts)
    assert list(index.snapshot()[1]) == list(first[1])
