"""The work of an instant at which nothing waits and the budget covers all of it: no entry has a place in the queue.

Each element then makes one entry, which zones do not divide, or one for each candidate. New entries of an element
follow each other, and begin at the same candidate.
"""

from __future__ import annotations

from penstock.arrays import Records
from penstock.compilation import loop
from penstock.physical.synopses.preferences.layout import (
    ONE_UNIT,
    UNRATED,
    Queue,
)
from penstock.physical.synopses.preferences.work_rows import grown


@loop
def units_at_once(queue: Queue, fresh: Records, first: int, last: int, at: int, most: int) -> int:
    """Return the units of the new entries `first` to before `last`; where they are more than `most`, any such
    number."""
    bases = queue.numbers[0].bases
    units, order = 0, -1
    for k in range(first, last):
        if units > most:
            break
        if fresh[k].stage == ONE_UNIT:
            units += 1
        elif fresh[k].order != order:
            order = fresh[k].order
            others, base = (queue.left, bases[0]) if order & 1 else (queue.right, bases[1])
            units += 1
            number = fresh[k].cursor
            while units <= most and number >= base and others[number - base].latest > at:
                units += others[number - base].exp > at
                number = others[number - base].previous
    return units


@loop
def work_at_once(
    queue: Queue, fresh: Records, first: int, last: int, at: int, out: Records, count: int
) -> tuple[Records, int]:
    """Do all units of the new entries `first` to before `last`; return the results, and how many."""
    numbers, bases = queue.numbers[0], queue.numbers[0].bases
    order, entries, look_ups, begin = -1, 0, 0, count
    for k in range(first, last):
        if fresh[k].stage == ONE_UNIT:
            entries += 1
            out = grown(out, count)
            _say_pair(fresh, k, fresh[k].cursor, at, out, count)
            count += 1
        elif fresh[k].order != order:
            order = fresh[k].order
            others, base = (queue.left, bases[0]) if order & 1 else (queue.right, bases[1])
            entries += 1
            look_ups += 1
            number = fresh[k].cursor
            while number >= base and others[number - base].latest > at:
                if others[number - base].exp > at:
                    out = grown(out, count)
                    _say_pair(fresh, k, number, at, out, count)
                    count += 1
                number = others[number - base].previous
    numbers.made_entries += entries
    numbers.done += entries
    numbers.pairs += count - begin
    numbers.units_done += look_ups + count - begin
    return out, count


@loop
def _say_pair(fresh: Records, k: int, partner: int, at: int, out: Records, count: int) -> None:
    """Add a pair of a new entry, for which there is room."""
    out[count].side, out[count].x, out[count].partner = fresh[k].order & 1, fresh[k].x, partner
    out[count].at, out[count].made, out[count].promising, out[count].product = at, at, UNRATED, 0.0
