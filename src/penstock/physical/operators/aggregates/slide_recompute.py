"""RSTREAM of aggregates over windows that hardly overlap, at their boundaries [semantics 4.3, 6].

Where a row is in the window at few boundaries, it is counted at each of them, and the rows at a boundary are computed
from its panes: nothing expires, no group and no value of a DISTINCT is carried from boundary to boundary, and nothing
is kept of a boundary once its rows are emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Float64s
from penstock.physical.elements import Elements, Int64s, concat, int64s
from penstock.physical.kernels.compiled import (
    argsort_time,
    argsort_uint64,
    group_codes,
    group_runs,
    sum_by_code,
    with_time,
)
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.kernels.ticks import round_up
from penstock.physical.operators.aggregates.accumulators import added_up, sum_doubles, value_lanes
from penstock.physical.operators.aggregates.groups.finalize import finish
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.panes import RecomputedSlideSpec
from penstock.physical.plan.state.aggregate_layout import AggregateLayout, Argument
from penstock.physical.synopses.contract import Synopsis
from penstock.types import END

# --- Aggregates recomputed at each boundary from the rows of that boundary alone.
#
# No state is carried from one boundary to the next, so a value of a DISTINCT argument is looked up among the rows of
# its own boundary only: in a temporary table that fits the cache, not in one of all live values with an expiration per
# row.
#
# Contract: accumulator rows without negative ones, and no bags.

#: About how many rows, of whole boundaries, are processed together: as many as fit the cache.
_WAVE = 1 << 17
#: Average number of rows per boundary from which on contiguous ranges are copied.
_STRETCH = 64


def boundary_rows(plan: AggregateLayout, due: Sequence[Elements]) -> list[Elements]:
    """Return the rows of groups at the boundaries (the ts) of the accumulator rows `due`: by boundary, and within a
    boundary in an order that follows from the keys."""
    parts = [_aggregate(plan, wave) for wave in _waves(due)]
    return [concat(parts)] if parts else []


def _waves(due: Sequence[Elements]) -> Iterator[Elements]:
    """Yield all of `due` in time order, cut between boundaries."""
    starts = [_bounds(part.ts)[:-1] for part in due]
    if sum(map(len, starts)) * _STRETCH > sum(map(len, due)):
        whole = concat(due)
        due, starts = [whole.take(argsort_time(whole.ts))], [np.zeros(1, np.int64)]
    ticks = np.concatenate([part.ts[own] for part, own in zip(due, starts, strict=True)])
    parts = np.repeat(np.arange(len(due)), [len(own) for own in starts])
    stops = np.concatenate([np.append(own[1:], len(part)) for part, own in zip(due, starts, strict=True)])
    order = np.argsort(ticks, kind="stable")
    begun = np.concatenate(starts)
    wave: list[Elements] = []
    size, last = 0, None
    for tick, part, start, stop in zip(*(a[order].tolist() for a in (ticks, parts, begun, stops)), strict=True):
        if size >= _WAVE and tick != last:
            yield concat(wave)
            wave, size = [], 0
        wave.append(due[part].slice(start, stop))
        size, last = size + stop - start, tick
    yield concat(wave)


def _bounds(ts: Int64s) -> Int64s:
    """Return the row numbers at which runs of equal ticks begin, and the end of the last run."""
    return np.concatenate([[0], np.flatnonzero(ts[1:] != ts[:-1]) + 1, [len(ts)]])


def _aggregate(plan: AggregateLayout, rows: Elements) -> Elements:
    keys = len(plan.group)
    bounds = _bounds(rows.ts)
    first, second = fingerprints(rows.columns[:keys], len(rows))
    codes, heads = group_runs(first, second, bounds)
    sums = added_up(plan, rows, codes, heads)
    lanes = sums.columns[keys : plan.values_at]
    width, pairs = plan.carried
    integers, floats = np.zeros((plan.integers, len(heads)), np.int64), np.zeros((plan.floats, len(heads)))
    for lane, column in zip(width, lanes[: len(width)], strict=True):
        integers[lane] = int64s(column)
    for lane, column in zip(pairs, lanes[len(width) :], strict=True):
        floats[lane] = column.to_numpy(zero_copy_only=True)
    values = dict(zip(plan.valued, range(plan.values_at, len(rows.columns)), strict=True))
    for argument in plan.distincts:
        argument_layout = plan.arguments[argument]
        _sum_distinct(argument_layout, rows.columns[values[argument]], codes, bounds, integers, floats)
    others = {
        call: sums.columns[values[argument]]
        for call, argument in enumerate(plan.sources)
        if argument is not None and not plan.arguments[argument].summed
    }
    result = (*sums.columns[:keys], *finish(plan, integers, floats, others))
    order = _by_instant(sums.ts, first[heads], second[heads])
    return Elements(result, sums.ts, np.full(len(sums), END)).take(order)


def _sum_distinct(
    argument: Argument, column: pa.Array, codes: Int64s, bounds: Int64s, integers: Int64s, floats: Float64s
) -> None:
    """Fill the lanes of a DISTINCT argument, by code. column: its value in each row; bounds: as `_bounds` returns."""
    if column.null_count:
        known = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        column, codes, bounds = column.take(pa.array(known)), codes[known], np.searchsorted(known, bounds)
    first, second = fingerprints([column], len(column))
    first, second = with_time(first, second, codes)
    _, heads = group_runs(first, second, bounds)
    count, codes = integers.shape[1], codes[heads]
    integer_lanes, doubles = value_lanes(argument, column.take(pa.array(heads)), np.ones(len(heads), np.int64))
    for lane, numbers in enumerate(integer_lanes, argument.integers):
        integers[lane] = sum_by_code(codes, numbers, count)
    start = 0
    for width in argument.widths:
        lane = argument.floats + start
        floats[lane : lane + width] = sum_doubles(codes, doubles[start : start + width], count)
        start += width


def _by_instant(ts: Int64s, first: UInt64s, second: UInt64s) -> Int64s:
    codes, heads = group_codes(first, second)
    ranks = np.empty(len(heads), np.int64)
    ranks[argsort_uint64(first[heads])] = np.arange(len(heads))
    by_key = argsort_uint64(ranks[codes].astype(np.uint64))
    return by_key[argsort_time(ts[by_key])]


class RecomputedSlideAggregation(Operator):
    """State: the panes of boundaries ahead of the heartbeat, each at its boundary."""

    def __init__(self, spec: RecomputedSlideSpec) -> None:
        self._plan, self._slide, self._align, self._timed = spec.plan, spec.slide, spec.align, spec.timed
        self._early = ReorderBuffer()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        for panes in self._at_boundaries(elements):
            self._early.add(panes)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        due = self._early.parts_until(moment.heartbeat)
        if self._timed:
            # Rows valid from the beginning of time also belong to boundaries before the first instant: not evaluated.
            due = [part.filter(part.ts >= moment.start) for part in due] if moment.start is not None else []
        due = [part for part in due if len(part)]
        return boundary_rows(self._plan, due) if due else []

    def _at_boundaries(self, panes: Elements) -> Iterator[Elements]:
        """Yield every pane once for each boundary at which the window contains it; each batch is in the order of
        `panes`."""
        at = round_up(panes.ts, self._slide, self._align)
        seen = Elements(panes.columns, at, panes.exp)
        while len(seen := seen.filter(seen.ts < seen.exp)):
            yield seen
            seen = Elements(seen.columns, seen.ts + self._slide, seen.exp)
