"""Sorted runs: the elements of one join input in runs by (key, ts), probed by key and overlap of validity.

Every batch becomes a sorted run with an index from key to its rows; runs of similar size are merged, so that their
number is logarithmic. Because the rows of a key are in ts order, and for windows also in exp order, the elements that
overlap a probe's validity are found by two binary searches: the cost of a probe depends on the matches, not on the
length of the window. Expired elements are dropped at merges or with their whole run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.compilation import loop
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.compiled import argsort_code_time, group_codes
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.synopses.contract import Chunks, StateExtent, StoredTimes, Synopsis, extent_of
from penstock.storage.documents import Document, integer, integers

_MERGE_AT = 4
#: Below twice this many negative tuples, runs are not netted.
_FEWEST_NEGATIVE = 16


class _Timed:
    """What the times of elements are."""

    elements: Elements

    @cached_property
    def half(self) -> int:
        """The tick at which more than half of the elements have expired."""
        middle = len(self.elements) // 2
        return int(np.partition(self.elements.exp, middle)[middle])

    @cached_property
    def span(self) -> tuple[int, int]:
        """The least and the largest timestamp."""
        return int(self.elements.ts.min()), int(self.elements.ts.max())


@dataclass(frozen=True)
class SortedRun(_Timed):
    """Elements sorted by (key, ts). Keys are the rows of first/second (fingerprints); key k's elements are
    bounds[k]:bounds[k+1]; table is an open-addressing index from fingerprint to k. ordered: whether expirations are
    ascending within every key; negative: the number of negative tuples."""

    number: int
    elements: Elements
    first: UInt64s
    second: UInt64s
    bounds: Int64s
    table: Int64s
    ordered: bool
    last: int
    negative: int

    @property
    def nbytes(self) -> int:
        index = self.first.nbytes + self.second.nbytes + self.bounds.nbytes + self.table.nbytes
        return self.elements.nbytes + index

    @staticmethod
    def build(number: int, elements: Elements, key: Sequence[int]) -> SortedRun:
        length = len(elements)
        first, second = fingerprints([elements.columns[i] for i in key], length)
        codes, heads = group_codes(first, second)
        order = argsort_code_time(codes, elements.ts)
        if not np.array_equal(order, np.arange(length)):
            elements, codes = elements.take(order), codes[order]
        counts = np.bincount(codes, minlength=len(heads))
        bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        falls = (elements.exp[1:] < elements.exp[:-1]) & (codes[1:] == codes[:-1])
        key_first, key_second = first[heads], second[heads]
        table = np.full(1 << int(2 * len(heads) + 1).bit_length(), -1, np.int64)
        index_keys(table, key_first)
        last = int(elements.exp.max())
        negative = 0 if elements.sign is None else int(np.count_nonzero(elements.sign < 0))
        return SortedRun(number, elements, key_first, key_second, bounds, table, not bool(falls.any()), last, negative)


@dataclass(frozen=True)
class UnsortedRun(_Timed):
    """The elements of a run that has not been probed yet; the first probe sorts them."""

    number: int
    elements: Elements

    @cached_property
    def last(self) -> int:
        return int(self.elements.exp.max())

    @property
    def negative(self) -> int:
        return 0 if self.elements.sign is None else int(np.count_nonzero(self.elements.sign < 0))

    @property
    def nbytes(self) -> int:
        return self.elements.nbytes


@loop
def index_keys(table: Int64s, first: UInt64s) -> None:
    """Fill an open-addressing index from fingerprint to key number."""
    mask = np.uint64(table.shape[0] - 1)
    for k in range(first.shape[0]):
        place = first[k] & mask
        while table[place] >= 0:
            place = (place + np.uint64(1)) & mask
        table[place] = k


@loop
def _first_above(values: Int64s, start: int, stop: int, limit: int) -> int:
    """Return the first position in [start, stop) whose value is > limit; values are ascending there."""
    while start < stop:
        middle = (start + stop) // 2
        if values[middle] > limit:
            stop = middle
        else:
            start = middle + 1
    return start


@compiled(reads="first second ts exp run_first run_second bounds table run_ts run_exp")
def _ranges(
    first: UInt64s,
    second: UInt64s,
    ts: Int64s,
    exp: Int64s,
    run_first: UInt64s,
    run_second: UInt64s,
    bounds: Int64s,
    table: Int64s,
    run_ts: Int64s,
    run_exp: Int64s,
    ordered: bool,
    starts: Int64s,
    stops: Int64s,
) -> int:
    """Find for every probe the range of rows of the run that may overlap it; return the total length."""
    mask = np.uint64(table.shape[0] - 1)
    total = 0
    for i in range(first.shape[0]):
        place = first[i] & mask
        key = np.int64(-1)
        while table[place] >= 0:
            k = table[place]
            if run_first[k] == first[i] and run_second[k] == second[i]:
                key = k
                break
            place = (place + np.uint64(1)) & mask
        starts[i] = 0
        stops[i] = 0
        if key >= 0:
            low, high = bounds[key], bounds[key + 1]
            stop = _first_above(run_ts, low, high, exp[i] - 1)  # ts < exp of the probe
            start = low
            if ordered:
                start = _first_above(run_exp, low, stop, ts[i])  # exp > ts of the probe
            starts[i] = start
            stops[i] = stop
            total += stop - start
    return total


@compiled(reads="starts stops ts run_exp")
def _pairs(
    starts: Int64s, stops: Int64s, ts: Int64s, run_exp: Int64s, low: int, high: int, probe: Int64s, found: Int64s
) -> int:
    k = 0
    for i in range(low, high):
        for j in range(starts[i], stops[i]):
            if run_exp[j] > ts[i]:
                probe[k] = i
                found[k] = j
                k += 1
    return k


def probe_run(run: SortedRun, elements: Elements, first: UInt64s, second: UInt64s) -> tuple[Int64s, Int64s]:
    """Return all (probe row, run row) with equal keys and overlapping validity."""
    ((probe, found),) = probe_pieces(run, elements, first, second, None)
    return probe, found


def probe_pieces(
    run: SortedRun, elements: Elements, first: UInt64s, second: UInt64s, limit: int | None
) -> Iterator[tuple[Int64s, Int64s]]:
    """Do the same as `probe_run`, in batches of at most `limit` pairs, or of one probe's pairs if these are more; None:
    no limit."""
    starts, stops, total = _candidates(run, elements, first, second)
    ends = np.concatenate([[0], np.cumsum(stops - starts)])
    low = 0
    while low < len(elements) or low == 0:
        high = len(elements)
        if limit is not None and total > limit:
            high = max(low + 1, int(np.searchsorted(ends, ends[low] + limit, side="right")) - 1)
        size = int(ends[high] - ends[low])
        probe, found = np.empty(size, np.int64), np.empty(size, np.int64)
        count = int(_pairs(starts, stops, elements.ts, run.elements.exp, low, high, probe, found))
        yield probe[:count], found[:count]
        low = max(high, 1)


def _candidates(run: SortedRun, elements: Elements, first: UInt64s, second: UInt64s) -> tuple[Int64s, Int64s, int]:
    """Return for each element where the rows of `run` that may match it begin and end, and the number of all."""
    starts, stops = np.empty(len(elements), np.int64), np.empty(len(elements), np.int64)
    total = _ranges(
        first,
        second,
        elements.ts,
        elements.exp,
        run.first,
        run.second,
        run.bounds,
        run.table,
        run.elements.ts,
        run.elements.exp,
        run.ordered,
        starts,
        stops,
    )
    return starts, stops, int(total)


def portions(
    runs: Iterable[SortedRun], elements: Elements, first: UInt64s, second: UInt64s, limit: int
) -> Iterator[tuple[int, int]]:
    """Yield the portions (from, to) of `elements` that have together about `limit` candidates in `runs` at most, or are
    one element."""
    counts = np.ones(len(elements), np.int64)
    for run in runs:
        starts, stops, _ = _candidates(run, elements, first, second)
        counts += stops - starts
    ends = np.cumsum(counts)
    start = 0
    while start < len(elements):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield start, stop
        start = stop


class SortedRuns(Synopsis):
    """The elements of one join input that may still match elements of the other.

    strict: negative tuples may arrive. They are stored like other elements until runs are merged, since multiplicities
    multiply in a join whether they are netted or not; when there are too many, all runs are merged. listed: every
    element is checked for expiration in every round.
    """

    TIMES: ClassVar[StoredTimes | None] = StoredTimes("ts", "ts")

    def __init__(self, key: Sequence[int], strict: bool, listed: bool = False) -> None:
        self._key = tuple(key)
        self._strict = strict
        self._listed = listed
        self._runs: list[SortedRun | UnsortedRun] = []
        self._next_id = 0

    def __iter__(self) -> Any:
        runs = [run if isinstance(run, SortedRun) else self.build(run.number, run.elements) for run in self._runs]
        self._runs = [*runs]
        return iter(runs)

    @property
    def parts(self) -> list[Elements]:
        """Return the elements, in any order."""
        return [run.elements for run in self._runs]

    def replace(self, elements: Elements) -> None:
        """Replace the content by `elements`."""
        self._runs = []
        if len(elements):
            self._next_id += 1
            self._runs = [UnsortedRun(self._next_id, elements)]

    def build(self, number: int, elements: Elements) -> SortedRun:
        """Return a run of `elements` (at least one) in the form that this synopsis keeps."""
        return SortedRun.build(number, elements, self._key)

    def add(self, elements: Elements) -> None:
        """Add `elements`."""
        if not len(elements):
            return
        self._append(cancel(elements) if self._strict else elements)
        while len(self._runs) >= _MERGE_AT and self._mergeable():
            self._merge(_MERGE_AT)
        if 2 * sum(run.negative for run in self._runs) > max(_FEWEST_NEGATIVE, self.rows):
            self._merge(len(self._runs))

    def expire(self, heartbeat: int) -> None:
        """Drop the elements that no element with ts > heartbeat can match."""
        kept: list[SortedRun | UnsortedRun] = []
        for run in self._runs:
            if run.last <= heartbeat + 1:
                continue
            if self._listed or run.half <= heartbeat + 1:
                alive = run.elements.exp > heartbeat + 1
                if not alive.all():
                    self._next_id += 1
                    run = self.build(self._next_id, run.elements.filter(alive))
            kept.append(run)
        self._runs = kept

    def _merge(self, count: int) -> None:
        """Merge the newest `count` runs."""
        tail = self._runs[-count:]
        del self._runs[-count:]
        merged = concat([run.elements for run in tail])
        self._append(cancel(merged) if self._strict else merged)

    def _append(self, elements: Elements) -> None:
        if not len(elements):
            return
        self._next_id += 1
        self._runs.append(self.build(self._next_id, elements))

    def _mergeable(self) -> bool:
        """Return whether the newest runs are of similar size: merging then copies an element a logarithmic number of
        times."""
        sizes = [len(run.elements) for run in self._runs[-_MERGE_AT:]]
        return max(sizes) <= 2 * _MERGE_AT * max(1, min(sizes)) or sizes[0] <= sum(sizes[1:])

    @property
    def rows(self) -> int:
        return sum(len(run.elements) for run in self._runs)

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self._runs)

    @property
    def extent(self) -> StateExtent | None:
        return extent_of([run.span for run in self._runs])

    def snapshot(self) -> tuple[Document, Chunks]:
        chunks: dict[int, pa.RecordBatch] = {run.number: run.elements.to_batch() for run in self._runs}
        return {"next": self._next_id, "runs": list(chunks)}, chunks

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._next_id = integer(manifest, "next")
        self._runs = [self.build(i, Elements.from_batch(chunks[i])) for i in integers(manifest, "runs")]


def cancel(elements: Elements) -> Elements:
    """Return the same relation with fewer elements: each negative tuple [b, e) ends one earlier element [a, e) of the
    same tuple at b. Elements without such a partner stay."""
    if elements.sign is None or not bool((elements.sign < 0).any()):
        return elements
    elements = _unit_signs(elements)
    first, second = fingerprints([*elements.columns, pa.array(elements.exp)], len(elements))
    codes, heads = group_codes(first, second)
    if len(heads) == len(elements):
        # No two are alike, as with an update of few rows.
        return elements
    # The k-th negative tuple of a tuple ends its k-th element, in ts order.
    negative = elements.signs < 0
    order = np.lexsort((elements.ts, negative, codes))
    starts = np.concatenate([[True], (np.diff(codes[order]) != 0) | (np.diff(negative[order].astype(np.int8)) != 0)])
    rank = np.arange(len(order)) - np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = rank
    by_pair = np.lexsort((negative, ranks, codes))
    left, right = by_pair[:-1], by_pair[1:]
    met = (codes[left] == codes[right]) & (ranks[left] == ranks[right])
    comings, goings = left[met], right[met]
    exp = elements.exp.copy()
    exp[comings] = elements.ts[goings]
    keep = np.ones(len(elements), np.bool_)
    keep[goings] = False
    # A negative tuple before its element (a future element is retracted): both stay, since only their overlap cancels.
    backwards = exp[comings] < elements.ts[comings]
    if backwards.any():
        keep[goings[backwards]] = True
        exp[comings[backwards]] = elements.exp[comings[backwards]]
    keep &= exp > elements.ts
    return Elements(elements.columns, elements.ts, exp, elements.sign).filter(keep)


def _unit_signs(elements: Elements) -> Elements:
    """Return the same bag with every multiplicity n as |n| elements of sign 1 or -1."""
    times = np.abs(elements.signs)
    if bool((times == 1).all()):
        return elements
    rows = elements.take(np.repeat(np.arange(len(elements)), times))
    return Elements(rows.columns, rows.ts, rows.exp, np.sign(rows.signs))
