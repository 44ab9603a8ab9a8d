"""Figures of the work of a preference, by their definition (`watching/preference_metrics.py`)."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from penstock.testing.aggregates.sketches import bucket

#: Relative error of the buckets by which priorities are compared.
ACCURACY = 0.02


@dataclass
class NaiveFigures:
    """Figures of one shard.

    Args:
        priorities: buckets of those of all entries that had a place in the queue, ascending; the most preferred have
            the largest.
        delays: of each result, whether its entry is promising, None where it had no such place, and u - t in ticks.
        apart: |ts1 - ts2| of each result of two streams.
        rows: elements of all inputs without NULL in a key column.
        examined: pairs. missing: those of entries that expired, wait or were shed, as estimated; unknown: how many of
            these entries have no estimate. look_ups, found: entries in the queue without estimate that were looked up,
            and pairs of theirs that were examined.
    """

    priorities: list[tuple[float, float]] = field(default_factory=list)
    delays: list[tuple[bool | None, int]] = field(default_factory=list)
    apart: list[int] = field(default_factory=list)
    rows: int = 0
    examined: int = 0
    missing: int = 0
    unknown: int = 0
    look_ups: int = 0
    found: int = 0

    def is_promising(self, priority: float) -> bool:
        """Add the priority of an entry; return whether its bucket is above that of the 0.9 quantile of those before."""
        before, found = self.priorities, bucket(priority, ACCURACY)
        above = bool(before) and found > before[9 * (len(before) - 1) // 10]
        bisect.insort(before, found)
        return above


def completeness(shards: Sequence[NaiveFigures]) -> float:
    """Return the part of all pairs that was examined, as estimated."""
    look_ups, found = sum(one.look_ups for one in shards), sum(one.found for one in shards)
    each = Fraction(found, look_ups) if look_ups else Fraction(1)
    examined = sum(one.examined for one in shards)
    whole = examined + sum(one.missing + one.unknown * each for one in shards)
    return float(Fraction(examined) / whole) if whole else 1.0


def exact_quantile(values: Sequence[int], share: Fraction) -> int | None:
    """Return a quantile, None of no values."""
    return sorted(values)[math.floor(share * (len(values) - 1))] if values else None
