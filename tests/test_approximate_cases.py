"""Random approximate aggregates over random windows, cut anywhere, over shards, strategies and restarts: what the
oracle makes naively of the same rows."""

from __future__ import annotations

import random

import pytest

from penstock.language import bind_script
from penstock.physical.planning.strategies import Strategy
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from tests.test_approximate_aggregates import DECLARED, inputs

VALUES = ("k", "x", "a", "i", "m", "h")
#: Windows that have panes of time.
PANES = (
    "S [RANGE {0} SECONDS SLIDE {1} SECONDS]",
    "S [RANGE {1} SECONDS SLIDE {1} SECONDS]",
    "S [NOW SLIDE {1} SECONDS]",
    "S [UNBOUNDED SLIDE {1} SECONDS]",
)
WINDOWS = (
    *PANES,
    "S [RANGE {0} SECONDS]",
    "S [ROWS {1}]",
    "S [NOW]",
    "S [PARTITION BY k ROWS {1}]",
    "S [RANGE {2} TUPLES, FREQUENCY {1} TUPLES]",
    "S",
    "U",
)


def call(draw: random.Random, panes: bool) -> str:
    """Return an approximate aggregate, a bound of one, or an exact aggregate beside them."""
    number, value = draw.choice(("x", "i", "m", "k")), draw.choice(VALUES)
    q = draw.choice(("0", "0.1", "0.5", "0.9", "1"))
    near = f"APPROX_QUANTILE({number}, {q}, {draw.choice(('0.01', '0.3', '0.5'))})"
    distinct = f"APPROX_COUNT_DISTINCT({value}, {draw.choice(('0.3', '0.1', '0.02'))})"
    calls = [near, distinct, f"APPROX_COUNT_DISTINCT({value}, {draw.choice(VALUES)}, 0.3)"]
    bounded = [near, distinct]
    if panes:
        rank = f"APPROX_PERCENTILE({value}, {q}, {draw.choice((1, 2, 5, 10000))})"
        calls += [rank, f"APPROX_TOP_K({draw.choice(('k', 'i', 'a'))}, 2, {draw.choice((2, 3, 20))})"]
        bounded.append(rank if value in ("x", "k", "i") else near)
    calls += [f"HLL_SKETCH_AGG({value}, {draw.choice((4, 7))})", "HLL_UNION_AGG(h)"]
    calls.append(f"COUNT_MIN_SKETCH({draw.choice(('i', 'a', 'k', 'h'))}, 0.5, {draw.choice(('0.4', '0.9'))})")
    calls += ["COUNT(*)", "SUM(i)", "MAX(x)", "COUNT(DISTINCT a)"]
    if draw.random() < 0.3:
        side = draw.choice(("LOWER_BOUND", "UPPER_BOUND", "ERROR_BOUND"))
        if side == "ERROR_BOUND":
            bounded = bounded[:2]
        return f"{side}({draw.choice(bounded)}{draw.choice(('', ', 0.5', ', 0.999'))})"
    only = draw.choice(("", "", "", " FILTER (WHERE k > 0)", " FILTER (WHERE x IS NULL)"))
    return draw.choice(calls) + only


def query(draw: random.Random) -> str:
    panes = draw.random() < 0.5
    slide = draw.randint(1, 6)
    source = draw.choice(PANES if panes else WINDOWS).format(draw.randint(1, 15), slide, slide * draw.randint(1, 3))
    calls = [f"{call(draw, panes)} AS c{n}" for n in range(draw.randint(1, 4))]
    group = draw.choice(("", "k", "a", "k, a"))
    where = draw.choice(("", "", " WHERE k > 0", " WHERE x < 0"))
    items = ", ".join([*([group] if group else []), *calls])
    text = f"SELECT {items} FROM {source}{where}{f' GROUP BY {group}' if group else ''}"
    return draw.choice(("{}", "RSTREAM({})", "ISTREAM({})")).format(text)


def check(seed: int) -> int:
    draw = random.Random(seed)
    text = query(draw)
    given = inputs(seed, draw.randint(2, 60))
    (bound,) = bind_script(f"{DECLARED}CREATE QUERY q AS {text};").queries
    strategy = draw.choice(list(Strategy))
    run = CaseRun(draw.randint(1, 3), draw.randint(0, 99), None, draw.random() < 0.3, True, None, strategy)
    drain = draw.random() < 0.5
    try:
        found = run.answer([bound], given, drain, None).tables["q"]
        assert_same(bound, found, run_oracle(bound, given, drain))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {text} {run} drain={drain}") from error
    return int(found.num_rows)


def test_random_cases_are_as_defined() -> None:
    assert sum(check(seed) for seed in range(40)) > 400, "the cases say little"


@pytest.mark.slow
def test_random_cases_are_as_defined_at_length() -> None:
    for seed in range(1000, 2500):
        check(seed)
