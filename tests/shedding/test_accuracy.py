"""Accuracy by arrays against its definition, estimates, and bounds that hold."""

from __future__ import annotations

import random
from math import comb

import numpy as np
import pytest
from naive_cases import random_case

from penstock.arrays import Records
from penstock.shedding.accuracy import PeriodRows, coalesce, compare, coverage_at_least, estimate
from penstock.shedding.contract import Shedding
from penstock.shedding.hashing import SAMPLES, all_salted
from penstock.shedding.layout import DROP
from penstock.shedding.ledger import Ledger
from penstock.shedding.policies import POLICIES
from penstock.shedding.shedder import ArrivingTuples, Shedder
from penstock.testing.approximation.shedding import accuracy, coalesced, salted


def rows_of(entries: Records) -> PeriodRows:
    return coalesce(PeriodRows(entries["rank"], entries["begin"], entries["end"]))


def as_pairs(rows: PeriodRows) -> list[tuple[object, tuple[int, int]]]:
    return [(v, (b, e)) for v, b, e in zip(rows.values.tolist(), rows.begins.tolist(), rows.ends.tolist(), strict=True)]


def test_accuracy_equals_its_definition() -> None:
    draw = random.Random(1)
    for _ in range(200):
        drawn = [(draw.randrange(3), b := draw.randrange(40), b + draw.randrange(1, 9)) for _ in range(25)]
        kept = [one for one in drawn if draw.random() < draw.choice([0.3, 0.9, 1.0])]
        exact, given = (coalesce(PeriodRows(*np.array(rows, np.int64).reshape(-1, 3).T)) for rows in (drawn, kept))
        value_of = {v: coalesced((b, e) for w, b, e in drawn if w == v) for v in {v for v, _, _ in drawn}}
        assert as_pairs(exact) == [(v, p) for v in sorted(value_of) for p in value_of[v]]
        found = compare(exact, given).accuracy
        assert found == pytest.approx(float(accuracy(as_pairs(exact), as_pairs(given))))
        assert 0 <= found <= 1
        assert (found == 1) == (as_pairs(exact) == as_pairs(given))


def test_of_two_empty_answers_accuracy_is_one() -> None:
    nothing = PeriodRows(*np.empty((3, 0), np.int64))
    assert compare(nothing, nothing).accuracy == compare(nothing, nothing).coverage == 1.0


def test_giving_back_a_tuple_can_lower_accuracy() -> None:
    exact = PeriodRows(*np.array([[1, 0, 10]], np.int64).T)
    one = PeriodRows(*np.array([[1, 0, 4]], np.int64).T)
    two = PeriodRows(*np.array([[1, 0, 4], [1, 5, 6]], np.int64).T)
    assert compare(exact, two).accuracy < compare(exact, one).accuracy


def test_a_period_without_end_is_cut_behind_the_instant() -> None:
    rows = PeriodRows(*np.array([[1, 3, 2**62], [1, 30, 2**62], [2, 1, 4]], np.int64).T)
    assert as_pairs(rows.cut(10, 2**62)) == [(1, (3, 11)), (1, (30, 31)), (2, (1, 4))]
    assert as_pairs(rows.cut(10, 2**62).at_least(5)) == [(1, (3, 11))]


@pytest.mark.spread(2)
@pytest.mark.parametrize("policy", POLICIES)
def test_exact_never_lies_and_the_bound_of_coverage_holds(policy: str) -> None:
    shed = exact_again = 0
    for seed in range(12):
        case = random_case(seed, policy, size=80)
        machine, every, ledger = case.machine(), Shedder(case.shedding, 10**6), Ledger(2**62)
        for k in range(len(case.rows)):
            drops = machine.arrive(case.arrivals(k, k + 1))
            every.arrive(case.arrivals(k, k + 1))
            now = case.rows[k][4]
            ledger.add(drops.drops, now)
            if (drops.entered == 2).any():
                break  # what a threshold refuses is counted by its caller
            given, exact = rows_of(machine.rows()), rows_of(every.rows())
            if ledger.live == 0:
                assert as_pairs(given) == as_pairs(exact)
                exact_again += shed > 0
            shed += len(drops.drops)
            bound = coverage_at_least(machine.covered, ledger.lost(now))
            assert bound <= compare(exact, given).coverage + 1e-12
    assert shed


