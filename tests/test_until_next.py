"""VALID UNTIL NEXT: the window functions of another system find the same periods; ends of time; many keys in several
shards; and the operator goes on from the state that a checkpoint keeps.
"""

from __future__ import annotations

import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.nodes.until_next import Lives
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.temporal.until_next import UntilNext
from penstock.physical.plan.temporal.until_next import UntilNextSpec
from penstock.runtime.local.runtime import run_local
from penstock.types import END, MOST_TICKS

Row = tuple[Any, ...]
STREAM = "CREATE STREAM s (at BIGINT, k INT, v INT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;"


def table(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], []]
    types = (pa.int64(), pa.int32(), pa.int32())
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["at", "k", "v"])


def readings(seed: int, count: int, keys: int) -> list[Row]:
    """Rows in the order of time, some of one timestamp, with NULL among the keys."""
    draw = random.Random(seed)
    at, found = -20, []
    for _ in range(count):
        at += draw.choice((0, 0, 1, 1, 2, 9))
        found.append((at, draw.choice([None, *range(keys)]), draw.randint(0, 2)))
    return found


#: The next timestamp of the same key, by a function over a window in SQL: not the algebra of this system.
NEXT = """
WITH instants AS (
  SELECT k, "at", LEAD("at") OVER (PARTITION BY k ORDER BY "at") AS next FROM (SELECT DISTINCT k, "at" FROM s))
SELECT s.k, s.v, s."at", LEAST(COALESCE(i.next, {most}), {most}) AS until
FROM s JOIN instants i ON s.k IS NOT DISTINCT FROM i.k AND s."at" = i."at"
"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shards", [1, 3])
def test_the_periods_are_those_of_another_system(seed: int, shards: int) -> None:
    rows = readings(seed, 2_000, 40)
    query = "SELECT k, v, VALID(s) FROM s VALID UNTIL NEXT BY k AT MOST 30 SECONDS AS s WHERE CLOSED(VALID(s))"
    bound = bind_script(f"{STREAM} CREATE QUERY q AS {query};")
    answer = run_local(bound.queries, {"s": table(rows)}, shards=shards, drain=True).tables["q"]
    with duckdb.connect() as connection:
        connection.register("s", table(rows))
        expected = connection.sql(NEXT.format(most='s."at" + 30')).fetchall()
    found = [tuple(row.values()) for row in answer.to_pylist()]
    assert sorted(map(repr, ((k, v, b, e) for _, k, v, b, e in found))) == sorted(map(repr, expected))
    assert all(ts == e for ts, *_, e in found)


@pytest.mark.parametrize("seed", range(3))
def test_time_in_state_is_that_of_another_system(seed: int) -> None:
    rows = readings(seed, 1_500, 10)
    query = (
        "SELECT k, v, SUM(LENGTH(VALID(s))) AS held FROM s VALID UNTIL NEXT BY k AS s WHERE CLOSED(VALID(s))"
        " GROUP BY k, v"
    )
    bound = bind_script(f"{STREAM} CREATE QUERY q AS {query};")
    answer = run_local(bound.queries, {"s": table(rows)}).tables["q"].to_pylist()
    held: dict[Row, int] = {}
    for row in answer:
        key = (row["k"], row["v"], row["held"])
        held[key] = held.get(key, 0) + (1 if row["op"] == "+" else -1)
    until = NEXT.format(most="NULL")
    sql = f'SELECT k, v, CAST(SUM(until - "at") AS BIGINT) FROM ({until}) WHERE until IS NOT NULL GROUP BY k, v'
    with duckdb.connect() as connection:
        connection.register("s", table(rows))
        expected = connection.sql(sql).fetchall()
    assert sorted(map(repr, [key for key, n in held.items() if n])) == sorted(map(repr, expected))


def test_a_longest_period_beyond_the_end_of_time_does_not_end() -> None:
    query = "SELECT v, VALID(s) FROM s VALID UNTIL NEXT BY k AT MOST 10 SECONDS AS s WHERE LENGTH(VALID(s)) >= 8"
    bound = bind_script(f"{STREAM} CREATE QUERY q AS {query};")
    last = MOST_TICKS - 5
    answer = run_local(bound.queries, {"s": table([(last - 20, 1, 1), (last, 1, 2)])}, drain=True).tables["q"]
    found = [tuple(row.values()) for row in answer.to_pylist()]
    assert found[:2] == [(last - 12, "+", 1, last - 20, None), (last - 10, "-", 1, last - 20, None)]
    assert (last - 10, "+", 1, last - 20, last - 10) in found


def elements_of(rows: list[Row]) -> Elements:
    columns = tuple(column.combine_chunks() for column in table(rows).columns)
    ts = np.array([row[0] for row in rows], np.int64)
    return Elements(columns, ts, np.full(len(rows), END, np.int64))


def events(parts: list[Elements]) -> list[str]:
    """The sums of what came and went, by row and times."""
    sums: dict[Row, int] = {}
    for part in parts:
        values = zip(*(column.to_pylist() for column in part.columns), strict=True)
        for row, ts, exp, sign in zip(values, part.ts.tolist(), part.exp.tolist(), part.signs.tolist(), strict=True):
            sums[(*row, ts, exp)] = sums.get((*row, ts, exp), 0) + sign
    return sorted(repr(key) for key, n in sums.items() if n)


SPECS = {
    "window": UntilNextSpec((pa.int64(), pa.int32(), pa.int32()), (1,), 6, Lives.WINDOW, 9, 4, 1),
    "both": UntilNextSpec((pa.int64(), pa.int32(), pa.int32()), (1,), None, Lives.BOTH, 9),
    "current": UntilNextSpec((pa.int64(), pa.int32(), pa.int32()), (), 3, Lives.CURRENT),
    "ended": UntilNextSpec((pa.int64(), pa.int32(), pa.int32()), (1,), 6, None),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("seed", range(3))
def test_a_restored_operator_goes_on_as_the_one_that_was_kept(kind: str, seed: int) -> None:
    draw = random.Random(seed)
    rows = readings(seed, 600, 200)
    kept, other, done = UntilNext(SPECS[kind]), UntilNext(SPECS[kind]), -10_000
    last = rows[-1][0]
    for heartbeat in (*sorted(draw.sample(range(-20, last), 6)), last + 20):
        given = [row for row in rows if done < row[0] <= heartbeat + 3]
        for operator in (kept, other):
            if given:
                operator.process(0, elements_of(given))
        assert events(list(kept.advance(Moment(heartbeat, 0)))) == events(list(other.advance(Moment(heartbeat, 0))))
        fresh = UntilNext(SPECS[kind])
        for name, synopsis in other.synopses().items():
            fresh.synopses()[name].restore(*synopsis.snapshot())
        other, done = fresh, heartbeat + 3


def test_the_state_is_the_last_elements_of_every_value() -> None:
    """However many rows come: those of the past are forgotten."""
    operator = UntilNext(SPECS["ended"])
    for start in range(0, 20_000, 1_000):
        operator.process(0, elements_of([(at, at % 7, at) for at in range(start, start + 1_000)]))
        operator.advance(Moment(start + 999, 0))
    held = {name: synopsis.rows for name, synopsis in operator.synopses().items()}
    assert (held["rows"], held["values"]) == (6, 6), "the seventh has ended, 6 seconds after it came"
    assert sum(synopsis.nbytes for synopsis in operator.synopses().values()) < 200_000
