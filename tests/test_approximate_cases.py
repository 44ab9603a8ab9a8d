"""Random approximate aggregates over random windows, cut anywhere, over shards, strategies and restarts: what the
oracle makes naively of the same rows."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.plan.strategies import Strategy
from penstock.runtime.local.one_time import answer_over
from penstock.runtime.spark.one_time.select_plan import run_here, select_plan
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.one_time import as_of, assert_same_rows, rows_of
from penstock.testing.oracle import run_oracle, run_oracle_once
from tests.test_approximate_aggregates import DECLARED, inputs

VALUES = ("k", "x", "a", "i", "m", "h")
#: Windows that have panes of time, or of numbers.
PANES = (
    "S [RANGE {0} SECONDS SLIDE {1} SECONDS]",
    "S [RANGE {1} SECONDS SLIDE {1} SECONDS]",
    "S [NOW SLIDE {1} SECONDS]",
    "S [UNBOUNDED SLIDE {1} SECONDS]",
    "S [ROWS {2} SLIDE {1} ROWS]",
    "S [RANGE {2} TUPLES, FREQUENCY {1} TUPLES]",
)
WINDOWS = (
    *PANES,
    "S [RANGE {0} SECONDS]",
    "S [ROWS {1}]",
    "S [NOW]",
    "S [PARTITION BY k ROWS {1}]",
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
    # The changes of a query with FREQUENCY have no form in which the numbers of elements are its time.
    emitted = 2 if panes and "FREQUENCY" in source else 3
    return draw.choice(("{}", "RSTREAM({})", "ISTREAM({})")[:emitted]).format(text)


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
    assert sum(check(seed) for seed in range(20)) > 200, "the cases say little"


@pytest.mark.spread(2)
@pytest.mark.parametrize("window", ["[RANGE 9 SECONDS]", "[RANGE 9 SECONDS SLIDE 3 SECONDS]", "[ROWS 7]", ""])
def test_images_share_registers_with_counts(window: str) -> None:
    """0.1 asks for 2^7 registers, whose ranks one skyline keeps for both; with rows that are retracted each counts."""
    items = "a, HLL_SKETCH_AGG(k, 7) AS s, APPROX_COUNT_DISTINCT(k, 0.1) AS n, HLL_SKETCH_AGG(k, 4) AS f"
    (bound,) = bind_script(f"{DECLARED}CREATE QUERY q AS SELECT {items} FROM S {window} GROUP BY a;").queries
    given = inputs(7, 60)
    for shards, reload in ((1, False), (3, True)):
        run = CaseRun(shards, 5, None, reload, True, None, Strategy.PATTERN)
        assert_same(bound, run.answer([bound], given, True, None).tables["q"], run_oracle(bound, given, True))


def test_random_cases_at_an_instant(case_count: int | None) -> None:
    """One-time queries: panes are part of what a window is, so an aggregate of panes is not one of its content."""
    rows = 0
    for seed in range(case_count or 12):
        draw = random.Random(seed)
        text, given = query(draw), inputs(seed, draw.randint(2, 60))
        (bound,) = bind_script(f"{DECLARED}CREATE QUERY q AS {text};").queries
        instants = sorted({ts for ts, _, _ in run_oracle(bound, given).events})
        for tick in (None, *draw.sample(instants, min(2, len(instants)))):
            once = as_of(bound, tick)
            found = rows_of(answer_over(once, given).table)
            assert_same_rows(once, found, run_oracle_once(once, given))
            rows += len(found)
    assert rows > 30, "the cases say little"


@pytest.mark.parametrize(
    "text",
    [
        "ISTREAM(SELECT APPROX_TOP_K(a, 2, 2) AS t FROM S [RANGE 6 TUPLES, FREQUENCY 3 TUPLES])",
        "SELECT p, s.k FROM (SELECT APPROX_PERCENTILE(x, 0.5) AS p FROM S [RANGE 6 TUPLES, FREQUENCY 3 TUPLES]) v,"
        " S [RANGE 4 TUPLES, FREQUENCY 2 TUPLES] s",
    ],
)
def test_blocks_beside_other_windows_of_a_sequence_are_no_panes(text: str) -> None:
    """That is known when a whole query is: the numbers of elements are its time, or they are not."""
    (bound,) = bind_script(f"{DECLARED}CREATE QUERY q AS {text};").queries
    with pytest.raises(PenstockError) as caught:
        CaseRun().answer([bound], inputs(1, 9), True, None)
    assert caught.value.code == "P0352" and caught.value.hint and "view" in caught.value.hint


@pytest.mark.parametrize("window", ["[ROWS 4 SLIDE 2 ROWS]", "[RANGE 4 SECONDS SLIDE 2 SECONDS]"])
def test_panes_of_no_rows_at_an_instant(window: str) -> None:
    select = f"SELECT APPROX_PERCENTILE(x, 0.5) AS p, COUNT(*) AS n FROM S {window}"
    (bound,) = bind_script(f"{DECLARED}CREATE QUERY q AS {select};").queries
    given = {name: table.slice(0, 0) for name, table in inputs(1, 2).items()}
    for tick in (None, 7):
        once = as_of(bound, tick)
        assert rows_of(answer_over(once, given).table) == [(None, 0)] == run_oracle_once(once, given)


@pytest.mark.parametrize("window", ["[ROWS 4 SLIDE 2 ROWS]", "[RANGE 4 SECONDS SLIDE 2 SECONDS]"])
@pytest.mark.parametrize("group", ["", " GROUP BY k"])
def test_panes_of_a_large_select(window: str, group: str) -> None:
    """The plans by which Spark answers a one-time query, in this process."""
    select = (
        f"SELECT APPROX_PERCENTILE(i, 0.5, 1) AS p, APPROX_TOP_K(a, 2, 2) AS t, COUNT(*) AS n FROM S {window}{group}"
    )
    (bound,) = bind_script(f"{DECLARED}CREATE QUERY q AS {select};").queries
    for rows in (0, 40):
        given = {name: table.slice(0, rows) for name, table in inputs(3, 40).items()}
        once = as_of(bound, 11)
        found = select_plan(once, {name: [_Held(table)] for name, table in given.items()}, 2)
        assert found is not None
        assert_same_rows(once, rows_of(run_here(*found)), run_oracle_once(once, given))


@dataclass(frozen=True)
class _Held:
    rows: pa.Table

    def table(self) -> pa.Table:
        return self.rows


@pytest.mark.slow
def test_random_cases_are_as_defined_at_length() -> None:
    for seed in range(1000, 2500):
        check(seed)
