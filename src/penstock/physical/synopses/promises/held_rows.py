"""Rows of one side of a join until promises of the other side end them, found by their keys.

A row is a slot of a `KeyedTable` under a number of its own, so the lanes of a row change in place, and what is written
is what has changed. Chains by hash lead from keys to slots; they are not written, but made again when slots have been
renumbered. A row that has ended stays in its chain until then; a look-up leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import Int32s
from penstock.compilation import loop
from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiled import heads_of_chains
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.synopses.contract import Chunks
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.storage.documents import Document, integer

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Size of the result for few look-ups.
_FOUND = 1 << 10
#: Bytes of a row in a chain: both halves of its fingerprint, the row before, the head.
_ENTRY = 8 + 8 + 4 + 8


@loop
def _link(first: UInt64s, heads: Int32s, before: Int32s, low: int, high: int) -> None:
    """Put the rows low..high-1 at the heads of their chains."""
    mask = np.uint64(heads.shape[0] - 1)
    for row in range(low, high):
        place = (first[row] * _GOLDEN >> np.uint64(20)) & mask
        before[row] = heads[place]
        heads[place] = row


@loop
def _meet(
    first: UInt64s,
    second: UInt64s,
    before: Int32s,
    wanted_first: UInt64s,
    wanted_second: UInt64s,
    rows: Int32s,
    start: int,
    probe: Int64s,
    found: Int64s,
) -> tuple[int, int]:
    """Find, from value `start` on, the rows that have it; rows[i] is the row at which value i continues. Stop when the
    output is full. Return (value to continue with, number found)."""
    count = 0
    for i in range(start, wanted_first.shape[0]):
        row = rows[i]
        while row >= 0:
            if first[row] == wanted_first[i] and second[row] == wanted_second[i]:
                if count == probe.shape[0]:
                    rows[i] = row
                    return i, count
                probe[count] = i
                found[count] = row
                count += 1
            row = before[row]
    return wanted_first.shape[0], count


class HashChains:
    """Numbers of rows by the fingerprints of their values."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.size = 0
        self._first, self._second = np.empty(16, np.uint64), np.empty(16, np.uint64)
        self._before: Int32s = np.empty(16, np.int32)
        self._heads: Int32s = np.full(16, -1, np.int32)

    def keep(self, rows: Int64s) -> None:
        """Keep some rows, which get the numbers from 0 on. rows: ascending."""
        count = len(rows)
        self._first[:count], self._second[:count] = self._first[rows], self._second[rows]
        self.size = count
        self._heads.fill(-1)
        _link(self._first, self._heads, self._before, 0, count)

    def append(self, first: UInt64s, second: UInt64s) -> None:
        """Add rows, which get the numbers from `size` on."""
        low, high = self.size, self.size + len(first)
        if high > len(self._first):
            room = max(high, 2 * len(self._first))
            self._first, self._second = _grown(self._first, low, room), _grown(self._second, low, room)
            self._before = _grown(self._before, low, room)
        self._first[low:high], self._second[low:high] = first, second
        self.size = high
        if high > len(self._heads):
            self._heads, low = np.full(1 << int(2 * high - 1).bit_length(), -1, np.int32), 0
        _link(self._first, self._heads, self._before, low, high)

    def find(self, first: UInt64s, second: UInt64s) -> tuple[Int64s, Int64s]:
        """Return (number of the look-up, number of a row that has its value) for all such rows."""
        probes, founds = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        if self.size and len(first):
            rows: Int32s = np.empty(len(first), np.int32)
            heads_of_chains(first, self._heads, rows)
            start, room = 0, max(_FOUND, 2 * len(first))
            while start < len(first):
                probe, found = np.empty(room, np.int64), np.empty(room, np.int64)
                start, count = _meet(self._first, self._second, self._before, first, second, rows, start, probe, found)
                probes.append(probe[:count])
                founds.append(found[:count])
                room *= 2
        return np.concatenate(probes), np.concatenate(founds)

    @property
    def nbytes(self) -> int:
        return self.size * _ENTRY


def _grown(values: npt.NDArray[Any], used: int, room: int) -> npt.NDArray[Any]:
    """Return an array with more room. used: how many values it has."""
    found = np.empty(room, values.dtype)
    found[:used] = values[:used]
    return found


class HeldRows(KeyedTable):
    """Rows with `lanes` int64 numbers each; of the first, 0 means that the row has ended.

    Args:
        types: of the columns of a row.
        key: the columns by whose values rows are found.
    """

    def __init__(self, types: Sequence[pa.DataType], lanes: int, key: Sequence[int]) -> None:
        super().__init__(lanes, 0, types)
        self._key, self._chains, self._next_row = tuple(key), HashChains(), 0
        #: Rows are found by their own numbers only while what was written is read.
        self._by_number = False
        self.followers.append(self._renumbered)
        self.beside.append(lambda: self._chains.nbytes)

    def add(self, columns: Sequence[pa.Array], lanes: Int64s, prints: tuple[UInt64s, UInt64s] | None = None) -> Int64s:
        """Add rows; return their slots.

        Args:
            lanes: by (lane, row).
            prints: the fingerprints of their keys, where they are known.
        """
        low, high = self.count, self.count + lanes.shape[1]
        self._reserve(high)
        self._first[low:high] = np.arange(self._next_row, self._next_row + high - low)
        self._second[low:high] = 0
        self._columns.append(columns)
        self.count, self._next_row = high, self._next_row + high - low
        self.by_slot.integers[low:high] = lanes.T
        if prints is not None and self._chains.size == low:
            self._chains.append(*prints)
        slots = np.arange(low, high)
        self.touch(slots)
        return slots

    def end(self, slots: Int64s) -> None:
        """End rows."""
        if len(slots):
            self.integers[0, slots] = 0
            self.touch(slots)

    def alive(self, slots: Int64s) -> Int64s:
        """Return those of some slots whose rows have not ended, ascending, each once."""
        found = np.unique(slots)
        living: Int64s = found[self.integers[0, found] != 0]
        return living

    def meet(self, first: UInt64s, second: UInt64s) -> tuple[Int64s, Int64s]:
        """Return (number of the look-up, slot) of all rows whose key has one of the fingerprints, some of which may
        have ended."""
        if self._chains.size < self.count:
            start = self._chains.size
            values = self.last_keys(start)
            self._chains.append(*fingerprints([values[c] for c in self._key], self.count - start))
        return self._chains.find(first, second)

    def _renumbered(self, kept: Int64s) -> None:
        self._chains.keep(kept[: np.searchsorted(kept, self._chains.size)])

    def _rebuild(self, size: int) -> None:
        if self._by_number:
            super()._rebuild(size)

    def snapshot(self) -> tuple[Document, Chunks]:
        manifest, chunks = super().snapshot()
        return {**manifest, "rows": self._next_row}, chunks

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._by_number = True
        super().restore(manifest, chunks)
        self._by_number = False
        self._next_row = integer(manifest, "rows")
