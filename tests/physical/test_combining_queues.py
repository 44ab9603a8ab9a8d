"""Expiration queues that add up rows: what is popped adds up to what was pushed, in few rows."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from penstock.physical.elements import int64s, unnamed
from penstock.physical.synopses.queues.expiration_queue import make_queue


def combine(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add up column 2 by columns 0 and 1, in the order of the first occurrence."""
    sums: dict[tuple[int, int], int] = {}
    for due, key, count in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        sums[due, key] = sums.get((due, key), 0) + count
    return unnamed(
        [pa.array(column, pa.int64()) for column in ([d for d, _ in sums], [k for _, k in sums], sums.values())]
    )


def batch(draw: random.Random, due: list[int]) -> pa.RecordBatch:
    keys, counts = [draw.randint(0, 5) for _ in due], [draw.randint(1, 3) for _ in due]
    return unnamed([pa.array(column, pa.int64()) for column in (due, keys, counts)])


def total(batches: list[pa.RecordBatch]) -> Counter[tuple[int, int]]:
    sums: Counter[tuple[int, int]] = Counter()
    for each in batches:
        for due, key, count in zip(*(column.to_pylist() for column in each.columns), strict=True):
            sums[due, key] += count
    return sums


@pytest.mark.spread(4)
@pytest.mark.parametrize("fifo", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_popped_is_what_was_pushed(fifo: bool, seed: int) -> None:
    draw = random.Random(seed)
    queue, pushed, now, latest = make_queue(fifo, False, combine), Counter[tuple[int, int]](), 0, 1
    for _ in range(60):
        latest += draw.choice([0, 0, 0, 1, 4])
        size = draw.choice([0, 1, 3, 30])
        if fifo:
            due = sorted(draw.randint(latest, latest + 2) for _ in range(size))
            latest = max([latest, *due])
        else:
            due = [draw.randint(now + 1, latest + 9) for _ in range(size)]
        rows = batch(draw, due)
        pushed += total([rows])
        queue.push(rows)
        if draw.random() < 0.2:
            manifest, chunks = queue.snapshot()
            queue = make_queue(fifo, False, combine)
            queue.restore(manifest, chunks)
        if draw.random() < 0.3:
            now = draw.randint(now, latest)
            popped = queue.pop_until(now)
            assert not fifo or all(np.all(np.diff(int64s(each.column(0))) >= 0) for each in popped)
            expired = Counter({key: n for key, n in pushed.items() if key[0] <= now})
            assert total(popped) == expired
            pushed -= expired
        latest = max(latest, now + 1)
    assert total(queue.contents()) == pushed


def test_a_pane_in_many_batches_takes_little_more_than_its_cells() -> None:
    queue, draw = make_queue(True, False, combine), random.Random(1)
    for pane in range(20):
        for _ in range(50):
            queue.push(batch(draw, [pane] * 7))
        # Of the pane that is being filled there are chunks of 6 rows at most, each four times as long as the next.
        assert queue.rows <= 6 * pane + 9
    assert queue.rows <= 6 * 19 + 9
