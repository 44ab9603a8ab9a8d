"""Random correlated subqueries against DuckDB: the oracle works on what the binder has made of them, judged here.

A row of values under IN is written out for DuckDB, which compares such rows otherwise. What DuckDB does not carry out
is left out and counted. No query is beyond a limit once its subqueries are expanded.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.testing.choices import Choices, seeded_choices
from penstock.testing.oracle import run_oracle
from penstock.testing.random.subqueries import Names, RandomSubqueries
from penstock.testing.scalars.values import Row, key_of
from tests.test_second_opinion import assert_bags

DECLARE = """
CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (ts INT, k INT, b INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION R (k INT, b INT) FROM MEMORY ();
CREATE RELATION P (k INT, a INT) FROM MEMORY ();
"""
COLUMNS = {"S": ("k", "a"), "T": ("k", "b"), "R": ("k", "b"), "P": ("k", "a")}
CASES, LONG = 20, 1500


def random_query(choices: Choices, plain: bool, tau: int | None) -> str:
    """A query with correlated subqueries; for DuckDB as of `tau`."""
    aliases = (f"x{n}" for n in itertools.count())
    timed = choices.chance(50)
    kinds = ("S", "T", "R") if timed else ("R", "P")

    def source(*names: str) -> tuple[Names, str]:
        name, alias = choices.pick(names or kinds), next(aliases)
        text = name
        if name in "ST":
            length = choices.pick((3, 6))
            shown = f"ts <= {tau} AND ts > {tau} - {length}"
            text = f"(SELECT * FROM {name} WHERE {shown})" if plain else f"{name} [RANGE {length} SECOND]"
        return tuple(f"{alias}.{c}" for c in COLUMNS[name]), f"{text} AS {alias}"

    made = RandomSubqueries(choices, source, plain, lateral=False)
    scope, text = source("S" if timed else "P")
    if choices.chance(35):
        scope, text = made.beside(scope, text, [], choices.pick((1, 2)))
    items = ", ".join(f"{c} AS c{i}" for i, c in enumerate(scope))
    where = f" WHERE {made.predicate([scope], 2)}" if choices.chance(70) else ""
    if choices.chance(15):
        having = made.predicate([scope[:1]], 2)
        return f"SELECT {scope[0]} AS c0, COUNT(*) AS n FROM {text}{where} GROUP BY {scope[0]} HAVING {having}"
    if choices.chance(10):
        value = made.value([scope], 2)[0]
        if plain:
            return f"SELECT v, COUNT(*) AS n FROM (SELECT {value} AS v FROM {text}{where}) GROUP BY v"
        return f"SELECT {value} AS v, COUNT(*) AS n FROM {text}{where} GROUP BY {choices.pick(('1', 'v', value))}"
    if not where or choices.chance(30):
        items += f", {made.value([scope], 2)[0]} AS v"
    return f"SELECT {items} FROM {text}{where}"


def worlds(draw: random.Random) -> dict[str, pa.Table]:
    def values(count: int) -> pa.Array:
        return pa.array([draw.choice((0, 1, 2, 3, None)) for _ in range(count)], pa.int32())

    found = {}
    for name, columns in COLUMNS.items():
        count = draw.randint(0, 6)
        stamps = pa.array(sorted(draw.randint(0, 9) for _ in range(count)), pa.int32())
        timed = {"ts": stamps} if name in "ST" else {}
        found[name] = pa.table({**timed, **{column: values(count) for column in columns}})
    return found


def compare(seed: int) -> int:
    """Compare at every instant; how many instants DuckDB had an answer for."""
    tables = worlds(random.Random(seed))
    text = random_query(seeded_choices(seed), False, None)
    query = bind_script(f"{DECLARE} CREATE QUERY q AS {text};").queries[0]
    answer = run_oracle(query, tables)
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    held: Counter[Row] = Counter()
    compared = 0
    for tau in range(min((ts for ts, _, _ in answer.events), default=0), (answer.final or 0) + 1):
        for _, op, row in (event for event in answer.events if event[0] == tau):
            held[key_of(row)] += -1 if op == "-" else 1
        try:
            rows = connection.execute(random_query(seeded_choices(seed), True, tau)).fetchall()
        except (duckdb.NotImplementedException, duckdb.BinderException, duckdb.InternalException):
            continue
        compared += 1
        assert_bags(list(held.elements()), rows, f"seed {seed} at {tau}: {text}")
    return compared


def test_the_oracle_says_what_duckdb_says_of_correlated_subqueries(
    case_count: int | None, case_seed: int | None
) -> None:
    start, count = (case_seed or 0) * 1_000_000, case_count or CASES
    assert sum(compare(start + n) > 0 for n in range(count)) > count * 3 // 4


@pytest.mark.slow
def test_many_more_correlated_subqueries(case_seed: int | None) -> None:
    start = (case_seed or 7) * 1_000_000
    compared = 0
    for seed in range(start, start + LONG):
        try:
            compared += compare(seed) > 0
        except PenstockError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert compared > LONG * 3 // 4
