"""RSTREAM of a grouped aggregate at slide boundaries, in one operator (LANGUAGE 4.3).

What is asked for is every group's row at every boundary. An aggregate that tells its changes would make, end and net an
element for each row before RSTREAM spread it over boundaries again. Here a row that stands over several boundaries is
computed once and told at each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.physical.aggregation.boundaries import tell
from penstock.physical.aggregation.events import Events
from penstock.physical.aggregation.rows import Course
from penstock.physical.elements import Elements, Int64s, concat_arrays, round_up
from penstock.physical.finish import finish
from penstock.physical.kernels import argsort_code_time, argsort_time, argsort_uint64, repeat
from penstock.physical.operators.aggregate import Aggregation
from penstock.physical.operators.contract import Moment
from penstock.physical.pane_plan import BoundaryAggregateSpec
from penstock.types import END

#: More boundaries in a round than this are not gone through one by one: most lie in a stretch where nothing happens.
_MOST = 100_000


@dataclass(frozen=True)
class _Stands:
    """Rows of groups: that of slots[k] has the values results[.][k] from low[k] until before high[k]."""

    slots: Int64s
    low: Int64s
    high: Int64s
    results: list[pa.Array]


class BoundaryAggregation(Aggregation):
    """State: that of the aggregate, and up to where it was evaluated."""

    def __init__(self, spec: BoundaryAggregateSpec) -> None:
        super().__init__(spec)
        self._slide, self._align = spec.slide, spec.align
        self._done: int | None = None
        self._sums = spec.plan.plain_sums

    def marks(self) -> dict[str, Any]:
        return {"done": self._done}

    def restore_marks(self, marks: dict[str, Any]) -> None:
        self._done = marks["done"]

    def advance(self, moment: Moment) -> list[Elements]:
        standing = self._groups.live()
        events = self._events(self._early.until(moment.heartbeat), moment.heartbeat)
        since, until = moment.start if self._done is None else self._done + 1, moment.heartbeat + 1
        if since is None or since >= until:
            since = until  # no instant of this round has been told of yet
        else:
            self._done = moment.heartbeat
        first, stop = int(self._boundary(since)), int(self._boundary(until))
        if self._sums and first < stop <= first + _MOST and (events is None or self._meet(events, since)):
            told = self._sums_told(events, first, stop)
            self._shrink()
            return told
        asked = first < stop
        parts: list[_Stands] = []
        if events is not None and len(events.slots):
            course = self._course(events)
            standing = np.setdiff1d(standing, course.touched, assume_unique=True)
            parts = _stands(course, since, until) if asked else []
        if asked and len(standing):
            low, high = (np.full(len(standing), instant) for instant in (since, until))
            parts.append(_Stands(standing, low, high, self._rows(standing)))
        told = self._told(parts) if parts else []
        self._shrink()
        return told

    def _boundary(self, ts: Any) -> Any:
        """The number of the first boundary at or after `ts`."""
        return (round_up(ts, self._slide, self._align) - self._align) // self._slide

    def _meet(self, events: Events, since: int) -> bool:
        """Whether all of `events` happen at boundaries from `since` on."""
        times = events.times
        return not len(times) or bool(times.min() >= since and np.all((times - self._align) % self._slide == 0))

    def _sums_told(self, events: Events | None, first: int, stop: int) -> list[Elements]:
        """What stands at the boundaries from `first` until before `stop`, where all that is told are sums."""
        groups, plan = self._groups, self._plan
        none = np.empty(0, np.int64)
        if events is None:
            lanes = (np.empty((0, plan.integers), np.int64), np.empty((0, plan.floats), np.float64))
            events = Events(none, none, none, none, *lanes, (), none)
        by_rank = argsort_uint64(groups.keys[0][: groups.count])
        ranks = np.empty(groups.count, np.int64)
        ranks[by_rank] = np.arange(groups.count)
        told, integers, floats = tell(
            events.slots, self._boundary(events.times) - first, events.rows, events.signs, events.integers,
            events.floats, groups.integers, groups.floats, self._guards, ranks, by_rank, stop - first,
        )  # fmt: skip
        groups.touch(events.slots)
        if not told.shape[1]:
            return []
        chosen = pa.array(told[1])
        keys = [k.take(chosen) for k in groups.key_columns(by_rank)]
        instants = self._align + self._slide * (told[0] + first)
        return [Elements((*keys, *finish(plan, integers, floats, {})), instants, np.full(len(instants), END))]

    def _told(self, parts: list[_Stands]) -> list[Elements]:
        """Every row at each boundary of its stretch: by instant, and there in an order that follows from the keys."""
        slots = np.concatenate([p.slots for p in parts])
        first = self._boundary(np.concatenate([p.low for p in parts]))
        stop = self._boundary(np.concatenate([p.high for p in parts]))
        ranks = np.empty(self._groups.count, np.int64)
        ranks[argsort_uint64(self._groups.keys[0][: self._groups.count])] = np.arange(self._groups.count)
        met = np.flatnonzero(first < stop)
        if not len(met):
            return []
        met = met[argsort_code_time(ranks[slots[met]], first[met])]
        boundaries, chosen = _spread(first[met], stop[met])
        picked = pa.array(met[chosen])
        results = [concat_arrays([p.results[i] for p in parts]) for i in range(len(parts[0].results))]
        keys = self._groups.key_columns(slots[met])
        columns = (*(k.take(pa.array(chosen)) for k in keys), *(r.take(picked) for r in results))
        return [Elements(columns, self._align + self._slide * boundaries, np.full(len(chosen), END))]


def _stands(course: Course, since: int, until: int) -> list[_Stands]:
    """The rows of the groups that a round touched: those that stood before, then those of its course."""
    slots, times = course.slots, course.times
    leads = np.flatnonzero(np.concatenate([[True], slots[1:] != slots[:-1]]))
    was = np.flatnonzero(course.was_live)
    before = [r.take(pa.array(was)) for r in course.before]
    old = _Stands(course.touched[was], np.full(len(was), since), times[leads[was]], before)
    ends = np.append(times[1:], until)
    ends[np.append(leads[1:], len(slots)) - 1] = until
    live = np.flatnonzero(course.live)
    chosen = pa.array(live)
    new = _Stands(slots[live], np.maximum(times[live], since), ends[live], [r.take(chosen) for r in course.results])
    return [old, new]


def _spread(first: Int64s, stop: Int64s) -> tuple[Int64s, Int64s]:
    """(boundary, row) for every row at each boundary from first[row] until before stop[row], by boundary, then row."""
    lengths = stop - first
    total = int(lengths.sum())
    if int(stop.max() - first.min()) <= 2 * total:
        boundaries, rows = _spread_dense(first, stop)
        return boundaries, rows
    # Long stretches at whose boundaries nothing stands.
    rows, places = repeat(lengths)
    boundaries = first[rows] + places
    order = argsort_time(boundaries)
    return boundaries[order], rows[order]


@nb.njit(cache=True)
def _spread_dense(first, stop):  # type: ignore[no-untyped-def]
    low, high = first.min(), stop.max()
    place = np.zeros(high - low + 1, np.int64)
    for row in range(first.shape[0]):
        place[first[row] - low] += 1
        place[stop[row] - low] -= 1
    standing = 0
    total = 0
    for k in range(high - low + 1):
        standing += place[k]
        place[k] = total
        total += standing
    boundaries = np.empty(total, np.int64)
    rows = np.empty(total, np.int64)
    for row in range(first.shape[0]):
        for boundary in range(first[row], stop[row]):
            k = boundary - low
            boundaries[place[k]] = boundary
            rows[place[k]] = row
            place[k] += 1
    return boundaries, rows
