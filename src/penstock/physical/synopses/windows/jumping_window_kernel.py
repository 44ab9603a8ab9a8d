"""The compiled loop over instants of `jumping_window.py`: one pass over the instants of a round, a few steps per
element.

An element of the log waits for the evaluation at which it enters, is in the window, or is dropped.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.arrays import Bools, Int64s, Records, record_of
from penstock.physical.kernels.compiling import compiled

WAITING, HELD, GONE = 0, 1, 2

#: An element of the log. number: in its substream, `slot`; following: the element behind it there; state: WAITING..
LOGGED = record_of("ts", "number", "slot", "following", "state")
#: By substream, elements of the log: the first, the last, and the first that may be waiting.
LIST = record_of("head", "tail", "fresh")
#: Lanes of a substream: elements counted, counted at the last evaluation, its timestamp.
COUNT, SEEN, SEEN_TS = range(3)
#: Single numbers.
MARKS = record_of(
    "counted",  # elements in all
    "last_evaluation",  # its tick
    "last_instant",
    # Positions in the log: of the first waiting element, of the first that is not too old, and of the first waiting one
    # that may be too old.
    "waiting",
    "young",
    "unsure",
)
#: most, length: of the window, -1 for no limit; every, slide: 0 for none.
SHAPE = record_of("most", "length", "every", "alone", "slide", "align", "keyed")
#: A new element of the log: which of the given ones it is, and its life. start: 0 where it has not come in yet.
NEW = record_of("taken", "start", "end")
#: An element from before that comes in at the instant `at`, or goes at minus that.
CHANGE = record_of("row", "at")


class WindowState(NamedTuple):
    """What the loop reads and changes. counts: by (lane, substream); marks, shape: one record each; elements of the log
    from `base` on are `new`."""

    log: Records
    lists: Records
    counts: Int64s
    marks: Records
    shape: Records
    new: Records
    changes: Records
    base: int


@compiled(counted=False)
def _append(log: Records, lists: Records, row: int, slot: int) -> None:
    log[row].following = -1
    if lists[slot].head < 0:
        lists[slot].head = row
    if lists[slot].tail >= 0:
        log[lists[slot].tail].following = row
    lists[slot].tail = row
    if lists[slot].fresh < 0:
        lists[slot].fresh = row


@compiled(counted=False)
def link(log: Records, lists: Records, marks: Records, size: int) -> None:
    """Rebuild the lists over a log by the states of its elements."""
    for slot in range(lists.shape[0]):
        lists[slot].head = lists[slot].tail = lists[slot].fresh = -1
    fresh = size
    for row in range(size):
        if log[row].state == GONE:
            continue
        slot = log[row].slot
        log[row].following = -1
        if lists[slot].head < 0:
            lists[slot].head = row
        else:
            log[lists[slot].tail].following = row
        lists[slot].tail = row
        if log[row].state == WAITING:
            if lists[slot].fresh < 0:
                lists[slot].fresh = row
            fresh = min(fresh, row)
    marks[0].waiting, marks[0].young, marks[0].unsure = fresh, 0, 0


@compiled(counted=False)
def run(
    window: WindowState,
    numbers: Int64s,
    ticks: Int64s,
    rows: Int64s,
    boundary: Bools,
    slots: Int64s,
    evaluations: Bools,
) -> tuple[int, int]:
    """Feed the instants. evaluations: whether each instant is one. Return (size of the log, number of changes)."""
    log, lists, counts = window.log, window.lists, window.counts
    new, changes, base = window.new, window.changes, window.base
    marks, shape = window.marks[0], window.shape[0]
    most, length, every, slide, align = shape.most, shape.length, shape.every, shape.slide, shape.align
    alone, keyed = shape.alone != 0, shape.keyed != 0
    size = base
    out = 0
    immediate = every == 0 and slide == 0
    entered = GONE if most < 0 and length < 0 else HELD
    for i in range(numbers.shape[0]):
        instant = numbers[i]
        tick = ticks[i]
        own = rows[i]
        evaluated = immediate
        slot = -1
        if own >= 0:
            slot = slots[own]
            marks.counted += 1
            counts[COUNT, slot] += 1
            number = counts[COUNT, slot]
            counted = number if alone else marks.counted
            if every > 0:
                evaluated = counted % every == 0
            needed = True
            if most >= 0 and every > 0 and (alone or not keyed):
                needed = -(-counted // every) * every - counted < most
            elif most < 0 and length >= 0 and slide > 0:
                needed = align - (align - tick) // slide * slide < tick + length
            if needed:
                log[size].ts, log[size].number, log[size].slot, log[size].state = tick, number, slot, WAITING
                new[size - base].taken, new[size - base].start = own, 0
                _append(log, lists, size, slot)
                size += 1
            if most >= 0 and not alone:
                # An element that is pushed out while it waits never enters the window.
                row = lists[slot].fresh
                while row >= 0 and (log[row].state != WAITING or log[row].number <= number - most):
                    if log[row].state == WAITING:
                        log[row].state = GONE
                    row = log[row].following
                lists[slot].fresh = row
        if slide > 0:
            evaluated = boundary[i]
        if length >= 0:
            while marks.unsure < size and log[marks.unsure].ts + length <= tick:
                if log[marks.unsure].state == WAITING:
                    log[marks.unsure].state = GONE
                marks.unsure += 1
        marks.last_instant = tick
        # Without FREQUENCY the window is evaluated at every arrival on its own stream; changes of other streams are
        # emitted by the operators above.
        evaluations[i] = own >= 0 if immediate else evaluated
        if not evaluated:
            continue
        if alone:
            row = lists[slot].head
            limit = counts[COUNT, slot] - most
            while row >= 0 and log[row].state != WAITING:
                if log[row].state == HELD:
                    if not ((most >= 0 and log[row].number <= limit) or (length >= 0 and log[row].ts + length <= tick)):
                        break
                    out = _go(log, new, changes, base, row, instant, out)
                row = log[row].following
            lists[slot].head = row
            row = lists[slot].fresh
            while row >= 0:
                if log[row].state == WAITING:
                    out = _come(log, new, changes, base, row, instant, entered, out)
                row = log[row].following
            lists[slot].fresh = -1
            counts[SEEN, slot] = counts[COUNT, slot]
            counts[SEEN_TS, slot] = tick
            continue
        if most >= 0 and not keyed and not immediate and marks.counted > 0:
            # Elements that no evaluation reads increase the count of the one substream too, which has number 0.
            out = _push_out(log, lists, new, changes, base, 0, counts[COUNT, 0] - most, instant, out)
            counts[SEEN, 0] = counts[COUNT, 0]
        for row in range(marks.waiting, size):
            own_slot = log[row].slot
            if log[row].state == WAITING:
                out = _come(log, new, changes, base, row, instant, entered, out)
            lists[own_slot].fresh = -1
            counts[SEEN, own_slot] = counts[COUNT, own_slot]
            if most >= 0:
                limit = counts[COUNT, own_slot] - most
                out = _push_out(log, lists, new, changes, base, own_slot, limit, instant, out)
        marks.waiting = size
        if length >= 0:
            while marks.young < size and log[marks.young].ts + length <= tick:
                if log[marks.young].state == HELD:
                    out = _go(log, new, changes, base, marks.young, instant, out)
                marks.young += 1
        marks.last_evaluation = tick
    return size, out


@compiled(counted=False)
def _push_out(
    log: Records,
    lists: Records,
    new: Records,
    changes: Records,
    base: int,
    slot: int,
    limit: int,
    instant: int,
    out: int,
) -> int:
    """End the elements of a substream that its newest elements have pushed out of the window, whose number is up to
    `limit`."""
    row = lists[slot].head
    while row >= 0 and (log[row].state == GONE or (log[row].state == HELD and log[row].number <= limit)):
        if log[row].state == HELD:
            out = _go(log, new, changes, base, row, instant, out)
        row = log[row].following
    lists[slot].head = row
    return out


@compiled(counted=False)
def _come(log: Records, new: Records, changes: Records, base: int, row: int, instant: int, state: int, out: int) -> int:
    log[row].state = state
    if row >= base:
        new[row - base].start = instant
        return out
    changes[out].row, changes[out].at = row, instant
    return out + 1


@compiled(counted=False)
def _go(log: Records, new: Records, changes: Records, base: int, row: int, instant: int, out: int) -> int:
    log[row].state = GONE
    if row >= base:
        new[row - base].end = instant
        return out
    changes[out].row, changes[out].at = row, -instant
    return out + 1
