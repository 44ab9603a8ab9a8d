"""The hash join index: the elements of one join input in order of arrival, found by key through chains.

A table of chain heads by hash, and for every element an entry with its key, its expiration and the number of the
previous entry in its chain: adding, looking up and dropping an element takes constant time, apart from cache misses.
The newest elements come first in a chain. If elements expire in order of arrival, as those of time windows do, the
first expired element ends a probe's search, and dropping elements only moves the beginning. Otherwise expired elements
stay in the chains until they may be most of the state; then the index is rebuilt.

The elements are durable, in chunks; chunks of similar size are merged. The index is rebuilt from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compilation import loop
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.compiled import argsort_time, argsort_uint64, heads_of_chains, in_time
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.synopses.contract import Chunks, StateExtent, StoredTimes, Synopsis, extent_of
from penstock.physical.synopses.join_indexes.sorted_runs import cancel
from penstock.storage.documents import Document, integer, integer_pairs

Int32s = npt.NDArray[np.int32]

#: Number of chunks of similar size that are merged.
_MERGED = 4
#: Below this many negative tuples, elements are not netted.
_FEWEST_NEGATIVE = 16
#: Size of the result batch for few probes.
_FOUND = 1 << 12
#: Bytes of an entry.
_ENTRY = 4 * 8
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@loop
def _link(entries: Int64s, heads: Int32s, low: int, high: int) -> None:
    """Put the entries low..high-1 at the heads of their chains. An entry: the two halves of the key, the expiration,
    the number of the previous entry in the chain, -1 for none."""
    mask = np.uint64(heads.shape[0] - 1)
    for row in range(low, high):
        place = (np.uint64(entries[row, 0]) * _GOLDEN >> np.uint64(20)) & mask
        entries[row, 3] = heads[place]
        heads[place] = row


@loop
def _shift(entries: Int64s, heads: Int32s, by: int, size: int) -> None:
    """Renumber the entries from `by` on, `size` of them, from 0 on."""
    for row in range(size):
        for k in range(3):
            entries[row, k] = entries[row + by, k]
        entries[row, 3] = max(entries[row + by, 3] - by, -1)
    for place in range(heads.shape[0]):
        heads[place] = max(heads[place] - by, -1)


@loop
def _meet(
    entries: Int64s,
    begin: int,
    ordered: bool,
    first: UInt64s,
    second: UInt64s,
    ts: Int64s,
    rows: Int32s,
    start: int,
    probe: Int64s,
    found: Int64s,
    ends: Int64s,
) -> tuple[int, int]:
    """Find, from probe `start` on, the entries with equal keys that have not expired at the probe's ts; rows[i] is the
    entry at which probe i continues. Stop when the output is full. Return (probe to continue with, number found)."""
    count = 0
    for i in range(start, first.shape[0]):
        row = rows[i]
        while row >= begin:
            if ordered and entries[row, 2] <= ts[i]:
                break
            same = np.uint64(entries[row, 0]) == first[i] and np.uint64(entries[row, 1]) == second[i]
            if same and entries[row, 2] > ts[i]:
                if count == probe.shape[0]:
                    rows[i] = row
                    return i, count
                probe[count] = i
                found[count] = row
                ends[count] = entries[row, 2]
                count += 1
            row = entries[row, 3]
    return first.shape[0], count


@loop
def _meet_leaving(
    entries: Int64s,
    begin: int,
    ordered: bool,
    first: UInt64s,
    second: UInt64s,
    after: Int64s,
    until: Int64s,
    rows: Int32s,
    probe: Int64s,
    found: Int64s,
    most: int,
) -> int:
    """Find for each probe the entries with equal keys whose expiration is after its `after` and at most its `until`;
    rows[i] is the entry at which probe i begins. Return their number, or -1 if more than `most` entries would be looked
    at."""
    count = looked = 0
    for i in range(first.shape[0]):
        row = rows[i]
        while row >= begin:
            looked += 1
            if looked > most:
                return -1
            exp = entries[row, 2]
            if exp <= after[i]:
                if ordered:
                    break
            elif exp <= until[i] and np.uint64(entries[row, 0]) == first[i] and np.uint64(entries[row, 1]) == second[i]:
                probe[count] = i
                found[count] = row
                count += 1
            row = entries[row, 3]
    return count


class _ElementChunk:
    """Elements of which the first `gone` have been dropped. start: the entry number of the first element."""

    def __init__(self, number: int, elements: Elements, start: int, gone: int = 0) -> None:
        self.number, self.elements, self.start, self.gone = number, elements, start, gone

    def __len__(self) -> int:
        return len(self.elements)

    @cached_property
    def half(self) -> int:
        """The tick at which more than half of the elements have expired."""
        middle = len(self.elements) // 2
        return int(np.partition(self.elements.exp, middle)[middle])

    @cached_property
    def last(self) -> int:
        return int(self.elements.exp.max())

    @cached_property
    def sorted(self) -> bool:
        return bool(in_time(self.elements.exp))

    @cached_property
    def span(self) -> tuple[int, int]:
        """The least and the largest timestamp, those of dropped elements included."""
        return int(self.elements.ts.min()), int(self.elements.ts.max())

    @cached_property
    def nbytes(self) -> int:
        return self.elements.nbytes

    @cached_property
    def batch(self) -> pa.RecordBatch:
        return self.elements.to_batch()

    @property
    def live(self) -> Elements:
        return self.elements.slice(self.gone, len(self)) if self.gone else self.elements


class HashJoinIndex(Synopsis):
    """The elements of one join input that may still match elements of the other.

    strict: negative tuples may arrive. They are stored like other elements, since multiplicities multiply in a join
    whether they are netted or not; when there are too many, they are netted against the elements that they end.
    listed: every element is checked for expiration in every round.
    """

    TIMES: ClassVar[StoredTimes | None] = StoredTimes("ts", "ts")

    def __init__(self, key: Sequence[int], strict: bool, listed: bool = False) -> None:
        self._key, self._strict, self._listed = tuple(key), strict, listed
        self._next_id = 0
        self._clear()

    def _clear(self) -> None:
        self._chunks: list[_ElementChunk] = []
        self._entries = np.empty((16, 4), np.int64)
        self._heads: Int32s = np.full(16, -1, np.int32)
        self._size = 0
        self._ordered = True
        self._negative, self._bearable = 0, _FEWEST_NEGATIVE
        #: Whether the chunks are not indexed yet.
        self._unlinked = False

    # -- looking up --------------------------------------------------------------------------------------------

    def meet(
        self,
        elements: Elements,
        first: UInt64s,
        second: UInt64s,
        limit: int,
        before: int | None = None,
        behind: int = 0,
    ) -> Iterator[tuple[Int64s, Elements]]:
        """Yield (rows of `elements`, the stored element that each matches): equal keys, overlapping validity; in
        batches of at most `limit`. before, behind: only elements that were added before, or since, the `size` was
        this."""
        if not self._chunks or not len(elements):
            return
        self._link_all()
        rows = np.empty(len(elements), np.int32)
        heads_of_chains(first, self._heads, rows)
        # A chain has the newest elements first.
        begin, start, room = max(self._begin, behind), 0, min(limit, max(_FOUND, 2 * len(elements)))
        ts = elements.ts.copy()  # the compiled code accepts only writable, contiguous arrays
        while start < len(elements):
            probe, found, ends = (np.empty(room, np.int64) for _ in range(3))
            start, count = _meet(
                self._entries, begin, self._ordered, first, second, ts, rows, start, probe, found, ends
            )
            probe, found, ends = probe[:count], found[:count], ends[:count]
            if before is not None:
                earlier = found < before
                probe, found, ends = probe[earlier], found[earlier], ends[earlier]
            if len(probe):
                probe, held = self._gather(probe, found, ends)
                overlapping = held.ts < elements.exp[probe]
                if not overlapping.all():
                    probe, held = probe[overlapping], held.filter(overlapping)
                if len(probe):
                    yield probe, held
            room = min(limit, 2 * room)

    def meet_leaving(
        self, first: UInt64s, second: UInt64s, after: Int64s, until: Int64s, most: int
    ) -> list[tuple[Int64s, Elements]] | None:
        """Return (rows of the probes, the stored element that each matches): equal keys, and an expiration after the
        probe's `after`, at most its `until`; in one batch or none. None if more than `most` elements would have to be
        looked at."""
        if not self._chunks or not len(first):
            return []
        self._link_all()
        rows = np.empty(len(first), np.int32)
        heads_of_chains(first, self._heads, rows)
        probe, found = np.empty(most, np.int64), np.empty(most, np.int64)
        count = _meet_leaving(
            self._entries, self._begin, self._ordered, first, second, after, until, rows, probe, found, most
        )
        if count < 0:
            return None
        probe, found = probe[:count].copy(), found[:count].copy()
        return [self._gather(probe, found, self._entries[found, 2])] if count else []

    def _gather(self, probe: Int64s, found: Int64s, ends: Int64s) -> tuple[Int64s, Elements]:
        """Return the elements with the numbers `found`, which expire at `ends`, and `probe`, both reordered alike."""
        # In order of arrival, memory is read sequentially.
        order = argsort_uint64(found.view(np.uint64))
        found, ends = found[order], ends[order]
        parts, low = [], 0
        for chunk in self._chunks:
            high = int(np.searchsorted(found, chunk.start + len(chunk)))
            if high > low:
                parts.append(_at(chunk.elements, found[low:high] - chunk.start, ends[low:high]))
            low = high
        return probe[order], concat(parts)

    def probes(self) -> tuple[Elements, UInt64s, UInt64s]:
        """Return the elements, at least one, and the two halves of the fingerprints of their keys."""
        self._link_all()
        entries = self._entries[self._begin : self._size]
        first, second = (entries[:, half].copy().view(np.uint64) for half in (0, 1))
        return concat([chunk.live for chunk in self._chunks]), first, second

    def expiring(self, after: int, until: int) -> tuple[Elements, UInt64s, UInt64s] | None:
        """Return the elements that expire after the tick `after`, up to `until`, with the halves of the fingerprints
        of their keys; None if there are none."""
        self._link_all()
        parts: list[Elements] = []
        entries: list[Int64s] = []
        for chunk in self._chunks:
            if chunk.last <= after:
                continue
            exp = chunk.elements.exp
            if chunk.sorted:
                low, high = (int(place) for place in np.searchsorted(exp, (after, until), side="right"))
                low = max(low, chunk.gone)
                found = np.arange(low, max(low, high))
            else:
                found = np.flatnonzero((exp > after) & (exp <= until))
                found = found[found >= chunk.gone]
            if len(found):
                parts.append(chunk.elements.take(found))
                entries.append(self._entries[found + chunk.start])
        if not parts:
            return None
        first, second = (np.concatenate([e[:, half] for e in entries]).view(np.uint64) for half in (0, 1))
        return concat(parts), first, second

    @property
    def size(self) -> int:
        """Return the number that the next element gets; it changes when elements expire."""
        return self._size

    # -- adding and expiring -----------------------------------------------------------------------------------

    def add(self, elements: Elements) -> None:
        """Add `elements`."""
        if self._strict:
            elements = cancel(elements)
        if not len(elements):
            return
        self._link_all()
        if not in_time(elements.exp):
            elements = elements.take(argsort_time(elements.exp))
        self._append(elements)
        while len(self._chunks) >= _MERGED:
            tail = self._chunks[-_MERGED:]
            if len(tail[0]) > sum(len(chunk) for chunk in tail[1:]):
                break
            # Entries keep their numbers.
            self._next_id += 1
            merged = concat([chunk.elements for chunk in tail])
            self._chunks[-_MERGED:] = [_ElementChunk(self._next_id, merged, tail[0].start, tail[0].gone)]
        if self._negative > max(self._bearable, self.rows // 4):
            self._rewrite(cancel(concat([chunk.live for chunk in self._chunks])))
            self._bearable = max(_FEWEST_NEGATIVE, 2 * self._negative)

    def expire(self, heartbeat: int) -> None:
        """Drop the elements that no element with ts > heartbeat can match."""
        self._link_all()
        limit = heartbeat + 1
        while self._chunks and self._chunks[0].last <= limit:
            self._negative -= _negatives(self._chunks.pop(0).elements)
        if not self._chunks:
            self._clear()
        elif self._listed or not self._ordered:
            past = sum(len(chunk) for chunk in self._chunks if chunk.half <= limit)
            if self._listed or 2 * past > self.rows:
                whole = concat([chunk.live for chunk in self._chunks])
                self._rewrite(whole.filter(whole.exp > limit))
        else:
            self._drop(self._chunks[0], int(np.searchsorted(self._chunks[0].elements.exp, limit, side="right")))
        if 3 * self._begin > self._size:
            self._move(self._begin)

    def _drop(self, chunk: _ElementChunk, gone: int) -> None:
        """Drop the first `gone` elements of the first chunk."""
        chunk.gone = gone
        if 2 * gone > len(chunk):
            self._negative -= _negatives(chunk.elements)
            self._next_id += 1
            left = chunk.elements.take(np.arange(gone, len(chunk)))
            self._chunks[0] = _ElementChunk(self._next_id, left, chunk.start + gone)
            self._negative += _negatives(left)

    def _rewrite(self, elements: Elements) -> None:
        """Replace the content by `elements`."""
        self._clear()
        if len(elements):
            self._append(elements.take(argsort_time(elements.exp)))

    @property
    def parts(self) -> list[Elements]:
        """Return the elements, in batches."""
        return [chunk.live for chunk in self._chunks]

    def replace(self, elements: Elements) -> None:
        """Replace the content by `elements`, which are in order of expiration. They are indexed on first use."""
        self._clear()
        if len(elements):
            self._next_id += 1
            self._chunks = [_ElementChunk(self._next_id, elements, 0)]
            self._size, self._unlinked = len(elements), True

    def _link_all(self) -> None:
        """Index the chunks where they are not."""
        if self._unlinked:
            chunks = self._chunks
            self._clear()
            for chunk in chunks:
                self._hold(chunk)

    def _append(self, elements: Elements) -> None:
        self._next_id += 1
        self._hold(_ElementChunk(self._next_id, elements, self._size))

    def _hold(self, chunk: _ElementChunk) -> None:
        """Index one more chunk."""
        elements = chunk.elements
        exp = elements.exp
        first, second = fingerprints([elements.columns[i] for i in self._key], len(elements))
        self._ordered = self._ordered and in_time(exp) and (not self._chunks or self._chunks[-1].last <= int(exp[0]))
        low, high = self._size, self._size + len(elements)
        if high > len(self._entries):
            grown = np.empty((max(high, 3 * len(self._entries) // 2), 4), np.int64)
            grown[:low] = self._entries[:low]
            self._entries = grown
        fresh = self._entries[low:high]
        fresh[:, 0], fresh[:, 1], fresh[:, 2] = first.view(np.int64), second.view(np.int64), exp
        self._size = high
        self._chunks.append(chunk)
        held = high - self._begin
        if held > len(self._heads):
            self._heads = np.full(1 << int(2 * held - 1).bit_length(), -1, np.int32)
            low = self._begin
        _link(self._entries, self._heads, low, high)
        self._negative += _negatives(elements)

    @property
    def _begin(self) -> int:
        """The number of the first entry."""
        return self._chunks[0].start + self._chunks[0].gone if self._chunks else self._size

    def _move(self, by: int) -> None:
        """Renumber entries, so that entry `by` becomes 0."""
        self._size -= by
        _shift(self._entries, self._heads, by, self._size)
        if len(self._entries) > 4 * max(self._size, 16):
            self._entries = self._entries[: 2 * self._size].copy()
        for chunk in self._chunks:
            chunk.start -= by

    # -- durability --------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return sum(len(chunk) - chunk.gone for chunk in self._chunks)

    @property
    def nbytes(self) -> int:
        index = self._size * _ENTRY + self._heads.nbytes if self._chunks else 0
        return index + sum(chunk.nbytes for chunk in self._chunks)

    @property
    def extent(self) -> StateExtent | None:
        return extent_of([chunk.span for chunk in self._chunks])

    def snapshot(self) -> tuple[Document, Chunks]:
        chunks: dict[int, pa.RecordBatch] = {chunk.number: chunk.batch for chunk in self._chunks}
        return {"next": self._next_id, "chunks": [[chunk.number, chunk.gone] for chunk in self._chunks]}, chunks

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._next_id = integer(manifest, "next")
        for number, gone in integer_pairs(manifest, "chunks"):
            self._hold(_ElementChunk(number, Elements.from_batch(chunks[number]), self._size, gone))


def _at(elements: Elements, rows: Int64s, ends: Int64s) -> Elements:
    """Return the elements at `rows`, with the expirations `ends` that the caller already has: one cache miss less."""
    chosen = pa.array(rows)
    sign = None if elements.sign is None else elements.sign[rows]
    return Elements(tuple(c.take(chosen) for c in elements.columns), elements.ts[rows], ends, sign)


def _negatives(elements: Elements) -> int:
    return 0 if elements.sign is None else int(np.count_nonzero(elements.sign < 0))
