"""Estimates over samples by their formulas, for the rows of one group. Part of the oracle."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby
from statistics import NormalDist
from typing import Any

Side = tuple[float, int, int, int]
"""(probability, cluster, stratum, size)"""
Sampled = tuple[float, tuple[Side, ...]]
"""(value, the draws that it depends on)"""


def estimated(name: str, rows: Sequence[tuple[Any, ...]]) -> float | None:
    """Return ESTIMATE_COUNT, ESTIMATE_SUM or ESTIMATE_AVG, or one of its bounds, of (value, record, constants...)."""
    kind, _, side = name.removeprefix("ESTIMATE_").partition("_")
    if not rows:
        return 0.0 if kind == "COUNT" and not side else None
    sampled = sorted((row[0], tuple(struct.iter_unpack("<dqqq", row[1]))) for row in rows)
    value = _value(kind, sampled)
    if not side:
        return value
    confidence, *limits = rows[0][2:]
    width = _range_width(kind, sampled, confidence, *limits) if limits else _half_width(kind, sampled, confidence)
    if width is None or math.isnan(width) or math.isnan(value):
        return None
    return value - width if side == "LOWER" else value + width


def _chance(sides: tuple[Side, ...]) -> float:
    return math.prod(pi for pi, *_ in sides)


def _sum(values: Iterable[float]) -> float:
    """Return the sum, also where it is beyond the largest number."""
    found = list(values)
    try:
        return math.fsum(found)
    except (OverflowError, ValueError):
        return float(sum(found))


def _value(kind: str, rows: list[Sampled]) -> float:
    total = _sum(x / _chance(sides) for x, sides in rows)
    return total / _sum(1 / _chance(sides) for _, sides in rows) if kind == "AVG" else total


def _half_width(kind: str, rows: list[Sampled], confidence: float) -> float | None:
    if kind == "AVG":
        mean, whole = _value(kind, rows), _sum(1 / _chance(sides) for _, sides in rows)
        rows = [((x - mean) / whole, sides) for x, sides in rows]
    drawn: dict[tuple[Side, ...], float] = {}
    for x, sides in rows:
        drawn[sides] = drawn.get(sides, 0.0) + x
    draws = {tuple(side[1:3] for side in sides) for sides in drawn}
    if len(draws) < 2:
        return None
    if len(draws) < len(drawn) or any(len(sides) != 1 for sides in drawn):
        variance = _variance_of_joined(list(drawn.items()))
    else:
        variance = _variance([(y, *sides[0]) for sides, y in drawn.items()])
    return None if variance is None or not variance >= 0 else _reach(confidence, len(draws)) * math.sqrt(variance)


def _variance(drawn: list[tuple[float, float, int, int, int]]) -> float | None:
    """Return the variance for rows of one sample: (sum of a cluster, its side...)."""
    variance = _sum((1 - pi) * (y / pi) * (y / pi) for y, pi, _, _, size in drawn if size == 0)
    by_stratum: Callable[[tuple[float, float, int, int, int]], int] = lambda row: row[3]  # noqa: E731
    for _, members in groupby(sorted((r for r in drawn if r[4] > 0), key=by_stratum), by_stratum):
        part = list(members)
        n, pi = part[0][4], part[0][1]
        if pi >= 1:
            continue
        if n < 2:
            return None
        ys = [row[0] for row in part]
        squares = _sum(y * y for y in ys)
        spread = squares - _sum(ys) * _sum(ys) / n
        spread = 0.0 if abs(spread) <= 1e-13 * squares else max(spread, 0.0) / (n - 1)
        variance += (n / pi) ** 2 * (1 - pi) * spread / n
    return variance


def _variance_of_joined(drawn: list[tuple[tuple[Side, ...], float]]) -> float | None:
    """Return Σ y y' (π' - π π) / (π' π π) over two rows kept with π each, and both with π': Horvitz and Thompson's
    estimate of the variance, by its definition."""
    parts = []
    for sides, y in drawn:
        for others, other in drawn:
            both = _both(sides, others)
            if both is None:
                return None
            alone = _chance(sides) * _chance(others)
            parts.append(y * other * (both - alone) / (both * alone))
    total = _sum(parts)
    return 0.0 if abs(total) <= 1e-13 * _sum(map(abs, parts)) else total


def _both(sides: tuple[Side, ...], others: tuple[Side, ...]) -> float | None:
    """Return the probability that two rows are both kept, None where it is not known."""
    alone: dict[int, float] = {}
    strata: dict[int, tuple[float, int, set[int]]] = {}
    for pi, cluster, stratum, size in (*sides, *others):
        if size == 0:
            alone[cluster] = min(pi, alone.get(cluster, 1.0))
        else:
            strata.setdefault(stratum, (pi, size, set()))[2].add(cluster)
    both = math.prod(alone.values())
    for pi, size, clusters in strata.values():
        whole = round(size / pi)
        if size == 1 and whole > 1:
            return None
        both *= pi if len(clusters) == 1 else pi * (size - 1) / (whole - 1)
    return both


def _range_width(
    kind: str, rows: list[Sampled], confidence: float, low: float, high: float, every: float
) -> float | None:
    """Return half the width by Hoeffding's and Serfling's bound."""
    m, chosen = len(rows), {side[1:] for _, sides in rows for side in sides}
    if any(len(sides) != 1 for _, sides in rows) or len(chosen) < m or any(not low <= x <= high for x, _ in rows):
        return None
    pi, _, _, n = rows[0][1][0]
    whole = round(n / pi)
    if kind == "AVG":
        rest = 1 - (m - 1) / (whole - n + m) if n else 1.0
        return (high - low) * math.sqrt(math.log(2 / (1 - confidence)) * rest / (2 * m))
    if not n:
        return None
    spread = high - low if every and m == n else max(high, 0.0) - min(low, 0.0)
    return whole * spread * math.sqrt(math.log(2 / (1 - confidence)) * (1 - (n - 1) / whole) / (2 * n))


@cache
def _reach(confidence: float, clusters: int) -> float:
    """Return the quantile of the normal distribution, below 30 clusters of Student's, by integrating its density."""
    if clusters >= 30:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    freedom = clusters - 1
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    # With t = sqrt(freedom) tan(angle) the density over the angle is scale sqrt(freedom) cos^(freedom - 1).
    low, high, steps = 0.0, math.pi / 2, 800
    for _ in range(50):
        middle = (low + high) / 2
        width = middle / steps
        weights = [1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1)]
        parts = [math.cos(i * width) ** (freedom - 1) * weight for i, weight in enumerate(weights)]
        within = 2 * scale * math.sqrt(freedom) * math.fsum(parts) * width / 3
        low, high = (middle, high) if within < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)
