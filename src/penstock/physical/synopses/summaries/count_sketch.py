"""Summaries by count sketches: a fixed number of counters for each zone, whatever came [pt 3.2].

The counters of one cell stand side by side for all slots, so that an estimate over all zones reads a few cache lines.
The sums of squares of each row are kept as the counts change: (C ± 1)² - C² = 1 ± 2C.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compilation import loop
from penstock.expressions.sketches.count_sketch import STEP, CountSketchShape
from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import UInt64s, _mix
from penstock.physical.synopses.summaries import contract
from penstock.physical.synopses.summaries.contract import SlotCounts, for_cells, locate

Int32s = npt.NDArray[np.int32]

_STEP = np.uint64(STEP)
_ONE = np.uint64(1)


class SketchCells(NamedTuple):
    """tables: of shape (rows · buckets · counters, slots). squares: of shape (slots, rows). shape: (rows, counters,
    buckets). work: of shape (rows, slots), for the estimates of one value."""

    tables: Int32s
    squares: Int64s
    shape: UInt64s
    work: Int32s


class SketchCounts(SlotCounts):
    """Slots that are count sketches. The largest count is 2³¹ - 1, which is the callers' to keep."""

    cells: SketchCells

    def __init__(self, shape: CountSketchShape) -> None:
        self.shape = shape
        self.located = 3 * shape.rows
        sizes = np.array([shape.rows, shape.counters, shape.buckets], np.uint64)
        tables, squares = np.zeros((shape.cells, 8), np.int32), np.zeros((8, shape.rows), np.int64)
        self.cells = SketchCells(tables, squares, sizes, np.zeros((shape.rows, 8), np.int32))

    def reserve(self, slots: int, values: int) -> None:
        old = self.cells.tables.shape[1]
        if slots <= old:
            return
        room = max(slots, 2 * old)
        tables, squares = np.zeros((self.shape.cells, room), np.int32), np.zeros((room, self.shape.rows), np.int64)
        tables[:, :old], squares[:old] = self.cells.tables, self.cells.squares
        self.cells = SketchCells(tables, squares, self.cells.shape, np.zeros((self.shape.rows, room), np.int32))

    def counts(self, slot: int) -> tuple[UInt64s, Int64s]:
        table = self.cells.tables[:, slot]
        keys = np.flatnonzero(table)
        return keys.astype(np.uint64), table[keys].astype(np.int64)

    def put(self, slot: int, keys: UInt64s, counts: Int64s) -> None:
        self.reserve(slot + 1, 0)
        self.cells.tables[keys.astype(np.int64), slot] = counts
        rows = self.cells.tables[:, slot].reshape(self.shape.rows, self.shape.width).astype(np.int64)
        self.cells.squares[slot] = (rows * rows).sum(axis=1)

    def summarize(self, slot: int, values: UInt64s) -> None:
        self.reserve(slot + 1, 0)
        _count_together(self.cells, slot, values, np.empty(self.located, np.int64))

    @property
    def held(self) -> int:
        return 0

    @property
    def nbytes(self) -> int:
        return int(self.cells.tables.nbytes + self.cells.squares.nbytes)

    def variance(self, slot: int) -> float:
        return float(np.median(self.cells.squares[slot])) / self.shape.counters


