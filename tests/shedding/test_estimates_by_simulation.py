"""Estimates over what a budget of whole values keeps are right in the mean, and their intervals hold: a thousand draws
of the hashes, by fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.arrays import Int64s
from penstock.expressions.sampling.estimates import Estimated, estimates, half_widths
from penstock.expressions.sampling.inclusion import unpacked
from penstock.physical.operators.temporal.stretch_budget import records_of
from penstock.shedding.contract import Shedding
from penstock.shedding.hashing import FallingThresholds
from penstock.shedding.layout import NEVER
from penstock.shedding.policies import POLICIES
from penstock.shedding.shedder import ArrivingTuples, Shedder
from penstock.shedding.whole import KILL_AT, KILL_SLOT, LANES, StretchArrivals, WholeStretches

_VALUES, _SEEDS = 150, 1_000


def _answers(x: np.ndarray, ranks: Int64s, thresholds: Int64s) -> dict[Estimated, tuple[float, float]]:
    """Return the estimate and half the width of its interval, by kind, of rows that are there."""
    groups, records = np.zeros(len(x), np.int64), unpacked(records_of(ranks, thresholds))
    return {
        kind: (
            float(estimates(kind, groups, 1, x, records)[0]),
            float(half_widths(kind, groups, 1, x, records, 0.95)[0]),
        )
        for kind in Estimated
    }


def _judge(found: dict[Estimated, list[tuple[float, float]]], x: np.ndarray) -> None:
    """A sum is unbiased; an average is a ratio, whose interval is a little narrow for skewed values."""
    for kind, exact, least in ((Estimated.SUM, float(x.sum()), 0.92), (Estimated.AVG, float(x.mean()), 0.90)):
        values, widths = (np.array(column) for column in zip(*found[kind], strict=True))
        error = values - exact
        if kind is Estimated.SUM:
            assert abs(error.mean()) < 4.5 * error.std() / np.sqrt(len(error))
        assert abs(error.mean()) < 0.02 * exact
        assert least <= float((np.abs(error) <= widths).mean()) <= 0.98


def _held(draw: np.random.Generator, weights: Int64s) -> tuple[Int64s, int]:
    """Return the hashes of values that arrive, and the threshold of a budget for some of them."""
    ranks, at = draw.integers(0, 2**63 - 1, _VALUES), np.arange(_VALUES)
    shedder = Shedder(Shedding(POLICIES["value"]), int(weights.sum()) // 3)
    order = draw.permutation(_VALUES)
    never = np.full(_VALUES, NEVER)
    shedder.arrive(ArrivingTuples(order, ranks[order], at, at + 5, at, at, never, weights[order]))
    return ranks, shedder.refuses_from


@pytest.mark.parametrize("in_bytes", [False, True])
def test_what_a_budget_holds_estimates_what_there_is(in_bytes: bool) -> None:
    x = np.random.default_rng(1).gamma(2.0, 3.0, _VALUES)
    weights = np.random.default_rng(2).integers(88, 130, _VALUES) if in_bytes else np.ones(_VALUES, np.int64)
    found: dict[Estimated, list[tuple[float, float]]] = {kind: [] for kind in Estimated}
    for seed in range(_SEEDS):
        ranks, threshold = _held(np.random.default_rng(seed), weights)
        kept = np.flatnonzero(ranks < threshold)
        for kind, one in _answers(x[kept], ranks[kept], np.full(len(kept), threshold)).items():
            found[kind].append(one)
    _judge(found, x)


def test_what_is_told_once_estimates_all_that_there_was() -> None:
    """Values have several sessions, told at other thresholds than one another."""
    fixed = np.random.default_rng(3)
    slots = np.repeat(np.arange(_VALUES), 3)
    at = np.sort(fixed.integers(0, 3_000, len(slots)))
    slots = fixed.permutation(slots)
    x, length = fixed.gamma(2.0, 3.0, len(slots)), fixed.integers(50, 900, len(slots))
    # A session ends before the next one of its value begins.
    for slot in range(_VALUES):
        own = np.flatnonzero(slots == slot)
        length[own[:-1]] = np.minimum(length[own[:-1]], np.maximum(np.diff(at[own]) - 1, 1))
    found: dict[Estimated, list[tuple[float, float]]] = {kind: [] for kind in Estimated}
    levels = 0
    for seed in range(_SEEDS):
        ranks = np.random.default_rng(seed).integers(0, 2**63 - 1, _VALUES)[slots]
        machine = WholeStretches([20])
        machine.falling = FallingThresholds(1)
        ones = np.ones(len(slots), np.int64)
        arrivals = StretchArrivals(slots, ranks, at, at, at + length, ones, at - 1)
        entered, kills, _ = machine.admit(np.zeros((LANES, _VALUES), np.int64), arrivals, int(NEVER))
        killed = np.full(_VALUES, NEVER)
        killed[kills[:, KILL_SLOT]] = kills[:, KILL_AT]
        told = np.flatnonzero((entered == 1) & (killed[slots] > at + length))
        thresholds = machine.falling.met(np.zeros(len(told), np.int64), (at + length)[told])
        levels += len(np.unique(thresholds)) > 1
        for kind, one in _answers(x[told], ranks[told], thresholds).items():
            found[kind].append(one)
    assert levels == _SEEDS
    _judge(found, x)
