"""Samples and ESTIMATE against their definitions, and the estimators against what they promise.

Seeds and data are fixed, so every statistical test is a constant. Its thresholds hold for other seeds too, but for one
in a thousand million.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import ScriptErrors
from penstock.expressions.draws import draws, limit, universe
from penstock.expressions.sampling.estimates import Estimated, estimates, half_widths, normal, range_widths, student
from penstock.expressions.sampling.inclusion import SIDE, Inclusion, independent, of_pair, packed, unpacked
from penstock.language.scripts import bind_script
from penstock.physical.operators.sets import first_rows, skyband
from penstock.physical.plan.strategies import Strategy
from penstock.runtime.local.runtime import LocalJob, run_local
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
    limits = draw.choice(["", "", ", 0.9", ", 0.99, -5, 9", ", 0.8, 0, 3", ", 0.8, 1, 3"])
    window = draw.choice(["", "[RANGE 6 SECONDS]", "[RANGE 6 SECONDS SLIDE 3 SECONDS]", "[NOW]"])
    sample, other = draw.choice(SAMPLES), draw.choice([*SAMPLES[2:3], *SAMPLES[5:], "", "SAMPLE(50) REPEATABLE(77)"])
    if "ROWS" in sample and draw.random() < 0.4:
        window = draw.choice(
            ["[ROWS 9]", "[ROWS 9 SLIDE 2 ROWS]", "[PARTITION BY g ROWS 5]", "[ROWS 8 SLIDE 2 SECONDS]"]
        )
    source, where = f"s {window} {sample}", draw.choice(["", " WHERE x > -3"])
    if draw.random() < 0.4:
        source, where = f"s {window} {sample} s, t [RANGE 4 SECONDS] {other} t", " WHERE s.k = t.k"
        if draw.random() < 0.3:
            third = draw.choice(["", "SAMPLE(3 ROWS) REPEATABLE(8)", "SAMPLE(60 BY k)", "SAMPLE(40 BY x)"])
            source, where = f"{source}, t [RANGE 3 SECONDS] {third} u", f"{where} AND u.k = s.k"
        call = call.replace("x", "s.x")
        group = draw.choice(["", " GROUP BY s.g"])
        limits = limits[:5]
    else:
        group = draw.choice(["", " GROUP BY g", " GROUP BY k % 2"])
    if len(limits) > 5 and ("ROWS" not in sample or "PER" in sample or "WEIGHT" in sample):
        # Of other samples only an average has bounds by a range.
        limits = limits if "AVG" in call and "BY" not in sample and "ROWS" not in sample else ", 0.7"
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
    assert sum(check(seed) for seed in range(20)) > 100, "the cases say little"


def test_estimates_through_non_retroactive_relations() -> None:
    """A row that an element finds is kept with the element, so the rows of one element are one cluster."""
    relation = "CREATE NON RETROACTIVE RELATION n (ts INT, k INT, y INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    updates = pa.table(
        {
            name: pa.array(v, pa.int32())
            for name, v in {"ts": [-9, 0, 0, 4, 20], "k": [1, 1, 2, 3, None], "y": [7, 8, 9, 1, 2]}.items()
        }
    )
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


@pytest.mark.parametrize("fewest", [-(10**6), 0])
def test_rows_that_cannot_come_first_are_forgotten(monkeypatch: pytest.MonkeyPatch, fewest: int) -> None:
    """After every round, or whenever twice as many have come together: what is told stays the same."""
    monkeypatch.setattr(skyband, "FEWEST", fewest)
    forgotten, original = [], first_rows.TopK._forget_preceded
    monkeypatch.setattr(first_rows.TopK, "_forget_preceded", lambda self: forgotten.append(1) or original(self))
    own = ("SAMPLE(3 ROWS)", "SAMPLE(2 ROWS PER g)", "SAMPLE(3 ROWS WEIGHT x)")
    for seed in range(24):
        draw = random.Random(seed)
        window = draw.choice(
            ["[RANGE 6 SECONDS]", "[RANGE 7 SECONDS SLIDE 3 SECONDS]", "[ROWS 9]", "[ROWS 9 SLIDE 2 ROWS]"]
        )
        text = draw.choice(
            [
                f"SELECT k, x FROM s {window} {draw.choice(own)}",
                f"SELECT k, x FROM s {window} ORDER BY x DESC, k LIMIT 2 OFFSET {draw.randint(0, 2)}",
                "SELECT s.k, t.x FROM s [RANGE 6 SECONDS], t WHERE s.k = t.k ORDER BY s.x, t.x LIMIT 3",
                f"SELECT ESTIMATE(SUM(x)) AS e, COUNT(*) AS n FROM s {window} {own[seed % 3]}",
            ]
        )
        script = f"{STREAM.format('s')}{STREAM.format('t')}CREATE QUERY q AS {text};"
        (found,) = bind_script(script).queries
        inputs = {"s": rows(draw, 40), "t": rows(draw, 9)}
        run = CaseRun(draw.randint(1, 3), draw.randint(0, 99), None, draw.random() < 0.3, True, None, Strategy.PATTERN)
        assert_same(found, run.answer([found], inputs, True, None).tables["q"], run_oracle(found, inputs, True))
    assert len(forgotten) > 20


def test_a_sample_of_a_window_keeps_a_skyband(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 live rows in the order of their arrival 5·(1 + ln 4000) = 46 may come first; twice as many are kept
    until they are looked through, and all copies of a row have draws of their own."""
    count = 20_000
    table = pa.table({"ts": pa.array(range(count), pa.int32()), "k": pa.array([1] * count, pa.int32()),
                      "g": ["a"] * count, "x": pa.array([i % 2 for i in range(count)], pa.int32())})  # fmt: skip
    for window in (f"[RANGE {count} SECONDS]", f"[ROWS {count}]"):
        text = f"{STREAM.format('s')}CREATE QUERY q AS SELECT k, x FROM s {window} SAMPLE(5 ROWS);"
        (found,) = bind_script(text).queries
        most, round_ = [0], LocalJob.round

        def measured(job: LocalJob, *given: Any, **named: Any) -> Any:
            done = round_(job, *given, **named)  # noqa: B023
            stages = [executor for row in job.stages for executor in row]
            parts = [o for executor in stages for o in executor._operators.values()]
            most[0] = max(most[0], sum(s.nbytes for o in parts for s in o.synopses().values()))  # noqa: B023
            return done

        monkeypatch.setattr(LocalJob, "round", measured)
        run_local([found], {"s": table}, shards=1, batch_rows=500)
        monkeypatch.setattr(LocalJob, "round", round_)
        # A batch comes whole before it is looked through; all rows would be 1 MB and more.
        assert most[0] < 200_000
    view = "CREATE VIEW v AS ISTREAM(SELECT x FROM s [NOW]);"
    text = f"{STREAM.format('s')}{view}CREATE QUERY q AS SELECT x FROM v [RANGE {count} SECONDS] SAMPLE(9 ROWS);"
    (found,) = bind_script(text).queries
    final = run_local([found], {"s": table.slice(0, 200)}).tables["q"].to_pylist()[-9:]
    assert {row["x"] for row in final} == {0, 1}


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
        groups = np.zeros(len(records.counts), np.int64)
        value = estimates(kind, groups, 1, x[kept], records)[0]
        width = half_widths(kind, groups, 1, x[kept], records, 0.95)[0]
        found.append(value)
        held += abs(value - true) <= width
    return np.array(found), held / SEEDS


