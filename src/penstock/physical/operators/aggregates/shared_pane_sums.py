"""The sums of windows at their boundaries, read from a log of panes that they share.

The windows over one log are rows of one table, and their sums lie in common arrays. Where one of them is due, the
others that stand where it stood, and compute the same of the panes, are due too: one compiled call carries the sums of
all of them on, and their rows are slices of one batch. What a window emits is the same in either case: its sums
depend on the panes alone, so which windows are computed together is a matter of cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.expansions import WIDTH
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.kernels.boundary_pieces import pieces, spread
from penstock.physical.kernels.compiled import repeat
from penstock.physical.kernels.ticks import boundary_number
from penstock.physical.operators.aggregates.groups.finalize import finish
from penstock.physical.operators.aggregates.running_sums import carry, move
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.synopses.windows.pane_log import ZERO, PaneLog
from penstock.types import END

#: More boundaries than this are not visited one by one: at most of them the window is empty.
_MOST = 100_000
#: About how many rows are emitted per batch: few enough that the next batch reuses the memory while it is in the cache.
#: A batch has at least one boundary.
PIECE = 2**17


@dataclass(frozen=True)
class _Due:
    """Rows of a window that were computed together with those of another one: from the instant `since` until before
    `until`, they are the rows start ... stop - 1 of `batch`."""

    since: int
    until: int
    batch: Elements | None
    start: int
    stop: int


class PaneWindows:
    """All windows over one log, by number: window n emits at the boundaries align + k·slide the sums of `length` ticks.

    Derived from the log: `done`, the last instant that was evaluated, determines the position, whether or not the sums
    are in memory. They are computed afresh at every `period`-th boundary by number.
    """

    def __init__(self, log: PaneLog, plan: AggregateLayout) -> None:
        self._log, self._plan = log, plan
        # Plain sums of doubles have no other accumulators: their integer lanes are as `SumOfValues` has them.
        self._guards = [guard for guard, _, _ in plan.double_sums]
        self._units = [guard + 3 for guard in self._guards]
        #: By window: length, slide, align, period, whether `done` is known, `done`, whether its sums are not in memory.
        self._lengths, self._slides, self._aligns, self._periods, self._done = (np.empty(0, np.int64) for _ in range(5))
        self._known, self._cold = (np.empty(0, np.bool_) for _ in range(2))
        #: By window: the rows of the log that its sums are of, and how many places may be shown.
        self._lows, self._highs, self._counts = (np.empty(0, np.int64) for _ in range(3))
        #: The window numbers in use.
        self._used = np.empty(0, np.bool_)
        self._due: dict[int, _Due] = {}
        self.forget()
        log.readers = self

    # -- windows -----------------------------------------------------------------------------------------------

    def add(self, length: int, slide: int, align: int, done: int | None) -> int:
        """Add a window; return its number. done: the last instant that it has evaluated."""
        free = np.flatnonzero(~self._used)
        number = int(free[0]) if len(free) else self._room()
        self._used[number] = True
        self._lengths[number], self._slides[number], self._aligns[number] = length, slide, align
        self._periods[number] = -(-length // slide)
        self.set_done(number, done)
        return number

    def remove(self, number: int) -> int | None:
        """Remove a window; return the last instant that it has evaluated."""
        done = self.done(number)
        self._due.pop(number, None)
        self._used[number], self._known[number], self._cold[number] = False, False, True
        return done

    def done(self, number: int) -> int | None:
        """Return the last instant that a window has evaluated."""
        return int(self._done[number]) if self._known[number] else None

    def set_done(self, number: int, done: int | None) -> None:
        """Set the last instant that a window has evaluated, whose sums are not in memory."""
        self._known[number], self._done[number], self._cold[number] = done is not None, done or 0, True

    def _room(self) -> int:
        """Make room for more windows; return the first new number."""
        used = len(self._used)
        for name in (
            "_lengths",
            "_slides",
            "_aligns",
            "_periods",
            "_done",
            "_lows",
            "_highs",
            "_counts",
            "_used",
            "_known",
            "_cold",
            "_sums",
            "_doubles",
            "_shown",
            "_active",
        ):
            old = getattr(self, name)
            made = np.zeros((used + max(1, used // 4), *old.shape[1:]), old.dtype)
            made[:used] = old
            setattr(self, name, made)
        self._cold[used:] = True
        return used

    # -- called by the log -------------------------------------------------------------------------------------

    @property
    def needs(self) -> int | None:
        """Return the tick up to which panes that end there are not read again; None while it is unknown."""
        used = self._used
        if not used.any() or not self._known[used].all():
            return None
        slides, aligns, periods = self._slides[used], self._aligns[used], self._periods[used]
        begun = _begun(_boundaries(self._done[used] + 1, slides, aligns), periods)
        return int((aligns + slides * begun - self._lengths[used]).min())

    @property
    def nbytes(self) -> int:
        return self._sums.nbytes + self._doubles.nbytes + self._shown.nbytes + self._active.nbytes

    def forget(self) -> None:
        """Discard everything derived: the log was rebuilt, and rows and lanes are renumbered."""
        self._due.clear()
        self._cold[:] = True
        self._clear(0)

    def settle(self) -> None:
        """Discard the rows that were computed and not emitted: the panes change."""
        if self._due:
            self._cold[list(self._due)] = True
            self._due.clear()

    def move(self, places: Int64s, count: int) -> None:
        """Move the sums of place p to places[p], -1 for a removed group; there are `count` places now."""
        active, sums, doubles = self._active, self._sums, self._doubles
        self._clear(count)
        move(
            places,
            ~self._cold,
            active,
            self._counts,
            sums,
            doubles,
            self._active,
            self._sums,
            self._doubles,
            self._shown,
        )

    def _clear(self, places: int) -> None:
        size = len(self._used)
        self._sums = np.zeros((size, places, 1 + max(self._log.lanes)), np.int64)
        self._doubles = np.zeros((size, places, self._plan.floats), np.float64)
        self._shown = np.zeros((size, places), np.bool_)
        self._active = np.zeros((size, places), np.int64)

    # -- output ------------------------------------------------------------------------------------------------

    def advance(self, number: int, start: int | None, heartbeat: int) -> Iterable[Elements]:
        """Return the rows of a window at its boundaries up to `heartbeat`, some boundaries at a time; the result is
        exhausted before the next call. start: the first instant of the panes, None while it is unknown."""
        since = int(self._done[number]) + 1 if self._known[number] else start
        if since is None or since > heartbeat:
            return ()  # there is no instant to evaluate
        rows = self._rows(number, since, heartbeat + 1)
        self._known[number], self._done[number] = True, heartbeat
        return rows

    def portion(self, number: int, start: int | None, heartbeat: int, rows: int) -> int:
        """Return up to which instant a window has about `rows` rows at most; `heartbeat`, or an earlier instant."""
        since = int(self._done[number]) + 1 if self._known[number] else start
        if since is None or since > heartbeat:
            return heartbeat
        (first,), (stop,) = (found.tolist() for found in self._range(np.array([number]), since, heartbeat + 1))
        width = max(1, rows // max(1, self._log.groups))
        if stop - first <= width:
            return heartbeat
        _, end = next(pieces(*self._around(number, first, stop), width), (stop, stop))
        return heartbeat if end >= stop else int(self._aligns[number] + self._slides[number] * end) - 1

    def _rows(self, number: int, since: int, until: int) -> Iterable[Elements]:
        """Return the rows of a window at its boundaries from the instant `since` until before `until`, some boundaries
        at a time. They must follow those of the previous call."""
        due = self._due.pop(number, None)
        if due is not None and due.since == since and due.until == until:
            return () if due.batch is None or due.start == due.stop else (due.batch.slice(due.start, due.stop),)
        if due is not None:
            self._cold[number] = True  # it was computed up to another instant
        together = self._together(number, since, until)
        if together is None:
            return self._alone(number, since, until)
        try:
            return self._common(number, together, since, until)
        except Exception:
            # It may be the error of another window, which is then raised to whom it belongs.
            self._cold[together] = True
            self.settle()
            return self._alone(number, since, until)

    def _together(self, number: int, since: int, until: int) -> Int64s | None:
        """Return the windows whose rows from `since` until before `until` are computed together with those of one: this
        one first. None if it has too many rows of its own."""
        # Windows that have evaluated nothing begin at one instant, but for those of other queries' epochs.
        alike = self._used & (self._known & (self._done == since - 1) if self._known[number] else ~self._known)
        alike[list(self._due)] = False
        alike[number] = False
        numbers = np.concatenate([np.array([number]), np.flatnonzero(alike)])
        first, stop = self._range(numbers, since, until)
        visited = np.cumsum(np.maximum(stop - np.where(self._cold[numbers], self._begun(numbers, first), first), 0))
        fits = int(np.searchsorted(visited, min(_MOST, PIECE // max(1, self._log.groups)), "right"))
        return numbers[:fits] if fits else None

    def _range(self, numbers: Int64s, since: int, until: int) -> tuple[Int64s, Int64s]:
        """Return the numbers of the first boundary at or after `since` and of that at or after `until`, by window."""
        slides, aligns = self._slides[numbers], self._aligns[numbers]
        return _boundaries(since, slides, aligns), _boundaries(until, slides, aligns)

    def _begun(self, numbers: Int64s, boundaries: Int64s) -> Int64s:
        """Return the last boundary before each at which the sums of its window were computed afresh."""
        return _begun(boundaries, self._periods[numbers])

    def _common(self, number: int, numbers: Int64s, since: int, until: int) -> Iterable[Elements]:
        """Compute the rows of several windows, of which `number` is the first; return its own."""
        first, stop = self._range(numbers, since, until)
        silent = first >= stop
        for n in numbers[silent].tolist():
            self._due[n] = _Due(since, until, None, 0, 0)
        emitting = numbers[~silent]
        if len(emitting):
            first, stop = first[~silent], stop[~silent]
            start = np.where(self._cold[emitting], self._begun(emitting, first), first)
            which, nth = repeat(stop - start)
            boundaries = start[which] + nth
            lows, highs = self._found(emitting[which], boundaries)
            kept: Bools = (lows < highs) | (boundaries == stop[which] - 1)
            which, boundaries = which[kept], boundaries[kept]
            batch, lengths = self._carried(
                emitting,
                which,
                boundaries,
                lows[kept],
                highs[kept],
                np.bincount(which[boundaries < first[which]], minlength=len(emitting)),
            )
            ends = np.cumsum(np.bincount(which, lengths, len(emitting)).astype(np.int64)).tolist()
            for n, begin, end in zip(emitting.tolist(), [0, *ends], ends, strict=False):
                self._due[n] = _Due(since, until, batch, begin, end)
        own = self._due.pop(number)
        return () if own.batch is None or own.start == own.stop else (own.batch.slice(own.start, own.stop),)

    def _alone(self, number: int, since: int, until: int) -> Iterator[Elements]:
        """Yield the rows of one window."""
        one = np.array([number])
        (first,), (stop,) = (found.tolist() for found in self._range(one, since, until))
        if first >= stop:
            return
        start = int(self._begun(one, np.array([first]))[0]) if self._cold[number] else first
        for numbers in self._filled(number, start, stop, max(1, PIECE // max(1, self._log.groups))):
            quiet = np.searchsorted(numbers, [first])
            lows, highs = self._found(np.broadcast_to(one, len(numbers)), numbers)
            batch, _ = self._carried(one, np.zeros(len(numbers), np.int64), numbers, lows, highs, quiet)
            if len(batch):
                yield batch

    def _found(self, numbers: Int64s, boundaries: Int64s) -> tuple[Int64s, Int64s]:
        """Return the range of the log (start, stop) that each window contains at its boundary."""
        times, ticks = self._log.times, self._aligns[numbers] + self._slides[numbers] * boundaries
        return np.searchsorted(times, ticks - self._lengths[numbers], "right"), np.searchsorted(times, ticks, "right")

    def _carried(
        self, numbers: Int64s, which: Int64s, boundaries: Int64s, lows: Int64s, highs: Int64s, quiet: Int64s
    ) -> tuple[Elements, Int64s]:
        """Carry the sums of windows on, and return their rows, and how many there are of each boundary.

        Args:
            which: by boundary, the position of its window among `numbers`, ascending.
            boundaries: of a window, by number, ascending.
            lows, highs: the range of the log that the window contains there.
            quiet: by window, how many of its first boundaries are not emitted.
        """
        log = self._log
        cold = numbers[self._cold[numbers]]
        if len(cold):
            self._sums[cold], self._doubles[cold], self._shown[cold] = 0, 0.0, False
            self._counts[cold], self._lows[cold], self._highs[cold] = 0, log.base, log.base
            self._cold[cold] = False
        # A lane that is 0 in every pane has no terms to guard.
        guards = np.array([log.lanes[lane] for lane in self._guards], np.int64)
        guards = np.where(guards == ZERO, 0, guards)
        units = np.array([log.lanes[lane] for lane in self._units], np.int64)
        windows = numbers[which]
        edges = np.searchsorted(which, np.arange(len(numbers) + 1))
        positions, integers, floats, lengths = carry(
            log.slots,
            log.integers,
            log.floats,
            log.place,
            numbers,
            edges,
            lows,
            highs,
            boundaries % self._periods[windows] == 0,
            quiet,
            self._sums,
            self._doubles,
            guards,
            units,
            self._shown,
            self._active,
            self._counts,
            self._lows,
            self._highs,
            log.base,
            (len(boundaries) - int(quiet.sum())) * log.groups,
        )
        ticks = np.repeat(self._aligns[windows] + self._slides[windows] * boundaries, lengths)
        zeros, no_rest = np.broadcast_to(np.int64(0), len(ticks)), np.broadcast_to(0.0, len(ticks))
        lanes = [
            zeros if kept == ZERO or lane in self._units else integers[kept] for lane, kept in enumerate(log.lanes)
        ]
        doubles = [lane for value in floats for lane in (value, *[no_rest] * (WIDTH - 1))]
        chosen = pa.array(positions)
        columns = (*(key.take(chosen) for key in log.keys), *finish(self._plan, lanes, doubles, {}))
        return Elements(columns, ticks, np.full(len(ticks), END)), lengths

    def _filled(self, number: int, first: int, stop: int, width: int) -> Iterator[Int64s]:
        """Yield the boundaries first ... stop - 1 at which a window contains panes, about `width` at a time; always
        including the last boundary: panes that have left the window must be subtracted before they leave the log."""
        if stop - first > _MOST:
            low, high = self._around(number, first, stop)
            last = stop - 1 if not len(high) or high.max() < stop else stop
            for begin, end in pieces(low, high, width):
                yield spread(low, high, begin, end)[1]
            if last < stop:
                yield np.array([last], np.int64)
            return
        boundaries = np.arange(first, stop)
        lows, highs = self._found(np.full(len(boundaries), number), boundaries)
        filled: Bools = lows < highs
        filled[-1] = True
        boundaries = boundaries[filled]
        for start in range(0, len(boundaries), width):
            yield boundaries[start : start + width]

    def _around(self, number: int, first: int, stop: int) -> tuple[Int64s, Int64s]:
        """Return the same boundaries as ranges (low, high), computed from the panes."""
        slide, align, length = (int(of[number]) for of in (self._slides, self._aligns, self._lengths))
        times = np.unique(self._log.times)
        low = np.maximum(boundary_number(times, slide, align), first)
        high = np.minimum(boundary_number(times + length, slide, align), stop)
        # Both are ascending: the range that a pane adds begins where the ranges before it end.
        low = np.maximum(low, np.concatenate([low[:1], np.maximum.accumulate(high)[:-1]]))
        not_empty = low < high
        return low[not_empty], high[not_empty]


def _boundaries(ticks: Int64s | int, slides: Int64s, aligns: Int64s) -> Int64s:
    """Do the same as `boundary_number`, for windows of different slides."""
    found: Int64s = -((aligns - ticks) // slides)
    return found


def _begun(boundaries: Int64s, periods: Int64s) -> Int64s:
    """Return the last boundary before each whose number is a multiple of the period."""
    found: Int64s = (boundaries - 1) // periods * periods
    return found
