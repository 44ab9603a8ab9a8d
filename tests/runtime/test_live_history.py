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
from penstock.language import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.progress import SourceProgress
from penstock.runtime.live.history import History, folded
from penstock.testing.denotation import content
from penstock.testing.values import Row, key_of

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
        (3, 2), (2, 1), (2, 1), (4, 2), (3, None), (9, 1), (7, 2),
    ]  # fmt: skip
    # Of the six elements up to 5, those left out are a multiple of three.
    assert kept(Need(0, frozenset({LastRows(1, (), 3)}))) == [(3, 2), (4, 2), (3, None), (9, 1), (7, 2)]