@pytest.mark.spread(2)
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
        sides = np.zeros(n, SIDE)
        sides["pi"], sides["cluster"], sides["size"] = n / 400, chosen, n
        records = Inclusion(np.arange(n + 1), sides)
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
    """Rows that depend on one draw depend on its rarer level; others on both draws, in one order."""
    records = np.array([(0.5, 1, 0, 0), (0.5, 1, 0, 0), (0.5, 1, 7, 3)], SIDE)
    others = np.array([(0.25, 1, 0, 0), (0.25, 2, 0, 0), (0.25, 1, 0, 0)], SIDE)
    made = unpacked(of_pair(packed(records), packed(others)))
    assert made.counts.tolist() == [1, 2, 2]
    assert made.pi.tolist() == [0.25, 0.125, 0.125]
    assert made.sides[made.starts[2] :].tolist() == [(0.25, 1, 0, 0), (0.5, 1, 7, 3)]
    back = of_pair(packed(others), packed(records))
    assert back.equals(of_pair(packed(records), packed(others)))
    three = unpacked(of_pair(of_pair(packed(records), packed(others)), packed(records)))
    assert three.counts.tolist() == [1, 2, 2]
    assert len(unpacked(packed(records[:0])).counts) == 0


#: By name, the samples of two or three streams that are joined: how each is drawn, with what chance.
DESIGNS = {
    "two by chance": (("bernoulli", 0.5), ("bernoulli", 0.4)),
    "three by chance": (("bernoulli", 0.6), ("bernoulli", 0.7), ("bernoulli", 0.8)),
    "n rows and by chance": (("rows", 0.5), ("bernoulli", 0.4)),
    "n rows twice": (("rows", 0.5), ("rows", 0.4)),
    "strata and by chance": (("strata", 0.5), ("bernoulli", 0.5)),
    "one universe, not joined on it": (("universe", 0.5), ("universe", 0.5)),
    "one universe at two levels": (("universe", 0.6), ("universe", 0.4)),
}
DRAWS, ROWS = 800, 100


