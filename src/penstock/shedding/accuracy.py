"""The accuracy of an answer beside the exact one [tls III-B], over arrays of coalesced rows (value, begin, end).

Acc = Σ σ / Σ_c max(n_c, a_c), where σ of an exact row is the part of it that the answer covers, and n_c and a_c are the
rows of value c in the exact answer and in the one given. Both are 1 where both answers are empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Float64s, Int64s
from penstock.compilation import loop
from penstock.figures import ACCURACY, ACCURACY_HIGH, ACCURACY_LOW, ACCURACY_VALUES
from penstock.figures.figure import Figure

#: Below this number of values the error is not estimated from a sample.
LEAST_VALUES = 20
#: Of the normal distribution, two-sided, for an interval that holds with 95 %.
_QUANTILE = 1.96


@dataclass(frozen=True)
class PeriodRows:
    """Rows (value, [begin, end)), as int64 arrays of one length. Values are any numbers."""

    values: Int64s
    begins: Int64s
    ends: Int64s

    def __len__(self) -> int:
        return len(self.values)

    def cut(self, reached: int, no_end: int) -> PeriodRows:
        """Return the rows with periods without an end cut at the instant after `reached`, if they began before it."""
        return PeriodRows(
            self.values,
            self.begins,
            np.where(self.ends >= no_end, np.maximum(self.begins, reached) + 1, self.ends),
        )

    def at_least(self, length: int) -> PeriodRows:
        """Return the rows whose period is at least that long."""
        kept = self.ends - self.begins >= length
        return PeriodRows(self.values[kept], self.begins[kept], self.ends[kept])


@loop
def _coalesce(values: Int64s, begins: Int64s, ends: Int64s, order: Int64s, found: Int64s) -> int:
    n = 0
    for k in order:
        if n and found[0, n - 1] == values[k] and begins[k] <= found[2, n - 1]:
            found[2, n - 1] = max(found[2, n - 1], ends[k])
        else:
            found[0, n], found[1, n], found[2, n] = values[k], begins[k], ends[k]
            n += 1
    return n


def coalesce(rows: PeriodRows) -> PeriodRows:
    """Return the maximal periods of each value, in the order (value, begin)."""
    values, begins, ends = (np.ascontiguousarray(c, np.int64) for c in (rows.values, rows.begins, rows.ends))
    found = np.empty((3, len(values)), np.int64)
    count = _coalesce(values, begins, ends, np.lexsort((begins, values)), found)
    return PeriodRows(found[0, :count], found[1, :count], found[2, :count])


@loop
def _compare(
    xv: Int64s,
    xb: Int64s,
    xe: Int64s,
    av: Int64s,
    ab: Int64s,
    ae: Int64s,
    values: Int64s,
    similar: Float64s,
    larger: Float64s,
) -> tuple[int, float]:
    """Walk both answers in the order (value, begin); return the numbers of values and of common ticks."""
    i, j, n, common = 0, 0, 0, 0.0
    while i < xv.shape[0] or j < av.shape[0]:
        if j >= av.shape[0] or (i < xv.shape[0] and xv[i] <= av[j]):
            value = xv[i]
        else:
            value = av[j]
        i0, j0 = i, j
        total = 0.0
        while i < xv.shape[0] and xv[i] == value:
            while j < av.shape[0] and av[j] == value and ae[j] <= xb[i]:
                j += 1
            overlap, k = 0, j
            while k < av.shape[0] and av[k] == value and ab[k] < xe[i]:
                overlap += min(ae[k], xe[i]) - max(ab[k], xb[i])
                k += 1
            total += float(overlap) / float(xe[i] - xb[i])
            common += float(overlap)
            i += 1
        while j < av.shape[0] and av[j] == value:
            j += 1
        values[n], similar[n], larger[n] = value, total, max(i - i0, j - j0)
        n += 1
    return n, common


@dataclass(frozen=True)
class Comparison:
    """An answer beside the exact one.

    Args:
        values: those that are in one of them.
        similar: per value Σ σ, the parts of its exact rows that the answer covers.
        larger: per value the larger of its numbers of rows.
        coverage: common (value, tick) pairs by those in either.
    """

    values: Int64s
    similar: Float64s
    larger: Float64s
    coverage: float

    @property
    def accuracy(self) -> float:
        return float(self.similar.sum() / self.larger.sum()) if len(self.values) else 1.0


def compare(exact: PeriodRows, given: PeriodRows) -> Comparison:
    """Compare two coalesced answers, both in the order (value, begin)."""
    size = len(exact) + len(given)
    values, similar, larger = np.empty(size, np.int64), np.empty(size), np.empty(size)
    count, common = _compare(
        exact.values, exact.begins, exact.ends, given.values, given.begins, given.ends, values, similar, larger
    )
    either = float((exact.ends - exact.begins).sum()) + float((given.ends - given.begins).sum()) - common
    return Comparison(values[:count], similar[:count], larger[:count], common / either if either else 1.0)


@dataclass(frozen=True)
class AccuracyEstimate:
    """An estimate of accuracy with its interval of 95 %. All but `values` are None for a sample that is too small."""

    accuracy: float | None
    low: float | None
    high: float | None
    values: int

    def figures(self) -> dict[Figure, int | float]:
        """Return the figures, none of a sample that is too small."""
        if self.accuracy is None or self.low is None or self.high is None:
            return {}
        return {
            ACCURACY: round(self.accuracy, 6),
            ACCURACY_LOW: round(self.low, 6),
            ACCURACY_HIGH: round(self.high, 6),
            ACCURACY_VALUES: self.values,
        }


def estimate(similar: Float64s, larger: Float64s, share: float) -> AccuracyEstimate:
    """AccuracyEstimate the ratio Σ similar / Σ larger over all values from those of a sample.

    Args:
        share: the part of all values that the sample is.
    """
    count = len(similar)
    if count < LEAST_VALUES:
        return AccuracyEstimate(None, None, None, count)
    ratio = float(similar.sum() / larger.sum())
    spread = float(np.std(similar - ratio * larger, ddof=1)) / (math.sqrt(count) * float(larger.mean()))
    half = _QUANTILE * math.sqrt(max(0.0, 1 - share)) * spread
    return AccuracyEstimate(ratio, max(0.0, ratio - half), min(1.0, ratio + half), count)


def estimate_by_hash(rows: Float64s, shares: Float64s) -> AccuracyEstimate:
    """Estimate the part of all rows that an answer has which is exact for the values it keeps, and has no others.

    Of all values those are kept whose hash is below a threshold, so n kept rows stand for n / share, with the variance
    n² (1 - share) / share². That the threshold has fallen with what came does no harm: at an instant it is known from
    the hashes above it, and those below are still spread evenly.

    Args:
        rows: of every value that has some.
        shares: the part of all hashes that is below the threshold of the value, more than 0.
    """
    count = len(rows)
    if count < LEAST_VALUES:
        return AccuracyEstimate(None, None, None, count)
    every = float((rows / shares).sum())
    ratio = float(rows.sum()) / every
    spread = math.sqrt(float((rows * rows * np.maximum(0.0, 1 - shares) / (shares * shares)).sum())) / every
    half = _QUANTILE * spread * ratio
    return AccuracyEstimate(ratio, max(0.0, ratio - half), min(1.0, ratio + half), count)


def coverage_at_least(covered: float, lost: float) -> float:
    """Return a lower bound of the coverage, from the ticks that the answer covers and those that may be missing."""
    return covered / (covered + lost) if covered + lost > 0 else 1.0
