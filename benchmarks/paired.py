"""Figures of two sides that did the same work in turn: middle ratios, and intervals by the bootstrap.

On a machine whose speed drifts, single times say little. Here work `i` is done by both sides one right after the other,
and what counts is the ratio of each pair, of all pairs the mean of the middle half: like the median it does not depend
on a few that were disturbed, and its interval, which is found by drawing pairs again, is an eighth shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_DRAWS = 10_000
_SEED = 2003


@dataclass(frozen=True)
class Interval:
    """A mean of the middle half with the interval that holds it with 95 %."""

    middle: float
    low: float
    high: float

    def shown(self, unit: float = 1.0, digits: int = 1) -> str:
        low, mid, high = (one / unit for one in (self.low, self.middle, self.high))
        return f"{mid:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


@dataclass(frozen=True)
class Pairs:
    """What work took on both sides, pair by pair: without what is judged, and with it."""

    without: Sequence[float]
    with_it: Sequence[float]

    @property
    def medians(self) -> tuple[float, float]:
        return float(np.median(self.without)), float(np.median(self.with_it))

    @property
    def overhead(self) -> Interval:
        """Return by which share the second side takes more."""
        return self._interval(lambda without, with_it: with_it / without - 1)

    @property
    def added(self) -> Interval:
        """Return how much more the second side takes."""
        return self._interval(lambda without, with_it: with_it - without)

    def _interval(self, compared: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Interval:
        found = compared(np.asarray(self.without, float), np.asarray(self.with_it, float))
        draws = np.random.default_rng(_SEED).integers(0, len(found), (_DRAWS, len(found)))
        low, high = np.quantile(_middle(found[draws]), (0.025, 0.975))
        return Interval(float(_middle(found)), float(low), float(high))


def _middle(values: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of the values, along the last axis."""
    left_out = values.shape[-1] // 4
    ordered = np.sort(values, axis=-1)
    return np.asarray(ordered[..., left_out : values.shape[-1] - left_out].mean(axis=-1))


def verdict(overhead: Interval, goal: float) -> str:
    """Return whether an overhead is below a goal: `met` and `missed` where all of its interval says so."""
    if overhead.high <= goal:
        return "met"
    return "missed" if overhead.low > goal else "open"
