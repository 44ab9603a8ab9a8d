"""Summaries by definition: lists of zones with a Counter each, moved stretch by stretch, also through empty ones."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field

from penstock.expressions.sketches.count_sketch import STEP, CountSketchShape
from penstock.physical.synopses.summaries.levels import SummaryLevels

_ALL = 2**64 - 1


def mixed(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _ALL
    return x ^ (x >> 31)


def place(value: int, row: int, shape: CountSketchShape) -> tuple[int, int]:
    word = mixed((value + (row + 1) * STEP) & _ALL)
    return value % shape.buckets * shape.counters + (word >> 1) % shape.counters, 1 - 2 * (word & 1)


@dataclass
class Zone:
    number: int
    low: int = -1
    high: int = -1
    begin: int = 0
    counts: Counter[int] = field(default_factory=Counter)

    def add(self, other: Zone) -> None:
        if other.counts:
            self.low = other.low if not self.counts else min(self.low, other.low)
            self.high = max(self.high, other.high)
            self.counts += other.counts


class NaiveSummary:
    """shape: None counts exactly."""

    def __init__(self, levels: SummaryLevels, shape: CountSketchShape | None) -> None:
        self.levels, self.shape = levels, shape
        #: granularity - 1 -> its zones, oldest first.
        self.zones: list[list[Zone]] = [[] for _ in range(levels.depth)]
        self.now: int | None = None
        self.open = False
        self.arrived = 0

    def until(self, now: int) -> None:
        """Let stretches begin, one after the other."""
        if self.now is None:
            # What was before is empty, but its zones stand in line.
            self.now = now - 2 * self.levels.rate ** (self.levels.depth + 1)
        while self.now < now:
            whole = Zone(self.now)
            for zone in self.zones[0]:
                whole.add(zone)
            self.zones[0], self.open = [], False
            if self.levels.depth > 1:
                self.zones[1].append(whole)
                self._collapse(1)
            self.now += 1

    def _collapse(self, level: int) -> None:
        if len(self.zones[level]) <= self.levels.rate:
            return
        oldest = self.zones[level].pop(0)
        if level + 1 == self.levels.depth:
            return  # beyond
        coarser, number = self.zones[level + 1], oldest.number // self.levels.rate
        if not coarser or coarser[-1].number != number:
            coarser.append(Zone(number))
        coarser[-1].add(oldest)
        self._collapse(level + 1)

    def count(self, ts: int, value: int | None) -> None:
        self.until(ts // self.levels.granularity)
        if value is not None:
            if self.open and ts - self.zones[0][-1].begin >= self.levels.maxlength:
                self.open = False
            if not self.open:
                self.zones[0].append(Zone(0, self.arrived, begin=ts))
                self.open = True
            zone = self.zones[0][-1]
            zone.counts[value] += 1
            zone.high = self.arrived + 1
            long = ts - zone.begin + 1 >= self.levels.minlength
            if long and self.spread(zone.counts) > self.levels.squares:
                self.open = False
        self.arrived += 1

    def spread(self, counts: Counter[int]) -> int:
        if self.shape is None:
            return 0
        return statistics.median(sum(c * c for c in self.row(counts, r).values()) for r in range(self.shape.rows))

    def row(self, counts: Counter[int], row: int) -> Counter[int]:
        made: Counter[int] = Counter()
        for value, count in counts.items():
            cell, sign = place(value, row, self.shape)
            made[cell] += sign * count
        return made

    def estimate(self, counts: Counter[int], value: int) -> int:
        if self.shape is None:
            return counts[value]
        found = []
        for row in range(self.shape.rows):
            cell, sign = place(value, row, self.shape)
            found.append(sign * self.row(counts, row)[cell])
        return max(0, statistics.median(found))

    def ask(self, ts: int, value: int | None) -> list[tuple[int, int, int, int, int]]:
        """Return (low, high, granularity, estimate, elements) of the zones that promise the value, newest first."""
        self.until(ts // self.levels.granularity)
        made = []
        for level, zones in enumerate(self.zones, 1):
            whole = sum((zone.counts for zone in zones), Counter[int]())
            if value is None or self.estimate(whole, value) < 1:
                continue
            for zone in reversed(zones):
                count = self.estimate(zone.counts, value)
                if count >= 1:
                    made.append((zone.low, zone.high, level, count, zone.counts.total()))
        return made

    def listed(self) -> list[tuple[int, int, int, int]]:
        """Return (low, high, granularity, elements) of the zones, oldest first."""
        return [
            (zone.low, zone.high, level, zone.counts.total())
            for level in range(self.levels.depth, 0, -1)
            for zone in self.zones[level - 1]
            if zone.counts
        ]
