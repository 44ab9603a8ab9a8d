"""Estimators of sums, counts and averages of what was sampled, from rows with their inclusion records.

Horvitz and Thompson's: Σ x/π. Variances: (1-π)(y/π)² over clusters that are kept independently, y the sum of a cluster;
N²(1-n/N)s²/n over simple random samples of n of N, by strata. Rows of joined samples: `joined.py`. The average is the
ratio of two estimates, and its variance that of the residuals.
"""

from __future__ import annotations

import enum
import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from penstock.expressions.sampling.inclusion import Inclusion, Sides
from penstock.expressions.sampling.joined import draws_of_rows, variance_of_joined, without_cancelled

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

#: Sampled clusters from which on the normal distribution replaces Student's.
_MANY = 30


class Estimated(enum.Enum):
    SUM = "SUM"
    AVG = "AVG"


def estimates(kind: Estimated, groups: Int64s, count: int, x: Float64s, records: Inclusion) -> Float64s:
    """Return the estimate of each group in [0, count). groups: of each row."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        total = _sums(groups, x / records.pi, count)
        if kind is Estimated.SUM:
            return total
        return total / _sums(groups, 1.0 / records.pi, count)


def half_widths(
    kind: Estimated, groups: Int64s, count: int, x: Float64s, records: Inclusion, confidence: float
) -> Float64s:
    """Return half the width of the confidence interval of each group; NaN where it is not known."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rows = x
        if kind is Estimated.AVG:
            mean = estimates(kind, groups, count, x, records)
            rows = (x - mean[groups]) / _sums(groups, 1.0 / records.pi, count)[groups]
        several = np.bincount(groups, records.counts != 1, count) > 0
        joined = (several | _levelled(groups, count, records, several))[groups]
        alone = np.flatnonzero(~joined)
        variance, clusters = _of_one_sample(groups[alone], count, rows[alone], records.taken(alone).sides)
        if joined.any():
            of = np.flatnonzero(joined)
            own, some = groups[of], records.taken(of)
            variance += variance_of_joined(own, count, rows[of], some)
            pairs = np.unique(np.stack([own, draws_of_rows(some)]), axis=1)
            clusters = clusters + np.bincount(pairs[0], minlength=count)
        variance[clusters < 2] = np.nan
        return quantiles(confidence, clusters) * np.sqrt(variance)


def _levelled(groups: Int64s, count: int, records: Inclusion, several: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which groups have rows of one draw with different probabilities, such as rows that were emitted before and
    after the threshold of a budget fell. Groups in `several` are left out; rows of the others have one draw each."""
    found = np.zeros(count, np.bool_)
    rows = np.flatnonzero(~several[groups])
    own, sides = groups[rows], records.taken(rows).sides
    if not len(rows) or (sides["pi"] == sides["pi"][0]).all():
        return found
    order = np.lexsort([sides["cluster"], sides["stratum"], own])
    own, sides = own[order], sides[order]
    same = (own[1:] == own[:-1]) & (sides["cluster"][1:] == sides["cluster"][:-1])
    same &= (sides["stratum"][1:] == sides["stratum"][:-1]) & (sides["size"][1:] == 0)
    found[own[1:][same & (sides["pi"][1:] != sides["pi"][:-1])]] = True
    return found


def _sums(groups: Int64s, values: Float64s, count: int) -> Float64s:
    return np.bincount(groups, values, count).astype(np.float64)


def _of_one_sample(groups: Int64s, count: int, rows: Float64s, sides: Sides) -> tuple[Float64s, Int64s]:
    """Return the variances, and the numbers of clusters, of groups of rows with one draw each."""
    keys = np.stack([groups, sides["stratum"], sides["cluster"]])
    order = np.lexsort(keys[::-1])
    starts = _starts(keys[:, order])
    first = order[starts]
    sums = np.add.reduceat(rows[order], starts) if len(order) else np.empty(0)
    own, kept = groups[first], sides[first]
    variance = _independent(own, count, sums, kept) + _strata(own, count, sums, kept)
    return variance, np.bincount(own, minlength=count)


def _independent(own: Int64s, count: int, sums: Float64s, kept: Sides) -> Float64s:
    pi: Float64s = kept["pi"]
    return _sums(own, np.where(kept["size"] == 0, (1.0 - pi) * (sums / pi) ** 2, 0.0), count)


def _strata(own: Int64s, count: int, sums: Float64s, kept: Sides) -> Float64s:
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
    spread = np.maximum(without_cancelled(s2 - s1**2 / n, s2), 0.0) / (n - 1.0)
    parts = np.where(pi >= 1.0, 0.0, whole**2 * (1.0 - n / whole) * spread / n)
    return total + _sums(own[starts], parts, count)


def _starts(keys: npt.NDArray[np.int64]) -> Int64s:
    """Return where runs of equal columns begin."""
    if not keys.shape[1]:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))


def range_widths(
    kind: Estimated,
    groups: Int64s,
    count: int,
    x: Float64s,
    records: Inclusion,
    confidence: float,
    low: float,
    high: float,
    all_rows: bool = False,
) -> Float64s:
    """Return half the width by Hoeffding's and Serfling's bound, for values in [low, high]; NaN where a value is
    outside, or the sample has no bound.

    Of n of N rows of which m are in the group, the sum is N times the mean of n values that are 0 outside of the group,
    so 0 lies in the range too unless `all_rows` are in it, as given in the query. The mean is that of m of at most N -
    n + m rows. Of other samples it is that of m rows, each drawn by itself.
    """
    values = _sums(groups, np.ones(len(groups)), count)
    joined = np.bincount(groups, records.counts != 1, count) > 0
    alone = np.flatnonzero(~joined[groups])
    groups, x, sides = groups[alone], x[alone], records.taken(alone).sides
    size, pi = sides["size"].astype(np.float64), sides["pi"]
    with np.errstate(invalid="ignore", divide="ignore"):
        wrong = (x < low) | (x > high) | np.isnan(x)
        bad = joined | (np.bincount(groups, wrong, count) > 0)
        clusters = np.unique(np.stack([groups, sides["stratum"], sides["cluster"]]), axis=1)[0]
        # Rows that are kept together are one draw: how many of them a group has is then by chance too.
        bad |= np.bincount(clusters, minlength=count) != values
        n, whole = np.zeros(count), np.zeros(count)
        n[groups], whole[groups] = size, np.rint(size / pi)
        drawn = n > 0
        if kind is Estimated.AVG:
            rest = np.where(drawn, 1.0 - (values - 1.0) / (whole - n + values), 1.0)
            width = (high - low) * np.sqrt(math.log(2.0 / (1.0 - confidence)) * rest / (2.0 * values))
        else:
            full = (values == n) if all_rows else np.zeros(count, np.bool_)
            spread = np.where(full, high - low, max(high, 0.0) - min(low, 0.0))
            rest = 1.0 - (n - 1.0) / whole
            width = whole * spread * np.sqrt(math.log(2.0 / (1.0 - confidence)) * rest / (2.0 * n))
            bad |= ~drawn
        width[bad | (values == 0)] = np.nan
        return width


def outside(groups: Int64s, count: int, x: Float64s, low: float, high: float) -> Int64s:
    """Return how many values of each group are outside of the range that a query gives for them."""
    return np.bincount(groups, (x < low) | (x > high) | np.isnan(x), count).astype(np.int64)


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
