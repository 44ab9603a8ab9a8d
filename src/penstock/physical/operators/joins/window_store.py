"""Windows of several lengths over one stream share one synopsis [bulletin 2.2].

`WindowStore` keeps the rows of the longest window, by key, and emits nothing. A `StoreJoin` of a window of T reads them
in place, as [ts, ts+T): the hash join index has the newest rows first in its chains, so what a probe reads does not
depend on the longer windows. There is one writer and many readers; each reader notes how far it is, and rows are
dropped when no reader needs them.

In each round the store takes its new rows first. A reader then lets the new rows probe its other side, and its own new
rows probe the store. Which rows are new is known until all readers have seen them. Where all readers join two stores,
many new rows stay apart until then: a batch may be far longer than the windows, and most of its rows leave the store
again at once. They are sorted by key and time, once for all readers, and only those that stay are indexed.

Where a join retracts its results itself, the rows that leave its window probe its other side once more: the pairs found
end with them. So the results need not be kept until they end. These rows too are found once for all readers of
one length that are equally far.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.kernels.ticks import later
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reader_floors import ReaderFloors
from penstock.physical.operators.joins.join import PROBES_AT_ONCE, keyed
from penstock.physical.plan.joins.specs import WindowStoreSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.join_indexes.hash_index import HashJoinIndex
from penstock.physical.synopses.join_indexes.sorted_runs import SortedRun, probe_pieces
from penstock.types import BEGIN

#: Of rows that leave windows so many are looked at in chains before they are indexed by themselves.
_MOST_IN_CHAINS = 1 << 16

#: From so many new rows on they may stay apart.
_FEWEST_APART = 1 << 10

#: What a reader probes with: rows, and the two halves of the fingerprints of their keys.
Probes = tuple[Elements, UInt64s, UInt64s]


class LeavingRows:
    """The rows that leave a window. probes: each as valid at the last instant in the window, and no longer."""

    def __init__(self, probes: Probes, key: tuple[int, ...]) -> None:
        self.probes, self._key = probes, key

    def __len__(self) -> int:
        return len(self.probes[0])

    @cached_property
    def index(self) -> HashJoinIndex:
        """Return an index of the rows, for readers whose other side is smaller."""
        index = HashJoinIndex(self._key, strict=False)
        index.add(self.probes[0])
        return index


class StoredRows(enum.Enum):
    """Which rows of a store are met: all, those that it had before the new ones, the new ones."""

    ALL = enum.auto()
    OLD = enum.auto()
    FRESH = enum.auto()


class WindowStore(Operator):
    """State: the rows that some reader may still need. As a row of the store expires at its own timestamp, an index in
    order of time is in order of expiration for windows of every length."""

    def __init__(self, spec: WindowStoreSpec) -> None:
        self._spec = spec
        self._index = HashJoinIndex(spec.key, strict=False)
        self._came: list[Elements] = []
        self._fresh: Probes | None = None
        self._fresh_from = 0
        #: Whether the new rows are not in the index yet; the same rows, sorted, once they have been looked up.
        self._apart = False
        self._sorted: SortedRun | None = None
        self._windows: dict[int, tuple[Elements, UInt64s, UInt64s]] = {}
        self._leaving: dict[tuple[int, int, int], LeavingRows | None] = {}
        self._floors: ReaderFloors[StoreReader] = ReaderFloors()
        #: The readers that have not seen the new rows.
        self._waiting: set[StoreReader] = set()

    def synopses(self) -> Mapping[str, Synopsis]:
        self._index_all()
        return {"rows": self._index}

    def attach_reader(self, reader: StoreReader, floor: int | None) -> None:
        """Keep rows for one more reader; floor: the timestamp up to which it needs none, None if that is unknown."""
        self._floors.put(reader, floor)

    def detach_reader(self, reader: StoreReader) -> None:
        """Keep no rows for a reader any more."""
        self._floors.remove(reader)
        self._seen(reader)

    def process(self, port: int, elements: Elements) -> list[Elements]:
        elements = elements.filter(keyed(elements, self._spec.key))
        if len(elements):
            self._came.append(Elements(elements.columns, elements.ts, elements.ts))
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        self._leaving = {}
        if self._came:
            # Some reader may not have seen the rows before these.
            self._index_all()
            rows = concat(self._came)
            self._came = []
            self._fresh = rows, *fingerprints([rows.columns[i] for i in self._spec.key], len(rows))
            self._windows = {}
            self._waiting = self._floors.readers
            self._apart = len(rows) >= _FEWEST_APART and all(reader.joins_stores for reader in self._waiting)
            if not self._apart:
                self._fresh_from = self._index.size
                self._index.add(rows)
        self._trim()
        return []

    def _index_all(self, after: int | None = None) -> None:
        """Add the new rows to the index unless they are there. after: only those that expire after this tick."""
        if not self._apart or self._fresh is None:
            return
        rows, _, _ = self._fresh
        self._apart, self._sorted, self._fresh_from = False, None, self._index.size
        self._index.add(rows if after is None else rows.filter(rows.exp > after))

    @property
    def has_fresh(self) -> bool:
        """Return whether there are rows that some reader has not seen."""
        return self._fresh is not None

    def fresh(self, length: int) -> Probes | None:
        """Return the new rows as those of a window of `length`; they are computed once for all readers of it."""
        if self._fresh is None:
            return None
        if length not in self._windows:
            rows, first, second = self._fresh
            self._windows[length] = replace(rows, exp=later(rows.ts, length)), first, second
        return self._windows[length]

    def meet(self, probes: Probes, length: int | Int64s, which: StoredRows) -> Iterator[tuple[Int64s, Elements]]:
        """Yield (rows of the probes, the row of the window of `length` that each matches), in batches. length: of each
        probe, where it is an array."""
        elements, first, second = probes
        # [ts, ts + T) overlaps a probe if ts > its ts - T.
        lengths = np.asarray(length, np.int64)
        since = np.maximum(elements.ts, BEGIN + lengths) - lengths
        if self._apart and which is not StoredRows.OLD:
            for probe, found in self._meet_apart(replace(elements, ts=since), first, second):
                yield probe, replace(found, exp=later(found.ts, length if isinstance(length, int) else length[probe]))
            if which is StoredRows.FRESH:
                return
        fresh_from = None if self._fresh is None or self._apart else self._fresh_from
        before = fresh_from if which is StoredRows.OLD else None
        behind = fresh_from or 0 if which is StoredRows.FRESH else 0
        for probe, found in self._index.meet(
            replace(elements, ts=since), first, second, PROBES_AT_ONCE, before, behind
        ):
            its = length if isinstance(length, int) else length[probe]
            yield probe, replace(found, exp=later(found.ts, its))

    def _meet_apart(self, elements: Elements, first: UInt64s, second: UInt64s) -> Iterator[tuple[Int64s, Elements]]:
        """Yield (rows of `elements`, the new row that each matches), in batches."""
        assert self._fresh is not None, "rows are apart"
        self._sorted = self._sorted or SortedRun.build(0, self._fresh[0], self._spec.key)
        for probe, found in probe_pieces(self._sorted, elements, first, second, PROBES_AT_ONCE):
            if len(probe):
                yield probe, self._sorted.elements.take(found)

    def meet_leaving(
        self, probes: Probes, lengths: Int64s, after: int, until: int
    ) -> list[tuple[Int64s, Elements]] | None:
        """Return (rows of the probes, the row of the window of its length that each matches), of the rows that leave
        their window after the instant `after`, up to `until`: each as valid at the last instant in the window, and no
        longer. None where chains are so long that the rows which leave had better be indexed by themselves."""
        self._index_all()
        elements, first, second = probes
        since, up_to = (np.maximum(tick, BEGIN + lengths) - lengths for tick in (after, until))
        met = self._index.meet_leaving(first, second, since, up_to, _MOST_IN_CHAINS)
        if not met:
            return met
        ((probe, found),) = met
        ends = later(found.ts, lengths[probe])
        both = np.flatnonzero((elements.ts[probe] < ends) & (elements.exp[probe] > ends - 1))
        ends = ends[both]
        return [(probe[both], replace(found.take(both), ts=ends - 1, exp=ends))] if len(both) else []

    def leaving(self, length: int, after: int, until: int) -> LeavingRows | None:
        """Return the rows with timestamps after `after`, up to `until`, as those that leave a window of `length`."""
        self._index_all()
        known = length, after, until
        if known not in self._leaving:
            found = self._index.expiring(after, until)
            if found is not None:
                ends = later(found[0].ts, length)
                found = replace(found[0], ts=ends - 1, exp=ends), *found[1:]
            self._leaving[known] = None if found is None else LeavingRows(found, self._spec.key)
        return self._leaving[known]

    def passed(self, reader: StoreReader, floor: int) -> None:
        """Note that a reader has seen the new rows, and up to which timestamp it needs no row any more."""
        self._floors.put(reader, floor)
        self._seen(reader)
        self._trim()

    def _seen(self, reader: StoreReader) -> None:
        """Note that a reader waits for no new rows; when none does, they are not new any more."""
        self._waiting.discard(reader)
        if not self._waiting:
            least = self._floors.least
            # What the index drops next need not come into it.
            self._index_all(None if least is None else least + 1)
            self._fresh = None
            self._windows = {}

    def _trim(self) -> None:
        """Remove the rows that the slowest reader has passed, if all have seen the new ones."""
        least = None if self._waiting else self._floors.least
        if least is not None:
            self._index.expire(least)


class StoreReader:
    """A window over a store, as one side of a join. joins_stores: the other side is one too."""

    def __init__(self, store: WindowStore, length: int, before: StoreReader | None, joins_stores: bool = False) -> None:
        self.store = store
        self.length = length
        self.joins_stores = joins_stores
        self._floor: int | None = None if before is None else before._floor
        store.attach_reader(self, self._floor)

    @property
    def fresh(self) -> Probes | None:
        return self.store.fresh(self.length)

    def meet(self, probes: Probes, which: StoredRows = StoredRows.ALL) -> Iterator[tuple[Int64s, Elements]]:
        return self.store.meet(probes, self.length, which)

    def leaving(self, after: int, heartbeat: int) -> LeavingRows | None:
        """Return the rows that have left the window since `after`, by the instant `heartbeat`."""
        since, until = (max(tick, BEGIN + self.length) - self.length for tick in (after, heartbeat))
        return self.store.leaving(self.length, since, until) if since < until else None

    def passed(self, heartbeat: int) -> None:
        """Advance: rows that have left the window by the instant after `heartbeat` are needed no more."""
        # What leaves the window in the next instant meets nothing new, but its results end.
        kept = self.length + 1
        self._floor = max(heartbeat, BEGIN + kept) - kept
        self.store.passed(self, self._floor)

    def detach(self) -> None:
        """Read the store no more."""
        self.store.detach_reader(self)
