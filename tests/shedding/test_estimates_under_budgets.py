"""ESTIMATE over budgets of which whole values go: against the definition, and against the exact answer in the mean."""

from __future__ import annotations

import random

import pytest
from test_queries_under_budgets import _SOURCE, table_of

from penstock.language.scripts import bind_script
from penstock.testing.cases import RUNS
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

#: (source, columns of it that are numbers, columns to group by, what else a condition may say)
_SOURCES = (
    ("t (k) VALID FOR 3 SECONDS [RANGE 6 SECONDS] AS s", "LENGTH(VALID(s))", "k", "LENGTH(VALID(s)) >= 4"),
    ("t (k, x) VALID FOR 4 SECONDS [RANGE 9 SECONDS SLIDE 3 SECONDS] AS s", "x", "x", "s.k <> 'c'"),
    ("t (x, a) VALID FROM a TO b [RANGE 8 SECONDS] AS s", "a", "x", "BEGIN(VALID(s)) > 3"),
    ("t (x, k) VALID FOR 2 SECONDS [UNBOUNDED] AS s", "x", "k", "x > 1"),
    ("t (k, x) VALID FOR 3 SECONDS [ROWS 6] AS s", "x", "k", "x = 1"),
    ("t (a) VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s", "a", "a % 2", "CLOSED(VALID(s))"),
    ("GAPS OF t (k, x) VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s", "x", "x", "s.k <> 'a'"),
    # Runs of granules.
    ("t (k) [RANGE 12 SECONDS SLIDE 2 SECONDS] AS s", "LENGTH(VALID(s))", "k", "LENGTH(VALID(s)) >= 3"),
    ("t (a, x) [RANGE 6 SECONDS SLIDE 1 SECOND] AS s", "a", "x", "LENGTH(VALID(s)) > 1"),
    ("GAPS OF t (k, x) [RANGE 12 SECONDS SLIDE 2 SECONDS] AS s", "x", "k", ""),
    # What is told once.
    ("t (k, x) VALID FOR 3 SECONDS AS s WHERE CLOSED(VALID(s))", "LENGTH(VALID(s))", "x", "s.k <> 'c'"),
    ("t (a) [UNBOUNDED SLIDE 3 SECONDS] AS s WHERE CLOSED(VALID(s))", "a", "a % 2", "LENGTH(VALID(s)) > 3"),
    ("t [PARTITION BY k, x SESSION 3 SECONDS] AS s", "a", "x", "a > 2"),
    ("t [PARTITION BY a SESSION x SECONDS] AS s", "x", "k", "x > 1"),
    ("t [PARTITION BY k, x SESSION 2 SECONDS AT MOST 4 SECONDS] AS s", "a", "x", "k <> 'b'"),
    ("t [PARTITION BY a SESSION 3 SECONDS AT MOST 4 SECONDS] AS s", "x", "k", ""),
    # Sessions that go on.
    ("t [PARTITION BY k, x SESSION 3 SECONDS OPEN] AS s", "a", "x", "a > 2"),
    ("t [PARTITION BY a SESSION 3 SECONDS AT MOST 4 SECONDS OPEN] AS s", "x", "k", ""),
    # Groups of which each has rows of one value.
    (
        "(SELECT k, x, VALID(s), COUNT(*) AS n, SUM(a) AS total FROM t [PARTITION BY k, x SESSION 3 SECONDS] AS s"
        " GROUP BY k, x, VALID(s)) AS s",
        "n",
        "x",
        "n > 1",
    ),
    (
        "(SELECT k, x, SUM(LENGTH(VALID(s))) AS n FROM t (k, x) VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s"
        " GROUP BY k, x) AS s",
        "n",
        "k",
        "n > 3",
    ),
    ("(SELECT DISTINCT x, k FROM t (k, x) VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s) AS s", "x", "k", "x > 1"),
    (
        "(SELECT k, VALID(s), COUNT(*) AS n FROM t (k) VALID FOR 2 SECONDS AS s WHERE CLOSED(VALID(s))"
        " GROUP BY k, VALID(s)) AS s",
        "n",
        "k",
        "",
    ),
)
_ESTIMATES = (
    "ESTIMATE(COUNT(*)) AS n",
    "ESTIMATE(SUM({x})) AS total",
    "ESTIMATE(AVG({x})) AS mean",
    "LOWER_BOUND(ESTIMATE(COUNT(*))) AS low, UPPER_BOUND(ESTIMATE(COUNT(*))) AS high",
    "COUNT(*) AS kept, ERROR_BOUND(ESTIMATE(SUM({x})), 0.9) AS error",
    "LOWER_BOUND(ESTIMATE(AVG({x}))) AS low",
)


def script_of(draw: random.Random, place: int) -> str:
    source, number, group, condition = _SOURCES[place]
    memory = draw.choice(["1 TUPLES", "2 TUPLES", "3 TUPLES", "5 TUPLES", "300 B"])
    more = draw.choice(["", ", buckets '2'" if memory[0] != "1" else "", ", error_sample '50%'", ", compact 'false'"])
    asked = ", ".join(draw.sample(_ESTIMATES, 2)).format(x=number)
    grouped = draw.random() < 0.5
    items = f"{group} AS g, {asked}" if grouped else asked
    if condition and draw.random() < 0.5:
        source += f"{' AND' if 'WHERE' in source else ' WHERE'} {condition}"
    tail = f" GROUP BY {group}" if grouped else ""
    return (
        f"{_SOURCE}CREATE QUERY q WITH (memory '{memory}', shed 'value'{more}) AS SELECT {items} FROM {source}{tail};"
    )


def check(place: int, seed: int) -> int:
    draw = random.Random(f"{place}/{seed}")
    bound = bind_script(script_of(draw, place), one_time=True)
    (query,) = bound.queries
    inputs = {"t": table_of(draw)}
    drain = draw.random() < 0.5
    expected = run_oracle(query, inputs, drain).events
    for run in draw.sample(RUNS, 2):
        assert_same(query, run.answer(bound.queries, inputs, drain, None).tables["q"], expected)
    return len(expected)


@pytest.mark.spread(3)
@pytest.mark.parametrize("place", range(len(_SOURCES)))
def test_estimates_are_those_of_the_definition(place: int) -> None:
    assert sum(check(place, seed) for seed in range(4))


@pytest.mark.parametrize(("place", "seed"), [(5, 32), (8, 30)])
def test_estimates_that_stay_while_the_threshold_falls_do_not_change(place: int, seed: int) -> None:
    assert check(place, seed)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(_SOURCES)))
def test_estimates_are_those_of_the_definition_in_many_cases(place: int) -> None:
    for seed in range(4, 60):
        check(place, seed)
