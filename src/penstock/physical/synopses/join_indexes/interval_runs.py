"""Interval runs: the elements of one join input compared by ranges, in runs by (key, time slice, low end of the range).

As in `sorted_runs.py` every batch becomes a sorted run and runs of similar size are merged. Within a key the rows are
cut into time slices as long as the longest validity, so that a probe searches only the few slices that it may overlap;
within a slice rows are sorted by the low ends of their ranges. The rows that overlap a probe's range lie between two
binary searches: their low end is not above the probe's high end, and the maximum of the high ends so far has reached
the probe's low end. If all ranges have one width, as points do, no other rows lie there. Every candidate is checked
for overlap in range and time before a pair is formed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compilation import loop
from penstock.physical.elements import Elements, Int64s
from penstock.physical.kernels.compiled import group_codes, mix_time, with_time
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.kernels.ticks import lengths
from penstock.physical.plan.joins.ranges import RangeSpan, span_keys
from penstock.physical.synopses.join_indexes.sorted_runs import SortedRun, SortedRuns, index_keys

#: A time slice has at least about this many rows.
_STRETCH = 256
_LONGEST = 1 << 60


@dataclass(frozen=True)
class IntervalRun(SortedRun):
    """A sorted run whose keys are the fingerprints of (key, time slice). low, high: the ends of the ranges; top: the
    maximum of the high ends up to each row within the key; begin: the smallest ts; period: the length of a time slice
    in ticks, 0 if there is only one; longest: the longest validity."""

    low: Int64s
    high: Int64s
    top: Int64s
    begin: int
    period: int
    longest: int

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.low.nbytes + self.high.nbytes + self.top.nbytes

    @staticmethod
    def of(number: int, elements: Elements, key: Sequence[int], span: RangeSpan) -> IntervalRun:
        length = len(elements)
        begin, longest = int(elements.ts.min()), int(lengths(elements.ts, elements.exp).max())
        period = _period(elements, longest)
        first, second = fingerprints([elements.columns[i] for i in key], length)
        if period:
            first, second = with_time(first, second, elements.ts // period)
        codes, heads = group_codes(first, second)
        low, high = span_keys(span, elements)
        order = np.lexsort((high, low, codes))
        elements, codes, low, high = elements.take(order), codes[order], low[order], high[order]
        bounds = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(heads)))]).astype(np.int64)
        table = np.full(1 << int(2 * len(heads) + 1).bit_length(), -1, np.int64)
        index_keys(table, first[heads])
        negative = 0 if elements.sign is None else int(np.count_nonzero(elements.sign < 0))
        return IntervalRun(
            number,
            elements,
            first[heads],
            second[heads],
            bounds,
            table,
            False,
            int(elements.exp.max()),
            negative,
            low,
            high,
            _tops(bounds, high),
            begin,
            period,
            longest,
        )


def _period(elements: Elements, longest: int) -> int:
    """Return the length of a time slice in ticks."""
    over = int(elements.ts.max()) - int(elements.ts.min())
    if longest >= _LONGEST or over >= _LONGEST or len(elements) <= _STRETCH:
        return 0
    return max(longest, over * _STRETCH // len(elements), 1)


@loop
def _tops(bounds: Int64s, high: Int64s) -> Int64s:
    top = np.empty_like(high)
    for k in range(bounds.shape[0] - 1):
        greatest = np.int64(-(2**63))
        for i in range(bounds[k], bounds[k + 1]):
            greatest = max(greatest, high[i])
            top[i] = greatest
    return top


@loop
def _first_reaching(values: Int64s, start: int, stop: int, limit: int) -> int:
    """Return the first position in [start, stop) whose value is >= limit; values are ascending there."""
    while start < stop:
        middle = (start + stop) // 2
        if values[middle] >= limit:
            stop = middle
        else:
            start = middle + 1
    return start


@loop
def _meet(
    begin: int,
    stop: int,
    probes: tuple[UInt64s, UInt64s, Int64s, Int64s, Int64s, Int64s],
    keys: tuple[UInt64s, UInt64s],
    bounds: Int64s,
    table: Int64s,
    run: tuple[Int64s, Int64s, Int64s, Int64s, Int64s],
    begins: int,
    ends: int,
    period: int,
    longest: int,
    counts: Int64s,
    probe: Int64s,
    found: Int64s,
    write: bool,
) -> int:
    """Count the pairs of the probes [begin, stop), or with `write` write them. probes: (first, second, ts, exp, low,
    high); keys: (first, second); run: (ts, exp, low, high, top). begins and ends bound the run's validity."""
    first, second, ts, exp, low, high = probes
    run_first, run_second = keys
    run_ts, run_exp, run_low, run_high, run_top = run
    mask = np.uint64(table.shape[0] - 1)
    k = 0
    for i in range(begin, stop):
        counts[i] = 0
        if ts[i] >= ends or exp[i] <= begins:
            continue
        stretch = last = np.int64(0)
        if period:
            stretch = max(begins, ts[i] - longest) // period
            last = (min(ends, exp[i]) - 1) // period
        while stretch <= last:
            one, two = first[i], second[i]
            if period:
                one, two = mix_time(one, two, stretch)
            stretch += 1
            place = one & mask
            while table[place] >= 0:
                key = table[place]
                if run_first[key] == one and run_second[key] == two:
                    to = bounds[key]
                    # One past the last row whose low end is not above the probe's high end.
                    above = bounds[key + 1]
                    while to < above:
                        middle = (to + above) // 2
                        if run_low[middle] > high[i]:
                            above = middle
                        else:
                            to = middle + 1
                    for j in range(_first_reaching(run_top, bounds[key], to, low[i]), to):
                        if run_high[j] >= low[i] and run_ts[j] < exp[i] and run_exp[j] > ts[i]:
                            if write:
                                probe[k] = i
                                found[k] = j
                            k += 1
                            counts[i] += 1
                    break
                place = (place + np.uint64(1)) & mask
    return k


