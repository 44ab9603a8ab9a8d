"""How far the readers of a shared store are: up to which timestamp each needs no row any more.

Of a thousand readers one moves at a time, and what matters is the least floor of all, which few of them change. So the
floors are counted and lie in a heap: a move costs the logarithm of their number.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Reader = TypeVar("Reader")


class ReaderFloors(Generic[Reader]):
    """Floors of the readers of a store, as ticks; None for one that has not advanced yet."""

    def __init__(self) -> None:
        self._floors: dict[Reader, int | None] = {}
        #: How many readers have a floor, and the floors that some reader has or had.
        self._counts: Counter[int] = Counter()
        self._heap: list[int] = []
        self._known = 0

    @property
    def readers(self) -> set[Reader]:
        """Return all readers."""
        return set(self._floors)

    def put(self, reader: Reader, floor: int | None) -> None:
        """Add a reader, or move it to another floor."""
        self.remove(reader)
        self._floors[reader] = floor
        if floor is not None:
            self._known += 1
            self._counts[floor] += 1
            if self._counts[floor] == 1:
                heappush(self._heap, floor)
            if len(self._heap) > 2 * self._known + 16:
                # Drop the floors of no reader.
                self._counts = +self._counts
                self._heap = list(self._counts)
                heapify(self._heap)

    def remove(self, reader: Reader) -> None:
        """Remove a reader, if it is there."""
        floor = self._floors.pop(reader, None)
        if floor is not None:
            self._known -= 1
            self._counts[floor] -= 1

    @property
    def least(self) -> int | None:
        """Return the least floor; None while that of a reader is unknown, or without readers."""
        if self._known < len(self._floors) or not self._floors:
            return None
        while not self._counts[self._heap[0]]:
            del self._counts[heappop(self._heap)]
        return self._heap[0]
