"""GAPS OF: islands and gaps as another system finds them, ends of time, and operators that go on from what a checkpoint
keeps; of gaps in order that is the last end of every value.
"""

from __future__ import annotations

import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra import Closing
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.temporal.gaps import GapsInOrder, GapsOfChanges
from penstock.physical.plan.temporal.gaps import GapsSpec
from penstock.runtime.local.runtime import run_local
from penstock.types import END, MOST_TICKS

Row = tuple[Any, ...]
STREAM = "CREATE STREAM s (at BIGINT, k INT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;"


def table(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[], []]
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, (pa.int64(), pa.int32()), strict=True)]
    return pa.table(arrays, names=["at", "k"])


def pings(seed: int, count: int, keys: int) -> list[Row]:
    """Rows in the order of time, some of one timestamp, with NULL among the keys."""
    draw = random.Random(seed)
    at, found = -40, []
    for _ in range(count):
        at += draw.choice((0, 0, 1, 1, 2, 9))
        found.append((at, draw.choice([None, *range(keys)])))
    return found


#: Elements of a key more than 30 apart, by a function over a window in SQL: not the algebra of this system.
GAPS = """
SELECT k, "at" + 30, next FROM (
  SELECT k, "at", LEAD("at") OVER (PARTITION BY k ORDER BY "at") AS next FROM (SELECT DISTINCT k, "at" FROM s))
WHERE next > "at" + 30
"""


