"""The loop over a batch of elements that a summary counts, and of elements that ask it where their partners are.

Slots 0 to depth - 1 hold the sums of the granularities, later ones the zones. Everything depends on the sequence of
elements alone: a batch may be cut anywhere.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Bools, UInt64s
from penstock.compilation import loop
from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.synopses.summaries.contract import (
    clear_slot,
    count_one,
    distinct,
    errs,
    locate,
    pass_on,
    spare,
    survey,
    surveyed,
)
from penstock.physical.synopses.summaries.count_sketch import SketchCells
from penstock.physical.synopses.summaries.exact import ExactCells

#: Columns of a zone. LOW, HIGH: its elements are among those with arrival numbers in [low, high). STRETCH: the number
#: of its oldest stretch of G1's length. BEGIN: the tick of its first element. SERIAL: the number of its chunk, -1 where
#: it has changed since it was written.
LOW, HIGH, ELEMENTS, STRETCH, BEGIN, LEVEL, SERIAL, ZONE_FIELDS = range(8)
#: What is kept of the whole. OPEN: whether the newest zone takes elements. NOW: the number of G1's stretch. NUMBER:
#: the arrival number of the next element.
COUNT, OPEN, NOW, NUMBER, HEADER_FIELDS = range(5)
#: The parameters. LIMIT: the largest number of elements of a granularity.
STRETCH_TICKS, RATE, DEPTH, SQUARE_LIMIT, MINLENGTH, MAXLENGTH, LIMIT, PARAMETERS = range(8)
#: Columns of an estimate. EVENT: the row of the element that asked. IN_ZONE: elements of the zone.
EVENT, ZONE_LOW, ZONE_HIGH, GRANULARITY, ESTIMATE, IN_ZONE, ZONE_STRETCH, ESTIMATE_FIELDS = range(8)
NEVER = -(2**63)
#: The level of a zone of G1 that is not in the sum of G1 yet.
IN_NO_SUM = -1


@loop
def granularity_of(stretch: int, now: int, rate: int, depth: int) -> tuple[int, int]:
    """Return (granularity, number of the zone in it) of what arrived in a stretch, while G1 is the stretch `now`;
    granularity depth + 1 for what is older than all zones.

    G2 holds the last `rate` stretches before `now`; G3 the last `rate` groups of `rate` stretches of those before, as
    far as they have left G2; and so on. Zones of all granularities are aligned to tick 0.
    """
    if stretch >= now:
        return 1, stretch
    if depth < 2:
        return 2, stretch
    if now < NEVER + rate + 1 or stretch >= now - rate:
        return 2, stretch
    left = now - 1 - rate  # the newest that has left
    for level in range(3, depth + 1):
        stretch //= rate
        left //= rate
        if stretch > left - rate:
            return level, stretch
        left -= rate
    return depth + 1, stretch


@compiled(reads="stretches")
def granularities(stretches: Int64s, now: int, rate: int, depth: int) -> Int64s:
    """Return the granularity of each stretch."""
    made = np.empty(stretches.shape[0], np.int64)
    for i in range(stretches.shape[0]):
        made[i] = granularity_of(stretches[i], now, rate, depth)[0]
    return made


@loop
def room_to_move(
    cells: SketchCells | ExactCells, zones: Int64s, order: Int64s, header: Int64s, parameters: Int64s, now: int
) -> int:
    """Return how many distinct values zones are moved with when `now` comes."""
    needed, largest = 0, 0
    for i in range(header[COUNT]):
        slot = order[i]
        size = distinct(cells, slot)
        level, _ = granularity_of(zones[slot, STRETCH], now, parameters[RATE], parameters[DEPTH])
        if level != zones[slot, LEVEL]:
            needed += size
        largest = max(largest, size)
    return needed + largest


@loop
def move(
    cells: SketchCells | ExactCells, zones: Int64s, order: Int64s, header: Int64s, parameters: Int64s, now: int
) -> None:
    """Let the stretch `now` begin: zones pass to coarser granularities, and those of one zone there are added up."""
    rate, depth = parameters[RATE], parameters[DEPTH]
    header[OPEN], header[NOW] = 0, now
    count, last_level, last_group = 0, 0, 0
    for i in range(header[COUNT]):
        slot = order[i]
        old, left, entered, into = zones[slot, LEVEL], -1, -1, -1
        level, group = granularity_of(zones[slot, STRETCH], now, rate, depth)
        beyond = False
        if level != old:
            if old != IN_NO_SUM:
                left = old - 1
                zones[left, ELEMENTS] -= zones[slot, ELEMENTS]
            beyond = level > depth or zones[level - 1, ELEMENTS] + zones[slot, ELEMENTS] > parameters[LIMIT]
            if not beyond:
                entered = level - 1
                zones[entered, ELEMENTS] += zones[slot, ELEMENTS]
                zones[slot, LEVEL] = level
        if not beyond and count and level > 1 and level == last_level and group == last_group:
            into = order[count - 1]
            zones[into, HIGH] = zones[slot, HIGH]
            zones[into, ELEMENTS] += zones[slot, ELEMENTS]
            zones[into, SERIAL] = -1
        if left >= 0 or entered >= 0 or into >= 0:
            pass_on(cells, slot, left, entered, into)
        if beyond:
            clear_slot(cells, slot)
        if beyond or into >= 0:
            zones[slot, LEVEL] = 0
            continue
        order[count] = slot
        count += 1
        last_level, last_group = level, group
    header[COUNT] = count


@loop
def _free_slot(zones: Int64s, first: int) -> int:
    for slot in range(first, zones.shape[0]):
        if zones[slot, LEVEL] == 0:
            return slot
    return -1


@compiled(reads="ts values known updates")
def run(
    cells: SketchCells | ExactCells,
    zones: Int64s,
    order: Int64s,
    header: Int64s,
    parameters: Int64s,
    ts: Int64s,
    values: UInt64s,
    known: Bools,
    updates: Bools,
    found: Int64s,
    made: Int64s,
    start: int,
) -> tuple[int, int]:
    """Carry out the elements from number `start` on. Return (the number of the first that was not carried out, since
    room is short, or how many there are; the number of estimates made)."""
    depth, rows = parameters[DEPTH], 0
    for i in range(start, ts.shape[0]):
        now = ts[i] // parameters[STRETCH_TICKS]
        if now > header[NOW]:
            if spare(cells) < room_to_move(cells, zones, order, header, parameters, now):
                return i, rows
            move(cells, zones, order, header, parameters, now)
        if not updates[i]:
            if known[i]:
                if rows + header[COUNT] > made.shape[0]:
                    return i, rows
                rows = _ask(cells, zones, order, header, i, values[i], found, made, rows)
            continue
        if known[i] and zones[0, ELEMENTS] < parameters[LIMIT]:
            if header[OPEN] and ts[i] - zones[order[header[COUNT] - 1], BEGIN] >= parameters[MAXLENGTH]:
                header[OPEN] = 0
            if spare(cells) < 2 or not _opened(zones, order, header, depth, ts[i], now):
                return i, rows
            slot = order[header[COUNT] - 1]
            locate(cells, values[i], found)
            count_one(cells, slot, found)
            count_one(cells, 0, found)
            zones[0, ELEMENTS] += 1
            zones[slot, ELEMENTS] += 1
            zones[slot, HIGH] = header[NUMBER] + 1
            zones[slot, SERIAL] = -1
            long = ts[i] - zones[slot, BEGIN] + 1 >= parameters[MINLENGTH]
            if long and errs(cells, slot, parameters[SQUARE_LIMIT]):
                header[OPEN] = 0
        header[NUMBER] += 1
    return ts.shape[0], rows


@loop
def _opened(zones: Int64s, order: Int64s, header: Int64s, depth: int, tick: int, stretch: int) -> bool:
    """Open a zone unless one is open. Return whether there was a slot for it."""
    if header[OPEN]:
        return True
    slot = _free_slot(zones, depth)
    if slot < 0:
        return False
    zones[slot, LOW] = header[NUMBER]
    zones[slot, ELEMENTS] = 0
    zones[slot, STRETCH], zones[slot, BEGIN], zones[slot, LEVEL] = stretch, tick, 1
    order[header[COUNT]] = slot
    header[COUNT] += 1
    header[OPEN] = 1
    return True


@compiled()
def _ask(
    cells: SketchCells | ExactCells,
    zones: Int64s,
    order: Int64s,
    header: Int64s,
    event: int,
    value: np.uint64,
    found: Int64s,
    made: Int64s,
    rows: int,
) -> int:
    """Write the zones with an estimate of at least 1, newest first. Return the number of rows then."""
    locate(cells, value, found)
    survey(cells, zones.shape[0], found)
    level, promising = 0, False
    for i in range(header[COUNT] - 1, -1, -1):
        slot = order[i]
        if zones[slot, LEVEL] != level:
            level = zones[slot, LEVEL]
            promising = surveyed(cells, level - 1, found) >= 1
        if not promising:
            continue
        count = surveyed(cells, slot, found)
        if count < 1:
            continue
        made[rows, EVENT], made[rows, ZONE_LOW], made[rows, ZONE_HIGH] = event, zones[slot, LOW], zones[slot, HIGH]
        made[rows, GRANULARITY], made[rows, ESTIMATE], made[rows, IN_ZONE] = level, count, zones[slot, ELEMENTS]
        made[rows, ZONE_STRETCH] = zones[slot, STRETCH]
        rows += 1
    return rows


def empty_zones(slots: int) -> Int64s:
    """Return zones that are free."""
    return np.zeros((slots, ZONE_FIELDS), np.int64)
