"""How closely streams keep to promises, by samples of their values: k of each element by the definition of a breach.

k of an element is the least one with which it is no breach (docs/promises.md): of CLUSTERED BY the widest gap between
two rows of its value so far, in elements of the stream or in ticks; of ORDERED BY how long before it the first greater
value came, DESC: the first smaller one; of FOREIGN KEY how long after it its parent came, in elements of the parent's
stream. A row whose parent has not come has at least the k that it would have if it came now. Instants count up to the
heartbeat, so k does not depend on the order of arrival. What is measured is kept in the process: it is since the start,
and over the last hour of the wall clock.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.algebra.analysis.promise_candidates import StreamReference
from penstock.compilation import loop
from penstock.physical.elements import Bools, Int64s
from penstock.physical.observation import observed_rows as observed
from penstock.physical.observation.observed_rows import ObservedRows, SampledRows

#: Values of a sample; of more the sample is halved.
MOST_VALUES = 10_000
#: Rows that raise the greatest value that are kept; of more the older half is thinned.
MOST_RISEN = 10_000
#: Rows that wait for their parents; of more the oldest are measured as if these came now.
MOST_WAITING = 100_000
#: Up to this k is exact in the histogram; above it, to one part in so many.
_EXACT = 1_024
_NEVER = np.iinfo(np.int64).min
_NO_KEYS = np.empty(0, np.int64)
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
        clustered_rows, clustered_ticks, ordered_rows, ordered_ticks, descending_rows, descending_ticks: k; of an order
            None for several columns, and for a type without order.
        repeated: 1 for an element whose value came at an earlier instant, else 0.
        share: of the values, those in the sample.
        values: the different values in it.
    """

    clustered_rows: MeasuredK
    clustered_ticks: MeasuredK
    ordered_rows: MeasuredK | None
    ordered_ticks: MeasuredK | None
    descending_rows: MeasuredK | None
    descending_ticks: MeasuredK | None
    repeated: MeasuredK
    share: float
    values: int


