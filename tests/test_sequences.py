"""The synopsis of row windows against a naive one: whatever is held, ended, rewritten or restored."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.physical.synopses.queues import chunk_log
from penstock.physical.synopses.windows import row_window as sequences
from penstock.physical.synopses.windows.row_window import RowWindowBuffer, WindowRows
from penstock.types import END

TYPES = (pa.int64(), pa.string())
#: rows, SLIDE in rows, RANGE
WINDOWS = [(1, 1, None), (3, 1, None), (3, 1, 5), (2, 3, None), (4, 3, 6), (1, 5, None), (50, 1, None), (50, 7, 40)]


def shown(rows: WindowRows) -> list[tuple[Any, ...]]:
    values = zip(*(c.to_pylist() for c in rows.columns), strict=True)
    return sorted(zip(values, rows.ts.tolist(), rows.start.tolist(), rows.end.tolist(), strict=True), key=repr)


class Naive:
    """All rows ever, by partition."""

    def __init__(self, rows: int, step: int) -> None:
        self.rows, self.step = rows, step
        self.members: dict[Any, list[tuple[Any, int]]] = {}

    def interval(self, member: list[tuple[Any, int]], place: int) -> tuple[int, int]:
        ticks = []
        for number in (place + 1, place + 1 + self.rows):
            number = -(-number // self.step) * self.step
            ticks.append(member[number - 1][1] if number <= len(member) else END)
        return ticks[0], ticks[1]

    def arrive(self, keys: list[Any], rows: list[tuple[Any, ...]], ts: list[int]) -> tuple[list[Any], list[Any]]:
        before = {(k, i): self.interval(m, i) for k, m in self.members.items() for i in range(len(m))}
        for key, row, tick in zip(keys, rows, ts, strict=True):
            self.members.setdefault(key, []).append((row, tick))
        came, went = [], []
        for key, member in self.members.items():
            for place, (row, tick) in enumerate(member):
                start, end = self.interval(member, place)
                old = before.get((key, place), (END, END))
                if old[0] == END and start < END:
                    came.append((row, tick, start, end))
                elif old[1] == END and end < END:
                    went.append((row, tick, end))
        return sorted(came, key=repr), sorted(went, key=repr)


@pytest.mark.spread(2)
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(("rows", "step", "length"), WINDOWS)
def test_like_the_naive_one(
    rows: int, step: int, length: int | None, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "_FEWEST_DEAD", 16)
    monkeypatch.setattr(chunk_log, "LARGEST", 64)
    draw = random.Random(rows * 100 + step)
    key = (0,) if partitioned else ()
    held, naive, tick, number = RowWindowBuffer(TYPES, key, rows, step, length), Naive(rows, step), 0, 0
    for _ in range(150):
        size = draw.choice([1, 1, 2, 5, 30])
        given = [(draw.choice([1, 2, 3, None]) if number % 7 else number, f"r{number + i}") for i in range(size)]
        number += size
        ticks = []
        for _ in range(size):
            tick += draw.choice([0, 0, 1, 3])
            ticks.append(tick)
        columns = [pa.array(list(c), t) for c, t in zip(zip(*given, strict=True), TYPES, strict=True)]
        came, went = held.arrive(columns, np.array(ticks, np.int64))
        wanted = naive.arrive([r[0] if partitioned else () for r in given], given, ticks)
        told = (shown(came), [(r[0], r[1], r[3]) for r in shown(went)])
        if length is not None:  # rows that RANGE has ended may be forgotten before others end them
            alive = tick - length
            told = ([r for r in told[0] if r[1] > alive], [r for r in told[1] if r[1] > alive])
            wanted = ([r for r in wanted[0] if r[1] > alive], [r for r in wanted[1] if r[1] > alive])
        assert told == wanted
        held.expire(tick)
        tick += 1
        if draw.random() < 0.3:
            fresh = RowWindowBuffer(TYPES, key, rows, step, length)
            fresh.restore(*held.snapshot())
            assert fresh.rows == held.rows
            held = fresh
    bound = 4 * rows if not partitioned else 4 * rows * len(naive.members)
    assert sum(batch.num_rows for batch in held.snapshot()[1].values()) <= max(64, 4 * step) + 2 * bound


def test_a_snapshot_keeps_what_was_written() -> None:
    held = RowWindowBuffer(TYPES, (0,), 1000)
    before: dict[int, pa.RecordBatch] = {}
    written = 0
    for number in range(200):
        columns = [pa.array([number % 5] * 10, pa.int64()), pa.array(["x"] * 10)]
        held.arrive(columns, np.full(10, number, np.int64))
        chunks = dict(held.snapshot()[1])
        written += sum(batch.num_rows for i, batch in chunks.items() if i not in before)
        assert all(chunks[i].equals(batch) for i, batch in before.items() if i in chunks)
        before = chunks
    assert written < 5 * 2000
    assert len(before) < 30


def test_state_does_not_grow_with_partitions_that_are_over() -> None:
    """With a RANGE, partitions that are seen once only leave nothing behind."""
    held = RowWindowBuffer(TYPES, (0,), 5, 1, 10)
    for tick in range(300):
        ids = np.arange(100) + tick * 100
        held.arrive([pa.array(ids), pa.array(["x"] * 100)], np.full(100, tick, np.int64))
        held.expire(tick)
    assert held.nbytes < 2_000_000
    assert sum(batch.num_rows for batch in held.snapshot()[1].values()) < 10_000
