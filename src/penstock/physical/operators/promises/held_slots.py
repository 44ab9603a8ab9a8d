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

    def put(self, slots: Int64s, columns: Sequence[pa.Array] | None = None) -> None:
        """Add slots (without duplicates) that have become live. Those of a value that is never closed are left out.

        Args:
            columns: the columns of their values, where they are at hand.
        """
        if self._stale:
            # All live slots are added, these among them.
            self._rebuild()
            return
        columns = self.values(slots) if columns is None else columns
        there = self.promise.can_close(columns, len(slots))
        if not there.all():
            rows = np.flatnonzero(there)
            slots, columns = slots[rows], taken(columns, rows)
        if len(slots):
            self._add(slots, columns)

    def closed(self) -> Int64s:
        """Remove and return the slots whose value was closed in this round; some of them may be dead. It is called
        before slots become live in the round."""
        return self.closings()[0]

    def closings(self) -> tuple[Int64s, Int64s]:
        """Do the same, and return the instant of the first closing in this round of each."""
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
    def _remove(self) -> tuple[Int64s, Int64s]: ...


@compiled(reads="owners slots", counted=False)
def _link(owners: Int64s, slots: Int64s, heads: Int64s, links: Int64s) -> None:
    """Put slots at the heads of the lists of their owners, whose lanes are in `heads`."""
    for i in range(slots.shape[0]):
        owner = owners[i]
        links[slots[i]] = heads[owner, 1] if heads[owner, 0] != 0 else -1
        heads[owner, 0], heads[owner, 1] = 1, slots[i]


@compiled(reads="owners instants links", counted=False)
def _linked(
    owners: Int64s, instants: Int64s, heads: Int64s, links: Int64s, found: Int64s, closed: Int64s, remove: bool
) -> int:
    """Write the slots of `owners` to `found`, and the instants of their owners to `closed`, as far as there is room;
    return how many they are. An owner -1 has none. remove: afterwards they have no owners."""
    count = 0
    for i in range(owners.shape[0]):
        owner = owners[i]
        if owner < 0 or heads[owner, 0] == 0:
            continue
        slot = heads[owner, 1]
        while slot >= 0:
            if count < found.shape[0]:
                found[count], closed[count] = slot, instants[i]
            count += 1
            slot = links[slot]
        if remove:
            heads[owner, 0] = 0
    return count


@compiled(reads="links moved", counted=False)
def _renumber(heads: Int64s, count: int, links: Int64s, moved: Int64s, new_links: Int64s) -> None:
    """Rewrite the lists of the first `count` owners with the new numbers of slots, without those that have none."""
    for owner in range(count):
        slot = heads[owner, 1] if heads[owner, 0] != 0 else -1
        heads[owner, 1] = -1
        while slot >= 0:
            now = moved[slot]
            if now >= 0:
                new_links[now] = heads[owner, 1]
                heads[owner, 1] = now
            slot = links[slot]
        heads[owner, 0] = 1 if heads[owner, 1] >= 0 else 0


class _LinkedSlots(HeldSlots):
    """By value a list of its slots. Integer lanes of a value: whether it has slots, the first of them."""

    def _clear(self) -> None:
        self._owners = KeyedTable(2, 0)
        self._links = np.empty(16, np.int64)

    @property
    def nbytes(self) -> int:
        return 0 if self._stale else self._owners.nbytes + self._links.nbytes

    def _moved(self, kept: Int64s) -> None:
        if self._stale:
            return
        moved = np.full(self._table.count, -1, np.int64)
        moved[kept] = np.arange(len(kept))
        links, self._links = self._links, np.empty(max(16, 2 * len(kept)), np.int64)
        owners = self._owners.count
        _renumber(self._owners.by_slot.integers, owners, links, moved, self._links)
        self._owners.touch(np.arange(owners))

    def _add(self, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self._owners.shrink()
        if len(self._links) < self._table.count:
            self._links = np.resize(self._links, 2 * self._table.count)
        owners = self._owners.slots(*fingerprints(columns, len(slots)))
        _link(owners, slots, self._owners.by_slot.integers, self._links)
        self._owners.touch(owners)

    def _remove(self) -> tuple[Int64s, Int64s]:
        (index,) = self.promise.indexes
        assert isinstance(index, ClusteredIndex), "a union has no CLUSTERED BY"
        first, second, instants = index.first_closings
        if not len(instants) or not self._owners.count:
            return _NONE, _NONE
        owners = self._owners.find(first, second)
        heads = self._owners.by_slot.integers
        count = _linked(owners, instants, heads, self._links, _NONE, _NONE, False)
        found, closed = np.empty(count, np.int64), np.empty(count, np.int64)
        _linked(owners, instants, heads, self._links, found, closed, True)
        self._owners.touch(owners[owners >= 0])
        return found, closed


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

    def _remove(self) -> tuple[Int64s, Int64s]:
        bounds = [index.bound for index in self.promise.indexes if isinstance(index, OrderedIndex)]
        stand = len(bounds) == len(self._bounds) and all(a is b for a, b in zip(bounds, self._bounds, strict=True))
        if stand or not all(map(len, bounds)):
            return _NONE, _NONE
        self._bounds = bounds
        reached = min(int(self._keys(bound)[0]) for bound in bounds)
        slots = np.concatenate([_NONE, *(int64s(batch.column(1)) for batch in self._queue.pop_until(reached))])
        columns = self.values(slots)
        instants = self.promise.until(columns, np.full(len(slots), BEGIN))
        is_open = instants == END
        if is_open.any():
            rows = np.flatnonzero(is_open)
            self._add(slots[rows], taken(columns, rows))
        return slots[~is_open], instants[~is_open]


class _PunctuatedSlots(HeldSlots):
    """The slots of all values, which punctuations of a round are compared with."""

    def _clear(self) -> None:
        self._slots: list[Int64s] = []

    @property
    def nbytes(self) -> int:
        return 0 if self._stale else sum(part.nbytes for part in self._slots)

    def _add(self, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self._slots.append(slots)

    def _remove(self) -> tuple[Int64s, Int64s]:
        if not any(index.news for index in self.promise.indexes if isinstance(index, PunctuatedIndex)):
            return _NONE, _NONE
        slots = np.concatenate([_NONE, *self._slots])
        slots = slots[self._table.integers[0, slots] != 0]
        instants = self.promise.until(self.values(slots), np.full(len(slots), BEGIN))
        closed = instants < END
        self._slots = [slots[~closed]]
        return slots[closed], instants[closed]


def held_slots(promise: FollowedPromise, table: KeyedTable, places: Sequence[int]) -> HeldSlots:
    """Return the live slots of a table by the value that a promise closes; arguments as of `HeldSlots`."""
    if isinstance(promise.bases[0].promise, Punctuated):
        return _PunctuatedSlots(promise, table, places)
    ordered = isinstance(promise.bases[0].promise, Ordered)
    return _OrderedSlots(promise, table, places) if ordered else _LinkedSlots(promise, table, places)