@dataclass(frozen=True)
class MeasuredReference:
    """What is measured of a reference.

    Args:
        rows, ticks: k.
        share: of the values, those in the sample.
    """

    rows: MeasuredK
    ticks: MeasuredK
    share: float


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
        self._orders = {"ordered": _Order(), "descending": _Order()}
        self.pending: list[SampledRows] = []
        kinds = ("clustered", *self._orders)
        names = (f"{kind}_{unit}" for kind in kinds for unit in ("rows", "ticks"))
        self._measured = {name: MeasuredK() for name in (*names, "repeated")}

    @property
    def figures(self) -> MeasuredColumns:
        one, orders = self._measured, self._orders
        return MeasuredColumns(
            one["clustered_rows"],
            one["clustered_ticks"],
            one["ordered_rows"] if orders["ordered"].is_there else None,
            one["ordered_ticks"] if orders["ordered"].is_there else None,
            one["descending_rows"] if orders["descending"].is_there else None,
            one["descending_ticks"] if orders["descending"].is_there else None,
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
            later += [waits] if waits else []
        self.pending = later
        if not ready:
            return
        hashes, ts, rows = (np.concatenate([getattr(p, name) for p in ready]) for name in ("hashes", "ts", "rows"))
        keys = np.concatenate([p.keys for p in ready])
        raised = {"ordered": [p.risen for p in ready], "descending": [p.fallen for p in ready]}
        kept = self._in_sample(hashes)
        order = np.flatnonzero(kept)[np.argsort(ts[kept], kind="stable")]
        hashes, ts, rows = hashes[order], ts[order], rows[order]
        before, upto = counted.before(ts), counted.upto(ts)
        self._measure_values(hashes, ts, rows, before, upto, now)
        for kind, one in self._orders.items():
            instants, highest = (np.concatenate([part[i] for part in raised[kind]]) for i in (0, 1))
            one.add(instants, highest, counted)
            if one.is_there and len(keys):
                of_kind = keys[order] if kind == "ordered" else observed.descending(keys[order])
                for unit, k in zip(("rows", "ticks"), one.k(of_kind, ts, before), strict=True):
                    self._measured[f"{kind}_{unit}"].add(k, rows, now)

    def _in_sample(self, hashes: Int64s) -> Bools:
        return _in_sample(hashes, self._halved)

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


def _in_sample(hashes: Int64s, halved: int) -> Bools:
    """Return which values are in a sample that has been halved some times."""
    if not halved:
        return np.ones(len(hashes), np.bool_)
    found: Bools = hashes.view(np.uint64) >> np.uint64(64 - observed.SAMPLE_BITS - halved) == 0
    return found


class _Order:
    """The rows of a stream that raise the greatest key of an order: their instants, N there, and the keys."""

    def __init__(self) -> None:
        self._risen_ts, self._risen_n, self._risen_keys = (np.empty(0, np.int64) for _ in range(3))

    @property
    def is_there(self) -> bool:
        """Return whether any value has come."""
        return bool(len(self._risen_keys))

    def add(self, ts: Int64s, keys: Int64s, counted: Counted) -> None:
        """Add rows that raise the greatest key of a part of a round."""
        if not len(ts):
            return
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

    def k(self, keys: Int64s, ts: Int64s, before: Int64s) -> tuple[Int64s, Int64s]:
        """Return k of rows, in elements and in ticks. before: the elements of the stream before each."""
        place = np.searchsorted(self._risen_keys, keys, side="right")
        inside = place < len(self._risen_keys)
        place = np.minimum(place, len(self._risen_keys) - 1)
        # Only what came at an earlier instant is greater before it.
        inside &= self._risen_ts[place] < ts
        k_rows = np.where(inside, before - self._risen_n[place] + 1, 0)
        k_ticks = np.where(inside, ts - self._risen_ts[place], 0)
        return k_rows, k_ticks


def _split(part: SampledRows, heartbeat: int) -> tuple[SampledRows, SampledRows | None]:
    """Return the rows up to a heartbeat, and those behind it; None for none."""

    def chosen(ready: bool) -> SampledRows:
        rows = np.flatnonzero((part.ts <= heartbeat) == ready)
        keys = part.keys[rows] if len(part.keys) else part.keys
        raised = []
        for ts, highest in (part.risen, part.fallen):
            there = np.flatnonzero((ts <= heartbeat) == ready)
            raised.append((ts[there], highest[there]))
        return SampledRows(part.hashes[rows], part.ts[rows], part.rows[rows], keys, raised[0], raised[1])

    waits = chosen(False)
    return chosen(True), waits if len(waits.hashes) or len(waits.risen[0]) or len(waits.fallen[0]) else None


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


@dataclass
class _Waiting:
    """Rows of the sample whose parent has not come, those of one value and instant together.

    Args:
        n: the elements of the parent's stream up to each.
        minutes: of the wall clock, when each was measured.
    """

    hashes: Int64s
    ts: Int64s
    rows: Int64s
    n: Int64s
    minutes: Int64s

    @staticmethod
    def none() -> _Waiting:
        return _Waiting(*(np.empty(0, np.int64) for _ in range(5)))

    def take(self, chosen: Int64s | Bools) -> _Waiting:
        return _Waiting(*(one[chosen] for one in self._arrays))

    def plus(self, other: _Waiting) -> _Waiting:
        return _Waiting(*map(np.concatenate, zip(self._arrays, other._arrays, strict=True)))

    @property
    def _arrays(self) -> tuple[Int64s, ...]:
        return self.hashes, self.ts, self.rows, self.n, self.minutes


class _Reference:
    """What is measured of a reference: the sample of values that have come as parents, and of rows that wait for one.

    Both streams are read up to the same instant: k of a row is known when its parent has come.
    """

    def __init__(self) -> None:
        self._pending: tuple[list[SampledRows], list[SampledRows]] = ([], [])
        self._runs: list[tuple[Int64s, Int64s]] = []
        self._parents = np.empty(0, np.int64)
        self._waiting = _Waiting.none()
        self._rows, self._ticks = MeasuredK(), MeasuredK()
        self._elements, self._reached, self._halved = 0, _NEVER, 0
        #: The latest instant of an element of either stream.
        self._latest = _NEVER

    def add(self, sample: SampledRows | None, parents: SampledRows | None, runs: tuple[Int64s, Int64s] | None) -> None:
        """Add what a task has seen. runs: instants of the parent's stream, and how many elements have each."""
        for pending, one in zip(self._pending, (sample, parents), strict=True):
            if one is not None:
                pending.append(replace(one, keys=_NO_KEYS, risen=(_NO_KEYS, _NO_KEYS), fallen=(_NO_KEYS, _NO_KEYS)))
        if runs is not None:
            self._runs.append(runs)

    def advance(self, reached: int, now: float) -> None:
        """Measure up to the least heartbeat of the two streams."""
        if reached <= self._reached:
            return
        self._reached = reached
        instants, counts = (np.concatenate([_NO_KEYS, *(run[i] for run in self._runs)]) for i in (0, 1))
        ready = instants <= reached
        self._runs = [] if ready.all() else [(instants[~ready], counts[~ready])]
        different, places = np.unique(instants[ready], return_inverse=True)
        numbers = np.bincount(places, counts[ready], len(different)).astype(np.int64)
        counted = Counted(different, numbers, self._elements)
        self._elements = counted.total
        children, parents = (self._ready(pending, reached) for pending in self._pending)
        self._latest = max(self._latest, *(int(one.max(initial=_NEVER)) for one in (different, children.ts)))
        n = counted.upto(children.ts)
        minutes = np.full(len(n), int(now // 60))
        self._waiting = self._waiting.plus(_Waiting(children.hashes, children.ts, children.rows, n, minutes))
        self._match(parents, counted, now)
        self._shrink(now)

    def _ready(self, pending: list[SampledRows], reached: int) -> SampledRows:
        """Remove and return the rows of the sample up to an instant."""
        parts = [_split(one, reached) for one in pending]
        pending[:] = [waits for _, waits in parts if waits is not None]
        arrays = ([getattr(done, name) for done, _ in parts] for name in ("hashes", "ts", "rows"))
        hashes, ts, rows = (np.concatenate([_NO_KEYS, *some]) for some in arrays)
        there = self._in_sample(hashes)
        return SampledRows(hashes[there], ts[there], rows[there])

    def _match(self, parents: SampledRows, counted: Counted, now: float) -> None:
        """Measure the rows whose parent has come."""
        waiting = self._waiting
        known = np.isin(waiting.hashes, self._parents)
        order = np.lexsort((parents.ts, parents.hashes))
        hashes, ts = parents.hashes[order], parents.ts[order]
        firsts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
        hashes, ts = hashes[firsts], ts[firsts]
        places = np.minimum(np.searchsorted(hashes, waiting.hashes), max(0, len(hashes) - 1))
        comes = hashes[places] == waiting.hashes if len(hashes) else np.zeros(len(known), np.bool_)
        came = np.where(comes, ts[places], _NEVER) if len(hashes) else np.full(len(known), _NEVER)
        later = comes & ~known & (came > waiting.ts)
        k_rows = np.where(later, counted.before(came) - waiting.n + 1, 0)
        k_ticks = np.where(later, came - waiting.ts, 0)
        done = known | comes
        self._rows.add(k_rows[done], waiting.rows[done], now)
        self._ticks.add(k_ticks[done], waiting.rows[done], now)
        self._waiting = waiting.take(~done)
        self._parents = np.union1d(self._parents, hashes)

    def _shrink(self, now: float) -> None:
        while len(self._parents) > MOST_VALUES:
            self._halved += 1
            self._parents = self._parents[self._in_sample(self._parents)]
            self._waiting = self._waiting.take(self._in_sample(self._waiting.hashes))
        surplus = len(self._waiting.ts) - MOST_WAITING
        if surplus > 0:
            # Those that have waited longest are as if their parents came now.
            order = np.argsort(self._waiting.ts, kind="stable")
            oldest = self._waiting.take(order[:surplus])
            for measured, k in zip((self._rows, self._ticks), self._at_least(oldest), strict=True):
                measured.add(k, oldest.rows, now)
            self._waiting = self._waiting.take(np.sort(order[surplus:]))

    def _at_least(self, waiting: _Waiting) -> tuple[Int64s, Int64s]:
        """Return k of rows, in elements and in ticks, if their parents came right after what has been read."""
        return self._elements - waiting.n + 1, self._latest - waiting.ts + 1

    def _in_sample(self, hashes: Int64s) -> Bools:
        return _in_sample(hashes, self._halved)

    @property
    def figures(self) -> MeasuredReference:
        found = deepcopy((self._rows, self._ticks))
        order = np.argsort(self._waiting.minutes, kind="stable")
        waiting = self._waiting.take(order)
        for measured, k in zip(found, self._at_least(waiting), strict=True):
            for minute in np.unique(waiting.minutes).tolist():
                there = waiting.minutes == minute
                measured.add(k[there], waiting.rows[there], 60.0 * minute)
        return MeasuredReference(*found, 1 / 2 ** (observed.SAMPLE_BITS + self._halved))


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
    """What is measured of a stream. elements: those counted; by_columns: by positions of declared columns; references:
    to other streams."""

    elements: int
    by_columns: Mapping[tuple[int, ...], MeasuredColumns]
    references: Mapping[StreamReference, MeasuredReference] = field(default_factory=dict)


class ConstraintMonitor:
    """Measures streams of a run by what its tasks have seen of them. Used by any thread. clock: seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._streams: dict[str, _MeasuredStream] = {}
        self._references: dict[StreamReference, _Reference] = {}
        self._heartbeats: Mapping[str, int] = {}
        self._measured = -math.inf

    def add(self, seen: ObservedRows) -> None:
        """Add what a task has seen in the present round."""
        with self._lock:
            self._streams.setdefault(seen.source, _MeasuredStream()).add(seen)
            for one, measured in self._references.items():
                is_parent = one.parent == seen.source
                measured.add(
                    seen.samples.get(one.columns) if one.stream == seen.source else None,
                    seen.samples.get(one.parent_columns) if is_parent else None,
                    (seen.instants, seen.counts) if is_parent else None,
                )

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
        for one, reference in self._references.items():
            if one.stream in self._heartbeats and one.parent in self._heartbeats:
                reference.advance(min(self._heartbeats[one.stream], self._heartbeats[one.parent]), now)

    def keep(
        self, measured: Mapping[str, tuple[tuple[int, ...], ...]], references: Iterable[StreamReference] = ()
    ) -> None:
        """Measure these streams and columns, and these references, and forget others. measured: by stream the columns
        that are."""
        with self._lock:
            known = self._references
            self._references = {one: known.get(one) or _Reference() for one in references}
            self._streams = {name: one for name, one in self._streams.items() if measured.get(name)}
            for name, stream in self._streams.items():
                stream.columns = {c: one for c, one in stream.columns.items() if c in measured[name]}

    def measures(self) -> dict[str, StreamMeasures]:
        """Return what is measured by stream."""
        with self._lock:
            self._measure()
            return {
                name: StreamMeasures(
                    stream.elements,
                    {c: deepcopy(one.figures) for c, one in stream.columns.items()},
                    {one: found.figures for one, found in self._references.items() if one.stream == name},
                )
                for name, stream in self._streams.items()
            }