@loop
def _median(values: Int64s, start: int, length: int) -> int:
    """Sort a part of `values` in place, of odd length, and return the one in the middle."""
    for i in range(start + 1, start + length):
        value = values[i]
        j = i
        while j > start and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
    return int(values[start + length // 2])


@loop
def _remainder(value: np.uint64, divisor: np.uint64) -> np.uint64:
    """Return value % divisor. A division takes much longer than a mask, which powers of two need."""
    mask = divisor - _ONE
    return value & mask if divisor & mask == np.uint64(0) else value % divisor


@for_cells(contract.locate, SketchCells)
def _locate(cells: SketchCells, value: np.uint64, found: Int64s) -> None:
    rows, counters = cells.shape[0], cells.shape[1]
    start = _remainder(value, cells.shape[2]) * counters
    word = value
    for row in range(np.int64(rows)):
        word += _STEP
        mixed = _mix(word)
        found[row] = np.int64(start + _remainder(mixed >> _ONE, counters))
        found[np.int64(rows) + row] = 1 - 2 * np.int64(mixed & _ONE)
        start += counters * cells.shape[2]


@for_cells(contract.count_one, SketchCells)
def _count_one(cells: SketchCells, slot: int, found: Int64s) -> None:
    rows = np.int64(cells.shape[0])
    for row in range(rows):
        count, sign = np.int64(cells.tables[found[row], slot]), found[rows + row]
        cells.squares[slot, row] += 2 * sign * count + 1
        cells.tables[found[row], slot] = count + sign


@for_cells(contract.estimated, SketchCells)
def _estimated(cells: SketchCells, slot: int, found: Int64s) -> int:
    rows = np.int64(cells.shape[0])
    for row in range(rows):
        found[2 * rows + row] = found[rows + row] * np.int64(cells.tables[found[row], slot])
    return int(max(_median(found, 2 * rows, rows), 0))


@loop
def _medians(tables: Int32s, found: Int64s, rows: int, slots: int, work: Int32s) -> None:
    """Write the medians of all slots at once into the row in the middle of `work`, by a sorting network over rows."""
    for row in range(rows):
        cell, sign = found[row], np.int32(found[rows + row])
        for slot in range(slots):
            work[row, slot] = sign * tables[cell, slot]
    for phase in range(rows):
        for row in range(phase % 2, rows - 1, 2):
            for slot in range(slots):
                low, high = work[row, slot], work[row + 1, slot]
                work[row, slot], work[row + 1, slot] = min(low, high), max(low, high)


@for_cells(contract.survey, SketchCells)
def _survey(cells: SketchCells, slots: int, found: Int64s) -> None:
    _medians(cells.tables, found, np.int64(cells.shape[0]), slots, cells.work)


@for_cells(contract.surveyed, SketchCells)
def _surveyed(cells: SketchCells, slot: int, found: Int64s) -> int:
    median: int = cells.work[np.int64(cells.shape[0]) // 2, slot]
    return max(median, 0)


@for_cells(contract.add_slot, SketchCells)
def _add_slot(cells: SketchCells, into: int, other: int, factor: int) -> None:
    width = cells.tables.shape[0] // np.int64(cells.shape[0])
    for row in range(np.int64(cells.shape[0])):
        squares = np.int64(0)
        for cell in range(row * width, (row + 1) * width):
            count = np.int64(cells.tables[cell, into]) + factor * np.int64(cells.tables[cell, other])
            cells.tables[cell, into] = count
            squares += count * count
        cells.squares[into, row] = squares


@for_cells(contract.pass_on, SketchCells)
def _pass_on(cells: SketchCells, slot: int, left: int, entered: int, into: int) -> None:
    # All at once, since the counters of different cells are far from each other; and without branches.
    from_it, to_it, merged = np.int64(left >= 0), np.int64(entered >= 0), np.int64(into >= 0)
    first = left if left >= 0 else slot
    second = entered if entered >= 0 else slot
    third = into if into >= 0 else slot
    width = cells.tables.shape[0] // np.int64(cells.shape[0])
    for row in range(np.int64(cells.shape[0])):
        squares = np.int64(0)
        for cell in range(row * width, (row + 1) * width):
            count = np.int64(cells.tables[cell, slot])
            cells.tables[cell, first] -= from_it * count
            cells.tables[cell, second] += to_it * count
            whole = np.int64(cells.tables[cell, third]) + merged * count
            cells.tables[cell, third] = whole
            cells.tables[cell, slot] = (1 - merged) * count
            squares += whole * whole
        cells.squares[third, row] = squares
        cells.squares[slot, row] *= 1 - merged


@for_cells(contract.clear_slot, SketchCells)
def _clear_slot(cells: SketchCells, slot: int) -> None:
    cells.tables[:, slot] = 0
    cells.squares[slot, :] = 0


@for_cells(contract.errs, SketchCells)
def _errs(cells: SketchCells, slot: int, limit: int) -> bool:
    # The median is above it where more than half of an odd number of rows are.
    rows, above = np.int64(cells.shape[0]), 0
    for row in range(rows):
        above += cells.squares[slot, row] > limit
    return bool(above > rows // 2)


@for_cells(contract.spare, SketchCells)
def _spare(cells: SketchCells) -> int:
    return 2**62


@for_cells(contract.distinct, SketchCells)
def _distinct(cells: SketchCells, slot: int) -> int:
    return 0


@compiled(reads="values")
def _count_together(cells: SketchCells, slot: int, values: UInt64s, found: Int64s) -> None:
    """Count values in a slot. The squares follow from the counts at the end."""
    rows, width = np.int64(cells.shape[0]), cells.tables.shape[0] // np.int64(cells.shape[0])
    fresh = np.zeros(cells.tables.shape[0], np.int32)
    for i in range(values.shape[0]):
        locate(cells, values[i], found)
        for row in range(rows):
            fresh[found[row]] += found[rows + row]
    for row in range(rows):
        squares = 0
        for cell in range(row * width, (row + 1) * width):
            count = np.int64(cells.tables[cell, slot]) + fresh[cell]
            cells.tables[cell, slot] = count
            squares += count * count
        cells.squares[slot, row] = squares
