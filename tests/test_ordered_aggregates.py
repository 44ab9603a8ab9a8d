"""Aggregates with ORDER BY and WITHIN GROUP at random: as DuckDB has them at random instants, and cut into rounds and
over shards as the oracle has them."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from test_aggregate_functions import DECLARED, ORDINARY, RUNS, inputs

from penstock.language.scripts import bind_script
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.scalars.values import Row, key_of
from tests.plain_sql import rows_at

COLUMNS = ("k", "p", "a", "x", "m", "i")
VALUES = (*ORDINARY[:3], (0.5, 0.0, 3.0, math.nan, math.inf, None), *ORDINARY[4:])
_LENGTH = 9


def key(draw: random.Random, columns: tuple[str, ...] = COLUMNS) -> tuple[str, str]:
    """Return a key of ORDER BY, here and in DuckDB, whose NULLs are last unless it is told otherwise."""
    column, down = draw.choice(columns), draw.random() < 0.5
    first = draw.choice((None, True, False))
    text = column + (" DESC" if down else draw.choice(("", " ASC")))
    there = f"{text} NULLS {'FIRST' if (first if first is not None else not down) else 'LAST'}"
    return (text if first is None else f"{text} NULLS {'FIRST' if first else 'LAST'}"), there


def call(draw: random.Random) -> tuple[str, str]:
    """Return a call here and in DuckDB, with the order completed by the value."""
    condition = draw.choice((None, None, "x > 0.2", "p"))
    value = draw.choice(COLUMNS)
    keys = [key(draw) for _ in range(draw.randint(1, 3))]
    here = ", ".join(one for one, _ in keys)
    there = ", ".join([*(other for _, other in keys), f"{value} NULLS FIRST"])
    function = draw.choice(("ARRAY_AGG", "STRING_AGG", "DISTINCT", "FIRST", "LAST", "CONT", "DISC", "LISTAGG"))
    share = draw.choice((0, 0.1, 0.25, 0.5, 0.75, 0.9, 1))
    down = draw.choice(("", " DESC"))
    some = f"{value} IS NOT NULL"
    if function == "ARRAY_AGG":
        ours, theirs = f"ARRAY_AGG({value} ORDER BY {here})", f"LIST({value} ORDER BY {there})"
    elif function == "DISTINCT":
        ours, theirs = (f"{f}(DISTINCT {value} ORDER BY {value}{down})" for f in ("ARRAY_AGG", "LIST"))
    elif function in ("STRING_AGG", "LISTAGG"):
        value, some = "a", "a IS NOT NULL"
        there = ", ".join([*(other for _, other in keys), "a"])
        ours, theirs = f"STRING_AGG(a, '-' ORDER BY {here})", f"STRING_AGG(a, '-' ORDER BY {there})"
        if function == "LISTAGG":
            ours = f"LISTAGG(a, '-') WITHIN GROUP (ORDER BY {here})"
    elif function in ("FIRST", "LAST"):
        ours, theirs, some = f"{function}({value} ORDER BY {here})", f"{function}({value} ORDER BY {there})", ""
    else:
        value = draw.choice(("k",) if function == "CONT" else ("k", "a", "x", "m", "i"))
        some = ""
        ours = theirs = f"PERCENTILE_{function}({share}) WITHIN GROUP (ORDER BY {value}{down})"
    both = " AND ".join(one for one in (some, condition) if one)
    ours += f" FILTER (WHERE {condition})" if condition else ""
    return ours, theirs + (f" FILTER (WHERE {both})" if both else "")


def live(rows: list[dict[str, Any]], tau: int) -> list[tuple[int, dict[str, Any]]]:
    """Return (sign, row) of what has come up to `tau`."""
    return [(-1 if row.get("op") == "-" else 1, row) for row in rows if row["ts"] <= tau]


def content(given: dict[str, pa.Table], source: str, tau: int) -> pa.Table:
    """Return the rows of the relation, or those in the window over the stream, at `tau`."""
    rows = given[source].to_pylist()
    if source == "S":
        found = [row for _, row in live(rows, tau) if row["ts"] > tau - _LENGTH]
    else:
        counted: Counter[Row] = Counter()
        known = {}
        for sign, row in live(rows, tau):
            same = key_of(tuple(value for name, value in row.items() if name not in ("ts", "op")))
            counted[same] += sign
            known[same] = row
        found = [known[same] for same, count in counted.items() for _ in range(count)]
    return pa.Table.from_pylist(found, given["S"].schema)


def comparable(row: Row) -> Row:
    """Return a row whose doubles differ in more than rounding where they differ."""
    rounded = [float(f"{v:.9e}") if isinstance(v, float) and math.isfinite(v) else v for v in row]
    return key_of(tuple(rounded))


@pytest.mark.parametrize("seed", range(12))
def test_duckdb_and_the_oracle_say_the_same_at_random_instants(seed: int) -> None:
    draw = random.Random(seed)
    calls = [call(draw) for _ in range(6)]
    items = ", ".join(f"{ours} AS c{n}" for n, (ours, _) in enumerate(calls))
    others = ", ".join(theirs for _, theirs in calls)
    script = "".join(
        f"\nCREATE QUERY {name} AS SELECT k, {items} FROM {source} GROUP BY k;"
        for name, source in (("of_s", f"S [RANGE {_LENGTH} SECONDS]"), ("of_u", "U"))
    )
    queries = bind_script(DECLARED + script).queries
    given = inputs(seed, VALUES, 30)
    found = RUNS[1 + seed % 2].answer(queries, given, False, None)
    for query, source in zip(queries, ("S", "U"), strict=True):
        answer = run_oracle(query, given)
        assert_same(query, found.tables[query.name], answer, tolerance=1e-14)
        for tau in draw.sample(range(40), 4):
            connection = duckdb.connect()
            connection.register("live", content(given, source, tau))
            plain = connection.execute(f"SELECT k, {others} FROM live GROUP BY k").fetchall()
            assert Counter(map(comparable, rows_at(answer, tau))) == Counter(map(comparable, plain)), (tau, items)
