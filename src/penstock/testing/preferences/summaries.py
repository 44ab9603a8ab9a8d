"""A summary of a stream by its definition: a list of zones, each with all that it counted `[pt 3]`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from penstock.algebra import SummaryDefinition, SummaryMethod

_STEP, _A, _B, _WORD = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 2**64


def _mixed(x: int) -> int:
    x = (x ^ (x >> 30)) * _A % _WORD
    x = (x ^ (x >> 27)) * _B % _WORD
    return x ^ (x >> 31)


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]


@dataclass
class Counts:
    """What zones counted: of a sketch (row, cell) -> signed count, or hash -> count."""

    definition: SummaryDefinition
    cells: Counter[tuple[int, int]] = field(default_factory=Counter)

    def _places(self, value: int) -> list[tuple[int, int, int]]:
        """Return (row, cell, sign) of a value's hash."""
        one = self.definition
        if one.method is SummaryMethod.EXACT:
            return [(0, value, 1)]
        found = []
        for row in range(one.rows):
            word = _mixed((value + (row + 1) * _STEP) % _WORD)
            cell = value % one.buckets * one.counters + (word >> 1) % one.counters
            found.append((row, cell, 1 - 2 * (word & 1)))
        return found

    def add(self, value: int) -> None:
        for row, cell, sign in self._places(value):
            self.cells[row, cell] += sign

    def estimate(self, value: int) -> int:
        return max(0, _median([sign * self.cells[row, cell] for row, cell, sign in self._places(value)]))

    @property
    def errs(self) -> bool:
        """Return whether an estimate is taken to err by more than the declared error."""
        one = self.definition
        if one.method is SummaryMethod.EXACT:
            return False
        squares = [sum(c * c for (row, _), c in self.cells.items() if row == r) for r in range(one.rows)]
        return _median(squares) > int(Fraction(one.error) ** 2 * one.counters)


@dataclass
class FineZone:
    """A zone of G1, also when it has become part of a coarser one. begin: its first tick; stretch: ⌊begin / T1⌋;
    numbers: arrival numbers of its elements."""

    begin: int
    stretch: int
    counts: Counts
    numbers: list[int] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True)
class SeenZone:
    """A zone as an instant finds it. parts: the zones of G1 that it is made of."""

    granularity: int
    parts: tuple[FineZone, ...]
    estimate: int

    @property
    def low(self) -> int:
        return min(number for part in self.parts for number in part.numbers)

    @property
    def stretch(self) -> int:
        return self.parts[-1].stretch

    @property
    def elements(self) -> int:
        return sum(len(part.numbers) for part in self.parts)

    def holds(self, number: int) -> bool:
        return any(number in part.numbers for part in self.parts)


@dataclass
class NaiveSummary:
    """All zones of G1 of a stream, oldest first; coarser ones are found from the time."""

    definition: SummaryDefinition
    zones: list[FineZone] = field(default_factory=list)

    def arrive(self, ts: int, number: int, value: int) -> None:
        """Count an element. number: its arrival number; value: the hash of the summarised columns."""
        one = self.definition
        last = self.zones[-1] if self.zones else None
        stretch = ts // one.granularity
        if last is None or last.ended or last.stretch != stretch or ts >= last.begin + one.maxlength:
            last = FineZone(ts, stretch, Counts(one))
            self.zones.append(last)
        last.counts.add(value)
        last.numbers.append(number)
        last.ended = last.counts.errs and ts - last.begin + 1 >= one.minlength

    def granularity(self, stretch: int, now: int) -> tuple[int, int]:
        """Return the granularity in which a stretch of G1 lies at the tick `now`, and the number of its zone there."""
        one, k = self.definition, now // self.definition.granularity
        if stretch >= k:
            return 1, -1
        if one.depth >= 2 and stretch >= k - one.rate:
            return 2, stretch
        zone, newest = stretch, k - 1 - one.rate
        for level in range(3, one.depth + 1):
            zone //= one.rate
            newest //= one.rate
            if zone > newest - one.rate:
                return level, zone
            newest -= one.rate
        return one.depth + 1, -1

    def probe(self, value: int, now: int) -> list[SeenZone]:
        """Return the zones whose estimate of a value is at least 1, in granularities of which that is true together."""
        grouped: dict[tuple[int, int], list[FineZone]] = {}
        for place, zone in enumerate(self.zones):
            level, number = self.granularity(zone.stretch, now)
            if level <= self.definition.depth:
                grouped.setdefault((level, place if level == 1 else number), []).append(zone)
        levels = {level for level, _ in grouped}
        opened = {
            level
            for level in levels
            if self._sum([z for (of, _), zs in grouped.items() if of == level for z in zs], value)
        }
        seen = [
            SeenZone(level, tuple(zs), self._sum(zs, value)) for (level, _), zs in grouped.items() if level in opened
        ]
        return [zone for zone in seen if zone.estimate >= 1]

    def _sum(self, zones: Sequence[FineZone], value: int) -> int:
        together = Counts(self.definition)
        for zone in zones:
            for place, count in zone.counts.cells.items():
                together.cells[place] += count
        return together.estimate(value)
