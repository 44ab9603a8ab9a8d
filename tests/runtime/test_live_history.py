"""What a live system keeps of the past: folded updates give the relation that all of them give."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra import Scan, leaves
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import LastRows, Need
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.progress import SourceProgress
from penstock.runtime.live.history import History, folded
from penstock.testing.definitions import content
from penstock.testing.scalars.values import Row, key_of

RELATIONS = {
    "updates": "CREATE RELATION U (ts INT, op STRING, k INT) FROM MEMORY () TIMESTAMP BY ts OPERATION BY op",
    "inserts": "CREATE RELATION U (ts INT, op STRING, k INT) FROM MEMORY () TIMESTAMP BY ts",
    "keys": "CREATE RELATION U (ts INT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts "
    "OPERATION BY op",
    "newest": "CREATE RELATION U (ts INT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts",
    "nrr": "CREATE NON RETROACTIVE RELATION U (ts INT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM MEMORY () "
    "TIMESTAMP BY ts OPERATION BY op",
}


def source_of(declaration: str) -> Source:
    stream = "CREATE STREAM A (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts"
    query = "CREATE QUERY q AS SELECT A.k FROM A [NOW], U WHERE A.k = U.k"
    (bound,) = bind_script(f"{declaration}; {stream}; {query};").queries
    sources = (leaf.source for leaf in leaves(bound.root) if isinstance(leaf, Scan))
    return next(source for source in sources if source.name == "U")


def elements_of(source: Source, rows: list[Row]) -> Elements:
    columns = tuple(range(len(source.columns)))
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(source.columns)]
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in columns])
    return stamp(source, batch, read_columns(source, columns), columns, SourceProgress()).elements


def relation(source: Source, updates: Elements) -> Counter[Row]:
    rows = list(zip(*(column.to_pylist() for column in updates.columns), strict=True))
    order = np.argsort(updates.ts, kind="stable")
    held, _ = content(source, [rows[i] for i in order])
    return Counter(map(key_of, held))


@pytest.mark.parametrize("kind", RELATIONS)
def test_folded_updates_give_the_same_relation(kind: str) -> None:
    source = source_of(RELATIONS[kind])
    fewer = 0
    for seed in range(60):
        draw = random.Random(seed)
        wide = len(source.columns) == 4
        rows: list[Row] = [
            (ts, draw.choice("+++--"), draw.randint(0, 4), *([draw.randint(0, 9)] if wide else []))
            for ts in sorted(draw.randint(0, 20) for _ in range(40))
        ]
        updates = elements_of(source, rows)
        tick = draw.randint(-1, 21)
        kept = folded(source, updates, tick)
        fewer += len(updates) - len(kept)
        for later in range(tick, 22):
            parts = [part.filter(part.ts <= later) for part in (updates, kept)]
            assert relation(source, parts[1]) == relation(source, parts[0]), f"seed {seed}, folded at {tick}: {rows}"
    assert fewer > 500 or kind == "inserts"


def test_the_last_rows_of_every_partition_are_kept() -> None:
    source = source_of("CREATE STREAM U (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts ORDER WITHIN 9 SECONDS")
    history = History(source)
    rows: list[Row] = [(1, 1), (3, 2), (2, 1), (2, 1), (4, 2), (3, None), (9, 1), (7, 2)]
    history.add(elements_of(source, rows[:5]))
    history.add(elements_of(source, rows[5:]))

    def kept(need: Need) -> list[Row]:
        (found,) = history.since(need, 5)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    assert kept(Need(2)) == [(4, 2), (9, 1), (7, 2)]
    assert kept(Need(0, frozenset({LastRows(2)}))) == [(4, 2), (3, None), (9, 1), (7, 2)]
    assert kept(Need(0, frozenset({LastRows(2, (1,))}))) == [
        (3, 2),
        (2, 1),
        (2, 1),
        (4, 2),
        (3, None),
        (9, 1),
        (7, 2),
    ]
    # Of the six elements up to 5, those left out are a multiple of three.
    assert kept(Need(0, frozenset({LastRows(1, (), 3)}))) == [(3, 2), (4, 2), (3, None), (9, 1), (7, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_stream_keeps_is_what_each_element_says(seed: int) -> None:
    """Whatever parts they lie in: those after the heartbeat less what is retained, and up to where some are gone."""
    draw = random.Random(seed)
    (bound,) = bind_script(
        "CREATE STREAM A (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts; CREATE QUERY q AS SELECT k FROM A;"
    ).queries
    (source,) = (leaf.source for leaf in leaves(bound.root) if isinstance(leaf, Scan))
    retain = draw.randrange(30)
    history, rows, gone = History(source, retain), list[tuple[int, int]](), list[int]()
    heartbeat = 0
    for step in range(60):
        fresh = [(heartbeat + 1 + draw.randrange(6), step) for _ in range(draw.choice((0, 1, 1, 2, 40)))]
        rows += fresh
        columns = (pa.array([k for _, k in fresh], pa.int32()),)
        ts = np.array([t for t, _ in fresh], np.int64)
        history.add(Elements(columns, ts, np.full(len(fresh), 10**9, np.int64)))
        heartbeat += draw.randrange(4)
        kept = history.copy()
        history.forget(heartbeat)
        gone += [t for t, _ in rows if t <= heartbeat - retain]
        rows = [row for row in rows if row[0] > heartbeat - retain]
        assert history.dropped == max(gone, default=None)
        begin = heartbeat - draw.randrange(retain + 1)
        assert history.has(Need(heartbeat - begin), heartbeat) == (not gone or begin >= max(gone))
        if not gone or begin >= max(gone):
            found = history.since(Need(heartbeat - begin), heartbeat)
            pairs = [pair for one in found for pair in zip(one.ts.tolist(), one.columns[0].to_pylist(), strict=True)]
            assert pairs == [row for row in rows if row[0] > begin]
            last = history.since(Need(0, (LastRows(3, ()),)), heartbeat)
            assert sum(map(len, last)) >= len([row for row in rows if row[0] > heartbeat])
        assert kept.dropped is None or history.dropped is not None
        assert len(history.parts) < 20
        if gone and rows:
            assert sorted(history.held(10**6).tolist()) == sorted(t for t, _ in rows)
