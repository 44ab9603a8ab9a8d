"""The compiled loop over instants of `jumping_window.py`: one pass over the instants of a round, a few steps per
element.

An element of the log waits for the evaluation at which it enters, is in the window, or is dropped. `lists` has, by
substream, the first element in the log, the last, and the first that may be waiting; `places` the positions in the log
of the first waiting element, the first that is not too old, and the first waiting one that may be too old.
"""

from __future__ import annotations

from penstock.compilation import loop
from penstock.physical.kernels.compiling import compiled

WAITING, HELD, GONE = 0, 1, 2
_HEAD, _TAIL, _FRESH = 0, 1, 2
_COUNT, _SEEN, _SEEN_TS = 0, 1, 2


@loop
def _append(row, slot, following, lists):  # type: ignore[no-untyped-def]
    following[row] = -1
    if lists[_HEAD, slot] < 0:
        lists[_HEAD, slot] = row
    if lists[_TAIL, slot] >= 0:
        following[lists[_TAIL, slot]] = row
    lists[_TAIL, slot] = row
    if lists[_FRESH, slot] < 0:
        lists[_FRESH, slot] = row


@loop
def link(slots, following, state, lists, places, size):  # type: ignore[no-untyped-def]
    """Rebuild the lists over a log whose elements are in the states `state`."""
    lists[:] = -1
    fresh = size
    for row in range(size):
        if state[row] == GONE:
            continue
        slot = slots[row]
        following[row] = -1
        if lists[_HEAD, slot] < 0:
            lists[_HEAD, slot] = row
        else:
            following[lists[_TAIL, slot]] = row
        lists[_TAIL, slot] = row
        if state[row] == WAITING:
            if lists[_FRESH, slot] < 0:
                lists[_FRESH, slot] = row
            fresh = min(fresh, row)
    places[0] = fresh
    places[1] = 0
    places[2] = 0


@loop
def run(  # type: ignore[no-untyped-def]
    numbers,
    ticks,
    rows,
    boundary,
    slots,
    most,
    length,
    every,
    alone,
    slide,
    align,
    keyed,
    base,
    l_ts,
    l_number,
    l_slot,
    following,
    state,
    lists,
    counts,
    marks,
    places,
    start,
    end,
    taken,
    old,
    ended,
    evaluations,
):
    """Feed the instants. most, length: of the window, -1 for no limit; every, slide: 0 for none. Elements of the log
    from `base` on are new: `taken` has which of the new ones each is, `start` and `end` their lives (start 0: not
    come in yet). evaluations: whether each instant is one. `old`, `ended`: elements from before that come in (the
    instant) or go (minus the instant). Return (size of the log, number of those)."""
    size = base
    out = 0
    immediate = every == 0 and slide == 0
    for i in range(numbers.shape[0]):
        instant = numbers[i]
        tick = ticks[i]
        own = rows[i]
        evaluated = immediate
        slot = -1
        if own >= 0:
            slot = slots[own]
            marks[0] += 1
            counts[_COUNT, slot] += 1
            number = counts[_COUNT, slot]
            counted = number if alone else marks[0]
            if every > 0:
                evaluated = counted % every == 0
            needed = True
            if most >= 0 and every > 0 and (alone or not keyed):
                needed = -(-counted // every) * every - counted < most
            elif most < 0 and length >= 0 and slide > 0:
                needed = align - (align - tick) // slide * slide < tick + length
            if needed:
                l_ts[size] = tick
                l_number[size] = number
                l_slot[size] = slot
                state[size] = WAITING
                taken[size - base] = own
                start[size - base] = 0
                _append(size, slot, following, lists)
                size += 1
            if most >= 0 and not alone:
                # An element that is pushed out while it waits never enters the window.
                row = lists[_FRESH, slot]
                while row >= 0 and (state[row] != WAITING or l_number[row] <= number - most):
                    if state[row] == WAITING:
                        state[row] = GONE
                    row = following[row]
                lists[_FRESH, slot] = row
        if slide > 0:
            evaluated = boundary[i]
        if length >= 0:
            while places[2] < size and l_ts[places[2]] + length <= tick:
                if state[places[2]] == WAITING:
                    state[places[2]] = GONE
                places[2] += 1
        marks[2] = tick
        # Without FREQUENCY the window is evaluated at every arrival on its own stream; changes of other streams are
        # emitted by the operators above.
        evaluations[i] = own >= 0 if immediate else evaluated
        if not evaluated:
            continue
        if alone:
            row = lists[_HEAD, slot]
            limit = counts[_COUNT, slot] - most
            while row >= 0 and state[row] != WAITING:
                if state[row] == HELD:
                    if not ((most >= 0 and l_number[row] <= limit) or (length >= 0 and l_ts[row] + length <= tick)):
                        break
                    out = _go(row, instant, base, state, end, old, ended, out)
                row = following[row]
            lists[_HEAD, slot] = row
            row = lists[_FRESH, slot]
            while row >= 0:
                if state[row] == WAITING:
                    out = _come(row, instant, base, most, length, state, start, old, ended, out)
                row = following[row]
            lists[_FRESH, slot] = -1
            counts[_SEEN, slot] = counts[_COUNT, slot]
            counts[_SEEN_TS, slot] = tick
            continue
        if most >= 0 and not keyed and not immediate and marks[0] > 0:
            # Elements that no evaluation reads increase the count of the one substream too, which has number 0.
            out = _push_out(0, instant, base, most, l_number, following, state, lists, counts, end, old, ended, out)
            counts[_SEEN, 0] = counts[_COUNT, 0]
        for row in range(places[0], size):
            own_slot = l_slot[row]
            if state[row] == WAITING:
                out = _come(row, instant, base, most, length, state, start, old, ended, out)
            lists[_FRESH, own_slot] = -1
            counts[_SEEN, own_slot] = counts[_COUNT, own_slot]
            if most >= 0:
                out = _push_out(
                    own_slot, instant, base, most, l_number, following, state, lists, counts, end, old, ended, out
                )
        places[0] = size
        if length >= 0:
            while places[1] < size and l_ts[places[1]] + length <= tick:
                if state[places[1]] == HELD:
                    out = _go(places[1], instant, base, state, end, old, ended, out)
                places[1] += 1
        marks[1] = tick
    return size, out


@compiled()
def _push_out(  # type: ignore[no-untyped-def]
    slot, instant, base, most, l_number, following, state, lists, counts, end, old, ended, out
):
    """End the elements of a substream that its newest elements have pushed out of the window."""
    row = lists[_HEAD, slot]
    limit = counts[_COUNT, slot] - most
    while row >= 0 and (state[row] == GONE or (state[row] == HELD and l_number[row] <= limit)):
        if state[row] == HELD:
            out = _go(row, instant, base, state, end, old, ended, out)
        row = following[row]
    lists[_HEAD, slot] = row
    return out


@compiled()
def _come(row, instant, base, most, length, state, start, old, ended, out):  # type: ignore[no-untyped-def]
    state[row] = GONE if most < 0 and length < 0 else HELD
    if row >= base:
        start[row - base] = instant
    else:
        old[out] = row
        ended[out] = instant
        out += 1
    return out


@compiled()
def _go(row, instant, base, state, end, old, ended, out):  # type: ignore[no-untyped-def]
    state[row] = GONE
    if row >= base:
        end[row - base] = instant
    else:
        old[out] = row
        ended[out] = -instant
        out += 1
    return out
