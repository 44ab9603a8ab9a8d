"""Entries that wait for work: the arrays of the compiled loop, and how they grow, are saved and restored.

Every snapshot after a change writes all of it: which entries wait, and how far they have come, changes from round to
round. Heaps follow from the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.physical.elements import int64s, unnamed
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.physical.synopses.preferences import heaps, machine
from penstock.physical.synopses.preferences.layout import (
    BASES,
    BEGIN_AT,
    BEST,
    BUDGET,
    COST,
    DONE,
    ENTRY_COLUMNS,
    EXPIRIES,
    FREE,
    GRANTED,
    HEAPS,
    LOOK_UPS_LOST,
    MADE_ENTRIES,
    NUMBERS,
    ORDER,
    PAIRS,
    PAIRS_LOST,
    PERIODS,
    PROMISING,
    RANK_COLUMNS,
    RECORDED_COLUMNS,
    RECORDED_RANKS,
    RECORDS,
    SPAN_BITS,
    SPANS,
    UNITS_DONE,
    USED_SPANS,
    WAITING,
    WORST,
    Float64s,
    Int32s,
    Int64s,
)
from penstock.physical.synopses.preferences.numbered_elements import NumberedElements
from penstock.physical.synopses.preferences.priorities import priorities
from penstock.physical.synopses.preferences.result_figures import ResultFigures
from penstock.storage.documents import Document, integer, integers, nested

_LONG_AGO = -(2**62)

Rows = TypeVar("Rows", Int64s, Int32s, Float64s)


@dataclass(frozen=True)
class NewEntries:
    """Entries in the order in which they enter.

    Args:
        integers, ranks: columns of `layout.py`; SPANS counts from the first of `zones`.
        zones: the number ranges [low, high) that rest entries leave out, one after the other.
    """

    integers: Int64s
    ranks: Float64s
    zones: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))

    def __len__(self) -> int:
        return len(self.integers)


@dataclass(frozen=True)
class EntryInstants:
    """The instants at which entries are made.

    Args:
        at: ticks, ascending.
        offsets: of instant k, the new entries offsets[k] to before offsets[k + 1].
        paying: by instant, the elements that make entries.
    """

    at: Int64s
    offsets: Int64s
    paying: Int64s


@dataclass(frozen=True)
class WorkDone:
    """Pairs that were examined. integers, values: columns R_SIDE.. and V_BASE.. of `layout.py`. With inclusion records
    there are rows that are no pairs."""

    integers: Int64s
    values: Float64s


class WaitingEntries(Synopsis):
    """The queue of one shard.

    Args:
        parameters: columns SORT.. of `layout.py`.
        fade: the factor a.
        sides: the elements that entries look up.
    """

    def __init__(self, parameters: Int64s, fade: float, sides: tuple[NumberedElements, NumberedElements]) -> None:
        self._parameters, self._fade, self._sides = parameters, fade, sides
        #: Of what was emitted, and of the priorities of all entries.
        self.results = ResultFigures()
        self._numbers = np.zeros(NUMBERS, np.int64)
        self._numbers[BEGIN_AT] = self._numbers[PERIODS] = self._numbers[PERIODS + 1] = _LONG_AGO
        recorded = bool(parameters[RECORDS])
        self._entries: Int64s = np.empty((0, RECORDED_COLUMNS if recorded else ENTRY_COLUMNS), np.int64)
        self._ranks: Float64s = np.empty((0, RECORDED_RANKS if recorded else RANK_COLUMNS), np.float64)
        self._items: Int32s = np.empty((HEAPS, 0), np.int32)
        self._places: Int32s = np.empty((HEAPS, 0), np.int32)
        self._free: Int32s = np.empty(0, np.int32)
        self._spans = np.empty((16, 2), np.int64)
        self._chunk: pa.RecordBatch | None = None
        self._id = 0
        self._changed = False

    # -- working ---------------------------------------------------------------------------------------------------

    def number(self, column: int) -> int:
        """Return one of the numbers of `layout.py`."""
        return int(self._numbers[column])

    @property
    def units_waiting(self) -> int:
        """Return the units that wait, as estimated where entries were not looked up."""
        members = self._items[BEST, : self._numbers[WAITING]]
        return int(self._ranks[members, COST].sum())

    @property
    def pairs_missing(self) -> tuple[int, int]:
        """Return (pairs, entries): the pairs of entries that wait, expired or were shed, as estimated, and how many of
        these entries have pairs that nothing estimates."""
        members = self._items[BEST, : self._numbers[WAITING]]
        pairs, entries = machine.pairs_waiting(members, self._entries, self._ranks, self._parameters)
        return int(pairs) + self.number(PAIRS_LOST), int(entries) + self.number(LOOK_UPS_LOST)

    def waiting(self) -> NewEntries:
        """Return the entries that wait, in no order."""
        members = self._items[BEST, : self._numbers[WAITING]]
        return NewEntries(self._entries[members], self._ranks[members])

    def run(self, instants: EntryInstants, fresh: NewEntries, until: int) -> list[WorkDone]:
        """Work up to the tick `until`, by the budget per element or per time."""
        assert self._parameters[BUDGET] != GRANTED
        self._admit(fresh)
        places, counts, cursor = self.results.rating(self._priorities(fresh))
        position, done = 0, []
        while position >= 0:
            out, values, count, position = machine.run(
                instants.at,
                instants.offsets,
                instants.paying,
                position,
                until,
                fresh.integers,
                fresh.ranks,
                places,
                counts,
                cursor,
                *self._state(),
            )
            done.append(WorkDone(out[:count], values[:count]))
        return [one for one in done if len(one.integers)]

    def run_granted(self, reached: int, grant: int, fresh: NewEntries) -> Iterator[WorkDone]:
        """Take a round behind the tick `reached` as one instant in which `grant` units are done."""
        self._admit(fresh)
        fresh.integers[:, PROMISING] = self.results.rate(self._priorities(fresh))
        integers, ranks = fresh.integers, fresh.ranks
        while True:
            out, values, count, grant = machine.run_granted(reached, grant, integers, ranks, *self._state())
            if count:
                yield WorkDone(out[:count], values[:count])
            if not grant:
                return
            # All have entered.
            integers, ranks = integers[:0], ranks[:0]

    def count_done(self, entries: int, units: int, pairs: int) -> None:
        """Count entries that are done without having waited."""
        assert not self._numbers[WAITING]
        # No entry leaves zones out any more.
        self._numbers[USED_SPANS] = 0
        for column, more in ((MADE_ENTRIES, entries), (DONE, entries), (UNITS_DONE, units), (PAIRS, pairs)):
            self._numbers[column] += more

    def expire(self, at: int) -> None:
        """Drop what has ended at an instant."""
        if self._numbers[WAITING]:
            machine.expire(
                at, self._items, self._places, self._entries, self._ranks, self._free, self._numbers, self._parameters
            )
            self._changed = True

    def _state(self) -> tuple[object, ...]:
        left, right = self._sides
        self._numbers[BASES], self._numbers[BASES + 1] = left.base, right.base
        return (
            self._items,
            self._places,
            self._entries,
            self._ranks,
            self._free,
            self._numbers,
            self._parameters,
            self._fade,
            left.table,
            right.table,
            self._spans,
        )

    def _priorities(self, fresh: NewEntries) -> Float64s:
        """Return the priorities of new entries when they enter."""
        *_, numbers, parameters, fade, left, right, spans = self._state()
        found: Float64s = priorities(fresh.integers, fresh.ranks, numbers, parameters, fade, left, right, spans)
        return found

    def _admit(self, fresh: NewEntries) -> None:
        """Make room for new entries, and keep the zones that they leave out."""
        self._changed = True
        self._make_room(len(fresh))
        used, more = int(self._numbers[USED_SPANS]), len(fresh.zones)
        if more:
            if used + more > len(self._spans):
                used = self._compact_spans(more)
            self._spans[used : used + more] = fresh.zones
            self._numbers[USED_SPANS] = used + more
            leaving_out = fresh.integers[:, SPANS] & ((1 << SPAN_BITS) - 1) > 0
            fresh.integers[leaving_out, SPANS] += used << SPAN_BITS

    def _make_room(self, count: int) -> None:
        missing, had = count - int(self._numbers[FREE]), len(self._entries)
        if missing <= 0:
            return
        size = had + max(missing, had // 4)
        self._entries, self._ranks = _grown(self._entries, size), _grown(self._ranks, size)
        self._items, self._places = (np.ascontiguousarray(_grown(a.T, size).T) for a in (self._items, self._places))
        free, used = np.empty(size, np.int32), int(self._numbers[FREE])
        free[:used] = self._free[:used]
        free[used : used + size - had] = np.arange(size - 1, had - 1, -1)
        self._free = free
        self._numbers[FREE] += size - had

    def _compact_spans(self, more: int) -> int:
        """Keep the zones alone that an entry still leaves out, and make room; return their number."""
        members = self._items[BEST, : self._numbers[WAITING]]
        packed = self._entries[members, SPANS]
        offsets, counts = packed >> SPAN_BITS, packed & ((1 << SPAN_BITS) - 1)
        starts = np.cumsum(counts) - counts
        total = int(counts.sum())
        rows = np.repeat(offsets - starts, counts) + np.arange(total)
        kept = self._spans[rows]
        self._spans = np.empty((max(16, 2 * (total + more)), 2), np.int64)
        self._spans[:total] = kept
        self._entries[members, SPANS] = np.where(counts > 0, starts << SPAN_BITS | counts, 0)
        return total

    # -- durability ------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[Document, Chunks]:
        if self._changed or self._chunk is None:
            self._id += 1
            self._chunk = self._written()
            self._changed = False
        spans = self._spans[: self._numbers[USED_SPANS]].ravel().tolist()
        numbers = self._numbers.tolist()
        # Room in the arrays is no content.
        numbers[FREE] = 0
        results = self.results.marks()
        return {"id": self._id, "numbers": numbers, "spans": spans, "results": results}, {self._id: self._chunk}

    def _written(self) -> pa.RecordBatch:
        kept = self.waiting()
        order = np.argsort(kept.integers[:, ORDER], kind="stable")
        integers, ranks = kept.integers[order], kept.ranks[order]
        return unnamed([pa.array(np.ascontiguousarray(column)) for column in (*integers.T, *ranks.T)])

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._id = integer(manifest, "id")
        self._chunk = chunks[self._id]
        self.results.restore(nested(manifest, "results"))
        numbers = np.array(integers(manifest, "numbers"), np.int64)
        spans = np.array(integers(manifest, "spans"), np.int64).reshape(-1, 2)
        count = self._chunk.num_rows
        self._make_room(count)
        numbers[FREE] = self._numbers[FREE] - count
        self._numbers[:] = numbers
        members = self._free[numbers[FREE] : numbers[FREE] + count].copy()
        width = self._entries.shape[1]
        for k in range(width):
            self._entries[members, k] = int64s(self._chunk.column(k))
        for k in range(self._ranks.shape[1]):
            self._ranks[members, k] = np.asarray(self._chunk.column(width + k))
        self._spans = np.empty((max(16, len(spans)), 2), np.int64)
        self._spans[: len(spans)] = spans
        for heap in (BEST, WORST, EXPIRIES):
            self._items[heap, :count] = members
            heaps.rebuild(heap, count, self._items, self._places, self._entries, self._ranks)

    @property
    def rows(self) -> int:
        return int(self._numbers[WAITING])

    @property
    def nbytes(self) -> int:
        arrays = (self._entries, self._ranks, self._items, self._places, self._free, self._spans)
        return sum(array.nbytes for array in arrays)


def _grown(array: Rows, size: int) -> Rows:
    made = np.empty((size, *array.shape[1:]), array.dtype)
    made[: len(array)] = array
    return made
