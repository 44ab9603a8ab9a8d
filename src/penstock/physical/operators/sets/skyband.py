"""Which rows can still come first: the k-skyband of their places and ends.

A row that k others precede which end no earlier is never among the first k again: as long as it lives they do. Where
the end of a row is known on its arrival, such rows may be forgotten. Of N rows in random order k·(1 + ln(N/k)) are
expected to remain (Mouratidis, Bakiras and Papadias); of rows that end in the order of their places, all.
"""

from __future__ import annotations

import heapq

import numpy as np

from penstock.compilation import loop
from penstock.physical.elements import Int64s

#: A state with fewer rows that end is not worth looking through.
FEWEST = 256


@loop
def _may_come_first(parts: Int64s, ends: Int64s, copies: Int64s, most: int, kept: Int64s) -> None:
    latest = [np.int64(0)]
    latest.clear()
    for i in range(parts.shape[0]):
        if i == 0 or parts[i] != parts[i - 1]:
            latest.clear()
        for _ in range(min(copies[i], most)):
            if len(latest) < most:
                heapq.heappush(latest, ends[i])
            elif ends[i] > latest[0]:
                heapq.heapreplace(latest, ends[i])
            else:
                break
            kept[i] += 1


def may_come_first(parts: Int64s, ends: Int64s, copies: Int64s, most: int) -> Int64s:
    """Return how many copies of each row may be among the first `most` of its part before they end.

    Args:
        parts, ends, copies: of rows in the order of their places, those of a part one after the other, equal rows with
            the latest end first.
    """
    kept = np.zeros(len(parts), np.int64)
    _may_come_first(parts, ends, copies, most, kept)
    return kept
