"""A table of keyed rows with numeric lanes: the live groups of an aggregate, the values of a DISTINCT.

Each key (a row fingerprint, see `fingerprints.py`) has a slot; lanes are arrays by slot that operators update in
place with compiled loops. Durability is a log of chunks: a snapshot writes one chunk with the slots that changed
since the last snapshot; the newest chunk that contains a key is valid for it. When the log has grown to twice the live
rows it is rewritten as one chunk, so the cost of writing stays proportional to the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import Bools, Int32s
from penstock.compilation import loop
from penstock.physical.elements import Int64s, int64s, unnamed
from penstock.physical.kernels.compiled import distinct_slots
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.physical.synopses.tables.appendable_columns import AppendableColumns
from penstock.storage.documents import Document, integer, integers

Float64s = npt.NDArray[np.float64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: A table with at most this many slots keeps dead slots.
_FEWEST_SLOTS = 64


@compiled(reads="new_first new_second")
def find_slots(
    table: Int32s,
    first: UInt64s,
    second: UInt64s,
    count: int,
    new_first: UInt64s,
    new_second: UInt64s,
    start: int,
    slots: Int64s,
    heads: Int64s,
) -> tuple[int, int]:
    """Find the slots of keys from row `start` on; a new key gets the next free slot, and heads[slot - old count] its
    row. Stop where there is no room for another key. Return (count, the row where it stopped)."""
    mask = np.uint64(table.shape[0] - 1)
    room = min(first.shape[0], table.shape[0] // 2)
    old = count
    for i in range(start, new_first.shape[0]):
        place = (new_first[i] * _GOLDEN >> np.uint64(20)) & mask
        while True:
            slot = table[place]
            if slot < 0:
                if count >= room:
                    return count, i
                heads[count - old] = i
                table[place] = count
                first[count] = new_first[i]
                second[count] = new_second[i]
                slots[i] = count
                count += 1
                break
            if first[slot] == new_first[i] and second[slot] == new_second[i]:
                slots[i] = slot
                break
            place = (place + np.uint64(1)) & mask
    return count, new_first.shape[0]


@compiled(reads="table first second wanted_first wanted_second")
def _look(
    table: Int32s, first: UInt64s, second: UInt64s, wanted_first: UInt64s, wanted_second: UInt64s, slots: Int64s
) -> None:
    mask = np.uint64(table.shape[0] - 1)
    for i in range(wanted_first.shape[0]):
        place = (wanted_first[i] * _GOLDEN >> np.uint64(20)) & mask
        slots[i] = -1
        while table[place] >= 0 and slots[i] < 0:
            slot = table[place]
            if first[slot] == wanted_first[i] and second[slot] == wanted_second[i]:
                slots[i] = slot
            place = (place + np.uint64(1)) & mask


@loop
def index_slots(table: Int32s, first: UInt64s, count: int) -> None:
    mask = np.uint64(table.shape[0] - 1)
    for slot in range(count):
        place = (first[slot] * _GOLDEN >> np.uint64(20)) & mask
        while table[place] >= 0:
            place = (place + np.uint64(1)) & mask
        table[place] = slot


@compiled(reads="slots")
def _settle(slots: Int64s, lanes: Int64s, alive: int, lives: Bools) -> int:
    """Update which of `slots` are live, by `lanes` (slot, lane); return the change in the number of live slots."""
    change = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        now = lanes[slot, alive] != 0
        if now != lives[slot]:
            lives[slot] = now
            change += 1 if now else -1
    return change


@dataclass(frozen=True)
class SlotAssignment:
    """The slots of rows in a table. slots: of each row; unique: without duplicates; first, second: the fingerprints of
    each row's key."""

    slots: Int64s
    unique: Int64s
    first: UInt64s
    second: UInt64s


class Lanes(NamedTuple):
    """The lanes of all slots."""

    integers: Int64s
    floats: Float64s


