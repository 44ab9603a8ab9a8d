"""When state is said to grow without bound, and when not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from inline_engine import InlineServer, without_spark

from penstock.runtime.monitoring.growth import Growth, GrowthDetector, Trend

__all__ = ["without_spark"]


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


def test_what_comes_later_has_time_to_fill_too() -> None:
    draw = random.Random(3)
    detector = GrowthDetector({}, least=1000)
    detector.expect({"join": 60.0})
    sizes = [noisy(min(400 * n, 400 * 60), draw) for n in range(400)]
    assert not any(detector.look("join", float(n), int(size)) for n, size in enumerate(sizes))
    detector.forget(["join"])
    # Nothing is left of it.
    assert not detector._horizons
    assert any(detector.look("join", float(n), int(size)) for n, size in enumerate(sizes))


SCRIPT = "CREATE STREAM S (ts INT, k INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
SUM = "CREATE QUERY {} AS SELECT k, SUM(v) AS s FROM S [RANGE {} SECONDS] GROUP BY k;"


def horizons(server: InlineServer) -> list[float]:
    return sorted(s for name, s in server.run.inline.reporter._growth._horizons.items() if "Aggregate" in name)


def test_queries_that_are_registered_later_have_a_horizon(tmp_path: Path, without_spark: None) -> None:
    server = InlineServer(tmp_path / "checkpoint")
    try:
        server.post(SCRIPT)
        server.post(SUM.format("q", 100))
        server.post(SUM.format("p", 900) + SUM.format("r", 300))
        assert horizons(server) == [100, 300, 900]
        server.post("DROP QUERY p;")
        assert horizons(server) == [100, 300]
        server.post("ALTER QUERY q PAUSE;")
        server.post("ALTER QUERY q RESUME START NOW;")
        server.post(SUM.format("same", 100))
        found = server.run.inline.reporter._growth._horizons
        assert 100 in horizons(server) and {int(name.split()[0]) for name in found} <= server.run.job.plan.by_id.keys()
        server.post("DROP QUERY q; DROP QUERY same; DROP QUERY r;")
        assert not found
    finally:
        server.close()
