"""State that must cost the same whatever it holds, against naive versions: whatever comes, goes or is reloaded."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from penstock.physical.elements import Elements
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.synopses.join_indexes.hash_index import HashJoinIndex
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue, FifoQueue
from penstock.physical.synopses.tables import appendable_columns as pieces_module
from penstock.physical.synopses.tables.appendable_columns import AppendableColumns
from penstock.physical.synopses.tables.keyed_table import KeyedTable

Row = tuple[int, int, int, int, int]  # key, value, ts, exp, sign


def elements(rows: list[Row]) -> Elements:
    key, value, ts, exp, sign = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    signs = None if (sign == 1).all() else sign
    return Elements((pa.array(key), pa.array(value).cast(pa.string())), ts, exp, signs)


def standing(rows: list[Row], key: int, low: int, high: int) -> Counter[tuple[int, str]]:
    """How often each tuple of `key` holds at each tick of [low, high)."""
    found: Counter[tuple[int, str]] = Counter()
    for other, value, ts, exp, sign in rows:
        if other == key:
            for tick in range(max(low, ts), min(high, exp)):
                found[tick, str(value)] += sign
    return Counter({k: n for k, n in found.items() if n})


def met(chains: HashJoinIndex, probes: list[Row], limit: int) -> list[Counter[tuple[int, str]]]:
    asking = elements(probes)
    first, second = fingerprints(asking.columns[:1], len(asking))
    found: list[Counter[tuple[int, str]]] = [Counter() for _ in probes]
    for which, held in chains.meet(asking, first, second, limit):
        assert len(which) == len(held) <= limit
        values, signs = held.columns[1].to_pylist(), held.signs.tolist()
        for row, i in enumerate(which.tolist()):
            assert held.columns[0][row].as_py() == probes[i][0]
            ticks = range(max(probes[i][2], int(held.ts[row])), min(probes[i][3], int(held.exp[row])))
            assert len(ticks) > 0
            for tick in ticks:
                found[i][tick, values[row]] += signs[row]
    return [Counter({k: n for k, n in counts.items() if n}) for counts in found]


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", ["window", "any ends", "strict", "listed"])
@pytest.mark.parametrize("seed", range(6))
def test_chains_find_what_overlaps(kind: str, seed: int) -> None:
    draw = random.Random(seed)
    chains = HashJoinIndex((0,), kind == "strict", kind == "listed")
    every: list[Row] = []
    open_ones: list[Row] = []
    now = 0
    for _ in range(draw.randint(20, 60)):
        fresh: list[Row] = []
        for _ in range(draw.choice([0, 1, 3, 40])):
            ts = now + draw.randint(0, 3)
            length = 12 if kind == "window" else draw.randint(1, 25)
            fresh.append((draw.randint(0, draw.choice([0, 8])), draw.randint(0, 2), ts, ts + length, 1))
        if kind == "strict":
            open_ones = [row for row in open_ones if row[3] > now + 4]
            draw.shuffle(open_ones)
            for _ in range(draw.randint(0, len(open_ones))):
                key, value, ts, exp, _ = open_ones.pop()
                fresh.append((key, value, max(ts, now + draw.randint(0, 3)), exp, -1))
            open_ones += [row for row in fresh if row[4] == 1]
        every += fresh
        if fresh:
            chains.add(elements(fresh))
        now += draw.randint(0, 6)
        chains.expire(now - 1)
        probes = [(draw.randint(0, 9), 0, low, low + draw.choice([1, 20]), 1) for low in range(now, now + 4)]
        expected = [standing(every, key, low, high) for key, _, low, high, _ in probes]
        assert met(chains, probes, draw.choice([1, 1 << 18])) == expected
        live = sum(exp > now for *_, exp, _ in every)
        if kind != "strict":
            assert live <= chains.rows <= (live if kind == "listed" else 4 * live + 100)
        if draw.random() < 0.1:
            manifest, chunks = chains.snapshot()
            chains = HashJoinIndex((0,), kind == "strict", kind == "listed")
            chains.restore(manifest, chunks)
    chains.expire(now + 100)
    assert chains.rows == 0


def test_negative_tuples_leave_nothing_behind() -> None:
    chains = HashJoinIndex((0,), strict=True)
    for tick in range(0, 2000, 2):
        chains.add(elements([(tick % 7, 0, tick, 10**9, 1)] + ([((tick - 2) % 7, 0, tick, 10**9, -1)] if tick else [])))
        chains.expire(tick)
    assert chains.rows < 200


@pytest.mark.parametrize("fifo", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_queues_give_what_is_due(fifo: bool, seed: int) -> None:
    draw = random.Random(seed)
    queue: FifoQueue | CalendarQueue = FifoQueue() if fifo else CalendarQueue()
    held: list[tuple[int, int]] = []
    time = number = 0
    for _ in range(150):
        size = draw.choice([0, 1, 5, 3000 if draw.random() < 0.1 else 2])
        due = [time + 1 + (number + i if fifo else draw.randint(0, 500)) for i in range(size)]
        if fifo and held:
            due = [max(d, held[-1][0]) for d in due]
        rows = list(zip(due, range(number, number + size), strict=True))
        number += size
        queue.push(
            pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in (due, [n for _, n in rows])], ["d", "n"])
        )
        held += rows
        time += draw.choice([0, 1, 30])
        popped = [row for b in queue.pop_until(time) for row in zip(*(c.to_pylist() for c in b.columns), strict=True)]
        # Of those due at once, those that came first are first.
        assert sorted(popped, key=lambda row: row[0]) == sorted(row for row in held if row[0] <= time)
        held = [row for row in held if row[0] > time]
        assert queue.rows == len(held)
        if draw.random() < 0.1:
            manifest, chunks = queue.snapshot()
            queue = FifoQueue() if fifo else CalendarQueue()
            queue.restore(manifest, chunks)
    assert len(queue.snapshot()[1]) < 60


def test_pieces_are_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "_SHORT", 16)
    draw = random.Random(3)
    pieces, values = AppendableColumns([pa.int32(), pa.string()]), []
    for _ in range(300):
        fresh = [draw.randint(0, 99) for _ in range(draw.choice([1, 1, 7, 200]))]
        values += fresh
        pieces.append([pa.array(fresh, pa.int32()), pa.array([str(v) for v in fresh])])
        rows = [draw.randint(-1, len(values) - 1) for _ in range(draw.choice([0, 1, 50]))]
        numbers, texts = pieces.take(np.array(rows, np.int64))
        assert numbers.to_pylist() == [None if row < 0 else values[row] for row in rows]
        assert texts.to_pylist() == [None if row < 0 else str(values[row]) for row in rows]
        since = draw.randint(0, len(values) - 1)
        assert pieces.since(since)[0].to_pylist() == values[since:]


@pytest.mark.parametrize("seed", range(4))
def test_tables_know_their_live_slots_and_their_ends(seed: int) -> None:
    draw = np.random.default_rng(seed)
    table = KeyedTable(2, 0, [pa.int64()])
    due, until = ExpirationIndex(table, 1), dict[int, int]()
    for now in range(0, 400, 5):
        keys = pa.array(np.unique(draw.integers(0, 600, draw.choice([1, 60]))))
        slots = table.slots(*fingerprints([keys], len(keys)), [keys])
        dead = slots[table.integers[0, slots] == 0]
        ends = np.maximum(
            now + draw.integers(1, 40, len(slots)), np.where(np.isin(slots, dead), 0, table.integers[1, slots])
        )
        table.integers[0, slots], table.integers[1, slots] = 1, ends
        table.touch(slots)
        due.put(dead)
        until |= dict(zip(keys.to_pylist(), ends.tolist(), strict=True))
        ended = due.until(now)
        assert sorted(table.key_columns(ended)[0].to_pylist()) == sorted(k for k, end in until.items() if end <= now)
        until = {k: end for k, end in until.items() if end > now}
        table.integers[0, ended] = 0
        table.touch(ended)
        assert table.rows == len(until) == len(table.live())
        table.shrink()
        assert table.count <= max(64, 2 * len(until))
        if draw.random() < 0.1:
            manifest, chunks = table.snapshot()
            table = KeyedTable(2, 0, [pa.int64()])
            table.restore(manifest, chunks)
            due = ExpirationIndex(table, 1)
    assert table.count > 0
