"""RSTREAM of a grouped aggregate at slide boundaries, in one operator [semantics 4.3].

The result is every group's row at every boundary. An aggregate that emits changes would create, end and net an element
for each row before RSTREAM repeated it at the boundaries. Here a row that is unchanged over several boundaries is
computed once and emitted at each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.compilation import loop
from penstock.physical.elements import Elements, Int64s, concat_arrays
from penstock.physical.kernels import boundary_pieces as spans
from penstock.physical.kernels.boundary_pieces import pieces
from penstock.physical.kernels.compiled import argsort_code_time, argsort_time, argsort_uint64, repeat
from penstock.physical.kernels.ticks import boundary_number
from penstock.physical.operators.aggregates.aggregate import Aggregation
from penstock.physical.operators.aggregates.boundary_sums import sums_at_boundaries
from penstock.physical.operators.aggregates.groups.events import GroupEvents
from penstock.physical.operators.aggregates.groups.finalize import finish
from penstock.physical.operators.aggregates.groups.group_rows import GroupHistory
from penstock.physical.operators.base.contract import Moment
from penstock.physical.plan.panes import IncrementalSlideSpec
from penstock.storage.documents import Document, optional_integer
from penstock.types import END

#: More boundaries in a round than this are not visited one by one: at most of them nothing changes.
_MOST = 100_000
#: Minimum number of boundaries per batch: each batch scans all groups once.
_FEWEST = 64


@dataclass(frozen=True)
class _RowIntervals:
    """Rows of groups: the row of slots[k] has the values results[.][k] in [low[k], high[k])."""

    slots: Int64s
    low: Int64s
    high: Int64s
    results: list[pa.Array]


class IncrementalSlideAggregation(Aggregation):
    """State: that of the aggregate, and the last instant evaluated."""

    def __init__(self, spec: IncrementalSlideSpec) -> None:
        super().__init__(spec)
        self._slide, self._align = spec.slide, spec.align
        self._done: int | None = None
        self._sums = spec.plan.plain_sums

    def marks(self) -> Document:
        return {"done": self._done}

    def restore_marks(self, marks: Document) -> None:
        self._done = optional_integer(marks, "done")

    def portion(self, moment: Moment, rows: int) -> int:
        since, heartbeat = moment.start if self._done is None else self._done + 1, moment.heartbeat
        if since is None or since > heartbeat:
            return heartbeat
        first, stop = int(self._boundary(since)), int(self._boundary(heartbeat + 1))
        waiting = self._early.waiting(heartbeat)
        groups = len(self._groups.live())
        if (stop - first) * (groups + sum(map(len, waiting))) <= rows:
            return heartbeat
        # At most every row that waits begins a group of its own, and no group ends: more may fit than that.
        begins = self._boundary(np.concatenate([np.empty(0, np.int64), *(one.ts for one in waiting)]))
        begins = np.clip(np.concatenate([np.full(groups, first), begins]), first, stop)
        end = next(pieces(begins, np.full(len(begins), stop), rows), (stop, stop))[1]
        return heartbeat if end >= stop else self._align + self._slide * end - 1

    def advance(self, moment: Moment) -> Iterator[Elements]:
        standing = self._groups.live()
        events = self._events(self._early.until(moment.heartbeat), moment.heartbeat)
        since, until = moment.start if self._done is None else self._done + 1, moment.heartbeat + 1
        if since is None or since >= until:
            since = until  # time has not begun: this round has no instant to evaluate
        else:
            self._done = moment.heartbeat
        first, stop = int(self._boundary(since)), int(self._boundary(until))
        if self._sums and first < stop <= first + _MOST and (events is None or self._all_at_boundaries(events, since)):
            yield from self._emit_sums(events, first, stop)
            self._shrink()
            return
        has_boundaries = first < stop
        parts: list[_RowIntervals] = []
        if events is not None and len(events.slots):
            course = self._course(events)
            standing = np.setdiff1d(standing, course.touched, assume_unique=True)
            parts = _row_intervals(course, since, until) if has_boundaries else []
        if has_boundaries and len(standing):
            low, high = (np.full(len(standing), instant) for instant in (since, until))
            parts.append(_RowIntervals(standing, low, high, self._rows(standing)))
        if parts:
            yield from self._emit(parts)
        self._shrink()

    def _boundary(self, ts: Any) -> Any:
        return boundary_number(ts, self._slide, self._align)

    def _all_at_boundaries(self, events: GroupEvents, since: int) -> bool:
        """Return whether all of `events` happen at boundaries from `since` on."""
        times = events.times
        return not len(times) or bool(times.min() >= since and np.all((times - self._align) % self._slide == 0))

    def _emit_sums(self, events: GroupEvents | None, first: int, stop: int) -> Iterator[Elements]:
        """Emit the rows at the boundaries first ... stop - 1 where all results are sums; some boundaries at a time."""
        groups, plan = self._groups, self._plan
        state = groups.by_slot
        none = np.empty(0, np.int64)
        if events is None:
            lanes = (np.empty((0, plan.integers), np.int64), np.empty((0, plan.floats), np.float64))
            events = GroupEvents(none, none, none, none, *lanes, (), none)
        by_rank = argsort_uint64(groups.keys[0][: groups.count])
        ranks = np.empty(groups.count, np.int64)
        ranks[by_rank] = np.arange(groups.count)
        at = self._boundary(events.times)
        width = max(_FEWEST, spans.PIECE // max(1, groups.count))
        # In time order, so that the events of a batch are contiguous; events of one instant keep their order.
        order = argsort_time(at)
        ordered = at[order]
        for low in range(first, stop, width):
            high = min(low + width, stop)
            mine = order[np.searchsorted(ordered, low) : np.searchsorted(ordered, high)]
            boundary_and_rank, integers, floats = sums_at_boundaries(
                events.slots[mine],
                at[mine] - low,
                events.rows[mine],
                events.signs[mine],
                events.integers,
                events.floats,
                state.integers,
                state.floats,
                self._double_sums,
                ranks,
                by_rank,
                high - low,
            )
            if not boundary_and_rank.shape[1]:
                continue
            chosen = pa.array(boundary_and_rank[1])
            keys = [k.take(chosen) for k in groups.key_columns(by_rank)]
            instants = self._align + self._slide * (boundary_and_rank[0] + low)
            yield Elements((*keys, *finish(plan, integers, floats, {})), instants, np.full(len(instants), END))
        groups.touch(events.slots)

    def _emit(self, parts: list[_RowIntervals]) -> Iterator[Elements]:
        """Emit every row at each boundary in its interval: by instant, and within an instant in an order that follows
        from the keys; some boundaries at a time."""
        slots = np.concatenate([p.slots for p in parts])
        first = self._boundary(np.concatenate([p.low for p in parts]))
        stop = self._boundary(np.concatenate([p.high for p in parts]))
        ranks = np.empty(self._groups.count, np.int64)
        ranks[argsort_uint64(self._groups.keys[0][: self._groups.count])] = np.arange(self._groups.count)
        met = np.flatnonzero(first < stop)
        if not len(met):
            return
        met = met[argsort_code_time(ranks[slots[met]], first[met])]
        first, stop = first[met], stop[met]
        results = [concat_arrays([p.results[i] for p in parts]) for i in range(len(parts[0].results))]
        keys = self._groups.key_columns(slots[met])
        for low, high in pieces(first, stop, spans.PIECE):
            mine = np.flatnonzero((first < high) & (stop > low))
            boundaries, chosen = _spread(np.maximum(first[mine], low), np.minimum(stop[mine], high))
            chosen = mine[chosen]
            picked = pa.array(met[chosen])
            columns = (*(k.take(pa.array(chosen)) for k in keys), *(r.take(picked) for r in results))
            yield Elements(columns, self._align + self._slide * boundaries, np.full(len(chosen), END))


def _row_intervals(course: GroupHistory, since: int, until: int) -> list[_RowIntervals]:
    """Return the rows of the groups that a round changed: those from before the round, then those of its history."""
    slots, times = course.slots, course.times
    leads = np.flatnonzero(np.concatenate([[True], slots[1:] != slots[:-1]]))
    live_before = np.flatnonzero(course.was_live)
    before = [r.take(pa.array(live_before)) for r in course.before]
    old = _RowIntervals(
        course.touched[live_before], np.full(len(live_before), since), times[leads[live_before]], before
    )
    ends = np.append(times[1:], until)
    ends[np.append(leads[1:], len(slots)) - 1] = until
    live = np.flatnonzero(course.live)
    chosen = pa.array(live)
    new = _RowIntervals(
        slots[live], np.maximum(times[live], since), ends[live], [r.take(chosen) for r in course.results]
    )
    return [old, new]


def _spread(first: Int64s, stop: Int64s) -> tuple[Int64s, Int64s]:
    """Return (boundary, row) for every row at each boundary first[row] ... stop[row] - 1, by boundary, then row."""
    lengths = stop - first
    total = int(lengths.sum())
    if int(stop.max() - first.min()) <= 2 * total:
        boundaries, rows = _spread_dense(first, stop)
        return boundaries, rows
    # Sparse: long intervals without any row.
    rows, offsets = repeat(lengths)
    boundaries = first[rows] + offsets
    order = argsort_time(boundaries)
    return boundaries[order], rows[order]


@loop
def _spread_dense(first: Int64s, stop: Int64s) -> tuple[Int64s, Int64s]:
    low, high = first.min(), stop.max()
    next_index = np.zeros(high - low + 1, np.int64)
    for row in range(first.shape[0]):
        next_index[first[row] - low] += 1
        next_index[stop[row] - low] -= 1
    standing = 0
    total = 0
    for k in range(high - low + 1):
        standing += next_index[k]
        next_index[k] = total
        total += standing
    boundaries = np.empty(total, np.int64)
    rows = np.empty(total, np.int64)
    for row in range(first.shape[0]):
        for boundary in range(first[row], stop[row]):
            k = boundary - low
            boundaries[next_index[k]] = boundary
            rows[next_index[k]] = row
            next_index[k] += 1
    return boundaries, rows
