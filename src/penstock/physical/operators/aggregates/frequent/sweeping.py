"""The sweep over the boundaries of a round: lists come and go, and items become frequent or no longer are."""

from __future__ import annotations

import numba as nb
import numpy as np

from penstock.arrays import Bools, Int64s
from penstock.physical.kernels.compiled import with_room
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.wide import is_greater, normal, share_of

#: Lanes of an item: lists that hold it, recorded count, δ_i of these lists, and the fingerprint of its PER columns.
LISTS, RECORDED, OWN, KEY = 0, 1, 3, 5
ITEM_LANES = 7
#: Lanes of a value of the PER columns: lists, δ, the sum of all counts.
MISSED, TOTAL = 1, 3
PER_LANES = 5
#: Lanes of an event: count, δ_i, 1 on the first item of a list, and on it the sum of all counts of the pane.
COUNT, DELTA, FIRST, ALL = 0, 2, 4, 5
EVENT_LANES = 7
#: Rows about an item: recorded, upper and missed counts, as pairs.
MEASURE_LANES = 6
#: What an item is compared with: a number, a fraction of all counts; 0 stands for δ.
BY_NUMBER, BY_SHARE = 1, 2


@compiled(reads="item per")
def _measure(item: Int64s, per: Int64s, rule: int, possibly: bool, first: int, second: int, out: Int64s) -> bool:
    """Fill the measures of an item; return whether it is frequent. first, second: the pair of a number, or numerator
    and denominator."""
    out[0], out[1] = item[RECORDED], item[RECORDED + 1]
    out[2] = item[RECORDED] + per[MISSED] - item[OWN]
    out[3] = item[RECORDED + 1] + per[MISSED + 1] - item[OWN + 1]
    out[4], out[5] = per[MISSED], per[MISSED + 1]
    if item[LISTS] == 0:
        return False
    high, low = per[MISSED], per[MISSED + 1]
    if rule == BY_NUMBER:
        high, low = first, second
    elif rule == BY_SHARE:
        high, low = share_of(per[TOTAL], per[TOTAL + 1], first, second)
    if possibly:
        return bool(is_greater(out[2], out[3], high, low))
    return bool(is_greater(out[0], out[1], high, low))


@compiled(reads="items pers per_of")
def measures(
    items: Int64s, pers: Int64s, per_of: Int64s, count: int, rule: int, possibly: bool, first: int, second: int
) -> tuple[Int64s, Bools]:
    """Return the measures of the items in slots below `count`, by (slot, lane), and which of them are frequent."""
    shown = np.empty((count, MEASURE_LANES), np.int64)
    live = np.empty(count, np.bool_)
    for slot in range(count):
        live[slot] = _measure(items[slot], pers[per_of[slot]], rule, possibly, first, second, shown[slot])
    return shown, live


@nb.njit
def _differs(one: Int64s, other: Int64s, emitted: Bools) -> bool:
    for m in range(emitted.shape[0]):
        if emitted[m] and normal(one[2 * m], one[2 * m + 1]) != normal(other[2 * m], other[2 * m + 1]):
            return True
    return False


@compiled(reads="slots pers_of_events times signs lanes order per_of emitted")
def sweep(
    slots: Int64s,
    pers_of_events: Int64s,
    times: Int64s,
    signs: Int64s,
    lanes: Int64s,
    order: Int64s,
    per_of: Int64s,
    emitted: Bools,
    items: Int64s,
    pers: Int64s,
    shown: Int64s,
    live: Bools,
    rule: int,
    possibly: bool,
    first: int,
    second: int,
) -> Int64s:
    """Apply events in `order`, which is by time, to items and pers, by (slot, lane). shown, live: the measures before,
    which become those after. emitted: which measures are emitted. Return rows (slot, time, live, measures...), one
    for every change of an item, by lane."""
    dirty = np.full(pers.shape[0], -1, np.int64)
    rows = np.empty((3 + MEASURE_LANES, 64), np.int64)
    now = np.empty(MEASURE_LANES, np.int64)
    count = 0
    size = per_of.shape[0]
    i = 0
    while i < order.shape[0]:
        time = times[order[i]]
        start = i
        while i < order.shape[0] and times[order[i]] == time:
            event = order[i]
            item, per, sign = items[slots[event]], pers[pers_of_events[event]], signs[event]
            item[LISTS] += sign
            for k in range(2):
                item[RECORDED + k] += sign * lanes[event, COUNT + k]
                item[OWN + k] += sign * lanes[event, DELTA + k]
                per[TOTAL + k] += sign * lanes[event, ALL + k]
                per[MISSED + k] += sign * lanes[event, FIRST] * lanes[event, DELTA + k]
            per[0] += sign * lanes[event, FIRST]
            dirty[pers_of_events[event]] = start
            i += 1
        for slot in range(size):
            if dirty[per_of[slot]] != start:
                continue
            frequent = _measure(items[slot], pers[per_of[slot]], rule, possibly, first, second, now)
            if frequent != live[slot] or (frequent and _differs(now, shown[slot], emitted)):
                rows = with_room(rows, count, count + 1)
                rows[0, count], rows[1, count], rows[2, count] = slot, time, frequent
                for k in range(MEASURE_LANES):
                    rows[3 + k, count] = now[k]
                count += 1
            live[slot] = frequent
            for k in range(MEASURE_LANES):
                shown[slot, k] = now[k]
    return rows[:, :count]
