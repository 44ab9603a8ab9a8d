"""Aggregates over groups and values that come and go by the hundred: what random worlds are too small for.

Tables drop dead slots, trees are taken apart and made anew, logs are rewritten; with and without negative tuples, cut
into rounds, over shards, and with the state reloaded between rounds.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

ITEMS = """k, COUNT(*) AS n, SUM(x) AS total, MIN(x) AS least, MAX(v) AS most, MIN(s) AS word,
  COUNT(DISTINCT v) AS kinds, MEDIAN(x) AS middle, MODE(s) AS usual, TOP_K(v, 2) AS top,
  ARRAY_AGG(DISTINCT s) AS words"""
STREAM = f"""
CREATE STREAM S (ts INT, k INT, v INT, x DOUBLE, s STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q AS SELECT {ITEMS}, FIRST(v) AS came, LAST(s) AS last FROM S [RANGE 10 SECOND] GROUP BY k;
CREATE QUERY p AS SELECT {ITEMS} FROM (SELECT k % 3 AS k, v, x, s FROM S [RANGE 7 SECOND] UNION ALL
  SELECT k % 3 AS k, v, x, s FROM S [RANGE 12 SECOND]) AS u GROUP BY k;
"""
UPDATES = f"""
CREATE RELATION S (ts INT, op STRING, k INT, v INT, x DOUBLE, s STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND
  OPERATION BY op;
CREATE QUERY q AS SELECT {ITEMS} FROM S GROUP BY k;
CREATE QUERY p AS SELECT MAX(x) AS most, MIN(s) AS least FROM S;
"""
RUNS = (CaseRun(batch_rows=40, reload=True), CaseRun(2, batch_rows=97), CaseRun(3, seed=5, reload=True))


def rows(count: int, updates: bool) -> pa.Table:
    """Groups come and go; a hundred of them, over values from a few hundred."""
    draw = random.Random(7)
    held: list[tuple[object, ...]] = []
    made: list[tuple[object, ...]] = []
    for number in range(count):
        ts = number // 3
        row = (
            ts + draw.choice((0, 0, 1, 50)),
            draw.choice((None, 1, 2, draw.randint(0, 300))),
            draw.choice((draw.randint(0, 400) / 4, -0.0, float("nan"))),
            draw.choice(("", "word", "wordlike", "wordlike-" + str(draw.randint(0, 200)), None)),
        )
        if not updates:
            made.append((ts, *row))
            continue
        if len(held) > 30 or (held and draw.random() < 0.3):
            made.append((ts, "-", *held.pop(draw.randrange(len(held) // 2 + 1))))
        else:
            made.append((ts, "+", *row))
            held.append(row)
    names = ["ts", *(["op"] if updates else []), "k", "v", "x", "s"]
    types = [pa.int32(), *([pa.string()] if updates else []), pa.int32(), pa.int32(), pa.float64(), pa.string()]
    columns = zip(*made, strict=True)
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)


@pytest.mark.parametrize("updates", [False, True], ids=["windows", "updates"])
def test_state_that_turns_over(updates: bool) -> None:
    queries = bind_script(UPDATES if updates else STREAM).queries
    inputs = {"S": rows(360, updates)}
    expected = {query.name: run_oracle(query, inputs, drain=True) for query in queries}
    for run in RUNS:
        result = run.answer(queries, inputs, drain=True)
        for query in queries:
            assert_same(query, result.tables[query.name], expected[query.name])


def test_a_restored_table_numbers_its_slots_as_it_did() -> None:
    """The order of rows within an instant follows the slots, and a restart must not change a byte of it."""
    table = KeyedTable(1, 0, [pa.int64()])

    def put(keys: list[int], count: int) -> None:
        column = pa.array(keys, pa.int64())
        slots = table.slots(*fingerprints([column], len(keys)), [column])
        table.integers[0, slots] = count
        table.touch(slots)

    put(list(range(60)), 1)
    table.snapshot()
    put([1, 3, 5], 0)
    put([7, 8, 9], 2)
    for _ in range(40):  # until the log is written anew, without those that are dead
        put([0], 1)
        table.snapshot()
        put([10, 11, 12, 13, 14], 3)
    table.snapshot()
    put([3, 1, 5], 1)
    again = KeyedTable(1, 0, [pa.int64()])
    again.restore(*table.snapshot())
    live = table.live()
    assert table.key_columns(live)[0].to_pylist() == again.key_columns(again.live())[0].to_pylist()
    assert table.integers[0, live].tolist() == again.integers[0, again.live()].tolist()
