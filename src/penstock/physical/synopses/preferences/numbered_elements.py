"""The elements of one input of a preference, numbered as they arrive, found by key from any of them on backwards.

An element has a place in the chain of those with its key; the newest of each key is in a hash table. Chains run by
number and do not change when the table grows, so an entry that waits may keep a number as its place. Elements end in
the order in which they arrive; those that have ended are dropped from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.arrays import Records, longer
from penstock.compilation import loop
from penstock.physical.elements import Bools, Elements, Int64s, concat
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.synopses.contract import Chunks, StateExtent, StoredTimes, Synopsis, extent_of
from penstock.physical.synopses.preferences.layout import ELEMENT
from penstock.storage.documents import Document, integer, integer_pairs

#: Number of chunks of similar size that are merged.
_MERGED = 4
#: Elements are taken from all chunks put together where they are at least this part of them.
_MANY = 0.25
_EMPTY = -2
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S20 = np.uint64(20)


@loop
def _slot(first: int, second: int, keys: Int64s, newest: Int64s) -> np.uint64:
    """Return the slot of a key in a table, or the empty one where it belongs."""
    mask = np.uint64(keys.shape[0] - 1)
    place = (np.uint64(first) * _GOLDEN >> _S20) & mask
    while newest[place] != _EMPTY and (keys[place, 0] != first or keys[place, 1] != second):
        place = (place + np.uint64(1)) & mask
    return place


@loop
def _link(rows: Records, low: int, high: int, base: int, linked: Bools, keys: Int64s, newest: Int64s) -> int:
    """Put rows at the heads of their chains; return how many slots of the table were empty."""
    used = 0
    for row in range(low, high):
        rows[row].previous = -1
        rows[row].latest = rows[row].exp
        if not linked[row - low]:
            continue
        place = _slot(rows[row].first, rows[row].second, keys, newest)
        if newest[place] == _EMPTY:
            keys[place, 0], keys[place, 1] = rows[row].first, rows[row].second
            used += 1
        elif newest[place] >= base:
            rows[row].previous = newest[place]
            rows[row].latest = max(rows[row].exp, rows[newest[place] - base].latest)
        newest[place] = row + base
    return used


@loop
def _moved(newest_keys: Int64s, newest: Int64s, keys_after: Int64s, newest_after: Int64s, base: int) -> int:
    """Copy the slots whose newest element is still there into another table; return their number."""
    used = 0
    for place in range(newest.shape[0]):
        if newest[place] >= base:
            to = _slot(newest_keys[place, 0], newest_keys[place, 1], keys_after, newest_after)
            keys_after[to, 0], keys_after[to, 1] = newest_keys[place, 0], newest_keys[place, 1]
            newest_after[to] = newest[place]
            used += 1
    return used


@loop
def _before(
    rows: Records, base: int, first: Int64s, second: Int64s, bounds: Int64s, keys: Int64s, newest: Int64s, found: Int64s
) -> None:
    """Find the newest element with each key whose number is below a bound, -1 for none."""
    for k in range(first.shape[0]):
        number = newest[_slot(first[k], second[k], keys, newest)]
        while number >= bounds[k] and number >= base:
            number = rows[number - base].previous
        found[k] = number if number >= base else -1


@loop
def _count_alive(rows: Records, base: int, starts: Int64s, at: Int64s, most: int, counts: Int64s) -> int:
    """Count the elements of chains that are alive; return how many they are together, or where they are more than
    `most`, any such number."""
    total = 0
    for k in range(starts.shape[0]):
        number, count = starts[k], 0
        while number >= base and rows[number - base].latest > at[k]:
            count += rows[number - base].exp > at[k]
            if total + count > most:
                return int(total + count)
            number = rows[number - base].previous
        counts[k] = count
        total += count
    return total


@loop
def _alive(rows: Records, base: int, starts: Int64s, counts: Int64s, at: Int64s, which: Int64s, found: Int64s) -> None:
    row = 0
    for k in range(starts.shape[0]):
        number, left = starts[k], counts[k]
        while left:
            if rows[number - base].exp > at[k]:
                which[row], found[row] = k, number
                row += 1
                left -= 1
            number = rows[number - base].previous


@loop
def _ended(rows: Records, size: int, first: int, at: int) -> int:
    """Return how many rows from the beginning on have ended at an instant; the `first` ones have."""
    while first < size and rows[first].exp <= at:
        first += 1
    return first


def _words(first: UInt64s, second: UInt64s) -> Int64s:
    return np.column_stack([first.view(np.int64), second.view(np.int64)])


class NumberedElements(Synopsis):
    """The live elements of one input.

    Args:
        key: the columns by which they are found.
        linked: which of them can be found at all.
        hidden: how many of the last columns are not returned.
    """

    TIMES: ClassVar[StoredTimes | None] = StoredTimes("ts", "ts")

    def __init__(self, key: Sequence[int], linked: Callable[[Elements], Bools], hidden: int = 0) -> None:
        self._key, self._linked, self._hidden = tuple(key), linked, hidden
        self._chunks: dict[int, tuple[int, Elements]] = {}
        self._next_id = 0
        #: Numbers of the first row that is kept, and of the next element.
        self.base = 0
        self.next = 0
        self._rows = np.empty(16, ELEMENT)
        self._keys = np.zeros((32, 2), np.int64)
        self._newest = np.full(32, _EMPTY, np.int64)
        self._used = 0
        #: Rows from `base` on that are known to have ended.
        self._gone = 0

    @property
    def table(self) -> Records:
        """Return an `ELEMENT` for each element from number `base` on."""
        return self._rows

    # -- adding and looking up ----------------------------------------------------------------------------------

    def add(self, elements: Elements) -> Int64s:
        """Add elements, which are in order; return for each the fingerprint's words, as columns."""
        first, second = self._fingerprints(elements)
        if len(elements):
            self._next_id += 1
            self._hold(self._next_id, self.next, elements, first, second)
            self._merge()
        return _words(first, second)

    def words_of(self, key: Sequence[pa.Array], count: int) -> Int64s:
        """Return the words, as `add` does, of values of the key's columns."""
        return _words(*fingerprints(list(key), count))

    def newest_before(self, words: Int64s, bounds: Int64s) -> Int64s:
        """Return for each key the number of its newest element below a bound, -1 for none. words: as `add` returns."""
        found = np.empty(len(words), np.int64)
        first, second = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
        _before(self._rows, self.base, first, second, bounds, self._keys, self._newest, found)
        return found

    def count_alive(self, starts: Int64s, at: Int64s, most: int = (1 << 62) - 1) -> Int64s | None:
        """Return by chain, from starts[k] backwards, how many of its elements are alive at at[k]; None where they are
        more than `most` together."""
        counts = np.empty(len(starts), np.int64)
        total = _count_alive(self._rows, self.base, starts, at, most, counts)
        return counts if total <= most else None

    def alive(self, starts: Int64s, counts: Int64s, at: Int64s) -> tuple[Int64s, Int64s]:
        """Return (k, number of an element) for the first counts[k] elements of a chain, from starts[k] on, that live
        at at[k]."""
        total = int(counts.sum())
        which, found = np.empty(total, np.int64), np.empty(total, np.int64)
        _alive(self._rows, self.base, starts, counts, at, which, found)
        return which, found

    def alive_from(self, starts: Int64s, at: Int64s) -> tuple[Int64s, Int64s]:
        """Return (k, number of an element) for all elements of a chain, from starts[k] backwards, that are alive at
        at[k]."""
        counts = self.count_alive(starts, at)
        assert counts is not None
        return self.alive(starts, counts, at)

    def rows_of(self, numbers: Int64s) -> Elements:
        """Return elements by their numbers, at least one, in any order."""
        found = self._taken(numbers)
        return found.with_columns(found.columns[: -self._hidden]) if self._hidden else found

    def _taken(self, numbers: Int64s) -> Elements:
        if len(numbers) >= _MANY * (self.next - self.base):
            whole = concat([elements for _, elements in self._chunks.values()])
            return whole.take(numbers - next(iter(self._chunks.values()))[0])
        order = np.argsort(numbers, kind="stable")
        ordered, parts, low = numbers[order], [], 0
        for start, elements in self._chunks.values():
            high = int(np.searchsorted(ordered, start + len(elements)))
            if high > low:
                parts.append(elements.take(ordered[low:high] - start))
            low = high
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return concat(parts).take(back)

    def _fingerprints(self, elements: Elements) -> tuple[UInt64s, UInt64s]:
        return fingerprints([elements.columns[i] for i in self._key], len(elements))

    def _hold(self, number: int, start: int, elements: Elements, first: UInt64s, second: UInt64s) -> None:
        self._chunks[number] = (start, elements)
        count, low = len(elements), start - self.base
        high = low + count
        if high > len(self._rows):
            self._rows = longer(self._rows, max(high, 3 * len(self._rows) // 2))
        if 2 * (self._used + count) > len(self._newest):
            self._rehash(count)
        fresh = self._rows[low:high]
        fresh["ts"], fresh["exp"] = elements.ts, elements.exp
        fresh["first"], fresh["second"] = first.view(np.int64), second.view(np.int64)
        self._used += _link(self._rows, low, high, self.base, self._linked(elements), self._keys, self._newest)
        self.next = start + count

    def _rehash(self, more: int) -> None:
        live = int(np.count_nonzero(self._newest >= self.base))
        size = 1 << max(5, int(4 * (live + more) - 1).bit_length())
        keys, newest = np.zeros((size, 2), np.int64), np.full(size, _EMPTY, np.int64)
        self._used = _moved(self._keys, self._newest, keys, newest, self.base)
        self._keys, self._newest = keys, newest

    def _merge(self) -> None:
        while len(self._chunks) >= _MERGED:
            tail = list(self._chunks)[-_MERGED:]
            sizes = [len(self._chunks[number][1]) for number in tail]
            if sizes[0] > sum(sizes[1:]):
                return
            merged = [self._chunks.pop(number) for number in tail]
            self._next_id += 1
            self._chunks[self._next_id] = (merged[0][0], concat([elements for _, elements in merged]))

    # -- expiring ------------------------------------------------------------------------------------------------

    def expire(self, at: int) -> None:
        """Drop the elements that have ended at an instant."""
        size = self.next - self.base
        gone = self._gone = int(_ended(self._rows, size, self._gone, at))
        for number, (start, elements) in list(self._chunks.items()):
            if start + len(elements) > self.base + gone:
                break
            del self._chunks[number]
        # Rows move once as many have ended as have not.
        if gone and 2 * gone >= size:
            self._drop(gone)

    def _drop(self, gone: int) -> None:
        """Give up the first `gone` rows."""
        left = self.next - self.base - gone
        words = self._rows.view(np.int64).reshape(len(self._rows), -1)
        words[:left] = words[gone : gone + left].copy()
        if len(self._rows) > 4 * max(left, 16):
            self._rows = longer(self._rows[:left], 2 * max(left, 16))
        self.base += gone
        self._gone = 0

    # -- durability ----------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return self.next - self.base

    @property
    def nbytes(self) -> int:
        index = self._rows.nbytes + self._keys.nbytes + self._newest.nbytes
        return index + sum(elements.nbytes for _, elements in self._chunks.values())

    @property
    def extent(self) -> StateExtent | None:
        return extent_of([(int(e.ts[0]), int(e.ts[-1])) for _, e in self._chunks.values()])

    def snapshot(self) -> tuple[Document, Chunks]:
        chunks: dict[int, pa.RecordBatch] = {k: elements.to_batch() for k, (_, elements) in self._chunks.items()}
        starts = [[number, start] for number, (start, _) in self._chunks.items()]
        live = self.base + self._gone
        return {"next": self.next, "id": self._next_id, "base": live, "chunks": starts}, chunks

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._next_id = integer(manifest, "id")
        pairs = list(integer_pairs(manifest, "chunks"))
        # The first chunk may begin with rows that were dropped already.
        self.base = pairs[0][1] if pairs else integer(manifest, "next")
        self.next = self.base
        for number, start in pairs:
            elements = Elements.from_batch(chunks[number])
            self._hold(number, start, elements, *self._fingerprints(elements))
        self.next = integer(manifest, "next")
        self._drop(integer(manifest, "base") - self.base)
