"""The slots of a table by the value that a promise closes: which of them end is found by the closings of a round, and
not by looking at all.

Neither is durable: both are rebuilt from the live slots of the table after a restore, and when they were renumbered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.first_rows import SortKey
from penstock.algebra.properties.promises import Ordered, Punctuated
from penstock.physical.elements import Int64s, int64s, taken, unnamed
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.kernels.row_order import coarse_keys
from penstock.physical.operators.promises.follower import FollowedPromise
from penstock.physical.synopses.promises.closing_index import ClusteredIndex, OrderedIndex
from penstock.physical.synopses.promises.punctuated_index import PunctuatedIndex
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import BEGIN, END

_NONE = np.empty(0, np.int64)


class HeldSlots(ABC):
    """The live slots of `table` by their value.

    Args:
        promise: closes the values.
        places: of the columns of the value among the key columns of the table.
    """

    def __init__(self, promise: FollowedPromise, table: KeyedTable, places: Sequence[int]) -> None:
        self.promise, self._table, self._places = promise, table, tuple(places)
        self._stale = True
        table.followers.append(self._moved)
        table.beside.append(lambda: self.nbytes)

    def put(self, slots: Int64s) -> None:
        """Add slots (without duplicates) that have become live. Those of a value that is never closed are left out."""
        if self._stale:
            # All live slots are added, these among them.
            self._rebuild()
            return
        columns = self.values(slots)
        there = np.flatnonzero(self.promise.can_close(columns, len(slots)))
        if len(there) < len(slots):
            slots = slots[there]
            columns = self.values(slots)
        if len(slots):
            self._add(slots, columns)

    def closed(self) -> Int64s:
        """Remove and return the slots whose value was closed in this round; some of them may be dead. It is called
        before slots become live in the round."""
        if self._stale:
            self._rebuild()
        return self._remove()

    def values(self, slots: Int64s) -> list[pa.Array]:
        """Return the columns of the values of slots."""
        columns = self._table.key_columns(slots)
        return [columns[place] for place in self._places]

    def _rebuild(self) -> None:
        self._clear()
        self._stale = False
        self.put(self._table.live())

    def _moved(self, kept: Int64s) -> None:
        self._stale = True

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Return the number of bytes that it takes."""

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _add(self, slots: Int64s, columns: Sequence[pa.Array]) -> None: ...

    @abstractmethod
    def _remove(self) -> Int64s: ...


@compiled(reads="owners slots")
def _link(owners: Int64s, slots: Int64s, heads: Int64s, links: Int64s) -> None:
    for i in range(slots.shape[0]):
        links[slots[i]] = heads[owners[i], 1]
        heads[owners[i], 1] = slots[i]


@compiled(reads="owners heads links")
def _linked(owners: Int64s, heads: Int64s, links: Int64s, found: Int64s) -> int:
    """Write the slots of `owners` to `found`, as far as there is room; return how many they are."""
    count = 0
    for i in range(owners.shape[0]):
        slot = heads[owners[i], 1]
        while slot >= 0:
            if count < found.shape[0]:
                found[count] = slot
            count += 1
            slot = links[slot]
    return count


class _LinkedSlots(HeldSlots):
    """By value a list of its slots. Integer lanes of a value: whether it has slots, the first of them."""

    def _clear(self) -> None:
        self._owners = KeyedTable(2, 0)
        self._links = np.empty(16, np.int64)

    @property
    def nbytes(self) -> int:
        return 0 if self._stale else self._owners.nbytes + self._links.nbytes

    def _add(self, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self._owners.shrink()
        if len(self._links) < self._table.count:
            self._links = np.resize(self._links, 2 * self._table.count)
        placed = self._owners.place(columns, len(slots))
        lanes = self._owners.integers
        lanes[1, placed.unique[lanes[0, placed.unique] == 0]] = -1
        lanes[0, placed.unique] = 1
        self._owners.touch(placed.unique)
        _link(placed.slots, slots, self._owners.by_slot.integers, self._links)

    def _remove(self) -> Int64s:
        (index,) = self.promise.indexes
        assert isinstance(index, ClusteredIndex), "a union has no CLUSTERED BY"
        columns, instants = index.closings
        owners = np.unique(self._owners.find(*fingerprints(columns, len(instants))))
        owners = owners[owners >= 0]
        owners = owners[self._owners.integers[0, owners] != 0]
        heads, found = self._owners.by_slot.integers, np.empty(2 * len(owners), np.int64)
        count = _linked(owners, heads, self._links, found)
        if count > len(found):
            found = np.empty(count, np.int64)
            _linked(owners, heads, self._links, found)
        self._owners.integers[0, owners] = 0
        self._owners.touch(owners)
        return found[:count]


class _OrderedSlots(HeldSlots):
    """The slots in the order of their values, by keys of eight bytes: those with the key of the bound are looked at
    again whenever it rises."""

    def _clear(self) -> None:
        self._queue = CalendarQueue()
        self._bounds: list[pa.Array] = []

    @property
    def nbytes(self) -> int:
        return 0 if self._stale else self._queue.nbytes

    def _keys(self, column: pa.Array) -> Int64s:
        promise = self.promise.bases[0].promise
        assert isinstance(promise, Ordered), "the slots of another promise are linked"
        return coarse_keys(column, SortKey(0, promise.descending, False))

    def _add(self, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self._queue.push(unnamed([pa.array(self._keys(columns[0])), pa.array(slots)]))

    def _remove(self) -> Int64s:
        bounds = [index.bound for index in self.promise.indexes if isinstance(index, OrderedIndex)]
        stand = len(bounds) == len(self._bounds) and all(a is b for a, b in zip(bounds, self._bounds, strict=True))
        if stand or not all(map(len, bounds)):
            return _NONE
        self._bounds = bounds
        reached = min(int(self._keys(bound)[0]) for bound in bounds)
        slots = np.concatenate([_NONE, *(int64s(batch.column(1)) for batch in self._queue.pop_until(reached))])
        columns = self.values(slots)
        is_open = self.promise.until(columns, np.full(len(slots), BEGIN)) == END
        if is_open.any():
            rows = np.flatnonzero(is_open)
            self._add(slots[rows], taken(columns, rows))
        closed: Int64s = slots[~is_open]
        return closed


class _PunctuatedSlots(HeldSlots):
    """The slots of all values, which punctuations of a round are compared with."""

    def _clear(self) -> None:
        self._slots: list[Int64s] = []

    @property
    def nbytes(self) -> int:
        return 0 if self._stale else sum(part.nbytes for part in self._slots)

    def _add(self, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self._slots.append(slots)

    def _remove(self) -> Int64s:
        if not any(index.news for index in self.promise.indexes if isinstance(index, PunctuatedIndex)):
            return _NONE
        slots = np.concatenate([_NONE, *self._slots])
        slots = slots[self._table.integers[0, slots] != 0]
        closed = self.promise.until(self.values(slots), np.full(len(slots), BEGIN)) < END
        self._slots = [slots[~closed]]
        found: Int64s = slots[closed]
        return found


def held_slots(promise: FollowedPromise, table: KeyedTable, places: Sequence[int]) -> HeldSlots:
    """Return the live slots of a table by the value that a promise closes; arguments as of `HeldSlots`."""
    if isinstance(promise.bases[0].promise, Punctuated):
        return _PunctuatedSlots(promise, table, places)
    ordered = isinstance(promise.bases[0].promise, Ordered)
    return _OrderedSlots(promise, table, places) if ordered else _LinkedSlots(promise, table, places)
