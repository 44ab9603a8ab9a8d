"""Retention by stamps, correct when the clock of the machine is set.

A stamp ahead of the clock was made by a clock that was ahead by an unknown time. Its retention begins when it is first
read: so its data are kept for at least that time, and do not stay until the clock reaches the stamp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class StampRetention:
    """How long stamps are kept. All instants are in microseconds since 1970.

    Args:
        seconds: how long.
        now: the clock.
    """

    seconds: float
    now: Callable[[], int]
    #: The latest stamp ahead of the clock, and when it was noticed.
    _ahead: int = 0
    _noticed: int = 0

    def keeps(self, at: int) -> bool:
        """Return whether a stamp is kept."""
        first, last = self.kept(at)
        return first <= at <= last

    def kept(self, latest: int) -> tuple[int, int]:
        """Return the first and the last stamp that are kept, of those up to `latest`."""
        now = self.now()
        before = now - int(self.seconds * 1e6)
        if latest <= now:
            return before, now
        if latest > self._ahead:
            self._ahead, self._noticed = latest, now
        # The clock may have been set back since.
        self._noticed = min(self._noticed, now)
        return before, latest if self._noticed >= before else now
