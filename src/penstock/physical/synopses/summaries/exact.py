"""Summaries by exact counts: one cell for each value of each zone.

Cells are found by (value, slot) through a hash table with chains, and are linked by slot. A cell whose count returns to
0 is freed.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from penstock.compilation import loop
from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import UInt64s, _mix
from penstock.physical.synopses.summaries import contract
from penstock.physical.synopses.summaries.contract import SlotCounts, add_slot, clear_slot, for_cells

#: Columns of a cell. NEXT: in its chain, or among the free cells; AFTER, BEFORE: in its slot. -1 for none.
_VALUE, _SLOT, _COUNT, _NEXT, _AFTER, _BEFORE = range(6)
#: Columns of a slot.
_FIRST, _SIZE = range(2)
_STEP = np.uint64(0x9E3779B97F4A7C15)


class ExactCells(NamedTuple):
    """cells: of shape (room, 6). heads: the first cell of each chain, a power of two of them. slots: of shape
    (slots, 2). free: (first free cell, number of free cells)."""

    cells: Int64s
    heads: Int64s
    slots: Int64s
    free: Int64s


class ExactCounts(SlotCounts):
    """Slots that count each value."""

    cells: ExactCells
    located = 1

    def __init__(self) -> None:
        self.cells = _made(64, 8)

    def reserve(self, slots: int, values: int) -> None:
        old = self.cells
        if slots > len(old.slots):
            grown = np.full((max(slots, 2 * len(old.slots)), 2), (-1, 0), np.int64)
            grown[: len(old.slots)] = old.slots
            self.cells = old = old._replace(slots=grown)
        if values > old.free[1]:
            used = len(old.cells) - int(old.free[1])
            made = _made(max(used + values, 2 * len(old.cells)), len(old.slots))
            _copy(old, made)
            self.cells = made

    def counts(self, slot: int) -> tuple[UInt64s, Int64s]:
        keys, counts = _of_slot(self.cells, slot)
        order = np.argsort(keys, kind="stable")
        return keys[order], counts[order]

    def put(self, slot: int, keys: UInt64s, counts: Int64s) -> None:
        self.reserve(slot + 1, len(keys))
        _put(self.cells, slot, keys, counts)

    def summarize(self, slot: int, values: UInt64s) -> None:
        self.put(slot, *np.unique(values, return_counts=True))

    @property
    def held(self) -> int:
        return len(self.cells.cells) - int(self.cells.free[1])

    @property
    def nbytes(self) -> int:
        return int(self.cells.cells.nbytes + self.cells.heads.nbytes + self.cells.slots.nbytes)

    def variance(self, slot: int) -> float:
        return 0.0


def _made(room: int, slots: int) -> ExactCells:
    """Return free cells."""
    cells = np.full((room, 6), -1, np.int64)
    cells[:, _NEXT] = np.arange(1, room + 1)
    cells[-1, _NEXT] = -1
    chains = 1 << (room - 1).bit_length()
    return ExactCells(
        cells, np.full(chains, -1, np.int64), np.full((slots, 2), (-1, 0), np.int64), np.array([0, room], np.int64)
    )


@nb.njit(inline="always")
def _chain(cells: ExactCells, value: int, slot: int) -> int:
    word = _mix(np.uint64(value) + np.uint64(slot + 1) * _STEP)
    return int(np.int64(word & np.uint64(cells.heads.shape[0] - 1)))


@loop
def _find(cells: ExactCells, value: int, slot: int) -> int:
    """Return the cell of a value in a slot, or -1."""
    place = cells.heads[_chain(cells, value, slot)]
    while place >= 0 and (cells.cells[place, _VALUE] != value or cells.cells[place, _SLOT] != slot):
        place = cells.cells[place, _NEXT]
    return int(place)


@compiled()
def _increase(cells: ExactCells, value: int, slot: int, by: int) -> None:
    """Add `by` to the count of a value in a slot; needs a free cell where it has none."""
    place = _find(cells, value, slot)
    if place >= 0:
        cells.cells[place, _COUNT] += by
        if cells.cells[place, _COUNT] == 0:
            _release(cells, place)
        return
    place = cells.free[0]
    cells.free[0] = cells.cells[place, _NEXT]
    cells.free[1] -= 1
    chain = _chain(cells, value, slot)
    first = cells.slots[slot, _FIRST]
    cells.cells[place, _VALUE], cells.cells[place, _SLOT], cells.cells[place, _COUNT] = value, slot, by
    cells.cells[place, _NEXT], cells.heads[chain] = cells.heads[chain], place
    cells.cells[place, _AFTER], cells.cells[place, _BEFORE] = first, -1
    if first >= 0:
        cells.cells[first, _BEFORE] = place
    cells.slots[slot, _FIRST] = place
    cells.slots[slot, _SIZE] += 1


@loop
def _release(cells: ExactCells, place: int) -> None:
    """Remove a cell from its chain and its slot."""
    slot = cells.cells[place, _SLOT]
    chain = _chain(cells, cells.cells[place, _VALUE], slot)
    after, before = cells.cells[place, _AFTER], cells.cells[place, _BEFORE]
    if cells.heads[chain] == place:
        cells.heads[chain] = cells.cells[place, _NEXT]
    else:
        other = cells.heads[chain]
        while cells.cells[other, _NEXT] != place:
            other = cells.cells[other, _NEXT]
        cells.cells[other, _NEXT] = cells.cells[place, _NEXT]
    if before >= 0:
        cells.cells[before, _AFTER] = after
    else:
        cells.slots[slot, _FIRST] = after
    if after >= 0:
        cells.cells[after, _BEFORE] = before
    cells.slots[slot, _SIZE] -= 1
    cells.cells[place, _NEXT] = cells.free[0]
    cells.free[0] = place
    cells.free[1] += 1


@loop
def _copy(old: ExactCells, made: ExactCells) -> None:
    for slot in range(old.slots.shape[0]):
        place = old.slots[slot, _FIRST]
        while place >= 0:
            _increase(made, old.cells[place, _VALUE], slot, old.cells[place, _COUNT])
            place = old.cells[place, _AFTER]


@loop
def _of_slot(cells: ExactCells, slot: int) -> tuple[UInt64s, Int64s]:
    size = cells.slots[slot, _SIZE]
    values, counts = np.empty(size, np.uint64), np.empty(size, np.int64)
    place = cells.slots[slot, _FIRST]
    for i in range(size):
        values[i], counts[i] = np.uint64(cells.cells[place, _VALUE]), cells.cells[place, _COUNT]
        place = cells.cells[place, _AFTER]
    return values, counts


@loop
def _put(cells: ExactCells, slot: int, values: UInt64s, counts: Int64s) -> None:
    for i in range(values.shape[0]):
        _increase(cells, np.int64(values[i]), slot, counts[i])


@for_cells(contract.locate, ExactCells)
def _locate(cells: ExactCells, value: np.uint64, found: Int64s) -> None:
    found[0] = np.int64(value)


@for_cells(contract.count_one, ExactCells)
def _count_one(cells: ExactCells, slot: int, found: Int64s) -> None:
    _increase(cells, found[0], slot, 1)


@for_cells(contract.estimated, ExactCells)
def _estimated(cells: ExactCells, slot: int, found: Int64s) -> int:
    place = _find(cells, found[0], slot)
    return cells.cells[place, _COUNT] if place >= 0 else 0


@for_cells(contract.survey, ExactCells)
def _survey(cells: ExactCells, slots: int, found: Int64s) -> None:
    pass


@for_cells(contract.surveyed, ExactCells)
def _surveyed(cells: ExactCells, slot: int, found: Int64s) -> int:
    place = _find(cells, found[0], slot)
    return cells.cells[place, _COUNT] if place >= 0 else 0


@for_cells(contract.add_slot, ExactCells)
def _add_slot(cells: ExactCells, into: int, other: int, factor: int) -> None:
    place = cells.slots[other, _FIRST]
    while place >= 0:
        after = cells.cells[place, _AFTER]  # read before: adding a slot to itself may release the cell
        _increase(cells, cells.cells[place, _VALUE], into, factor * cells.cells[place, _COUNT])
        place = after


@for_cells(contract.pass_on, ExactCells)
def _pass_on(cells: ExactCells, slot: int, left: int, entered: int, into: int) -> None:
    if left >= 0:
        add_slot(cells, left, slot, -1)
    if entered >= 0:
        add_slot(cells, entered, slot, 1)
    if into >= 0:
        add_slot(cells, into, slot, 1)
        clear_slot(cells, slot)


@for_cells(contract.clear_slot, ExactCells)
def _clear_slot(cells: ExactCells, slot: int) -> None:
    while cells.slots[slot, _FIRST] >= 0:
        _release(cells, cells.slots[slot, _FIRST])


@for_cells(contract.errs, ExactCells)
def _errs(cells: ExactCells, slot: int, limit: int) -> bool:
    return False


@for_cells(contract.spare, ExactCells)
def _spare(cells: ExactCells) -> int:
    return int(cells.free[1])


@for_cells(contract.distinct, ExactCells)
def _distinct(cells: ExactCells, slot: int) -> int:
    return int(cells.slots[slot, _SIZE])
