"""How closely streams keep to promises, by samples of their values: k of each element by the definition of a breach.

k of an element is the least one with which it is no breach (docs/promises.md): of CLUSTERED BY the widest gap between
two rows of its value so far, in elements of the stream or in ticks; of ORDERED BY how long before it the first greater
value came. Instants count up to the heartbeat, so neither depends on the order of arrival. What is measured is kept in
the process: it is since the start, and over the last hour of the wall clock.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from penstock.compilation import loop
from penstock.physical.elements import Bools, Int64s
from penstock.physical.observation import observed_rows as observed
from penstock.physical.observation.observed_rows import ObservedRows, SampledRows

#: Values of a sample; of more the sample is halved.
MOST_VALUES = 10_000
#: Rows that raise the greatest value that are kept; of more the older half is thinned.
MOST_RISEN = 10_000
#: Up to this k is exact in the histogram; above it, to one part in so many.
_EXACT = 1_024
_NEVER = np.iinfo(np.int64).min
#: Seconds between two measurements.
_PAUSE = 1.0
#: Minutes of the last hour.
_MINUTES = 60


@dataclass
class Histogram:
    """How many elements have each k, rounded up to a part of 1/1024."""

    counts: dict[int, int] = field(default_factory=dict)
    highest: int = 0

    def add(self, counts: Mapping[int, int], highest: int) -> None:
        """Add elements. counts: how many have each k, rounded up; highest: the largest k."""
        for value, number in counts.items():
            self.counts[value] = self.counts.get(value, 0) + number
        self.highest = max(self.highest, highest)

    def merge(self, other: Histogram) -> None:
        self.add(other.counts, other.highest)

    @property
    def elements(self) -> int:
        return sum(self.counts.values())

    def quantile(self, share: float) -> int | None:
        """Return the least k to which at least this share of the elements keeps; None for no elements."""
        least, reached = share * self.elements, 0
        for value in sorted(self.counts):
            reached += self.counts[value]
            if reached >= least:
                return min(value, self.highest)
        return None

    def within(self, k: int) -> int:
        """Return how many elements keep to k."""
        limit = int(_rounded_up(np.array([k], np.int64))[0])
        return sum(number for value, number in self.counts.items() if value <= limit)


def _rounded_up(k: Int64s) -> Int64s:
    if len(k) and k.max() <= _EXACT:
        return k
    bits = np.maximum(np.ceil(np.log2(np.maximum(k, 1).astype(np.float64))).astype(np.int64) - 10, 0)
    return np.where(k <= _EXACT, k, ((k + (1 << bits) - 1) >> bits) << bits)


class MeasuredK:
    """The k of a promise since the start, and by minute of the last hour."""

    def __init__(self) -> None:
        self.whole = Histogram()
        self._minutes: deque[tuple[int, Histogram]] = deque()

    def add(self, k: Int64s, rows: Int64s, now: float) -> None:
        if not len(k):
            return
        values, places = np.unique(_rounded_up(k), return_inverse=True)
        numbers = np.bincount(places, rows).astype(np.int64)
        counts, highest = dict(zip(values.tolist(), numbers.tolist(), strict=True)), int(k.max())
        self.whole.add(counts, highest)
        minute = int(now // 60)
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, Histogram()))
        self._minutes[-1][1].add(counts, highest)
        while self._minutes[0][0] <= minute - _MINUTES:
            self._minutes.popleft()

    def last_hour(self, now: float) -> Histogram:
        found = Histogram()
        for minute, one in self._minutes:
            if minute > int(now // 60) - _MINUTES:
                found.merge(one)
        return found


@dataclass(frozen=True)
class MeasuredColumns:
    """What is measured of columns of a stream.

    Args:
        clustered_rows, clustered_ticks, ordered_rows, ordered_ticks: k; of an order None for several columns, and for
            a type without order.
        repeated: 1 for an element whose value came at an earlier instant, else 0.
        share: of the values, those in the sample.
        values: the different values in it.
    """

    clustered_rows: MeasuredK
    clustered_ticks: MeasuredK
    ordered_rows: MeasuredK | None
    ordered_ticks: MeasuredK | None
    repeated: MeasuredK
    share: float
    values: int


@loop
def _widest_gaps(
    slots: Int64s, ts: Int64s, before: Int64s, upto: Int64s, state: Int64s, rows: Int64s, ticks: Int64s
) -> None:
    """Find the widest gap of each element's value so far.

    Args:
        slots, ts: of the elements, in the order of their instants.
        before, upto: the elements of the stream before that instant, and up to it.
        state: by slot: the last instant, N at it, the widest gap in rows, in ticks.
        rows, ticks: receive the gaps.
    """
    for i in range(slots.shape[0]):
        s = slots[i]
        if state[s, 0] != _NEVER and ts[i] > state[s, 0]:
            state[s, 2] = max(state[s, 2], before[i] - state[s, 1])
            state[s, 3] = max(state[s, 3], ts[i] - state[s, 0])
        state[s, 0] = ts[i]
        state[s, 1] = upto[i]
        rows[i] = state[s, 2]
        ticks[i] = state[s, 3]


class _Columns:
    """What is measured of columns of a stream: the sample of their values, with the last instant and count of each."""

    def __init__(self) -> None:
        self._hashes = np.empty(0, np.int64)
        self._state = np.empty((0, 4), np.int64)
        self._halved = 0
        self._risen_ts, self._risen_n, self._risen_keys = (np.empty(0, np.int64) for _ in range(3))
        self.pending: list[SampledRows] = []
        names = ("clustered_rows", "clustered_ticks", "ordered_rows", "ordered_ticks", "repeated")
        self._measured = {name: MeasuredK() for name in names}
        self._ordered = False

    @property
    def figures(self) -> MeasuredColumns:
        one = self._measured
        return MeasuredColumns(
            one["clustered_rows"],
            one["clustered_ticks"],
            one["ordered_rows"] if self._ordered else None,
            one["ordered_ticks"] if self._ordered else None,
            one["repeated"],
            1 / 2 ** (observed.SAMPLE_BITS + self._halved),
            len(self._hashes),
        )

    def advance(self, heartbeat: int, counted: Counted, now: float) -> None:
        """Measure the elements up to a heartbeat."""
        ready, later = [], []
        for part in self.pending:
            done, waits = _split(part, heartbeat)
            ready.append(done)
            later += [waits] if len(waits.hashes) or len(waits.risen[0]) else []
        self.pending = later
        if not ready:
            return
        hashes, ts, rows = (np.concatenate([getattr(p, name) for p in ready]) for name in ("hashes", "ts", "rows"))
        keys = np.concatenate([p.keys for p in ready])
        risen_ts, risen_keys = (np.concatenate([p.risen[i] for p in ready]) for i in (0, 1))
        kept = self._in_sample(hashes)
        order = np.flatnonzero(kept)[np.argsort(ts[kept], kind="stable")]
        hashes, ts, rows = hashes[order], ts[order], rows[order]
        before, upto = counted.before(ts), counted.upto(ts)
        self._measure_values(hashes, ts, rows, before, upto, now)
        if len(risen_ts):
            self._ordered = True
            self._add_risen(risen_ts, risen_keys, counted)
        if self._ordered and len(keys):
            self._measure_order(keys[order], ts, rows, before, now)

    def _in_sample(self, hashes: Int64s) -> Bools:
        if not self._halved:
            return np.ones(len(hashes), np.bool_)
        found: Bools = hashes.view(np.uint64) >> np.uint64(64 - observed.SAMPLE_BITS - self._halved) == 0
        return found

    def _measure_values(
        self, hashes: Int64s, ts: Int64s, rows: Int64s, before: Int64s, upto: Int64s, now: float
    ) -> None:
        new = np.setdiff1d(hashes, self._hashes)
        if len(new):
            merged = np.concatenate([self._hashes, new])
            order = np.argsort(merged)
            fresh = np.zeros((len(new), 4), np.int64)
            fresh[:, 0] = _NEVER
            self._hashes, self._state = merged[order], np.concatenate([self._state, fresh])[order]
        slots = np.searchsorted(self._hashes, hashes)
        came = self._state[slots, 0] != _NEVER
        gaps, ticks = np.empty(len(ts), np.int64), np.empty(len(ts), np.int64)
        first = np.full(len(self._hashes), np.iinfo(np.int64).max)
        np.minimum.at(first, slots, ts)
        _widest_gaps(slots, ts, before, upto, self._state, gaps, ticks)
        self._measured["clustered_rows"].add(gaps, rows, now)
        self._measured["clustered_ticks"].add(ticks, rows, now)
        again = came | (ts > first[slots])
        self._measured["repeated"].add(again.astype(np.int64), rows, now)
        while len(self._hashes) > MOST_VALUES:
            self._halved += 1
            kept = self._in_sample(self._hashes)
            self._hashes, self._state = self._hashes[kept], self._state[kept]

    def _add_risen(self, ts: Int64s, keys: Int64s, counted: Counted) -> None:
        order = np.lexsort((keys, ts))
        ts, keys = ts[order], keys[order]
        highest = np.maximum.accumulate(keys)
        if len(self._risen_keys):
            highest = np.maximum(highest, self._risen_keys[-1])
        floor = self._risen_keys[-1] if len(self._risen_keys) else None
        rises = np.append(highest[0] > floor if floor is not None else True, highest[1:] > highest[:-1])
        rows = np.flatnonzero(rises)
        # Of one instant the greatest is enough.
        rows = rows[np.append(ts[rows][1:] != ts[rows][:-1], True)[: len(rows)]]
        self._risen_ts = np.concatenate([self._risen_ts, ts[rows]])
        self._risen_keys = np.concatenate([self._risen_keys, highest[rows]])
        self._risen_n = np.concatenate([self._risen_n, counted.upto(ts[rows])])
        if len(self._risen_ts) > MOST_RISEN:
            half = len(self._risen_ts) // 2
            kept = np.append(np.arange(0, half, 2), np.arange(half, len(self._risen_ts)))
            self._risen_ts, self._risen_n, self._risen_keys = (
                a[kept] for a in (self._risen_ts, self._risen_n, self._risen_keys)
            )

    def _measure_order(self, keys: Int64s, ts: Int64s, rows: Int64s, before: Int64s, now: float) -> None:
        place = np.searchsorted(self._risen_keys, keys, side="right")
        inside = place < len(self._risen_keys)
        place = np.minimum(place, len(self._risen_keys) - 1)
        # Only what came at an earlier instant is greater before it.
        inside &= self._risen_ts[place] < ts
        k_rows = np.where(inside, before - self._risen_n[place] + 1, 0)
        k_ticks = np.where(inside, ts - self._risen_ts[place], 0)
        self._measured["ordered_rows"].add(k_rows, rows, now)
        self._measured["ordered_ticks"].add(k_ticks, rows, now)


def _split(part: SampledRows, heartbeat: int) -> tuple[SampledRows, SampledRows]:
    """Return the rows up to a heartbeat, and those behind it."""

    def chosen(ready: bool) -> SampledRows:
        rows = np.flatnonzero((part.ts <= heartbeat) == ready)
        high = np.flatnonzero((part.risen[0] <= heartbeat) == ready)
        keys = part.keys[rows] if len(part.keys) else part.keys
        risen = part.risen[0][high], part.risen[1][high]
        return SampledRows(part.hashes[rows], part.ts[rows], part.rows[rows], keys, risen)

    return chosen(True), chosen(False)


class Counted:
    """N of a stream at the instants of a round. base: N before it."""

    def __init__(self, instants: Int64s, counts: Int64s, base: int) -> None:
        self._instants = instants
        self._n = np.append(base, base + np.cumsum(counts))

    def upto(self, ts: Int64s) -> Int64s:
        """Return the number of elements up to each instant."""
        found: Int64s = self._n[np.searchsorted(self._instants, ts, side="right")]
        return found

    def before(self, ts: Int64s) -> Int64s:
        """Return the number of elements before each instant."""
        found: Int64s = self._n[np.searchsorted(self._instants, ts, side="left")]
        return found

    @property
    def total(self) -> int:
        return int(self._n[-1])


class _MeasuredStream:
    """What is measured of one stream."""

    def __init__(self) -> None:
        self.elements = 0
        self._runs: list[tuple[Int64s, Int64s]] = []
        self.columns: dict[tuple[int, ...], _Columns] = {}

    def add(self, seen: ObservedRows) -> None:
        self._runs.append((seen.instants, seen.counts))
        for columns, sample in seen.samples.items():
            self.columns.setdefault(columns, _Columns()).pending.append(sample)

    def advance(self, heartbeat: int, now: float) -> None:
        if not self._runs:
            return
        instants, counts = (np.concatenate([run[i] for run in self._runs]) for i in (0, 1))
        ready = instants <= heartbeat
        self._runs = [(instants[~ready], counts[~ready])] if not ready.all() else []
        if not ready.any():
            return
        different, places = np.unique(instants[ready], return_inverse=True)
        counted = Counted(different, np.bincount(places, counts[ready]).astype(np.int64), self.elements)
        self.elements = counted.total
        for one in self.columns.values():
            one.advance(heartbeat, counted, now)


@dataclass(frozen=True)
class StreamMeasures:
    """What is measured of a stream. elements: those counted; by_columns: by positions of declared columns."""

    elements: int
    by_columns: Mapping[tuple[int, ...], MeasuredColumns]


class ConstraintMonitor:
    """Measures streams of a run by what its tasks have seen of them. Used by any thread. clock: seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._streams: dict[str, _MeasuredStream] = {}
        self._heartbeats: Mapping[str, int] = {}
        self._measured = -math.inf

    def add(self, seen: ObservedRows) -> None:
        """Add what a task has seen in the present round."""
        with self._lock:
            self._streams.setdefault(seen.source, _MeasuredStream()).add(seen)

    def advance(self, heartbeats: Mapping[str, int]) -> None:
        """Measure up to the heartbeats of streams. That is done once a second: rounds may be short."""
        with self._lock:
            self._heartbeats = heartbeats
            if not 0 <= self._clock() - self._measured < _PAUSE:
                self._measure()

    def _measure(self) -> None:
        self._measured = now = self._clock()
        for name, stream in self._streams.items():
            if name in self._heartbeats:
                stream.advance(self._heartbeats[name], now)

    def keep(self, measured: Mapping[str, tuple[tuple[int, ...], ...]]) -> None:
        """Forget streams and columns that are measured no more. measured: by stream the columns that are."""
        with self._lock:
            self._streams = {name: one for name, one in self._streams.items() if measured.get(name)}
            for name, stream in self._streams.items():
                stream.columns = {c: one for c, one in stream.columns.items() if c in measured[name]}

    def measures(self) -> dict[str, StreamMeasures]:
        """Return what is measured by stream."""
        with self._lock:
            self._measure()
            return {
                name: StreamMeasures(stream.elements, {c: deepcopy(one.figures) for c, one in stream.columns.items()})
                for name, stream in self._streams.items()
            }