class KeyedTable(Synopsis):
    """Keys with `integers` int64 lanes, `floats` float64 lanes, and optionally the key's columns.

    A slot is live while integer lane `alive` is not 0; dead slots are dropped when they outnumber the live ones.
    Slot numbers are valid until the next call of `snapshot` or `shrink`; `followers` are called just before slots are
    dropped, with the slots that stay, in their new order. A caller that changes lanes must call `touch`: the number of
    live slots is derived from that, since scanning all slots would make the cost of a round proportional to the table.
    """

    def __init__(self, integers: int, floats: int, columns: Sequence[pa.DataType] = (), alive: int = 0) -> None:
        self._alive = alive
        self._types = tuple(columns)
        self.count = 0
        self.followers: list[Callable[[Int64s], None]] = []
        # The sizes in bytes of the indexes on this table.
        self.beside: list[Callable[[], int]] = []
        # 32 bits: a look-up reads this first, so it should stay in cache as long as possible.
        self._table = np.full(64, -1, np.int32)
        self._first = np.empty(16, np.uint64)
        self._second = np.empty(16, np.uint64)
        # By (lane, slot); in memory the lanes of a slot are contiguous.
        self.integers = np.zeros((16, integers), np.int64).T
        self.floats = np.zeros((16, floats), np.float64).T
        self._columns = AppendableColumns(self._types)
        self._touched = np.zeros(16, np.bool_)
        # Which slots were live when last checked, how many, and the changed slots not checked since.
        self._lives = np.zeros(16, np.bool_)
        self._living = 0
        self._unsettled = np.empty(0, np.int64)
        self._log: dict[int, pa.RecordBatch] = {}
        self._next_id = 0
        # The log is rewritten as a whole when it may still contain dropped slots as live.
        self._rewrite = False

    def slots(self, first: UInt64s, second: UInt64s, columns: Sequence[pa.Array] = ()) -> Int64s:
        """Return the slot of each key; new keys get one, with lanes 0 and the key columns `columns`."""
        found = np.empty(len(first), np.int64)
        done = 0
        while True:
            before = self.count
            heads = np.empty(min(len(first) - done, len(self._first)), np.int64)
            self.count, done = find_slots(
                self._table, self._first, self._second, before, first, second, done, found, heads
            )
            if self.count > before and self._types:
                fresh = pa.array(heads[: self.count - before])
                self._columns.append([column.take(fresh) for column in columns])
            if done == len(first):
                return found
            self._reserve(2 * self.count)

    def place(self, columns: Sequence[pa.Array], rows: int) -> SlotAssignment:
        """Return the slots of `rows` rows with the key columns `columns`, which the table stores; new keys get one."""
        first, second = fingerprints(columns, rows)
        slots = self.slots(first, second, columns)
        return SlotAssignment(slots, distinct_slots(slots, self.count), first, second)

    def find(self, first: UInt64s, second: UInt64s) -> Int64s:
        """Return the slot of each key, -1 where it has none."""
        found = np.empty(len(first), np.int64)
        _look(self._table, self._first, self._second, first, second, found)
        return found

    def touch(self, slots: Int64s) -> None:
        """Record that the lanes of `slots` have changed."""
        self._settle()
        self._touched[slots] = True
        self._unsettled = slots

    def _settle(self) -> None:
        self._living += int(_settle(self._unsettled, self.by_slot.integers, self._alive, self._lives))
        self._unsettled = self._unsettled[:0]

    def key_columns(self, slots: Int64s) -> list[pa.Array]:
        """Return the key's columns at `slots`; NULL where a slot is -1."""
        return self._columns.take(slots)

    def last_keys(self, start: int) -> list[pa.Array]:
        """Return the key's columns of the slots from `start` on; reads only the pieces that contain them."""
        return self._columns.since(start)

    def live(self) -> Int64s:
        """Return the slots that are live."""
        return np.flatnonzero(self.integers[self._alive, : self.count])

    @property
    def by_slot(self) -> Lanes:
        """Return the lanes by (slot, lane), as they lie in memory: for compiled loops, to which an array by (lane,
        slot) has one type where there is one lane and another where there are several."""
        return Lanes(self.integers.T, self.floats.T)

    @property
    def keys(self) -> tuple[UInt64s, UInt64s]:
        """Return the fingerprints by slot."""
        return self._first, self._second

    def fingerprints(self, slots: Int64s) -> tuple[UInt64s, UInt64s]:
        return self._first[slots], self._second[slots]

    def shrink(self) -> None:
        """Drop dead slots if they outnumber the live ones; then slot numbers change."""
        if self.count > _FEWEST_SLOTS and 2 * self.rows < self.count:
            self._keep(self.live())

    @property
    def rows(self) -> int:
        self._settle()
        return self._living

    @property
    def nbytes(self) -> int:
        lanes = self.count * 8 * (2 + len(self.integers) + len(self.floats))
        return lanes + self._columns.nbytes + sum(nbytes() for nbytes in self.beside)

    def snapshot(self) -> tuple[Document, Chunks]:
        self.shrink()
        changed = np.flatnonzero(self._touched[: self.count])
        logged = sum(batch.num_rows for batch in self._log.values())
        live = self.rows
        if self._rewrite or logged + len(changed) > 2 * live + 64:
            # Dead slots are dropped from memory too: a restore from the log must number the slots as they are here.
            self._keep(self.live())
            self._log = {}
            changed = np.arange(self.count)
        if len(changed):
            self._next_id += 1
            self._log[self._next_id] = self._rows_of(changed)
        self._touched[:] = False
        self._rewrite = False
        return {"next": self._next_id, "log": list(self._log)}, dict(self._log)

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._next_id = integer(manifest, "next")
        self._log = {i: chunks[i] for i in integers(manifest, "log")}
        for chunk in self._log.values():  # oldest first: later rows of a key overwrite earlier ones
            first, second = (int64s(chunk.column(k)).view(np.uint64) for k in range(2))
            floats = 2 + len(self.integers)
            columns = floats + len(self.floats)
            slots = self.slots(first, second, [chunk.column(k) for k in range(columns, chunk.num_columns)])
            # There may be hundreds of lanes: they are put into a matrix and from there into their places as a whole.
            for lanes, places in zip(self.by_slot, (range(2, floats), range(floats, columns)), strict=True):
                if places:
                    lanes[slots] = chunk.select(list(places)).to_tensor(row_major=True).to_numpy()
        self._count_live()

    def _rows_of(self, slots: Int64s) -> pa.RecordBatch:
        arrays = [pa.array(self._first[slots].view(np.int64)), pa.array(self._second[slots].view(np.int64))]
        arrays += [pa.array(lane) for lane in self.integers[:, slots]]
        arrays += [pa.array(lane) for lane in self.floats[:, slots]]
        arrays += self.key_columns(slots)
        return unnamed(arrays)

    def _keep(self, slots: Int64s) -> None:
        for follower in self.followers:
            follower(slots)
        columns = self.key_columns(slots)
        count = len(slots)
        self._first[:count] = self._first[slots]
        self._second[:count] = self._second[slots]
        self.integers[:, :count] = self.integers[:, slots]
        self.floats[:, :count] = self.floats[:, slots]
        self.integers[:, count : self.count] = 0
        self.floats[:, count : self.count] = 0
        self._columns = AppendableColumns(self._types)
        self._columns.append(columns)
        self.count = count
        self._count_live()
        self._rewrite = True
        self._rebuild(self._table.shape[0])

    def _count_live(self) -> None:
        """Count the live slots by scanning all of them."""
        self._lives[: self.count] = self.integers[self._alive, : self.count] != 0
        self._lives[self.count :] = False
        self._living, self._unsettled = int(np.count_nonzero(self._lives)), self._unsettled[:0]

    def _reserve(self, capacity: int) -> None:
        size = len(self._first)
        if capacity > size:
            grown = max(capacity, 2 * size)
            self._first = np.resize(self._first, grown)
            self._second = np.resize(self._second, grown)
            unset = np.zeros(grown - size, np.bool_)
            self._touched, self._lives = (np.concatenate([a, unset]) for a in (self._touched, self._lives))
            self.integers = _grow(self.integers, grown)
            self.floats = _grow(self.floats, grown)
        if 2 * capacity > len(self._table):
            self._rebuild(1 << int(2 * capacity).bit_length())

    def _rebuild(self, size: int) -> None:
        self._table = np.full(size, -1, np.int32)
        index_slots(self._table, self._first, self.count)


def _grow(lanes: Any, size: int) -> Any:
    grown = np.zeros((size, lanes.shape[0]), lanes.dtype)
    grown[: lanes.shape[1]] = lanes.T
    return grown.T
