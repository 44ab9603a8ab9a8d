"""The experiments of [tls IV] as inequalities on fixed seeds; the whole of them is `benchmarks/temporal.py`."""

from __future__ import annotations

import pytest

from benchmarks.temporal_runs import Experiment, mean

SEEDS = 3


def accuracy(policy: str, ratio: float = 0.5, continues: float = 0.5, least: int = 0, lines: int = 1) -> float:
    return mean(Experiment(policy, ratio, continues, least, lines), SEEDS)


def test_the_gain_over_random_grows_with_the_coalescing_probability() -> None:
    gains = [accuracy("cals", continues=p) / accuracy("random", continues=p) for p in (0.1, 0.5, 0.9, 0.98)]
    assert gains == sorted(gains)
    assert gains[-1] > 8


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.9])
def test_cals_is_highest_and_random_lowest(ratio: float) -> None:
    both, least = accuracy("cals", ratio), accuracy("random", ratio)
    for one in ("cals_v", "cals_i"):
        assert both >= accuracy(one, ratio) - 0.01
        assert accuracy(one, ratio) >= least - 0.01


def test_both_objectives_are_close_and_one_degrades() -> None:
    assert abs(accuracy("cals_v") - accuracy("cals_i")) < 0.08
    assert accuracy("cals_i", continues=0.98) < accuracy("cals_i") - 0.3
    assert accuracy("cals_v", continues=0.98) > 3 * accuracy("cals_i", continues=0.98)


def test_a_threshold_beyond_half_a_stretch_turns_cals_into_the_worst() -> None:
    assert accuracy("cals", continues=0.8, least=5) > 2 * accuracy("random", continues=0.8, least=5)
    assert accuracy("cals", continues=0.8, least=40) < 0.05
    assert accuracy("cals_q", continues=0.8, least=40) > 0.8


def test_a_smaller_window_beats_dropping_at_random() -> None:
    assert accuracy("newest", 0.2, 0.98) > 3 * accuracy("random", 0.2, 0.98)
    assert accuracy("newest", 0.2, 0.98) > accuracy("cals_i", 0.2, 0.98)


def test_a_known_predicate_helps_on_many_lines() -> None:
    assert accuracy("cals_q", 0.2, 0.5, 10, 20) > 3 * accuracy("cals", 0.2, 0.5, 10, 20)
