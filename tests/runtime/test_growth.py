"""When state is said to grow without bound, and when not."""

from __future__ import annotations

import random

import pytest

from penstock.runtime.watching.growth import Growth, GrowthDetector, Trend


def told(sizes: list[float], horizon: float | None = None, step: float = 1.0) -> list[tuple[int, Growth]]:
    detector = GrowthDetector({} if horizon is None else {"join": horizon}, least=1000)
    found = [(n, detector.look("join", n * step, int(size))) for n, size in enumerate(sizes)]
    return [(n, growth) for n, growth in found if growth is not None]


def noisy(size: float, draw: random.Random) -> float:
    return size * draw.uniform(0.97, 1.03)


@pytest.mark.parametrize("seed", range(5))
def test_a_state_that_grows(seed: int) -> None:
    draw = random.Random(seed)
    ((batch, growth),) = told([noisy(5000 + 400 * n, draw) for n in range(300)])
    assert 10 < batch < 60
    assert growth.operator == "join"
    assert growth.slope == pytest.approx(400, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_a_window_that_fills_and_then_stays(seed: int) -> None:
    draw = random.Random(seed)
    assert told([noisy(min(400 * n, 400 * 60), draw) for n in range(400)], horizon=60) == []


def test_a_window_of_which_the_load_doubles_once() -> None:
    draw = random.Random(1)
    assert told([noisy(10_000 if n < 200 else 20_000, draw) for n in range(400)], horizon=20) == []


def test_saw_teeth_of_compaction_and_small_states() -> None:
    assert told([10_000 + 100 * (n % 10) for n in range(200)]) == []
    assert told(list(range(900))) == []


def test_a_slow_drift_beside_much_that_stays_is_no_growth() -> None:
    assert told([1_000_000 + 10.0 * n for n in range(300)]) == []


def test_time_that_stands_still_says_nothing() -> None:
    detector = GrowthDetector({}, least=1)
    assert [detector.look("join", 5.0, 1000 * n) for n in range(100)] == [None] * 100


def test_a_long_trend_is_thinned_out_not_forgotten() -> None:
    trend = Trend()
    for n in range(5000):
        trend.add(n, 3 * n)
    assert len(trend.samples) <= 48
    assert trend.samples[0] == (0, 0)
    assert trend.samples[-1][0] > 4800
    assert trend.slope() == pytest.approx(3)


def test_operators_that_are_gone_are_forgotten() -> None:
    detector = GrowthDetector({}, least=1_000)
    for n in range(50):
        assert detector.look("stays", float(n), 2_000) is None
        assert detector.look(f"{n} comes", float(n), 2_000) is None
        detector.forget([f"{n} comes", "was never there"])
    assert set(detector._trends) == set(detector._first_times) == {"stays"}
    # One of the same name begins anew, and is reported again.
    for _ in range(2):
        found = [detector.look("grows", float(n), 1_000 + 400 * n) for n in range(100)]
        assert sum(one is not None for one in found) == 1
        detector.forget(["grows"])
    assert not detector._reported
