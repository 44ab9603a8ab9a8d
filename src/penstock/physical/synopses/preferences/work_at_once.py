"""The work of an instant at which nothing waits and the budget covers all of it: no entry has a place in the queue.

Each element then makes one entry, which zones do not divide, or one for each candidate. New entries of an element
follow each other, and begin at the same candidate.
"""

from __future__ import annotations

from penstock.compilation import loop
from penstock.physical.synopses.preferences.layout import (
    BASES,
    CURSOR,
    DONE,
    EXP,
    LATEST,
    MADE_ENTRIES,
    ONE_UNIT,
    ORDER,
    PAIRS,
    PREVIOUS,
    R_AT,
    R_MADE,
    R_PARTNER,
    R_PROMISING,
    R_SIDE,
    R_X,
    STAGE,
    UNITS_DONE,
    UNRATED,
    X,
)
from penstock.physical.synopses.preferences.work_rows import grown


@loop
def units_at_once(fresh, first, last, at, most, side0, side1, numbers):  # type: ignore[no-untyped-def]
    """Return the units of the new entries `first` to before `last`; where they are more than `most`, any such
    number."""
    units, order = 0, -1
    for k in range(first, last):
        if units > most:
            break
        if fresh[k, STAGE] == ONE_UNIT:
            units += 1
        elif fresh[k, ORDER] != order:
            order = fresh[k, ORDER]
            others, base = (side0, numbers[BASES]) if order & 1 else (side1, numbers[BASES + 1])
            units += 1
            number = fresh[k, CURSOR]
            while units <= most and number >= base and others[number - base, LATEST] > at:
                units += others[number - base, EXP] > at
                number = others[number - base, PREVIOUS]
    return units


@loop
def work_at_once(fresh, first, last, at, side0, side1, numbers, out, out_ranks, count):  # type: ignore[no-untyped-def]
    """Do all units of the new entries `first` to before `last`; return the results, their floats, and how many."""
    order, entries, look_ups, begin = -1, 0, 0, count
    for k in range(first, last):
        if fresh[k, STAGE] == ONE_UNIT:
            entries += 1
            out, out_ranks = grown(out, out_ranks, count)
            _say_pair(fresh, k, fresh[k, CURSOR], at, out, out_ranks, count)
            count += 1
        elif fresh[k, ORDER] != order:
            order = fresh[k, ORDER]
            others, base = (side0, numbers[BASES]) if order & 1 else (side1, numbers[BASES + 1])
            entries += 1
            look_ups += 1
            number = fresh[k, CURSOR]
            while number >= base and others[number - base, LATEST] > at:
                if others[number - base, EXP] > at:
                    out, out_ranks = grown(out, out_ranks, count)
                    _say_pair(fresh, k, number, at, out, out_ranks, count)
                    count += 1
                number = others[number - base, PREVIOUS]
    numbers[MADE_ENTRIES] += entries
    numbers[DONE] += entries
    numbers[PAIRS] += count - begin
    numbers[UNITS_DONE] += look_ups + count - begin
    return out, out_ranks, count


@loop
def _say_pair(fresh, k, partner, at, out, out_ranks, count):  # type: ignore[no-untyped-def]
    """Add a pair of a new entry, for which there is room."""
    out[count] = 0
    out[count, R_SIDE], out[count, R_X], out[count, R_PARTNER] = fresh[k, ORDER] & 1, fresh[k, X], partner
    out[count, R_AT], out[count, R_MADE], out[count, R_PROMISING] = at, at, UNRATED
    out_ranks[count] = 0.0
