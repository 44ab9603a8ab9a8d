"""What one window makes of a log of panes that it shares with others: its groups' sums at its boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.physical.aggregation.running import carry, move
from penstock.physical.elements import Bools, Int64s
from penstock.physical.kernels import repeat
from penstock.physical.lane_plan import LanePlan
from penstock.physical.synopses.pane_log import ZERO, PaneLog
from penstock.physical.synopses.slots import Float64s

#: More boundaries than this are not looked at one by one: most lie in a stretch where the window is empty.
_MOST = 100_000
#: Rows of a piece of what is told, about: few enough that one piece's memory serves the next, while it is in the near
#: caches. A piece has one boundary at least.
PIECE = 2**17


@dataclass(frozen=True)
class Told:
    """Rows of groups by boundary, and there by place. integers, floats: by lane of the plan, as `finish` takes them."""

    ticks: Int64s
    places: npt.NDArray[np.int32]
    integers: list[Int64s]
    floats: list[Float64s]


class WindowReader:
    """The sums of a window of `length` ticks at the boundaries align + k·slide.

    Derived of the log: `done`, the last instant that was told of, says where it stands, whether or not the sums are at
    hand. They are begun anew at every `period`-th boundary by number.
    """

    def __init__(self, log: PaneLog, plan: LanePlan, length: int, slide: int, align: int) -> None:
        self._log, self._plan = log, plan
        self._length, self._slide, self._align = length, slide, align
        self._period = -(-length // slide)
        self._guards = [a.integers for a in plan.arguments for _ in range(a.float_lanes // 2)]
        self.done: int | None = None
        self._cold = True
        self._count = 0
        self.forget()
        log.readers.append(self)

    # -- what the log asks -------------------------------------------------------------------------------------

    @property
    def needs(self) -> int | None:
        if self.done is None:
            return None
        return self._align + self._slide * self._begun(self.boundary(self.done + 1)) - self._length

    @property
    def nbytes(self) -> int:
        return self._sums.nbytes + self._pairs.nbytes + self._shown.nbytes + self._active.nbytes

    def forget(self) -> None:
        self._cold = True
        self._clear(0)

    def move(self, places: Int64s, count: int) -> None:
        if self._cold:
            return
        sums, pairs, active, held = self._sums, self._pairs, self._active, self._count
        self._clear(count)
        self._count = move(places, active, held, sums, pairs, self._active, self._sums, self._pairs, self._shown)

    def _clear(self, count: int) -> None:
        self._sums = np.zeros((count, 1 + max(self._log.lanes)), np.int64)
        self._pairs = np.zeros((count, self._plan.floats), np.float64)
        self._shown = np.zeros(count, np.bool_)
        self._active = np.empty(count, np.int64)
        self._count = 0

    # -- telling -----------------------------------------------------------------------------------------------

    def boundary(self, tick: int) -> int:
        """The number of the first boundary at or after `tick`."""
        return -((self._align - tick) // self._slide)

    def _begun(self, boundary: int) -> int:
        """The last boundary before `boundary` at which the sums were begun."""
        return (boundary - 1) // self._period * self._period

    def tell(self, first: int, stop: int) -> Iterator[Told]:
        """The rows at the boundaries from `first` until before `stop`, some boundaries at a time. They follow on those
        told."""
        if first >= stop:
            return
        log = self._log
        asked = self._filled(first, stop)
        if self._cold:
            self._clear(log.groups)
            self._low = self._high = log.base
            before = self._filled(self._begun(first), first)
            self._cold = False
        else:
            before = np.empty(0, np.int64)
        # The last one always: what has left the window must be taken away before it leaves the log.
        last = np.array([stop - 1] if not len(asked) or asked[-1] < stop - 1 else [], np.int64)
        numbers = np.concatenate([before, asked, last])
        ticks = self._align + self._slide * numbers
        lows, highs = self._rows(ticks)
        guards = np.array([log.lanes[lane] for lane in self._guards], np.int64)
        # A lane that is 0 in every pane has no terms to guard.
        guards = np.where(guards == ZERO, 0, guards)
        anew = numbers % self._period == 0
        width = max(1, PIECE // max(1, log.groups))
        for start in range(0, len(numbers), width):
            part = slice(start, start + width)
            quiet = min(max(0, len(before) - start), len(numbers[part]))
            places, integers, floats, lengths, self._count = carry(
                log.slots, log.integers, log.floats, log.place, lows[part], highs[part], anew[part], quiet,
                self._sums, self._pairs, guards, self._shown, self._active, self._count, self._low - log.base,
                self._high - log.base, (len(lows[part]) - quiet) * log.groups,
            )  # fmt: skip
            self._low, self._high = int(lows[part][-1]) + log.base, int(highs[part][-1]) + log.base
            if not len(places):
                continue
            zeros, no_rest = np.broadcast_to(np.int64(0), len(places)), np.broadcast_to(-0.0, len(places))
            lanes = [zeros if kept == ZERO else integers[kept] for kept in log.lanes]
            pairs = [half for value in floats for half in (value, no_rest)]
            yield Told(np.repeat(ticks[part][quiet:], lengths), places, lanes, pairs)

    def _rows(self, ticks: Int64s) -> tuple[Int64s, Int64s]:
        """Where in the log what a window at each tick holds begins and ends."""
        times = self._log.times
        return np.searchsorted(times, ticks - self._length, "right"), np.searchsorted(times, ticks, "right")

    def _filled(self, first: int, stop: int) -> Int64s:
        """The boundaries from `first` until before `stop` at which the window holds panes."""
        if stop - first > _MOST:
            return self._around(first, stop)
        numbers = np.arange(first, stop)
        lows, highs = self._rows(self._align + self._slide * numbers)
        filled: Bools = lows < highs
        return numbers[filled]

    def _around(self, first: int, stop: int) -> Int64s:
        """The same, from the panes."""
        times = np.unique(self._log.times)
        low = np.maximum(-((self._align - times) // self._slide), first)
        high = np.minimum(-((self._align - times - self._length) // self._slide), stop)
        # Both rise with time: what a pane adds begins where those before it end.
        low = np.maximum(low, np.concatenate([low[:1], np.maximum.accumulate(high)[:-1]]))
        rows, nth = repeat(high - low)
        numbers: Int64s = low[rows] + nth
        return numbers
