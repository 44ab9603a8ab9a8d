"""The accuracy of budgets of which whole values go, estimated from the thresholds of hashes, against its definition."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.nodes.shed import StretchBudget
from penstock.errors import PenstockError
from penstock.figures import (
    ACCURACY,
    ACCURACY_HIGH,
    ACCURACY_LOW,
    ACCURACY_VALUES,
    COVERAGE_AT_LEAST,
    EXACT,
    SHED_BUDGET,
    SHED_HELD,
    SHED_TUPLES,
)
from penstock.figures.figure import number
from penstock.language.scripts import bind_script
from penstock.physical.operators.temporal.stretch_budget import BudgetOfStretches, stretch_lanes
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.shedding.accuracy import estimate_by_hash
from penstock.shedding.layout import NEVER
from penstock.shedding.whole import ALIVE, LANES, LAST, LISTED, RANK, StretchArrivals, WholeStretches
from penstock.testing.approximation.whole_stretches import weighed
from penstock.testing.cases import RUNS
from penstock.testing.scalars.values import Row

_VALUES, _LENGTH = 600, 30


def machine_run(seed: int, budgets: list[int], drifts: bool) -> list[tuple[float, float, float, float]]:
    """Return (truth, estimate, low, high) at some instants of a run with sessions of 30 ticks.

    Args:
        drifts: whether values come up and are never seen again, else the same ones come back.
    """
    draw = np.random.default_rng(seed)
    machine = WholeStretches(budgets)
    ranks = draw.integers(0, 2**63 - 1, _VALUES, dtype=np.int64)
    lanes = np.zeros((LANES, _VALUES), np.int64)
    last = np.full(_VALUES, -1)
    found = []
    for tick in range(240):
        # Loads differ, so that the threshold falls at some instants, and is too low at others.
        count = int(draw.integers(2, 14)) if tick % 80 < 60 else 3
        first = (2 * tick if drifts else 0) % _VALUES
        slots = (first + draw.integers(0, 120 if drifts else _VALUES, count)) % _VALUES
        stamps = np.full(count, tick, np.int64)
        lanes[LISTED] = 0
        machine.admit(
            lanes,
            StretchArrivals(
                slots, ranks[slots], stamps, stamps, stamps + _LENGTH, np.ones(count, np.int64), stamps - 1
            ),
            int(NEVER),
        )
        last[slots] = tick + _LENGTH
        if tick % 40 == 39:
            kept = np.flatnonzero((lanes[ALIVE] != 0) & (lanes[LAST] > tick))
            thresholds = np.array(machine.thresholds)[machine.bucket_of(lanes[RANK, kept].copy())]
            guess = estimate_by_hash(np.ones(len(kept)), thresholds / 2.0**63)
            if guess.accuracy is not None and guess.low is not None and guess.high is not None:
                found.append((len(kept) / int((last > tick).sum()), guess.accuracy, guess.low, guess.high))
    return found


@pytest.mark.spread(2)
@pytest.mark.parametrize("budgets", [[70], [35, 35]])
@pytest.mark.parametrize("drifts", [False, True])
def test_the_interval_holds_in_nine_of_ten_instants(budgets: list[int], drifts: bool) -> None:
    runs = [one for seed in range(50) for one in machine_run(seed, budgets, drifts)]
    assert len(runs) > 200 and min(truth for truth, *_ in runs) < 0.6
    assert sum(low <= truth <= high for truth, _, low, high in runs) >= 0.9 * len(runs)
    assert abs(np.mean([guess - truth for truth, guess, _, _ in runs])) < 0.02


def test_values_with_many_rows_widen_the_interval() -> None:
    """By definition: of 300 values with 1 to 9 rows each, those below the threshold are kept."""
    holds = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        rows, hashes = draw.integers(1, 10, 300), draw.random(300)
        kept = hashes < 0.3
        guess = estimate_by_hash(rows[kept].astype(float), np.full(int(kept.sum()), 0.3))
        assert guess.low is not None and guess.high is not None
        holds += guess.low <= rows[kept].sum() / rows.sum() <= guess.high
    assert holds >= 180
    equal = estimate_by_hash(np.ones(50), np.full(50, 0.3))
    skewed = estimate_by_hash(np.append(np.ones(49), 51.0), np.full(50, 0.3))
    assert equal.low is not None and skewed.low is not None and skewed.low < equal.low


def test_a_few_values_say_nothing() -> None:
    assert estimate_by_hash(np.ones(19), np.full(19, 0.5)).accuracy is None
    assert estimate_by_hash(np.ones(20), np.full(20, 0.5)).accuracy == 0.5
    assert estimate_by_hash(np.ones(20), np.ones(20)).low == 1.0


@pytest.mark.parametrize("memory", [30, 200])
def test_the_figures_have_the_estimate_once_something_is_missing(memory: int) -> None:
    table = KeyedTable(3, 0, (pa.int64(),))
    budget = BudgetOfStretches(StretchBudget(memory), table, ends=True)
    values, ts = pa.array(range(100), pa.int64()), np.zeros(100, np.int64)
    slots = table.place([values], 100).slots
    admitted = budget.admit([values], slots, ts, ts, ts + 10, ts - 1)
    kept = np.setdiff1d(slots[admitted.kept], admitted.dropped)
    table.integers[:3, kept] = np.array([[1], [0], [10]])
    found = budget.figures(5)
    if memory == 200:
        assert found[EXACT] == 1 and ACCURACY not in found
        return
    assert found[EXACT] == 0 and found[ACCURACY_VALUES] == 30
    assert number(found, ACCURACY_LOW) < 0.3 < number(found, ACCURACY_HIGH)
    assert number(found, ACCURACY_LOW) < number(found, ACCURACY) < number(found, ACCURACY_HIGH)
    budget.pass_to(20)
    assert budget.figures(20)[EXACT] == 1 and ACCURACY not in budget.figures(20)


_LINE = "CREATE STREAM m (at BIGINT, k BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;\n"
_QUERIES = (
    "SELECT k, VALID(s) FROM m (k) VALID FOR 90 SECONDS AS s WHERE CLOSED(VALID(s))",
    "SELECT k, at, VALID(s) FROM m [PARTITION BY k SESSION 90 SECONDS] AS s",
    "RSTREAM(SELECT k, COUNT(*) AS n, VALID(s) FROM m [PARTITION BY k SESSION 90 SECONDS AT MOST 200 SECONDS] AS s"
    " GROUP BY k, VALID(s))",
    "SELECT k, VALID(s) FROM m (k) [RANGE 60 SECONDS SLIDE 10 SECONDS] AS s",
    "SELECT k, VALID(s) FROM m (k) [RANGE 60 SECONDS SLIDE 10 SECONDS] AS s WHERE LENGTH(VALID(s)) >= 20",
)


def inputs() -> dict[str, pa.Table]:
    draw = random.Random(3)
    at = [k // 4 for k in range(1200)]
    keys = [draw.randrange(300) for _ in at]
    return {"m": pa.table({"at": pa.array(at, pa.int64()), "k": pa.array(keys, pa.int64())})}


@pytest.mark.spread(2)
@pytest.mark.parametrize("query", _QUERIES)
@pytest.mark.parametrize("more", ["", ", buckets '2'"])
def test_a_query_that_is_too_inaccurate_fails_at_one_instant_whatever_the_rounds(query: str, more: str) -> None:
    attributes = f"memory '60 TUPLES', accuracy_at_least '90%', on_inaccuracy 'fail'{more}"
    bound = bind_script(f"{_LINE}CREATE QUERY q WITH ({attributes}) AS {query};", one_time=True)
    messages = set()
    for run in RUNS:
        with pytest.raises(PenstockError) as failed:
            run.answer(bound.queries, inputs(), False, None)
        assert failed.value.code == "P0633" and failed.value.hint == "more memory, or on_inaccuracy 'warn'"
        messages.add(failed.value.message)
    assert len(messages) == 1
    assert "below accuracy_at_least 0.9" in messages.pop()


def message_by_definition(budget: int) -> str:
    """Return what the first two queries fail with: every arrival looks at all that goes on, as does every judgement at
    the last second of a minute."""
    table = inputs()["m"]
    rows: list[tuple[int, int, Row]] = [
        (at, 0, (k, at, at + 90)) for at, k in zip(*table.to_pydict().values(), strict=True)
    ]
    threshold, clock = 2**63, 59
    ends: dict[int, int] = {}
    for one in sorted(weighed(rows, [0], [pa.int64()] * 3, False), key=lambda a: (a.ts, a.begin, a.rank, a.end)):
        while one.ts > clock:
            kept = sum(end > clock for end in ends.values())
            share = threshold / 2**63
            half = 1.96 * share * ((1 - share) / max(1, kept)) ** 0.5
            if kept >= 20 and share < 0.9:
                numbers = f"{share:.2f} ({max(0, share - half):.2f} to {min(1, share + half):.2f})"
                return f"accuracy of q is {numbers}, below accuracy_at_least 0.9"
            clock += 60
        ends = {rank: end for rank, end in ends.items() if end >= one.ts}
        if one.rank < threshold:
            ends[one.rank] = one.end
        while len(ends) > budget:
            threshold = max(ends)
            del ends[threshold]
    return "accurate enough"


@pytest.mark.spread(2)
@pytest.mark.parametrize("query", _QUERIES[:2])
@pytest.mark.parametrize("budget", [30, 120, 150, 175])
def test_what_is_judged_is_that_of_the_definition(query: str, budget: int) -> None:
    attributes = f"memory '{budget} TUPLES', accuracy_at_least '90%', on_inaccuracy 'fail'"
    bound = bind_script(f"{_LINE}CREATE QUERY q WITH ({attributes}) AS {query};", one_time=True)
    said = "accurate enough"
    try:
        RUNS[2].answer(bound.queries, inputs(), False, None)
    except PenstockError as failed:
        said = failed.message
    assert said == message_by_definition(budget)


@pytest.mark.spread(2)
@pytest.mark.parametrize("query", _QUERIES)
@pytest.mark.parametrize(
    "more", ["on_inaccuracy 'warn', accuracy_at_least '90%'", "accuracy_at_least '2%', on_inaccuracy 'fail'"]
)
def test_a_floor_changes_no_answer(query: str, more: str) -> None:
    answers = []
    for one in ("", f", {more}"):
        bound = bind_script(f"{_LINE}CREATE QUERY q WITH (memory '60 TUPLES'{one}) AS {query};", one_time=True)
        answers.append(sorted(map(repr, RUNS[0].answer(bound.queries, inputs(), False, None).tables["q"].to_pylist())))
    assert answers[0] and answers[0] == answers[1]


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("told_open", [False, True])
def test_the_bound_of_coverage_holds_of_sessions_that_grow_after_they_went(told_open: bool, compact: bool) -> None:
    """Every second the figures beside what goes on by definition, where a refused value comes again and again."""
    shed = exact_again = 0
    for seed in range(20):
        draw = random.Random(seed)
        table = KeyedTable(stretch_lanes(StretchBudget(1, compact=compact)), 0, (pa.int64(),))
        budget = BudgetOfStretches(StretchBudget(2 if compact else 9, compact=compact), table, 0, True, told_open)
        exact: dict[int, tuple[int, int]] = {}
        for tick in range(120):
            # At times all values pause, so that nothing is missing any more.
            keys = [draw.randrange(5) for _ in range(draw.choice([0, 1, 2, 3]))] if tick % 50 < 35 else []
            values, ts = pa.array(keys, pa.int64()), np.full(len(keys), tick, np.int64)
            slots = table.place([values], len(keys)).slots
            admitted = budget.admit([values], slots, ts, ts, ts + 6, ts - 1)
            for key, slot, kept in zip(keys, slots.tolist(), admitted.kept.tolist(), strict=True):
                first, end = exact.get(key, (tick, -1))
                exact[key] = (first if end >= tick else tick, tick + 6)
                if kept:
                    alive, begin, last = table.integers[:3, slot].tolist()
                    table.integers[:3, slot] = 1, begin if alive and last >= tick else tick, tick + 6
            table.integers[ALIVE, admitted.dropped] = 0
            table.integers[ALIVE, : table.count] &= table.integers[2, : table.count] > tick
            budget.pass_to(tick)
            figures = budget.figures(tick)
            if not figures:
                continue
            assert number(figures, SHED_HELD) <= number(figures, SHED_BUDGET)
            goes_on = {k: (b, min(e, tick + 1) if told_open else e) for k, (b, e) in exact.items() if e > tick}
            lanes = table.integers[:3, : table.count].T.tolist()
            covered = sum((min(e, tick + 1) if told_open else e) - b for alive, b, e in lanes if alive)
            every = sum(e - b for b, e in goes_on.values())
            assert number(figures, COVERAGE_AT_LEAST) <= (covered / every if every else 1.0) + 1e-6
            if figures[EXACT]:
                assert covered == every
                exact_again += number(figures, SHED_TUPLES) > 0
            shed += number(figures, SHED_TUPLES) > 0
    assert shed and exact_again