def probe_ranges(
    run: IntervalRun, elements: Elements, first: UInt64s, second: UInt64s, low: Int64s, high: Int64s, limit: int
) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield all (probe row, run row) with equal keys, overlapping ranges and overlapping validity, in batches of
    `limit` pairs, or as many as one probe has. low, high: the ends of the probes' ranges."""
    probes = tuple(_own(part) for part in (first, second, elements.ts, elements.exp, low, high))
    held = (run.elements.ts, run.elements.exp, run.low, run.high, run.top)
    counts = np.empty(len(elements), np.int64)
    none = np.empty(0, np.int64)

    def meet(begin: int, stop: int, probe: Int64s, found: Int64s, write: bool) -> None:
        _meet(
            begin,
            stop,
            probes,
            (run.first, run.second),
            run.bounds,
            run.table,
            held,
            run.begin,
            run.last,
            run.period,
            run.longest,
            counts,
            probe,
            found,
            write,
        )

    meet(0, len(elements), none, none, False)
    ends = np.concatenate([[0], np.cumsum(counts)])
    start = 0
    while start < len(elements) and ends[start] < ends[-1]:
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] + limit, side="right")) - 1)
        size = int(ends[stop] - ends[start])
        if size:
            probe, found = np.empty(size, np.int64), np.empty(size, np.int64)
            meet(start, stop, probe, found, True)
            yield probe, found
        start = stop


def _own(array: Any) -> Any:
    """Return `array` in the only form that the compiled code accepts: writable and contiguous."""
    return array if array.flags.writeable and array.flags.c_contiguous else array.copy()


class IntervalRuns(SortedRuns):
    """`SortedRuns` whose rows are also found by their range `span`."""

    def __init__(self, key: Sequence[int], span: RangeSpan, strict: bool, listed: bool = False) -> None:
        super().__init__(key, strict, listed)
        self._span = span

    def build(self, number: int, elements: Elements) -> IntervalRun:
        return IntervalRun.of(number, elements, self._key, self._span)
