"""The sums of one window's groups at its boundaries, read from a log of panes that it shares with other windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.physical.elements import Bools, Int64s
from penstock.physical.kernels.boundary_pieces import pieces, spread
from penstock.physical.kernels.ticks import boundary_number
from penstock.physical.operators.aggregates.running_sums import carry, move
from penstock.physical.planning.aggregate_layout import AggregateLayout
from penstock.physical.synopses.tables.keyed_table import Float64s
from penstock.physical.synopses.windows.pane_log import ZERO, PaneLog

#: More boundaries than this are not visited one by one: at most of them the window is empty.
_MOST = 100_000
#: About how many rows are emitted per batch: few enough that the next batch reuses the memory while it is in the cache.
#: A batch has at least one boundary.
PIECE = 2**17


@dataclass(frozen=True)
class BoundaryRows:
    """Rows of groups by boundary, and within a boundary by position. integers, floats: by lane of the plan, as `finish`
    takes them."""

    ticks: Int64s
    positions: npt.NDArray[np.int32]
    integers: list[Int64s]
    floats: list[Float64s]


class WindowReader:
    """The sums of a window of `length` ticks at the boundaries align + k·slide.

    Derived from the log: `done`, the last instant that was evaluated, determines the position, whether or not the sums
    are in memory. They are computed afresh at every `period`-th boundary by number.
    """

    def __init__(self, log: PaneLog, plan: AggregateLayout, length: int, slide: int, align: int) -> None:
        self._log, self._plan = log, plan
        self._length, self._slide, self._align = length, slide, align
        self._period = -(-length // slide)
        self._guards = [a.integers for a in plan.arguments for _ in range(a.float_lanes // 2)]
        self.done: int | None = None
        self._cold = True
        self._count = 0
        self.forget()
        log.readers[self] = None

    # -- called by the log -------------------------------------------------------------------------------------

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

    def move(self, new_positions: Int64s, count: int) -> None:
        if self._cold:
            return
        sums, pairs, active, old_count = self._sums, self._pairs, self._active, self._count
        self._clear(count)
        self._count = move(
            new_positions, active, old_count, sums, pairs, self._active, self._sums, self._pairs, self._shown
        )

    def _clear(self, count: int) -> None:
        self._sums = np.zeros((count, 1 + max(self._log.lanes)), np.int64)
        self._pairs = np.zeros((count, self._plan.floats), np.float64)
        self._shown = np.zeros(count, np.bool_)
        self._active = np.empty(count, np.int64)
        self._count = 0

    # -- output ------------------------------------------------------------------------------------------------

    def boundary(self, tick: int) -> int:
        """Return the number of the first boundary at or after `tick`."""
        return boundary_number(tick, self._slide, self._align)

    def _begun(self, boundary: int) -> int:
        """Return the last boundary before `boundary` at which the sums were computed afresh."""
        return (boundary - 1) // self._period * self._period

    def rows_at(self, first: int, stop: int) -> Iterator[BoundaryRows]:
        """Yield the rows at the boundaries first ... stop - 1, some boundaries at a time. They must follow the
        boundaries of the previous call."""
        if first >= stop:
            return
        log = self._log
        start = first
        if self._cold:
            self._clear(log.groups)
            self._low = self._high = log.base
            start = self._begun(first)
            self._cold = False
        width = max(1, PIECE // max(1, log.groups))
        # A lane that is 0 in every pane has no terms to guard.
        guards = np.array([log.lanes[lane] for lane in self._guards], np.int64)
        guards = np.where(guards == ZERO, 0, guards)
        for numbers in self._filled(start, stop, width):
            quiet = int(np.searchsorted(numbers, first))
            ticks = self._align + self._slide * numbers
            lows, highs = self._rows(ticks)
            positions, integers, floats, lengths, self._count = carry(
                log.slots, log.integers, log.floats, log.place, lows, highs, numbers % self._period == 0, quiet,
                self._sums, self._pairs, guards, self._shown, self._active, self._count, self._low - log.base,
                self._high - log.base, (len(lows) - quiet) * log.groups,
            )  # fmt: skip
            self._low, self._high = int(lows[-1]) + log.base, int(highs[-1]) + log.base
            if not len(positions):
                continue
            zeros, no_rest = np.broadcast_to(np.int64(0), len(positions)), np.broadcast_to(-0.0, len(positions))
            lanes = [zeros if kept == ZERO else integers[kept] for kept in log.lanes]
            pairs = [half for value in floats for half in (value, no_rest)]
            yield BoundaryRows(np.repeat(ticks[quiet:], lengths), positions, lanes, pairs)

    def _rows(self, ticks: Int64s) -> tuple[Int64s, Int64s]:
        """Return the range of the log (start, stop) that the window contains at each tick."""
        times = self._log.times
        return np.searchsorted(times, ticks - self._length, "right"), np.searchsorted(times, ticks, "right")

    def _filled(self, first: int, stop: int, width: int) -> Iterator[Int64s]:
        """Yield the boundaries first ... stop - 1 at which the window contains panes, about `width` at a time; always
        including the last boundary: panes that have left the window must be subtracted before they leave the log."""
        if stop - first > _MOST:
            low, high = self._around(first, stop)
            last = stop - 1 if not len(high) or high.max() < stop else stop
            for begin, end in pieces(low, high, width):
                yield spread(low, high, begin, end)[1]
            if last < stop:
                yield np.array([last], np.int64)
            return
        numbers = np.arange(first, stop)
        lows, highs = self._rows(self._align + self._slide * numbers)
        filled: Bools = lows < highs
        filled[-1] = True
        numbers = numbers[filled]
        for start in range(0, len(numbers), width):
            yield numbers[start : start + width]

    def _around(self, first: int, stop: int) -> tuple[Int64s, Int64s]:
        """Return the same boundaries as ranges (low, high), computed from the panes."""
        times = np.unique(self._log.times)
        low = np.maximum(boundary_number(times, self._slide, self._align), first)
        high = np.minimum(boundary_number(times + self._length, self._slide, self._align), stop)
        # Both are ascending: the range that a pane adds begins where the ranges before it end.
        low = np.maximum(low, np.concatenate([low[:1], np.maximum.accumulate(high)[:-1]]))
        not_empty = low < high
        return low[not_empty], high[not_empty]
