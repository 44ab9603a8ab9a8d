"""Estimators of sums, counts and averages of what was sampled, from rows with their inclusion records.

Horvitz and Thompson's: Σ x/π. Variances: (1-π)(y/π)² over clusters that are kept independently, y the sum of a cluster;
N²(1-n/N)s²/n over simple random samples of n of N, by strata. Joined rows of two independent samples, with p and q, are
kept with pq, two of one left row with pq², two of one right row with p²q; so the variance is [(1-p) Σ S² + (1-q) Σ T² -
(1-p)(1-q) Σ y²] / (pq)², S the sums of left clusters, T of right ones, y of pairs of them. The average is the ratio of
two estimates, and its variance that of the residuals.
"""

from __future__ import annotations

import enum
import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from penstock.expressions.sampling.inclusion import UNKNOWN, Records

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

#: Sampled clusters from which on the normal distribution replaces Student's.
_MANY = 30


class Estimated(enum.Enum):
    SUM = "SUM"
    AVG = "AVG"


def estimates(kind: Estimated, groups: Int64s, count: int, x: Float64s, records: Records) -> Float64s:
    """Return the estimate of each group in [0, count). groups: of each row."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        total = _sums(groups, x / records["pi"], count)
        if kind is Estimated.SUM:
            return total
        return total / _sums(groups, 1.0 / records["pi"], count)


def half_widths(
    kind: Estimated, groups: Int64s, count: int, x: Float64s, records: Records, confidence: float
) -> Float64s:
    """Return half the width of the confidence interval of each group; NaN where it is not known."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rows = x
        if kind is Estimated.AVG:
            mean = estimates(kind, groups, count, x, records)
            rows = (x - mean[groups]) / _sums(groups, 1.0 / records["pi"], count)[groups]
        keys = np.stack([groups, records["stratum"], records["cluster"]])
        order = np.lexsort(keys[::-1])
        starts = _starts(keys[:, order])
        first = order[starts]
        sums = np.add.reduceat(rows[order], starts) if len(order) else np.empty(0)
        own, kept = groups[first], records[first]
        variance = _independent(own, count, sums, kept) + _strata(own, count, sums, kept)
        variance += _pairs(own, count, sums, kept)
        clusters = np.bincount(own, minlength=count)
        variance[clusters < 2] = np.nan
        return quantiles(confidence, clusters) * np.sqrt(variance)


def _sums(groups: Int64s, values: Float64s, count: int) -> Float64s:
    return np.bincount(groups, values, count).astype(np.float64)


def _independent(own: Int64s, count: int, sums: Float64s, kept: Records) -> Float64s:
    pi: Float64s = kept["pi"]
    parts = np.where(kept["size"] == 0, (1.0 - pi) * (sums / pi) ** 2, 0.0)
    parts[kept["size"] == UNKNOWN] = np.nan
    return _sums(own, parts, count)


def _pairs(own: Int64s, count: int, sums: Float64s, kept: Records) -> Float64s:
    """Return the variances of the pairs of independent samples in each group. NaN where the estimate is negative, as it
    may be for values of both signs."""
    chosen = np.flatnonzero(kept["size"] < UNKNOWN)
    if not len(chosen):
        return np.zeros(count)
    own, sums, kept = own[chosen], sums[chosen], kept[chosen]
    p, pi = (-np.ascontiguousarray(kept["size"])).view(np.float64), kept["pi"]
    q = pi / p
    total = _sums(own, -(1.0 - p) * (1.0 - q) * (sums / pi) ** 2, count)
    for side, chance in (("cluster", p), ("stratum", q)):
        keys = np.stack([own, kept[side]])
        order = np.lexsort(keys[::-1])
        starts = _starts(keys[:, order])
        first = order[starts]
        whole = np.add.reduceat(sums[order], starts)
        total += _sums(own[first], (1.0 - chance[first]) * (whole / pi[first]) ** 2, count)
    total[total < 0.0] = np.nan
    return total


def _strata(own: Int64s, count: int, sums: Float64s, kept: Records) -> Float64s:
    """Return the variances of the strata of each group, whose clusters come one after the other. Clusters of a stratum
    that are not in the group count as 0."""
    chosen = np.flatnonzero(kept["size"] > 0)
    total = np.zeros(count)
    if not len(chosen):
        return total
    own, sums, kept = own[chosen], sums[chosen], kept[chosen]
    starts = _starts(np.stack([own, kept["stratum"]]))
    first = kept[starts]
    n, pi = first["size"].astype(np.float64), first["pi"]
    whole = n / pi
    s1, s2 = np.add.reduceat(sums, starts), np.add.reduceat(sums**2, starts)
    spread = np.maximum(s2 - s1**2 / n, 0.0) / (n - 1.0)
    parts = np.where(pi >= 1.0, 0.0, whole**2 * (1.0 - n / whole) * spread / n)
    return total + _sums(own[starts], parts, count)


def _starts(keys: npt.NDArray[np.int64]) -> Int64s:
    """Return where runs of equal columns begin."""
    if not keys.shape[1]:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))


def range_widths(
    kind: Estimated, groups: Int64s, count: int, x: Float64s, records: Records, confidence: float,
    low: float, high: float,
) -> Float64s:  # fmt: skip
    """Return half the width by Hoeffding's and Serfling's bound, for values in [low, high]; NaN where a value is
    outside, or the sample has no bound."""
    size = records["size"]
    n = np.bincount(groups, minlength=count).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        wrong = (x < low) | (x > high) | np.isnan(x) | (size < 0)
        bad = np.bincount(groups, wrong, count) > 0
        least = np.full(count, np.inf)
        most = np.full(count, -np.inf)
        np.minimum.at(least, groups, records["pi"])
        np.maximum.at(most, groups, records["pi"])
        drawn = np.bincount(groups, size > 0, count) == n
        whole = n / least
        rest = np.where(drawn, 1.0 - (n - 1.0) / whole, 1.0)
        width = (high - low) * np.sqrt(math.log(2.0 / (1.0 - confidence)) * rest / (2.0 * n))
        bad |= least != most
        if kind is Estimated.SUM:
            bad |= ~drawn
            width = width * whole
        width[bad | (n == 0)] = np.nan
        return width


def quantiles(confidence: float, clusters: Int64s) -> Float64s:
    """Return by how many standard errors an interval with this confidence reaches."""
    table = np.array([0.0, 0.0, *(student(confidence, n - 1) for n in range(2, _MANY)), normal(confidence)])
    return table[np.minimum(clusters, _MANY)]


def normal(confidence: float) -> float:
    return NormalDist().inv_cdf((1.0 + confidence) / 2.0)


@lru_cache(maxsize=4096)
def student(confidence: float, freedom: int) -> float:
    """Return t such that a deviate of Student's distribution is within [-t, t] with this probability."""
    low, high = 0.0, math.pi / 2
    for _ in range(200):
        middle = (low + high) / 2
        if _within(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _within(angle: float, freedom: int) -> float:
    """Return the probability of |t| ≤ √freedom · tan(angle), as a finite sum (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    if freedom == 1:
        return 2 * angle / math.pi
    if freedom % 2:
        term, total = cosine, cosine
        for i in range(3, freedom - 1, 2):
            term *= cosine**2 * (i - 1) / i
            total += term
        return 2 / math.pi * (angle + sine * total)
    term, total = 1.0, 1.0
    for i in range(2, freedom - 1, 2):
        term *= cosine**2 * (i - 1) / i
        total += term
    return sine * total
