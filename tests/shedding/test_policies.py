"""The compiled policies against their definitions, and what holds of each."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from naive_cases import SheddingCase, check_case, periods, random_case

from penstock.shedding.contract import Shedding
from penstock.shedding.policies import POLICIES
from penstock.shedding.record import SheddingRecord
from penstock.shedding.shedder import ArrivingTuples, Shedder
from penstock.testing.approximation.shedding import ONE, HeldTuple, NaiveShedding, accuracy, coalesced, salted


@pytest.mark.parametrize("policy", POLICIES)
def test_the_machine_drops_what_the_definition_drops(policy: str) -> None:
    assert sum(check_case(random_case(seed, policy), seed) for seed in range(20)) > 50


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_the_machine_drops_what_the_definition_drops_in_many_cases(policy: str) -> None:
    for seed in range(20, 600):
        check_case(random_case(seed, policy), seed)


def _example() -> list[HeldTuple]:
    """The five tuples of the worked example: 80 [1,3), 80 [3,7), 80 [7,8), 82 [8,10), 80 [12,15)."""
    rows = ((80, 1, 3), (80, 3, 7), (80, 7, 8), (82, 8, 10), (80, 12, 15))
    return [HeldTuple(rank, begin, end, 10**6, begin, k) for k, (rank, begin, end) in enumerate(rows)]


def test_the_worked_example_has_these_accuracies_and_the_third_tuple_goes() -> None:
    held = _example()

    def answer(tuples: list[HeldTuple]) -> list[tuple[object, tuple[int, int]]]:
        values = {t.rank for t in tuples}
        return [(v, p) for v in values for p in coalesced(t.period for t in tuples if t.rank == v)]

    without = [accuracy(answer(held), answer([t for t in held if t is not gone])) for gone in held]
    assert [round(float(one), 3) for one in without] == [0.905, 0.607, 0.952, 0.667, 0.667]
    costs = [NaiveShedding("cals", 9, held=held).cost(t) / ONE for t in held]
    assert costs == pytest.approx([2 / 7, 1 + 4 / 7, 1 / 7, 1, 1])
    rows = np.array([(t.rank - 80, t.rank, t.begin, t.end, t.begin, t.begin, t.expires, 1) for t in held], np.int64)
    machine = Shedder(Shedding(POLICIES["cals"]), 4)
    assert machine.arrive(ArrivingTuples(*rows.T)).drops["number"].tolist() == [2]


def test_the_cheapest_tuple_is_redundant_or_an_end_of_its_stretch() -> None:
    looked = 0
    for seed in range(60):
        for policy in ("cals", "cals_q"):
            case = random_case(seed, policy)
            naive = case.naive()
            for _, rank, begin, end, ts, clock, expires, weight in case.rows:
                naive.arrive(rank, (begin, end), ts, expires, clock, weight)
            if not naive.held:
                continue
            looked += 1
            costs = [(naive.cost(t), naive._tie(t), t) for t in naive.held]
            _, _, cheapest = min(costs, key=lambda one: one[:2])
            others = [o.period for o in naive.held if o is not cheapest and o.rank == cheapest.rank]
            redundant = any(b <= cheapest.begin and cheapest.end <= e for b, e in coalesced(others))
            assert redundant or naive.is_end(cheapest)
    assert looked > 80


@pytest.mark.parametrize("policy", POLICIES)
def test_every_stretch_that_is_held_lies_within_an_exact_one(policy: str) -> None:
    for seed in range(8):
        case = random_case(seed, policy, size=40)
        machine, exact = case.machine(), Shedder(case.shedding, 10**6)
        for k in range(len(case.rows)):
            machine.arrive(case.arrivals(k, k + 1))
            exact.arrive(case.arrivals(k, k + 1))
        held, every = periods(machine.rows()), periods(exact.rows())
        for value in {v for v, _ in held}:
            whole = coalesced(p for v, p in every if v == value)
            for begin, end in coalesced(p for v, p in held if v == value):
                assert sum(b <= begin and end <= e for b, e in whole) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_what_arrived_is_held_or_expired_or_shed(policy: str) -> None:
    case = random_case(5, policy, size=200, sample=0.0)
    machine = case.machine()
    outcome = machine.arrive(case.arrivals())
    last = case.rows[-1][4]
    entered = {k for k in range(len(case.rows)) if outcome.entered[k] == 1}
    shed = set(outcome.drops["number"].tolist())
    held = set(machine.rows()["number"].tolist())
    expired = {k for k in entered if case.rows[k][6] <= last} - shed
    assert held | shed | expired == entered
    assert not held & shed and not held & expired
    assert all(case.rows[k][6] > at for k, at in outcome.drops[["number", "at"]].tolist())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_budget_that_suffices_drops_nothing(policy: str) -> None:
    case = random_case(3, policy, size=100)
    machine = Shedder(case.shedding, 300)
    assert not len(machine.arrive(case.arrivals()).drops)


@pytest.mark.parametrize("policy", POLICIES)
def test_drops_do_not_depend_on_the_numbers_of_values(policy: str) -> None:
    case = random_case(11, policy, size=150)
    renamed = SheddingCase(case.shedding, case.budget, tuple((90 - 7 * slot, *row) for slot, *row in case.rows))
    drops = [one.machine().arrive(one.arrivals()).drops["number"].tolist() for one in (case, renamed)]
    assert drops[0] == drops[1] and drops[0]


def test_random_retains_evenly() -> None:
    """χ² over the places of one window. With 19 degrees of freedom a value above 92 has a probability below 1e-9."""
    places, runs, kept = 20, 400, 8
    counts = np.zeros(places)
    for seed in range(runs):
        machine = Shedder(Shedding(POLICIES["random"], seed=seed), kept)
        at = np.arange(places, dtype=np.int64)
        ranks = np.array([salted(int(k), 1) for k in at], np.int64)
        never = np.full(places, 10**9, np.int64)
        machine.arrive(ArrivingTuples(at, ranks, at, at + 1, at, at, never, np.ones(places, np.int64)))
        counts[machine.rows()["number"]] += 1
    expected = runs * kept / places
    # Retained places of one run are not independent: the variance of a count is smaller by this factor.
    statistic = float(((counts - expected) ** 2 / (expected * (1 - kept / places))).sum()) * (places - 1) / places
    assert statistic < 92


def test_value_keeps_whole_values_and_never_takes_one_back() -> None:
    case = random_case(8, "value", size=400)
    machine = case.machine()
    gone: set[int] = set()
    for k in range(len(case.rows)):
        drops = machine.arrive(case.arrivals(k, k + 1)).drops
        gone |= {case.rows[number][1] for number in drops["number"].tolist()}
        assert not gone & set(machine.rows()["rank"].tolist())
    assert gone


def test_cals_q_keeps_what_passes_the_predicate() -> None:
    """Two stretches of four ticks pass LENGTH >= 4; `cals` shortens both, `cals_q` gives one up."""
    rows = [(k, salted(k, 1), b, b + 1, b, b, 10**6, 1) for b in range(4) for k in range(2)]
    rows += [(2, salted(2, 1), b, b + 1, b, b, 10**6, 1) for b in (10, 20, 30)]
    passed = {}
    for name in ("cals", "cals_q"):
        machine = Shedder(Shedding(POLICIES[name], least_length=4), 8)
        machine.arrive(ArrivingTuples(*np.array(rows, np.int64).T))
        held = periods(machine.rows())
        stretches = [p for v in {v for v, _ in held} for p in coalesced(q for w, q in held if w == v)]
        passed[name] = sum(e - b >= 4 for b, e in stretches)
    assert passed == {"cals": 0, "cals_q": 1}


def test_more_open_values_than_the_budget() -> None:
    for policy in POLICIES:
        rows = [(k, salted(k, 1), k, k + 5, k, k, 10**6, 1) for k in range(50)]
        machine = Shedder(Shedding(POLICIES[policy]), 1)
        machine.arrive(ArrivingTuples(*np.array(rows, np.int64).T))
        assert machine.held <= 1


def test_many_stretches_of_one_value_cost_no_scan() -> None:
    """All costs are equal, so what leaves first goes: the oldest."""
    n = 20_000
    at = np.arange(n, dtype=np.int64)
    rank = np.full(n, salted(7, 1), np.int64)
    zero, one = np.zeros(n, np.int64), np.ones(n, np.int64)
    machine = Shedder(Shedding(POLICIES["cals_q"]), 10_000)
    machine.arrive(ArrivingTuples(zero, rank, 3 * at, 3 * at + 1, 3 * at, 3 * at, 3 * at + 10**9, one))
    assert sorted(machine.rows()["number"].tolist()) == list(range(10_000, n))


def test_a_budget_in_bytes_counts_weights() -> None:
    at = np.arange(30, dtype=np.int64)
    ranks = np.array([salted(int(k), 1) for k in at], np.int64)
    machine = Shedder(Shedding(POLICIES["newest"]), 1000)
    machine.arrive(ArrivingTuples(at, ranks, at, at + 1, at, at, at + 10**6, 88 + at))
    assert machine.held <= 1000
    assert machine.rows()["number"].min() == 22


def test_periods_at_the_limits_of_time() -> None:
    rows = [(0, salted(0, 1), -(2**61), 2**62, 0, 0, 2**62, 1), (0, salted(0, 1), 5, 2**62, 5, 5, 2**62, 1),
            (1, salted(1, 1), 2**60, 2**62, 6, 6, 2**62, 1)]  # fmt: skip
    for policy in POLICIES:
        machine = Shedder(Shedding(POLICIES[policy], ordered=False), 2)
        assert len(machine.arrive(ArrivingTuples(*np.array(rows, np.int64).T)).drops) in (1, 2)
        rows_left = machine.rows()
        assert (rows_left["begin"] < rows_left["end"]).all()


def test_entries_of_a_value_stay_in_order() -> None:
    case = random_case(2, "cals_v", size=300)
    machine = case.machine()
    machine.arrive(case.arrivals())
    saved = machine.saved()
    assert all(a < b for a, b in pairwise(saved.entries[:, 4].tolist()))
    assert not math.isnan(machine.sample_share)


@pytest.mark.spread(2)
@pytest.mark.parametrize("policy", list(POLICIES))
def test_thresholds_that_fall_and_budgets_that_change_drop_what_the_definition_drops(policy: str) -> None:
    assert sum(check_case(random_case(seed, policy), seed, 0.5) for seed in range(1_000, 1_060))


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(POLICIES))
def test_thresholds_that_fall_drop_what_the_definition_drops_in_many_cases(policy: str) -> None:
    for seed in range(2_000, 3_000):
        check_case(random_case(seed, policy), seed, 0.5)


def test_what_is_refused_is_not_missing_in_the_sample() -> None:
    """Otherwise the answer of `value` would be estimated to be exact."""
    made = Shedding(POLICIES["value"], sample=0.999)
    machine = Shedder(made, 1_000)
    count = 2_000
    slots = np.arange(count)
    ranks = np.array([salted(k, 1) for k in range(count)], np.int64)
    stamps = np.arange(count)
    lives = np.full(count, 10**6)
    machine.arrive(ArrivingTuples(slots, ranks, stamps, stamps + 1, stamps, stamps, lives, np.ones(count, np.int64)))
    record = SheddingRecord(10**9)
    record.shed = 1
    judged = record.judge([machine])
    assert judged.accuracy is not None and judged.low is not None and judged.high is not None
    true = machine.entries / count
    assert judged.low <= true <= judged.high < 0.75
