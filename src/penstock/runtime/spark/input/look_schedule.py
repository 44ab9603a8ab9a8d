"""Schedule how often a source is checked for new input: often while input arrives and a look is cheap, seldom where
nothing arrives or a look takes long.

The interval between two looks is 20 times the duration of a look, so that looking takes at most a twentieth of one
core; a hundredth of the time since input was found; and no less than the connector's minimum
(`SourceConnector.look_every`), since a look at a server is work for others. Together these are at most a quarter of a
second, unless a look takes longer.

Files of sources that meet in a query often appear together, some milliseconds apart. A round that takes one without the
other emits little, and the other waits until it is done; so a round is held back for a moment (`Gathering`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Maximum seconds between two looks, where the source is quiet or large.
SELDOM = 0.25
_SHARE_OF_TIME, _SHARE_OF_SILENCE = 20.0, 0.01
#: A round is held back for this part of the time that the last one took, and for this many seconds at most.
_SHARE_OF_ROUND, _LONGEST = 0.1, 0.02


class Looks:
    """The schedule of one source. least: minimum seconds between two looks; clock: seconds."""

    def __init__(self, least: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._minimum_interval, self._clock = least, clock
        self._last_look, self._look_seconds = -math.inf, 0.0
        self._last_input = clock()

    @property
    def wait(self) -> float:
        """Seconds until the next look, 0 where it is due."""
        silence = max(0.0, self._last_look - self._last_input)
        interval = max(self._minimum_interval, self._look_seconds * _SHARE_OF_TIME, silence * _SHARE_OF_SILENCE)
        return max(0.0, self._last_look + min(interval, max(SELDOM, self._look_seconds)) - self._clock())

    @property
    def frequent(self) -> bool:
        """Return whether input has arrived of late, and a look costs so little that one more does no harm."""
        silence = self._clock() - self._last_input
        return max(self._look_seconds * _SHARE_OF_TIME, silence * _SHARE_OF_SILENCE) <= self._minimum_interval < SELDOM

    def found(self) -> None:
        """Record that input was found."""
        self._last_input = self._clock()

    def over(self) -> None:
        """Record that no more input will arrive."""
        self._last_look = math.inf

    @contextmanager
    def look(self) -> Iterator[None]:
        """Measure a look."""
        start = self._clock()
        yield
        self._last_look = self._clock()
        self._look_seconds = self._last_look - start


class Gathering:
    """How long a round is held back for input of further sources. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: float | None = None

    @property
    def wait(self) -> float:
        """Seconds until the round is planned with what there is; infinite where none is held back."""
        return math.inf if self._until is None else max(0.0, self._until - self._clock())

    def holds(self, incomplete: bool, seconds: float | None) -> bool:
        """Return whether the round is held back (further).

        Args:
            incomplete: whether input of some source is expected and has not been found.
            seconds: duration of the last round, None if unknown.
        """
        if self._until is None:
            self._until = self._clock() + min(_LONGEST, _SHARE_OF_ROUND * (seconds or 0.0))
        if incomplete and self.wait:
            return True
        self._until = None
        return False
