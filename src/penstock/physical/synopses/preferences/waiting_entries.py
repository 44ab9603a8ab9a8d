"""Entries that wait for work: the arrays of the compiled loop, and how they grow, are saved and restored.

Every snapshot after a change writes all of it: which entries wait, and how far they have come, changes from round to
round. Heaps follow from the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.arrays import Int32s, Int64s, Records, longer
from penstock.physical.elements import int64s, unnamed
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.physical.synopses.preferences import heaps, machine
from penstock.physical.synopses.preferences.layout import (
    BEST,
    ENTRY,
    EXPIRIES,
    GRANTED,
    HEAPS,
    NUMBERS,
    SAVED,
    SAVED_DRAWS,
    SAVED_RANKS,
    SAVED_WHOLE_COST,
    SPAN_BITS,
    WORST,
    Queue,
)
from penstock.physical.synopses.preferences.numbered_elements import NumberedElements
from penstock.physical.synopses.preferences.priorities import priorities
from penstock.physical.synopses.preferences.result_figures import ResultFigures
from penstock.storage.documents import Document, integer, integers, nested

_LONG_AGO = -(2**62)


@dataclass(frozen=True)
class NewEntries:
    """Entries in the order in which they enter.

    Args:
        rows: of `ENTRY`; `spans` counts from the first of `zones`.
        zones: the number ranges [low, high) that rest entries leave out, one after the other.
    """

    rows: Records
    zones: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))

    def __len__(self) -> int:
        return len(self.rows)


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
    """Pairs that were examined. rows: of `RESULT`. With inclusion records there are some that are no pairs."""

    rows: Records


class WaitingEntries(Synopsis):
    """The queue of one shard.

    Args:
        parameters: a record of `PARAMETERS`.
        sides: the elements that entries look up.
    """

    def __init__(self, parameters: Records, sides: tuple[NumberedElements, NumberedElements]) -> None:
        self._sides = sides
        #: Of what was emitted, and of the priorities of all entries.
        self.results = ResultFigures()
        recorded = bool(parameters["records"][0])
        self._saved = (*SAVED, *SAVED_DRAWS) if recorded else SAVED
        self._saved_ranks = (*SAVED_RANKS, *SAVED_WHOLE_COST) if recorded else SAVED_RANKS
        numbers = np.zeros(1, NUMBERS)
        numbers["begin_at"] = numbers["periods"] = _LONG_AGO
        self._queue = Queue(
            items=np.empty((HEAPS, 0), np.int32),
            places=np.empty((HEAPS, 0), np.int32),
            entries=np.zeros(0, ENTRY),
            free=np.empty(0, np.int32),
            numbers=numbers,
            parameters=parameters,
            left=sides[0].table,
            right=sides[1].table,
            spans=np.empty((16, 2), np.int64),
        )
        self._chunk: pa.RecordBatch | None = None
        self._id = 0
        self._changed = False

    # -- working ---------------------------------------------------------------------------------------------------

    def number(self, name: str) -> int:
        """Return one of the numbers of `layout.py`."""
        return int(self._queue.numbers[name][0])

    @property
    def _members(self) -> Int32s:
        return self._queue.items[BEST, : self.number("waiting")]

    @property
    def units_waiting(self) -> int:
        """Return the units that wait, as estimated where entries were not looked up."""
        return int(self._queue.entries["cost"][self._members].sum())

    @property
    def pairs_missing(self) -> tuple[int, int]:
        """Return (pairs, entries): the pairs of entries that wait, expired or were shed, as estimated, and how many of
        these entries have pairs that nothing estimates."""
        pairs, entries = machine.pairs_waiting(self._members, self._queue.entries, self._queue.parameters)
        return int(pairs) + self.number("pairs_lost"), int(entries) + self.number("look_ups_lost")

    def waiting(self) -> NewEntries:
        """Return the entries that wait, in no order."""
        return NewEntries(self._queue.entries.take(self._members))

    def run(self, instants: EntryInstants, fresh: NewEntries, until: int) -> list[WorkDone]:
        """Work up to the tick `until`, by the budget per element or per time."""
        assert self._queue.parameters["budget"][0] != GRANTED
        self._admit(fresh)
        places, counts, cursor = self.results.rating(priorities(self._state(), fresh.rows))
        position, done = 0, []
        while position >= 0:
            out, count, position = machine.run(
                self._state(),
                instants.at,
                instants.offsets,
                instants.paying,
                position,
                until,
                fresh.rows,
                places,
                counts,
                cursor,
            )
            done.append(WorkDone(out[:count]))
        return [one for one in done if len(one.rows)]

    def run_granted(self, reached: int, grant: int, fresh: NewEntries) -> Iterator[WorkDone]:
        """Take a round behind the tick `reached` as one instant in which `grant` units are done."""
        self._admit(fresh)
        fresh.rows["promising"] = self.results.rate(priorities(self._state(), fresh.rows))
        rows = fresh.rows
        while True:
            out, count, grant = machine.run_granted(self._state(), reached, grant, rows)
            if count:
                yield WorkDone(out[:count])
            if not grant:
                return
            # All have entered.
            rows = rows[:0]

    def count_done(self, entries: int, units: int, pairs: int) -> None:
        """Count entries that are done without having waited."""
        assert not self.number("waiting")
        # No entry leaves zones out any more.
        numbers = self._queue.numbers
        numbers["used_spans"] = 0
        for name, more in (("made_entries", entries), ("done", entries), ("units_done", units), ("pairs", pairs)):
            numbers[name] += more

    def expire(self, at: int) -> None:
        """Drop what has ended at an instant."""
        if self.number("waiting"):
            machine.expire(self._queue, at)
            self._changed = True

    def _state(self) -> Queue:
        left, right = self._sides
        self._queue.numbers["bases"] = left.base, right.base
        self._queue = self._queue._replace(left=left.table, right=right.table)
        return self._queue

    def _admit(self, fresh: NewEntries) -> None:
        """Make room for new entries, and keep the zones that they leave out."""
        self._changed = True
        self._make_room(len(fresh))
        used, more = self.number("used_spans"), len(fresh.zones)
        if more:
            if used + more > len(self._queue.spans):
                used = self._compact_spans(more)
            self._queue.spans[used : used + more] = fresh.zones
            self._queue.numbers["used_spans"] = used + more
            leaving_out = fresh.rows["spans"] & ((1 << SPAN_BITS) - 1) > 0
            fresh.rows["spans"][leaving_out] += used << SPAN_BITS

    def _make_room(self, count: int) -> None:
        queue, used = self._queue, self.number("free")
        missing, had = count - used, len(queue.entries)
        if missing <= 0:
            return
        size = had + max(missing, had // 4)
        items, places = (np.ascontiguousarray(_grown(a.T, size).T) for a in (queue.items, queue.places))
        free = np.empty(size, np.int32)
        free[:used] = queue.free[:used]
        free[used : used + size - had] = np.arange(size - 1, had - 1, -1)
        self._queue = queue._replace(items=items, places=places, entries=longer(queue.entries, size), free=free)
        queue.numbers["free"] += size - had

    def _compact_spans(self, more: int) -> int:
        """Keep the zones alone that an entry still leaves out, and make room; return their number."""
        entries, members = self._queue.entries, self._members
        packed = entries["spans"][members]
        offsets, counts = packed >> SPAN_BITS, packed & ((1 << SPAN_BITS) - 1)
        starts = np.cumsum(counts) - counts
        total = int(counts.sum())
        rows = np.repeat(offsets - starts, counts) + np.arange(total)
        self._set_spans(self._queue.spans[rows], 2 * (total + more))
        entries["spans"][members] = np.where(counts > 0, starts << SPAN_BITS | counts, 0)
        return total

    def _set_spans(self, kept: Int64s, room: int) -> None:
        spans = np.empty((max(16, room), 2), np.int64)
        spans[: len(kept)] = kept
        self._queue = self._queue._replace(spans=spans)

    # -- durability ------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[Document, Chunks]:
        if self._changed or self._chunk is None:
            self._id += 1
            self._chunk = self._written()
            self._changed = False
        spans = self._queue.spans[: self.number("used_spans")].ravel().tolist()
        numbers = self._queue.numbers.copy()
        # Room in the arrays is no content.
        numbers["free"] = 0
        marks = {"numbers": numbers.view(np.int64).tolist(), "spans": spans, "results": self.results.marks()}
        return {"id": self._id, **marks}, {self._id: self._chunk}

    def _written(self) -> pa.RecordBatch:
        kept = self.waiting().rows
        kept = kept.take(np.argsort(kept["order"], kind="stable"))
        names = (*self._saved, *self._saved_ranks)
        return unnamed([pa.array(np.ascontiguousarray(kept[name])) for name in names])

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._id = integer(manifest, "id")
        self._chunk = chunks[self._id]
        self.results.restore(nested(manifest, "results"))
        numbers = np.array(integers(manifest, "numbers"), np.int64).view(NUMBERS)
        spans = np.array(integers(manifest, "spans"), np.int64).reshape(-1, 2)
        count = self._chunk.num_rows
        self._make_room(count)
        queue = self._queue
        first = self.number("free") - count
        queue.numbers[:] = numbers
        queue.numbers["free"] = first
        members = queue.free[first : first + count].copy()
        width = len(self._saved)
        for k, name in enumerate(self._saved):
            queue.entries[name][members] = int64s(self._chunk.column(k))
        for k, name in enumerate(self._saved_ranks):
            queue.entries[name][members] = np.asarray(self._chunk.column(width + k))
        self._set_spans(spans, len(spans))
        for heap in (BEST, WORST, EXPIRIES):
            queue.items[heap, :count] = members
            heaps.rebuild(queue, heap, count)

    @property
    def rows(self) -> int:
        return self.number("waiting")

    @property
    def nbytes(self) -> int:
        queue = self._queue
        return sum(a.nbytes for a in (queue.entries, queue.items, queue.places, queue.free, queue.spans))


def _grown(array: Int32s, size: int) -> Int32s:
    made = np.empty((size, *array.shape[1:]), array.dtype)
    made[: len(array)] = array
    return made
