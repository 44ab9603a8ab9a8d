"""Estimates over samples by their formulas, for the rows of one group. Part of the oracle."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from statistics import NormalDist
from typing import Any

Sampled = tuple[float, float, int, int, int]
"""(value, probability, cluster, stratum, size)"""


def estimated(name: str, rows: Sequence[tuple[Any, ...]]) -> float | None:
    """Return ESTIMATE_COUNT, ESTIMATE_SUM or ESTIMATE_AVG, or one of its bounds, of (value, record, constants...)."""
    kind, _, side = name.removeprefix("ESTIMATE_").partition("_")
    if not rows:
        return 0.0 if kind == "COUNT" and not side else None
    sampled = sorted((row[0], *struct.unpack("<dqqq", row[1])) for row in rows)
    value = _value(kind, sampled)
    if not side:
        return value
    confidence, *limits = rows[0][2:]
    width = _range_width(kind, sampled, confidence, *limits) if limits else _half_width(kind, sampled, confidence)
    if width is None or math.isnan(width) or math.isnan(value):
        return None
    return value - width if side == "LOWER" else value + width


def _value(kind: str, rows: list[Sampled]) -> float:
    total = math.fsum(x / pi for x, pi, *_ in rows)
    return total / math.fsum(1 / pi for _, pi, *_ in rows) if kind == "AVG" else total


def _half_width(kind: str, rows: list[Sampled], confidence: float) -> float | None:
    if kind == "AVG":
        mean, whole = _value(kind, rows), math.fsum(1 / pi for _, pi, *_ in rows)
        rows = [((x - mean) / whole, *rest) for x, *rest in rows]  # type: ignore[misc]
    clusters: dict[tuple[int, int], Sampled] = {}
    for x, pi, cluster, stratum, size in rows:
        before = clusters.get((stratum, cluster))
        clusters[stratum, cluster] = (x + (before[0] if before else 0.0), pi, cluster, stratum, size)
    drawn = list(clusters.values())
    if len(drawn) < 2 or any(size == -1 for *_, size in drawn):
        return None
    if drawn[0][4] < 0:
        found = _variance_of_pairs(drawn)
        return None if found < 0 else _reach(confidence, len(drawn)) * math.sqrt(found)
    variance = math.fsum((1 - pi) * (y / pi) ** 2 for y, pi, _, _, size in drawn if size == 0)
    by_stratum: Callable[[Sampled], int] = lambda row: row[3]  # noqa: E731
    for _, members in groupby(sorted((r for r in drawn if r[4] > 0), key=by_stratum), by_stratum):
        part = list(members)
        n, pi = part[0][4], part[0][1]
        if pi >= 1:
            continue
        if n < 2:
            return None
        ys = [row[0] for row in part]
        spread = (math.fsum(y * y for y in ys) - math.fsum(ys) ** 2 / n) / (n - 1)
        variance += (n / pi) ** 2 * (1 - pi) * max(spread, 0.0) / n
    return _reach(confidence, len(drawn)) * math.sqrt(variance)


def _variance_of_pairs(pairs: list[Sampled]) -> float:
    """Return Σ y y' (π' - π π) / (π' π π) over two pairs of a left and a right cluster each, kept with π, and both with
    π': Horvitz and Thompson's estimate of the variance, by its definition."""
    parts = []
    for y, pi, left, right, size in pairs:
        (p,) = struct.unpack("<d", struct.pack("<q", -size))
        q = pi / p
        for other, _, other_left, other_right, _ in pairs:
            both = (p if left == other_left else p * p) * (q if right == other_right else q * q)
            if left == other_left or right == other_right:
                parts.append(y * other * (both - pi * pi) / (both * pi * pi))
    return math.fsum(parts)


def _range_width(kind: str, rows: list[Sampled], confidence: float, low: float, high: float) -> float | None:
    n, sizes = len(rows), {size for *_, size in rows}
    chances = {pi for _, pi, *_ in rows}
    if len(chances) > 1 or min(sizes) < 0 or any(not low <= x <= high for x, *_ in rows):
        return None
    whole, drawn = n / min(chances), min(sizes) > 0
    if kind != "AVG" and not drawn:
        return None
    rest = 1 - (n - 1) / whole if drawn else 1.0
    width = (high - low) * math.sqrt(math.log(2 / (1 - confidence)) * rest / (2 * n))
    return width if kind == "AVG" else width * whole


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
