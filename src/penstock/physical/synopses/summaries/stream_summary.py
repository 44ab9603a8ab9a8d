"""The summary of a stream in one shard: how often each value came, by zones of time that grow coarser with age.

A summary changes no answer. It counts the elements of its stream in order of (timestamp, arrival) and estimates of a
value in which zones it has been, and about how often. An element is known by its arrival number, which counts all
elements of the stream in this shard from 0, also those with NULL that are not summarised.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Bools, Int64s, int64s
from penstock.physical.kernels.fingerprints import UInt64s
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.physical.synopses.summaries import zone_kernel as kernel
from penstock.physical.synopses.summaries.contract import SlotCounts
from penstock.physical.synopses.summaries.levels import SummaryLevels
from penstock.storage.documents import Document, integer, integers

#: So many elements that are not counted yet are kept: 17 bytes each.
MOST_UNCOUNTED = 1 << 20


class ZoneEstimates(NamedTuple):
    """The zones in which a value is promised, one row for each zone with an estimate of at least 1, by element that
    asked and then newest first.

    event: number of the element in the batch. low, high: the zone's elements have arrival numbers in [low, high).
    granularity: 1 is the finest. estimate: elements of the zone with the value, at least 1. elements: of the zone.
    stretch: any instant of the zone, divided by the granularity's ticks.
    """

    event: Int64s
    low: Int64s
    high: Int64s
    granularity: Int64s
    estimate: Int64s
    elements: Int64s
    stretch: Int64s


class SummaryZone(NamedTuple):
    """A zone: arrival numbers [low, high), its granularity, and the number of its elements that are summarised."""

    low: int
    high: int
    granularity: int
    elements: int


class UncountedElements(NamedTuple):
    """Elements of the stream in order, as `process` takes them, that are in no zone yet."""

    ts: Int64s
    values: UInt64s
    known: Bools

    @staticmethod
    def together(parts: Sequence[UncountedElements]) -> UncountedElements:
        """Return elements one after the other."""
        ts, values, known = zip(*parts, strict=True)
        return UncountedElements(np.concatenate(ts), np.concatenate(values), np.concatenate(known))

    def part(self, low: int, high: int | None = None) -> UncountedElements:
        """Return elements low to before high."""
        return UncountedElements(self.ts[low:high], self.values[low:high], self.known[low:high])


class StreamSummary(Synopsis):
    """Counts of the values of one stream, and where they are.

    While nothing is asked, elements are not counted one by one: of a stretch of G1 that is over only the sum is asked
    for ever after, so its elements are counted together then; those of the stretch that is being filled are kept.
    """

    FORMAT: ClassVar[int] = 2

    def __init__(self, levels: SummaryLevels, counts: SlotCounts) -> None:
        self.levels = levels
        self.counts = counts
        self._parameters = levels.parameters()
        self._zones = kernel.empty_zones(0)
        self._order = np.zeros(0, np.int64)
        self._header = np.zeros(kernel.HEADER_FIELDS, np.int64)
        self._header[kernel.NOW] = kernel.NEVER
        self._serial = 0
        #: By number of its chunk, what is not counted yet, in order; how many elements, and in which stretch it begins.
        self._uncounted: dict[int, UncountedElements] = {}
        self._waiting = self._first_stretch = 0
        self._reserve(levels.depth + 8, 0)

    def process(self, ts: Int64s, values: UInt64s, known: Bools, updates: Bools) -> ZoneEstimates:
        """Count elements of the stream, and return where the partners of others are.

        Args:
            ts: ticks, in order.
            values: hash of each element's value.
            known: false for elements with a NULL, which are numbered but neither counted nor found.
            updates: true for elements of the stream itself; the others ask.
        """
        if self._waiting and len(ts):
            self._count(int(ts[0]) // self.levels.granularity)
        found = np.empty(self.counts.located, np.int64)
        pieces, start = [], 0
        room = max(64, 2 * int(np.count_nonzero(~updates)))
        while True:
            made = np.empty((room + int(self._header[kernel.COUNT]), kernel.ESTIMATE_FIELDS), np.int64)
            start, rows = kernel.run(
                self.counts.cells,
                self._zones,
                self._order,
                self._header,
                self._parameters,
                ts,
                values,
                known,
                updates,
                found,
                made,
                start,
            )
            pieces.append(made[:rows])
            if start == len(ts):
                break
            if rows + int(self._header[kernel.COUNT]) > len(made):
                room *= 2
            else:
                self._make_room(int(ts[start]))
        made = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return ZoneEstimates(*made.T)

    def count_later(self, ts: Int64s, values: UInt64s, known: Bools) -> None:
        """Take elements of the stream, as `process` does, none of which asks."""
        if not len(ts):
            return
        if not self._waiting:
            self._first_stretch = int(ts[0]) // self.levels.granularity
        self._uncounted[self._serial] = UncountedElements(ts, values, known)
        self._serial += 1
        self._waiting += len(ts)
        last = int(ts[-1]) // self.levels.granularity
        if last > self._first_stretch or self._waiting > MOST_UNCOUNTED:
            rest = self._count_stretches(last)
            if len(rest.ts) > MOST_UNCOUNTED:
                self._count_one_by_one(rest)
            elif len(rest.ts):
                self._uncounted[self._serial] = rest
                self._serial += 1
                self._waiting, self._first_stretch = len(rest.ts), last

    def _count(self, stretch: int) -> None:
        """Count what is not counted yet, before elements of a stretch."""
        rest = self._count_stretches(stretch)
        if len(rest.ts):
            self._count_one_by_one(rest)

    def _count_stretches(self, end: int) -> UncountedElements:
        """Count the elements of stretches before `end` together, by stretch, and let `end` begin; return those that are
        left."""
        parts = list(self._uncounted.values())
        elements = parts[0] if len(parts) == 1 else UncountedElements.together(parts)
        self._uncounted, self._waiting = {}, 0
        stretches = elements.ts // self.levels.granularity
        done = int(np.searchsorted(stretches, end))
        begins = np.flatnonzero(np.diff(stretches[:done], prepend=stretches[0] - 1)).tolist()
        for low, high in pairwise([*begins, done]):
            self._count_stretch(int(stretches[low]), elements.part(low, high))
            self._begin(int(stretches[high]) if high < done else end)
        return elements.part(done)

    def _count_stretch(self, stretch: int, elements: UncountedElements) -> None:
        """Count the last elements of a stretch as one zone, which is in no sum until the next stretch begins: then it
        is added up with the others."""
        known = elements.known
        count = len(known) if known.all() else int(np.count_nonzero(known))
        # Where not all are summarised, it matters which.
        crowded = int(self._zones[0, kernel.ELEMENTS]) + count > self.levels.most
        if crowded or stretch < self._header[kernel.NOW]:
            self._count_one_by_one(elements)
            return
        self._begin(stretch)
        first_number, zones = int(self._header[kernel.NUMBER]), int(self._header[kernel.COUNT])
        if count:
            self._reserve(zones + self.levels.depth + 1, 0)
            slot = int(np.argmax(self._zones[self.levels.depth :, kernel.LEVEL] == 0)) + self.levels.depth
            self.counts.summarize(slot, elements.values if count == len(known) else elements.values[known])
            first, last = int(np.argmax(known)), len(known) - 1 - int(np.argmax(known[::-1]))
            self._zones[slot] = (
                first_number + first,
                first_number + last + 1,
                count,
                stretch,
                elements.ts[first],
                kernel.IN_NO_SUM,
                -1,
            )
            self._order[zones] = slot
            self._header[kernel.COUNT] += 1
        self._header[kernel.NUMBER] += len(known)

    def _begin(self, stretch: int) -> None:
        """Let a stretch begin, unless it has."""
        if stretch > self._header[kernel.NOW]:
            self._make_room(stretch * self.levels.granularity)
            kernel.move(self.counts.cells, self._zones, self._order, self._header, self._parameters, stretch)

    def _count_one_by_one(self, elements: UncountedElements) -> None:
        self.process(*elements, np.ones(len(elements.ts), np.bool_))

    def advance(self, now: int) -> None:
        """Let time pass to `now`, without elements."""
        self.process(np.array([now]), np.zeros(1, np.uint64), np.zeros(1, np.bool_), np.zeros(1, np.bool_))

    @property
    def arrived(self) -> int:
        """Return the arrival number of the next element."""
        return int(self._header[kernel.NUMBER]) + self._waiting

    def zones(self) -> list[SummaryZone]:
        """Return the zones, oldest first."""
        self._count_waiting()
        columns = [kernel.LOW, kernel.HIGH, kernel.LEVEL, kernel.ELEMENTS]
        return [SummaryZone(*row) for row in self._zones[self._live()][:, columns].tolist()]

    def confidence(self) -> float:
        """Return the confidence in the newest zone: 1 / (1 + e), e in tuples; 1 where there is none."""
        self._count_waiting()
        live = self._live()
        return self.counts.confidence(int(live[-1])) if len(live) else 1.0

    def _count_waiting(self) -> None:
        """Count all elements that are not counted yet."""
        if self._waiting:
            self._count(self._first_stretch)

    @property
    def rows(self) -> int:
        """Return the number of elements in zones, and of those that will be."""
        uncounted = sum(int(np.count_nonzero(part.known)) for part in self._uncounted.values())
        return int(self._zones[self._live(), kernel.ELEMENTS].sum()) + uncounted

    @property
    def nbytes(self) -> int:
        uncounted = sum(column.nbytes for part in self._uncounted.values() for column in part)
        return self.counts.nbytes + int(self._zones.nbytes + self._order.nbytes) + uncounted

    def snapshot(self) -> tuple[Document, Chunks]:
        live = self._live()
        chunks: dict[int, pa.RecordBatch] = {}
        for slot in live.tolist():
            if self._zones[slot, kernel.SERIAL] < 0:
                self._zones[slot, kernel.SERIAL] = self._serial
                self._serial += 1
            keys, counts = self.counts.counts(slot)
            chunks[int(self._zones[slot, kernel.SERIAL])] = pa.record_batch(
                {"key": pa.array(keys.view(np.int64)), "count": pa.array(counts)}
            )
        for number, part in self._uncounted.items():
            columns = {"ts": pa.array(part.ts), "value": pa.array(part.values.view(np.int64))}
            chunks[number] = pa.record_batch({**columns, "known": pa.array(part.known)})
        manifest: Document = {
            "uncounted": list(self._uncounted),
            "open": int(self._header[kernel.OPEN]),
            "now": int(self._header[kernel.NOW]),
            "number": int(self._header[kernel.NUMBER]),
            "serial": self._serial,
            **{name: self._zones[live, field].tolist() for name, field in _FIELDS.items()},
        }
        return manifest, chunks

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._header[kernel.OPEN] = integer(manifest, "open")
        self._header[kernel.NOW] = integer(manifest, "now")
        self._header[kernel.NUMBER] = integer(manifest, "number")
        self._serial = integer(manifest, "serial")
        columns = {field: integers(manifest, name) for name, field in _FIELDS.items()}
        count, depth = len(columns[kernel.SERIAL]), self.levels.depth
        self._header[kernel.COUNT] = count
        held = sum(chunks[serial].num_rows for serial in columns[kernel.SERIAL])
        self._reserve(depth + count, 2 * held)
        for number in range(count):
            slot = self._order[number] = depth + number
            for field, values in columns.items():
                self._zones[slot, field] = values[number]
            chunk = chunks[columns[kernel.SERIAL][number]]
            self.counts.put(slot, int64s(chunk["key"]).view(np.uint64), int64s(chunk["count"]))
            level = columns[kernel.LEVEL][number]
            self.counts.add(level - 1, slot)
            self._zones[level - 1, kernel.ELEMENTS] += columns[kernel.ELEMENTS][number]

        for serial in integers(manifest, "uncounted"):
            ts, values, known = chunks[serial].columns
            self._uncounted[serial] = UncountedElements(
                int64s(ts), int64s(values).view(np.uint64), known.to_numpy(zero_copy_only=False)
            )
            self._waiting += len(ts)
        if self._waiting:
            first = next(iter(self._uncounted.values()))
            self._first_stretch = int(first.ts[0]) // self.levels.granularity

    def _live(self) -> Int64s:
        return self._order[: self._header[kernel.COUNT]]

    def _make_room(self, tick: int) -> None:
        """Make room where the loop stopped, before an element of this tick: for one more zone, one more value, and
        moving zones."""
        now = tick // self.levels.granularity
        needed = kernel.room_to_move(self.counts.cells, self._zones, self._order, self._header, self._parameters, now)
        self._reserve(int(self._header[kernel.COUNT]) + self.levels.depth + 1, max(2, int(needed)))

    def _reserve(self, slots: int, values: int) -> None:
        """Make room for slots and values. Slots are kept in powers of two, so that room is made seldom."""
        if slots > len(self._zones):
            grown = kernel.empty_zones(1 << (slots - 1).bit_length())
            grown[: len(self._zones)] = self._zones
            # The slots of sums are never free.
            grown[: self.levels.depth, kernel.LEVEL] = np.arange(1, self.levels.depth + 1)
            order = np.zeros(len(grown), np.int64)
            order[: len(self._order)] = self._order
            self._zones, self._order = grown, order
        self.counts.reserve(len(self._zones), values)


#: Names in the manifest.
_FIELDS = {
    "low": kernel.LOW,
    "high": kernel.HIGH,
    "elements": kernel.ELEMENTS,
    "stretch": kernel.STRETCH,
    "begin": kernel.BEGIN,
    "level": kernel.LEVEL,
    "serials": kernel.SERIAL,
}