def test_the_ledger_is_an_upper_bound_whatever_the_times() -> None:
    draw = random.Random(4)
    ledger, live = Ledger(2**62), []
    clock = -1000
    for _ in range(400):
        clock += draw.choice([0, 1, 5, 1000])
        expires = draw.choice([clock + draw.randrange(1, 50), clock + draw.randrange(1, 10**7), 2**62])
        ticks = draw.randrange(1, 9)
        ledger.add(np.array([(0, clock, ticks, expires, 0, 9, 0, 7)], DROP), clock)
        live = [one for one in live if one[0] > clock] + [(expires, ticks)]
        assert ledger.live >= len(live) and ledger.weight == 7 * ledger.live
        assert ledger.lost(clock) >= sum(t for _, t in live)
        ledger = Ledger.from_json(ledger.as_json())
    assert len(ledger.tuples) == 64


def test_the_ledger_is_empty_when_all_has_left() -> None:
    ledger = Ledger(2**62)
    ledger.add(np.array([(0, 5, 3, 100, 0, 9, 0, 7), (1, 5, 3, 7, 0, 9, 0, 7)], DROP), 5)
    assert (ledger.live, ledger.lost(5)) == (2, 6)
    ledger.pass_to(10**6)
    assert (ledger.live, ledger.lost(10**6)) == (0, 0)


def test_a_sample_that_is_too_small_says_nothing() -> None:
    found = estimate(np.ones(19), np.ones(19), 0.1)
    assert (found.accuracy, found.low, found.high, found.values) == (None, None, None, 19)


def sampled_run(
    seed: int, values: int = 2500, share: float = 0.04, policy: str = "cals_q"
) -> tuple[float, float, float, float]:
    """Return (truth, estimate, low, high) of a run at half of the window."""
    draw = np.random.default_rng(seed)
    n = 8000
    slots = np.repeat(draw.integers(0, values, n), draw.integers(1, 6, n))[:n]
    begins = np.arange(n, dtype=np.int64)
    ranks = all_salted(slots * 1000 + seed, 1)
    never, one = np.full(n, 10**9, np.int64), np.ones(n, np.int64)
    arrivals = ArrivingTuples(slots, ranks, begins, begins + 1, begins, begins, never, one)
    machine = Shedder(Shedding(POLICIES[policy], seed=seed, sample=share), n // 2)
    every = Shedder(Shedding(POLICIES["cals_q"]), 10 * n)
    machine.arrive(arrivals)
    every.arrive(arrivals)
    assert machine.held <= n // 2
    given, exact = rows_of(machine.rows()), rows_of(every.rows())
    sample = rows_of(machine.sample_rows())
    inside = all_salted(given.values, SAMPLES, seed) < machine.sample_share * 2.0**63
    answer = PeriodRows(given.values[inside], given.begins[inside], given.ends[inside])
    compared = compare(sample, answer)
    found = estimate(compared.similar, compared.larger, machine.sample_share)
    assert found.accuracy is not None and found.low is not None and found.high is not None
    return compare(exact, given).accuracy, found.accuracy, found.low, found.high


def test_the_interval_holds_in_nine_of_ten_runs() -> None:
    runs = [sampled_run(seed) for seed in range(200)]
    assert sum(low <= truth <= high for truth, _, low, high in runs) >= 180
    assert abs(np.mean([guess - truth for truth, guess, _, _ in runs])) < 0.02


@pytest.mark.spread(2)
@pytest.mark.parametrize("policy", ["random", "newest", "value", "cals"])
def test_the_interval_holds_under_every_kind_of_policy(policy: str) -> None:
    """Seeds are fixed. If an interval held in 90 % of runs, fewer than 35 of 60 would have a probability below 1e-9."""
    runs = [sampled_run(seed, policy=policy) for seed in range(60)]
    assert sum(comb(60, k) * 0.9**k * 0.1 ** (60 - k) for k in range(35)) < 1e-9
    assert sum(low <= truth <= high for truth, _, low, high in runs) >= 35
    assert abs(np.mean([guess - truth for truth, guess, _, _ in runs])) < 0.03


def test_hashes_equal_their_definition() -> None:
    words = np.array([0, 1, -1, 2**62, -(2**63)], np.int64)
    for salt in (1, 3, 5):
        assert all_salted(words, salt, 9).tolist() == [salted(int(w), salt, 9) for w in words]