@pytest.mark.spread(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("window", ["", "[RANGE 1000000 SECONDS]"])
def test_gaps_are_those_of_another_system(seed: int, shards: int, window: str) -> None:
    rows = pings(seed, 2_000, 40)
    source = f"GAPS OF s (k) VALID FOR 30 SECONDS {window} AS g"
    bound = bind_script(
        f"{STREAM} CREATE QUERY ended AS ISTREAM(SELECT k, VALID(g) FROM {source} WHERE CLOSED(VALID(g)));"
        f"CREATE QUERY every AS SELECT k, VALID(g) FROM {source};"
    )
    tables = run_local(bound.queries, {"s": table(rows)}, shards=shards).tables
    with duckdb.connect() as connection:
        connection.register("s", table(rows))
        expected = sorted(map(repr, connection.sql(GAPS).fetchall()))
    assert len(expected) > 50
    assert sorted(repr(tuple(row.values())[1:]) for row in tables["ended"].to_pylist()) == expected
    held: dict[Row, int] = {}
    for _, op, *row in (tuple(row.values()) for row in tables["every"].to_pylist()):
        held[tuple(row)] = held.get(tuple(row), 0) + (1 if op == "+" else -1)
    last = [row for row, n in held.items() if n]
    assert sorted(repr(row) for row in last if row[2] is not None) == expected
    ends = {k: max(at for at, other in rows if other == k) + 30 for k in {k for _, k in rows}}
    now = max(at for at, _ in rows)
    assert {row[:2] for row in last if row[2] is None} == {(k, end) for k, end in ends.items() if end <= now}


def test_a_gap_that_begins_beyond_the_end_of_time_is_not_there() -> None:
    query = "SELECT VALID(g) FROM GAPS OF s () VALID FOR 10 SECONDS AT LEAST 100 SECONDS AS g"
    bound = bind_script(f"{STREAM} CREATE QUERY q AS {query};")
    last = MOST_TICKS - 5
    answer = run_local(bound.queries, {"s": table([(last - 200, 1), (last, 1)])}, drain=True).tables["q"]
    found = [tuple(row.values()) for row in answer.to_pylist()]
    assert found[:2] == [(last - 90, "+", last - 190, None), (last, "-", last - 190, None)]
    assert found[2:] == [(last, "+", last - 190, last), (last + 110, "+", last + 10, None)]


def test_periods_without_an_end_have_no_gap_behind_them() -> None:
    stream = (
        "CREATE STREAM s (at BIGINT, k INT, b BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND VALID FROM at TO b;"
    )
    bound = bind_script(f"{stream} CREATE QUERY q AS SELECT k, VALID(g) FROM GAPS OF s (k) AS g;")
    rows = pa.table({"at": [1, 5, 9], "k": pa.array([1, 1, 1], pa.int32()), "b": pa.array([2, None, 12], pa.int64())})
    found = [tuple(row.values()) for row in run_local(bound.queries, {"s": rows}, drain=True).tables["q"].to_pylist()]
    assert found == [(2, "+", 1, 2, None), (5, "-", 1, 2, None), (5, "+", 1, 2, 5)]


def changes(rows: list[tuple[int, int | None, int, int, int]]) -> Elements:
    ts, keys, begins, ends, signs = zip(*rows, strict=True)
    columns = (pa.array(keys, pa.int32()), pa.array(begins, pa.int64()), pa.array(ends, pa.int64()))
    times = np.array(ts, np.int64)
    return Elements(columns, times, np.full(len(times), END, np.int64), np.array(signs, np.int64))


BEFORE = -(2**60)


def in_order(seed: int) -> list[tuple[int, int | None, int, int, int]]:
    """Stretches of [at, at + 3) of a few keys, as they come and grow."""
    last: dict[int | None, tuple[int, int]] = {}
    found = []
    for at, key in sorted(set(pings(seed, 400, 60)), key=lambda row: row[0]):
        begin, end = last.get(key, (END, BEFORE))
        if at <= end:
            found.append((at, key, begin, end, -1))
            last[key] = (begin, at + 3)
        else:
            last[key] = (at, at + 3)
        found.append((at, key, *last[key], 1))
    return found


def anywhere(seed: int) -> list[tuple[int, int | None, int, int, int]]:
    """Disjoint stretches that come and go, not both at one instant."""
    draw = random.Random(seed)
    there: set[tuple[int, int]] = set()
    found = []
    for at in range(600):
        key, place = draw.randint(0, 30), draw.randint(0, 20)
        if (at // 3, key, place) in {(*row[:2], row[2] // 10) for row in found[-3:]}:
            continue
        sign = -1 if (key, place) in there else 1
        there ^= {(key, place)}
        found.append((at // 3, key, place * 10, place * 10 + 4 + key % 6, sign))
    return found


SPECS: dict[str, GapsSpec] = {
    "all": GapsSpec((pa.int32(), pa.int64(), pa.int64()), Closing(None, 0, 0, 3), False, True),
    "slide": GapsSpec((pa.int32(), pa.int64(), pa.int64()), Closing(4, 1, 1, 3), False, True),
    "ended": GapsSpec((pa.int32(), pa.int64(), pa.int64()), Closing(None, 0, 0, 3), True, True),
}


def events(parts: list[Elements]) -> list[str]:
    """The sums of what came and went, by row and time."""
    sums: dict[Row, int] = {}
    for part in parts:
        values = zip(*(column.to_pylist() for column in part.columns), strict=True)
        for row, ts, sign in zip(values, part.ts.tolist(), part.signs.tolist(), strict=True):
            sums[(*row, ts)] = sums.get((*row, ts), 0) + sign
    return sorted(repr(key) for key, n in sums.items() if n)


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("seed", range(3))
def test_restored_operators_go_on_and_both_strategies_agree(kind: str, seed: int) -> None:
    def made(ordered: bool) -> Operator:
        return GapsInOrder(SPECS[kind]) if ordered else GapsOfChanges(SPECS[kind])

    draw = random.Random(seed)
    for ordered, rows in ((True, in_order(seed)), (False, in_order(seed)), (False, anywhere(seed))):
        kept, other, whole, done, told = made(ordered), made(ordered), GapsOfChanges(SPECS[kind]), -10_000, []
        last = rows[-1][0]
        for heartbeat in (*sorted(draw.sample(range(rows[0][0], last), 6)), last + 20):
            given = [row for row in rows if done < row[0] <= heartbeat + 3]
            for operator in (kept, other):
                if given:
                    operator.process(0, changes(given))
            first = list(kept.advance(Moment(heartbeat, 0)))
            assert events(first) == events(list(other.advance(Moment(heartbeat, 0))))
            told += first
            fresh = made(ordered)
            for name, synopsis in other.synopses().items():
                fresh.synopses()[name].restore(*synopsis.snapshot())
            other, done = fresh, heartbeat + 3
        whole.process(0, changes(rows))
        assert events(told) == events(list(whole.advance(Moment(last + 20, 0))))
        assert told


def test_the_state_of_gaps_in_order_is_the_last_end_of_every_value() -> None:
    operator = GapsInOrder(SPECS["all"])
    for at in range(0, 20_000, 10):
        operator.process(0, changes([(at, at // 10 % 7, at, at + 3, 1)]))
        operator.advance(Moment(at, 0))
    assert {name: synopsis.rows for name, synopsis in operator.synopses().items()}["values"] == 7