def drawn(draw: np.random.Generator, design: tuple[tuple[str, float], ...]) -> list[np.ndarray]:  # type: ignore[type-arg]
    """Return of each stream the sides of its rows; pi is 0 where a row is not drawn."""
    shared = draw.random(ROWS // 2)
    found = []
    for number, (kind, p) in enumerate(design):
        sides = np.zeros(ROWS, SIDE)
        sides["pi"], sides["cluster"] = p, 1000 * number + np.arange(ROWS)
        chances = draw.random(ROWS)
        if kind == "universe":
            sides["cluster"] = (np.arange(ROWS) * (7 if number else 1)) % len(shared)
            chances = shared[sides["cluster"]]
        if kind in ("rows", "strata"):
            # Of two strata half each is drawn, of one the given share.
            sides["stratum"] = 90 + number + (np.arange(ROWS) % 2 if kind == "strata" else 0)
            for stratum in np.unique(sides["stratum"]):
                own = np.flatnonzero(sides["stratum"] == stratum)
                sides["size"][own] = round(p * len(own))
                chances[own] = np.where(chances[own].argsort().argsort() < round(p * len(own)), 0.0, 1.0)
        sides["pi"][chances >= p] = 0.0
        found.append(sides)
    return found


@pytest.mark.spread(2)
@pytest.mark.parametrize("design", DESIGNS)
def test_joined_samples(design: str) -> None:
    """Estimates and their variances are unbiased, and intervals hold, over many draws of all sides of a join."""
    draw = np.random.default_rng(5)
    streams = DESIGNS[design]
    keys = draw.integers(0, 20 * len(streams), (len(streams), ROWS))
    pairs = [np.arange(ROWS)]
    for other in keys[1:]:
        left, right = np.nonzero(keys[0][pairs[0]][:, None] == other[None, :])
        pairs = [*(one[left] for one in pairs), right]
    weights = [draw.exponential(5.0, ROWS) for _ in streams]
    x = sum(w[of] for w, of in zip(weights, pairs, strict=True)) + 10.0
    groups, values, columns = [], [], []
    for number in range(DRAWS):
        joined = [sides[of] for sides, of in zip(drawn(draw, streams), pairs, strict=True)]
        kept = np.logical_and.reduce([side["pi"] > 0 for side in joined])
        column = packed(joined[0][kept])
        for side in joined[1:]:
            column = of_pair(column, packed(side[kept]))
        groups.append(np.full(int(kept.sum()), number))
        values.append(x[kept])
        columns.append(column)
    group, value, records = np.concatenate(groups), np.concatenate(values), unpacked(pa.concat_arrays(columns))
    for kind, true in ((Estimated.SUM, x.sum()), (Estimated.AVG, x.mean())):
        found = estimates(kind, group, DRAWS, value, records)
        width = half_widths(kind, group, DRAWS, value, records, 0.95)
        # The ratio of two estimates is biased by a part of its deviation that falls with the number of rows drawn.
        bias = 0.0 if kind is Estimated.SUM else 0.1 * found.std()
        assert abs(found.mean() - true) < 6.2 * found.std() / math.sqrt(DRAWS) + bias
        squares = (width[np.isfinite(width)] / normal(0.95)) ** 2
        assert len(squares) > 0.98 * DRAWS
        assert abs(squares.mean() / found.var() - 1) < 0.35, kind
        assert 0.88 <= np.mean(np.abs(found - true) <= width) <= 0.99, kind


def test_the_variance_of_a_count_of_pairs_is_that_of_the_table() -> None:
    """Spec: Σ over keys of XY(1-p)(1-q)/(pq)² + (X/p)·B·(1-p)/p + A·(Y/q)·(1-q)/q."""
    p, q, rows, variance = 0.5, 0.3, [], 0.0
    for key, (many, others) in enumerate([(3, 2), (1, 4), (5, 1)]):
        rows += [(10 * key + i, 1000 + 10 * key + j) for i in range(many) for j in range(others)]
        a = many * (many - 1) / p**2 + many / p
        b = others * (others - 1) / q**2 + others / q
        variance += many * others * (1 - p) * (1 - q) / (p * q) ** 2
        variance += many / p * b * (1 - p) / p + a * others / q * (1 - q) / q
    left, right = (np.array(side, np.int64) for side in zip(*rows, strict=True))
    records = unpacked(of_pair(independent(p, left), independent(q, right)))
    groups, ones = np.zeros(len(rows), np.int64), np.ones(len(rows))
    width = half_widths(Estimated.SUM, groups, 1, ones, records, 0.95)[0]
    assert width == pytest.approx(student(0.95, len(rows) - 1) * math.sqrt(variance))


def test_which_joins_have_bounds() -> None:
    """Any two samples have bounds, and three, unless of a stratum one row was drawn."""
    table = pa.table({"ts": pa.array(range(60), pa.int32()), "k": pa.array([i % 3 for i in range(60)], pa.int32()),
                      "g": ["a"] * 60, "x": pa.array(range(60), pa.int32())})  # fmt: skip
    known = {
        ("SAMPLE(60)", "SAMPLE(60)"): True,
        ("SAMPLE(60 BY x)", "SAMPLE(60) REPEATABLE(4)"): True,
        ("SAMPLE(60 BY x)", "SAMPLE(60 BY x) REPEATABLE(4)"): True,
        ("SAMPLE(60 BY x)", "SAMPLE(50 BY x)"): True,
        ("SAMPLE(60)", "[RANGE 9 SECONDS] SAMPLE(9 ROWS)"): True,
        ("[RANGE 9 SECONDS] SAMPLE(5 ROWS)", "[RANGE 9 SECONDS] SAMPLE(4 ROWS PER g)"): True,
        ("[RANGE 9 SECONDS] SAMPLE(5 ROWS WEIGHT x)", "SAMPLE(60 BY x)"): True,
        ("SAMPLE(60)", "SAMPLE(60) t, s SAMPLE(60) REPEATABLE(3)"): True,
        ("[RANGE 9 SECONDS] SAMPLE(9 ROWS)", "[RANGE 9 SECONDS] SAMPLE(1 ROWS)"): False,
    }
    for (one, other), bounded in known.items():
        items = "ESTIMATE(COUNT(*)) AS e, LOWER_BOUND(ESTIMATE(COUNT(*))) AS l"
        last = "u" if "s SAMPLE" in other else "t"
        text = f"SELECT {items} FROM s {one} s, t {other} {last} WHERE s.k = {last}.k"
        (found,) = bind_script(f"{STREAM.format('s')}{STREAM.format('t')}CREATE QUERY q AS {text};").queries
        rows_found = run_local([found], {"s": table, "t": table}).tables["q"].to_pylist()
        assert any(row["l"] is not None for row in rows_found) == bounded, (one, other)


# --- what is refused

REFUSED = {
    "SELECT x FROM s [SESSION 2 SECONDS] SAMPLE(2 ROWS)": "P0103",
    "SELECT x FROM s [PARTITION BY k SESSION 2 SECONDS] SAMPLE(2 ROWS)": "P0103",
    "SELECT ESTIMATE(COUNT(*)) AS n FROM s [NOW] SAMPLE(3 ROWS) a, s [NOW] SAMPLE(4 ROWS) b WHERE a.k = b.k": "P0355",
    "SELECT LOWER_BOUND(ESTIMATE(AVG(x)), 0.9, 0, 5) AS n FROM s SAMPLE(10 BY k)": "P0355",
    "SELECT LOWER_BOUND(ESTIMATE(AVG(x)), 0.9, 0, 5) AS n FROM s SAMPLE(3 ROWS PER k)": "P0355",
    "SELECT LOWER_BOUND(ESTIMATE(AVG(x)), 0.9, 0, 5) AS n FROM s SAMPLE(3 ROWS WEIGHT x)": "P0355",
    "SELECT LOWER_BOUND(ESTIMATE(SUM(x)), 0.9, 0, 5) AS n FROM s SAMPLE(10) GROUP BY k": "P0355",
    "SELECT LOWER_BOUND(ESTIMATE(AVG(a.x)), 0.9, 0, 5) AS n FROM s SAMPLE(9) a, t SAMPLE(9) b WHERE a.k = b.k": "P0355",
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
        bind_script(f"{STREAM.format('s')}{STREAM.format('t')}CREATE QUERY q AS {text};")
    assert caught.value.code == REFUSED[text]
    assert caught.value.errors[0].position is not None and caught.value.errors[0].hint
