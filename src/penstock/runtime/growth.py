"""Does the state of an operator grow without bound? Told from its size over the progress of time.

A state may grow while its windows fill, jump with the load, and shrink when a compaction comes by. So a state is said
to grow only when time has gone on for longer than its windows last (`horizon`), the sizes seen since then rise almost
throughout (Kendall's rank correlation), and their robust slope (Theil and Sen: the median of the slopes of all pairs)
accounts for most of what is held now. A growth that ends (all groups have been seen) is no longer one when it ends,
because of the samples the older ones are thinned out, never forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

#: Samples kept, samples needed, and how much of all pairs must rise for a trend.
_MOST, _LEAST, _TREND = 48, 12, 0.8
#: Time must have gone on for so many horizons before a growth counts.
_SETTLED = 2.0
#: States below this size are not worth a word.
WORTH_A_WORD = 16 * 2**20


@dataclass
class Trend:
    """The sizes of one state: (heartbeat in seconds, bytes), thinned out so that they span all that was seen."""

    samples: list[tuple[float, float]] = field(default_factory=list)
    _every: int = 1
    _seen: int = 0

    def add(self, time: float, size: float) -> None:
        """Samples at which time did not go on say nothing of growth with time."""
        if self.samples and time <= self.samples[-1][0]:
            return
        if self._seen % self._every == 0:
            self.samples.append((time, size))
            if len(self.samples) > _MOST:
                self.samples = self.samples[::2]
                self._every *= 2
        self._seen += 1

    def slope(self) -> float | None:
        """Bytes a second of its time, None where there is no trend upwards."""
        if len(self.samples) < _LEAST:
            return None
        pairs = [(t2 - t1, s2 - s1) for (t1, s1), (t2, s2) in combinations(self.samples, 2)]
        rising = sum(1 if step > 0 else -1 if step < 0 else 0 for _, step in pairs)
        if rising < _TREND * len(pairs):
            return None
        found = float(median(step / length for length, step in pairs))
        return found if found > 0 else None


@dataclass(frozen=True)
class Growth:
    """A state that grows: bytes a second of the stream's time, and what it has come to."""

    operator: str
    slope: float
    size: int


class GrowthDetector:
    """horizons: by operator the seconds of its time after which its state has its full size, if it ever has; operators
    without one need not settle. least: bytes below which no growth is told."""

    def __init__(self, horizons: Mapping[str, float], least: int = WORTH_A_WORD) -> None:
        self._horizons = horizons
        self._least = least
        self._trends: dict[str, Trend] = {}
        self._began: dict[str, float] = {}
        self._told: set[str] = set()

    def look(self, operator: str, time: float, size: int) -> Growth | None:
        """What a batch left: the growth of `operator`, the first time that it shows."""
        if operator in self._told:
            return None
        began = self._began.setdefault(operator, time)
        if time - began < _SETTLED * self._horizons.get(operator, 0.0):
            return None
        trend = self._trends.setdefault(operator, Trend())
        trend.add(time, float(size))
        slope = trend.slope() if size >= self._least else None
        if slope is None or slope * (time - trend.samples[0][0]) < size / 2:
            return None
        self._told.add(operator)
        return Growth(operator, slope, size)
