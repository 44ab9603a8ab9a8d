"""Detect operators whose state grows without bound, from its size over the progress of time.

State may grow while windows fill, jump with the load, and shrink after a compaction. So a state counts as growing only
when time has advanced by more than the length of its windows (`horizon`), the sizes sampled since then rise almost
throughout (Kendall's rank correlation), and their robust slope (Theil and Sen: the median of the slopes of all pairs)
accounts for most of the present size. Growth that ends (all groups have been seen) stops being reported as such,
because older samples are thinned out but never dropped altogether.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

#: Maximum samples kept, minimum samples needed, and the part of all pairs that must rise for a trend.
_MOST, _LEAST, _TREND = 48, 12, 0.8
#: Number of horizons by which time must have advanced before growth counts.
_SETTLED = 2.0
#: Smaller states, in bytes, are not reported.
LEAST_REPORTED = 16 * 2**20


@dataclass
class Trend:
    """The sizes of one state: (heartbeat in seconds, bytes), thinned out so that they span all that was observed."""

    samples: list[tuple[float, float]] = field(default_factory=list)
    _sampling_interval: int = 1
    _observed: int = 0

    def add(self, time: float, size: float) -> None:
        """Add a sample; one at which time has not advanced is ignored, since it shows nothing of growth with time."""
        if self.samples and time <= self.samples[-1][0]:
            return
        if self._observed % self._sampling_interval == 0:
            self.samples.append((time, size))
            if len(self.samples) > _MOST:
                self.samples = self.samples[::2]
                self._sampling_interval *= 2
        self._observed += 1

    def slope(self) -> float | None:
        """Return the growth in bytes a second of the stream's time, None where there is no upward trend."""
        if len(self.samples) < _LEAST:
            return None
        pairs = [(t2 - t1, s2 - s1) for (t1, s1), (t2, s2) in combinations(self.samples, 2)]
        rising = sum(1 if step > 0 else -1 if step < 0 else 0 for _, step in pairs)
        if rising < _TREND * len(pairs):
            return None
        slope = float(median(step / length for length, step in pairs))
        return slope if slope > 0 else None


@dataclass(frozen=True)
class Growth:
    """A growing state. slope: bytes a second of the stream's time; size: present bytes."""

    operator: str
    slope: float
    size: int


class GrowthDetector:
    """Detects growth of each operator's state.

    Args:
        horizons: by operator, seconds of its time after which its state has its full size, if it ever has; operators
            without one need not settle.
        least: bytes below which growth is not reported.
    """

    def __init__(self, horizons: Mapping[str, float], least: int = LEAST_REPORTED) -> None:
        self._horizons = dict(horizons)
        self._least = least
        self._trends: dict[str, Trend] = {}
        self._first_times: dict[str, float] = {}
        self._reported: set[str] = set()

    def expect(self, horizons: Mapping[str, float]) -> None:
        """Know the horizons of operators that have come."""
        self._horizons.update(horizons)

    def look(self, operator: str, time: float, size: int) -> Growth | None:
        """Add the size after a batch; return the growth of `operator` the first time that it shows."""
        if operator in self._reported:
            return None
        start = self._first_times.setdefault(operator, time)
        if time - start < _SETTLED * self._horizons.get(operator, 0.0):
            return None
        trend = self._trends.setdefault(operator, Trend())
        trend.add(time, float(size))
        slope = trend.slope() if size >= self._least else None
        if slope is None or slope * (time - trend.samples[0][0]) < size / 2:
            return None
        self._reported.add(operator)
        return Growth(operator, slope, size)

    def forget(self, operators: Collection[str]) -> None:
        """Forget operators that are gone."""
        for operator in operators:
            self._trends.pop(operator, None)
            self._first_times.pop(operator, None)
            self._reported.discard(operator)
            self._horizons.pop(operator, None)
