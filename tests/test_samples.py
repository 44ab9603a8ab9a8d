"""Samples and ESTIMATE against their definitions, and the estimators against what they promise.

Seeds and data are fixed, so every statistical test is a constant. Its thresholds hold for other seeds too, but for one
in a thousand million.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import ScriptErrors
from penstock.expressions.draws import draws, limit, universe
from penstock.expressions.sampling.estimates import Estimated, estimates, half_widths, normal, range_widths, student
from penstock.expressions.sampling.inclusion import RECORD, independent, of_independent_pair, of_pair, packed, unpacked
from penstock.language import bind_script
from penstock.physical.planning.strategies import Strategy
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

STREAM = "CREATE STREAM {0} (ts INT, k INT, g STRING, x INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
SAMPLES = ("SAMPLE(50)", "SAMPLE(30) REPEATABLE(3)", "SAMPLE(60 BY k)", "SAMPLE(100)", "TABLESAMPLE BERNOULLI (40)",
           "SAMPLE(70 BY g, k) REPEATABLE(9)", "SAMPLE(4 ROWS)", "SAMPLE(2 ROWS PER g)", "TABLESAMPLE (3 ROWS)",
           "SAMPLE(3 ROWS WEIGHT x) REPEATABLE(4)", "SAMPLE(2 ROWS PER k WEIGHT x + 1)")  # fmt: skip
CALLS = ("COUNT(*)", "COUNT(x)", "SUM(x)", "AVG(x)", "SUM(x) FILTER (WHERE x > 0)")


def query(draw: random.Random) -> str:
    call = draw.choice(CALLS)
    limits = draw.choice(["", "", ", 0.9", ", 0.99, -5, 9", ", 0.8, -1, 3"])
    window = draw.choice(["", "[RANGE 6 SECONDS]", "[RANGE 6 SECONDS SLIDE 3 SECONDS]", "[NOW]"])
    sample, other = draw.choice(SAMPLES), draw.choice([*SAMPLES[2:3], "", "SAMPLE(50) REPEATABLE(77)"])
    source, where = f"s {window} {sample}", draw.choice(["", " WHERE x > -3"])
    if draw.random() < 0.4:
        source, where = f"s {window} {sample} s, t [RANGE 4 SECONDS] {other} t", " WHERE s.k = t.k"
        call = call.replace("x", "s.x")
        group = draw.choice(["", " GROUP BY s.g"])
    else:
        group = draw.choice(["", " GROUP BY g", " GROUP BY k % 2"])
    items = [f"ESTIMATE({call}) AS e", f"LOWER_BOUND(ESTIMATE({call}){limits}) AS l", "COUNT(*) AS n"]
    items.append(f"UPPER_BOUND(ESTIMATE({call}){limits}) AS u")
    chosen = ", ".join(draw.sample(items, draw.randint(1, 4)))
    return f"SELECT {chosen}, ESTIMATE({call}) AS again FROM {source}{where}{group}"


def rows(draw: random.Random, count: int) -> pa.Table:
    ts, found = draw.randint(-9, 9), []
    for _ in range(count):
        ts += draw.choice([0, 0, 1, 2])
        row = (ts, draw.choice([None, 1, 2, 3]), draw.choice(["a", "b"]), draw.choice([None, -2, 0, 1, 5]))
        found += [row] * draw.choice([1, 1, 2])
    columns = list(zip(*found, strict=True)) if found else [()] * 4
    types = (pa.int32(), pa.int32(), pa.string(), pa.int32())
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=["ts", "k", "g", "x"])


def check(seed: int) -> int:
    draw = random.Random(seed)
    script = f"{STREAM.format('s')}{STREAM.format('t')}SET seed = {draw.randint(0, 5)};CREATE QUERY q AS {query(draw)};"
    inputs = {"s": rows(draw, draw.randint(0, 40)), "t": rows(draw, draw.randint(0, 12))}
    strategy = draw.choice(list(Strategy))
    run = CaseRun(draw.randint(1, 3), draw.randint(0, 99), None, draw.random() < 0.2, True, None, strategy)
    drain = draw.random() < 0.5
    try:
        (found,) = bind_script(script).queries
        result = run.answer([found], inputs, drain, None)
        assert_same(found, result.tables["q"], run_oracle(found, inputs, drain))
        return int(result.tables["q"].num_rows)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {script} {run} drain={drain}\n{inputs}") from error


def test_local_is_oracle() -> None:
    assert sum(check(seed) for seed in range(40)) > 200, "the cases say little"


def test_estimates_through_non_retroactive_relations() -> None:
    """A row that an element finds is kept with the element, so the rows of one element are one cluster."""
    relation = "CREATE NON RETROACTIVE RELATION n (ts INT, k INT, y INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    updates = pa.table({name: pa.array(v, pa.int32()) for name, v in
                        {"ts": [-9, 0, 0, 4, 20], "k": [1, 1, 2, 3, None], "y": [7, 8, 9, 1, 2]}.items()})  # fmt: skip
    told = 0
    for seed in range(12):
        draw = random.Random(seed)
        sample, call = draw.choice(SAMPLES[:6]), draw.choice(["COUNT(*)", "SUM(y)", "AVG(s.x)", "SUM(s.x + y)"])
        where = draw.choice(["", " AND y > s.x", " AND s.x > 0"])
        window = draw.choice(["[RANGE 6 SECONDS]", "[RANGE 6 SECONDS SLIDE 3 SECONDS]", ""])
        items = f"ESTIMATE({call}) AS e, LOWER_BOUND(ESTIMATE({call})) AS l, UPPER_BOUND(ESTIMATE({call}), 0.8) AS u"
        group = draw.choice(["", " GROUP BY s.g", " GROUP BY n.y"])
        text = f"SELECT {items}, {call} AS own FROM s {window} {sample} s, n WHERE s.k = n.k{where}{group}"
        (found,) = bind_script(f"{STREAM.format('s')}{relation}CREATE QUERY q AS {text};").queries
        inputs = {"s": rows(draw, draw.randint(0, 24)), "n": updates}
        run = CaseRun(draw.randint(1, 3), seed, None, seed % 3 == 0, True, None, draw.choice(list(Strategy)))
        table = run.answer([found], inputs, False, None).tables["q"]
        assert_same(found, table, run_oracle(found, inputs, False))
        told += table.num_rows
        if sample == "SAMPLE(100)":
            for row in table.to_pylist():
                assert row["e"] == pytest.approx(row["own"], nan_ok=True) or row["own"] is None
    assert told > 40


@pytest.mark.slow
def test_local_is_oracle_at_length() -> None:
    for seed in range(100, 1500):
        check(seed)


# --- the samples


def test_universe_samples_of_two_streams_join_to_the_sample_of_the_join() -> None:
    script = f"""{STREAM.format("s")}{STREAM.format("t")}
    CREATE QUERY met AS SELECT s.k, s.x FROM s SAMPLE(40 BY k) s, t SAMPLE(40 BY k) t WHERE s.k = t.k;
    CREATE QUERY whole AS SELECT s.k, s.x FROM s SAMPLE(40 BY k) s, t WHERE s.k = t.k;
    CREATE QUERY wider AS SELECT s.k, s.x FROM s SAMPLE(60 BY k) s, t WHERE s.k = t.k;"""
    table = pa.table(
        {"ts": pa.array(range(200), pa.int32()), "k": pa.array(range(200), pa.int32()), "g": ["a"] * 200,
         "x": pa.array(range(200), pa.int32())}
    )  # fmt: skip
    found = run_local(bind_script(script).queries, {"s": table, "t": table}).tables
    met, whole, wider = (set(found[name]["k"].to_pylist()) for name in ("met", "whole", "wider"))
    assert met == whole < wider
    assert 40 < len(met) < 130


@pytest.mark.parametrize("percent", [5, 30, 50, 90])
def test_inclusion_is_as_often_as_asked(percent: int) -> None:
    """χ² of the counts of kept elements over 64 classes of values; and universe draws alike."""
    count = 64 * 2000
    values = pa.array(np.arange(count))
    for drawn in (draws(1, "s", np.zeros(count, np.int64), [values]), universe(1, [values], count)):
        kept = (drawn < limit(Fraction(percent))).reshape(64, -1).sum(axis=1)
        p = percent / 100
        chi = float((((kept - 2000 * p) ** 2) / (2000 * p * (1 - p))).sum())
        # The χ² distribution with 64 degrees of freedom is outside of these with a probability below 1e-9.
        assert 14 < chi < 156


def test_draws_of_two_uses_are_independent() -> None:
    values = pa.array(np.arange(20000))
    one = draws(3, "s", np.zeros(20000, np.int64), [values]) < limit(Fraction(50))
    other = universe(3, [values], 20000) < limit(Fraction(50))
    assert abs(int((one & other).sum()) - 5000) < 6.2 * math.sqrt(20000 * 0.25 * 0.75)


# --- the estimators

SEEDS = 2000


def outcomes(kind: Estimated, cluster_of: np.ndarray, x: np.ndarray, p: float) -> tuple[np.ndarray, float]:  # type: ignore[type-arg]
    """Return the estimate of each seed, and the share of the intervals that hold the true value."""
    true = x.sum() if kind is Estimated.SUM else x.mean()
    found, held = [], 0
    for seed in range(SEEDS):
        drawn = universe(seed, [pa.array(cluster_of)], len(x))
        kept = drawn < np.uint64(int(p * 2**64))
        records = unpacked(independent(p, drawn[kept].view(np.int64)))
        groups = np.zeros(len(records), np.int64)
        value = estimates(kind, groups, 1, x[kept], records)[0]
        width = half_widths(kind, groups, 1, x[kept], records, 0.95)[0]
        found.append(value)
        held += abs(value - true) <= width
    return np.array(found), held / SEEDS


@pytest.mark.parametrize("clusters", [1, 4])
@pytest.mark.parametrize("kind", list(Estimated))
def test_estimates_are_unbiased_and_intervals_hold(kind: Estimated, clusters: int) -> None:
    draw = np.random.default_rng(7)
    x = draw.exponential(10.0, 1200) + 5
    found, held = outcomes(kind, np.arange(1200) // clusters, x, 0.4)
    true = x.sum() if kind is Estimated.SUM else x.mean()
    # The mean of 2,000 estimates deviates by 6.2 standard errors with a probability below 1e-9; the bias of a ratio is
    # far smaller than that here.
    assert abs(found.mean() - true) < 6.2 * found.std() / math.sqrt(SEEDS)
    assert 0.92 <= held <= 0.98


@pytest.mark.parametrize("kind", list(Estimated))
def test_simple_random_samples(kind: Estimated) -> None:
    draw = np.random.default_rng(3)
    x = draw.exponential(10.0, 400)
    n, held, found = 60, 0, []
    true = x.sum() if kind is Estimated.SUM else x.mean()
    sure = 0
    for _ in range(SEEDS):
        chosen = draw.choice(400, n, replace=False)
        records = np.zeros(n, RECORD)
        records["pi"], records["cluster"], records["size"] = n / 400, chosen, n
        groups = np.zeros(n, np.int64)
        value = estimates(kind, groups, 1, x[chosen], records)[0]
        found.append(value)
        held += abs(value - true) <= half_widths(kind, groups, 1, x[chosen], records, 0.95)[0]
        sure += abs(value - true) <= range_widths(kind, groups, 1, x[chosen], records, 0.95, 0.0, float(x.max()))[0]
    assert abs(np.mean(found) - true) < 6.2 * np.std(found) / math.sqrt(SEEDS)
    assert 0.92 <= held / SEEDS <= 0.98
    assert sure / SEEDS >= 0.95


def test_quantiles_of_student() -> None:
    known = {1: 12.7062047, 2: 4.30265273, 5: 2.57058184, 10: 2.22813885, 28: 2.04840714}
    for freedom, value in known.items():
        assert student(0.95, freedom) == pytest.approx(value, abs=1e-7)
    assert normal(0.95) == pytest.approx(1.95996398, abs=1e-8)


def test_records_of_pairs() -> None:
    records = np.array([(0.5, 1, 0, 0), (0.5, 1, 0, 0), (0.5, 1, 7, 3)], RECORD)
    others = np.array([(0.25, 1, 0, 0), (0.25, 2, 0, 0), (0.25, 1, 0, 0)], RECORD)
    made = unpacked(of_pair(packed(records), packed(others)))
    assert made["pi"].tolist() == [0.25, 0.125, 0.125]
    assert made["size"].tolist() == [0, -1, -1]
    assert len(unpacked(packed(records[:0]))) == 0


@pytest.mark.parametrize("kind", list(Estimated))
def test_pairs_of_two_independent_samples(kind: Estimated) -> None:
    """Estimates and their variances are unbiased, and intervals hold, over 2,000 draws of both sides of a join."""
    draw = np.random.default_rng(5)
    keys = draw.integers(0, 60, (2, 400))
    left, right = (found.astype(np.int64) for found in np.nonzero(keys[0][:, None] == keys[1][None, :]))
    x = draw.exponential(10.0, 400)[left] + draw.exponential(5.0, 400)[right]
    p, q, found, squares, held = 0.5, 0.4, [], [], 0
    true = x.sum() if kind is Estimated.SUM else x.mean()
    for _ in range(SEEDS):
        kept = (draw.random(400) < p)[left] & (draw.random(400) < q)[right]
        records = unpacked(of_independent_pair(independent(p, left[kept]), independent(q, right[kept])))
        groups = np.zeros(len(records), np.int64)
        found.append(estimates(kind, groups, 1, x[kept], records)[0])
        width = half_widths(kind, groups, 1, x[kept], records, 0.95)[0]
        squares.append((width / normal(0.95)) ** 2)
        held += abs(found[-1] - true) <= width
    assert abs(np.mean(found) - true) < 6.2 * np.std(found) / math.sqrt(SEEDS)
    # The variance of 2,000 estimates is within 20 percent of the true one with a probability above 1 - 1e-9.
    assert abs(np.mean(squares) / np.var(found) - 1) < 0.2
    assert 0.92 <= held / SEEDS <= 0.98


def test_the_variance_of_a_count_of_pairs_is_that_of_the_table() -> None:
    """Spec: Σ over keys of XY(1-p)(1-q)/(pq)² + (X/p)·B·(1-p)/p + A·(Y/q)·(1-q)/q."""
    p, q, rows, variance = 0.5, 0.3, [], 0.0
    for key, (many, others) in enumerate([(3, 2), (1, 4), (5, 1)]):
        rows += [(10 * key + i, 10 * key + j) for i in range(many) for j in range(others)]
        a = many * (many - 1) / p**2 + many / p
        b = others * (others - 1) / q**2 + others / q
        variance += many * others * (1 - p) * (1 - q) / (p * q) ** 2
        variance += many / p * b * (1 - p) / p + a * others / q * (1 - q) / q
    left, right = (np.array(side, np.int64) for side in zip(*rows, strict=True))
    records = unpacked(of_independent_pair(independent(p, left), independent(q, right)))
    groups, ones = np.zeros(len(rows), np.int64), np.ones(len(rows))
    width = half_widths(Estimated.SUM, groups, 1, ones, records, 0.95)[0]
    assert width == pytest.approx(student(0.95, len(rows) - 1) * math.sqrt(variance))


def test_which_joins_have_bounds() -> None:
    """Samples with draws in common have none, nor have those of a fixed number of rows."""
    table = pa.table({"ts": pa.array(range(60), pa.int32()), "k": pa.array([i % 3 for i in range(60)], pa.int32()),
                      "g": ["a"] * 60, "x": pa.array(range(60), pa.int32())})  # fmt: skip
    known = {
        ("SAMPLE(60)", "SAMPLE(60)"): True,
        ("SAMPLE(60 BY x)", "SAMPLE(60) REPEATABLE(4)"): True,
        ("SAMPLE(60 BY x)", "SAMPLE(60 BY x) REPEATABLE(4)"): True,
        ("SAMPLE(60 BY x)", "SAMPLE(50 BY x)"): False,
        ("SAMPLE(60)", "[RANGE 9 SECONDS] SAMPLE(9 ROWS)"): False,
    }
    for (one, other), bounded in known.items():
        items = "ESTIMATE(COUNT(*)) AS e, LOWER_BOUND(ESTIMATE(COUNT(*))) AS l"
        text = f"SELECT {items} FROM s {one} s, t {other} t WHERE s.k = t.k"
        (found,) = bind_script(f"{STREAM.format('s')}{STREAM.format('t')}CREATE QUERY q AS {text};").queries
        rows_found = run_local([found], {"s": table, "t": table}).tables["q"].to_pylist()
        assert any(row["l"] is not None for row in rows_found) == bounded, (one, other)


# --- what is refused

REFUSED = {
    "SELECT ESTIMATE(COUNT(*)) AS n FROM s": "P0355",
    "SELECT ESTIMATE(MAX(x)) AS n FROM s SAMPLE(10)": "P0355",
    "SELECT ESTIMATE(COUNT(DISTINCT x)) AS n FROM s SAMPLE(10)": "P0355",
    "SELECT ESTIMATE(x) AS n FROM s SAMPLE(10)": "P0355",
    "SELECT ESTIMATE(COUNT(*)) AS n FROM s SAMPLE(10) [ROWS 5]": "P0355",
    "SELECT ESTIMATE(COUNT(*)) AS n FROM s SAMPLE(10) a, s SAMPLE(10) b WHERE a.k = b.k": "P0355",
    "SELECT ESTIMATE(COUNT(*)) AS n FROM (SELECT DISTINCT x FROM s SAMPLE(10)) v": "P0355",
    "SELECT ESTIMATE(COUNT(*), 3) AS n FROM s SAMPLE(10)": "P0204",
    "SELECT LOWER_BOUND(ESTIMATE(COUNT(*)), 0.9, 5) AS n FROM s SAMPLE(10)": "P0204",
    "SELECT LOWER_BOUND(ESTIMATE(COUNT(*)), 0.9, 5, 5) AS n FROM s SAMPLE(10)": "P0203",
    "SELECT LOWER_BOUND(ESTIMATE(COUNT(*)), 1.5) AS n FROM s SAMPLE(10)": "P0203",
    "SELECT x FROM s SAMPLE(101 BY k)": "P0102",
    "SELECT x FROM s SAMPLE(10 BY nothing)": "P0202",
    "SELECT x FROM s WHERE ESTIMATE(COUNT(*)) > 1": "P0304",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(ScriptErrors) as caught:
        bind_script(f"{STREAM.format('s')}CREATE QUERY q AS {text};")
    assert caught.value.code == REFUSED[text]
    assert caught.value.errors[0].position is not None and caught.value.errors[0].hint
