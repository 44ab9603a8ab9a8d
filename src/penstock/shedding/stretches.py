"""Entries come and go: the lists of values, the stretches in them, and what is redundant.

All functions change the arrays in place. They are those of a `Shedder`, passed one by one, since compiled
loops take no objects.
"""

from __future__ import annotations

from penstock.shedding.compiled import loop
from penstock.shedding.costs import cost_of, is_redundant
from penstock.shedding.heaps import goes_first, put, take
from penstock.shedding.layout import (
    ALWAYS,
    BEGIN_,
    CANDIDATE,
    COST,
    COSTS,
    COUNT,
    COVERED,
    END_,
    FREE_ENTRIES,
    FREE_STRETCHES,
    GROWING,
    GROWING_COST,
    GROWINGS,
    HEAD,
    INNER,
    KNOWS,
    LAST,
    LAST_END,
    LEAST_BEGIN,
    LEFT,
    LOST_LEFT,
    LOST_RIGHT,
    NEVER,
    NEXT,
    PREVIOUS,
    REACH,
    REACHED_BY,
    RECHECK,
    RECHECKS,
    REDUNDANTS,
    RIGHT,
    SCANS,
    SEEKS,
    SIZE,
    SLOT,
    STRETCH,
    TAIL,
    UNIT,
)


@loop
def _mark(items, places, sizes, entries, stretches, values, parameters, i, inner):  # type: ignore[no-untyped-def]
    """Note whether entry i is an inner one of its stretch."""
    if i >= 0 and entries[i, INNER] != inner:
        entries[i, INNER] = inner
        if places[REDUNDANTS, i] >= 0:
            put(REDUNDANTS, i, items, places, sizes, entries, stretches, values, parameters)


@loop
def _withdraw(items, places, sizes, entries, stretches, values, parameters, s):  # type: ignore[no-untyped-def]
    """Take the candidates of stretch s out of the heaps, before what they are ordered by changes."""
    if parameters[UNIT] == 2:
        take(COSTS, s, items, places, sizes, entries, stretches, values, parameters)
        take(GROWINGS, s, items, places, sizes, entries, stretches, values, parameters)


@loop
def _unmark(items, places, sizes, entries, stretches, values, parameters, s):  # type: ignore[no-untyped-def]
    _mark(items, places, sizes, entries, stretches, values, parameters, stretches[s, LEFT], 1)
    _mark(items, places, sizes, entries, stretches, values, parameters, stretches[s, RIGHT], 1)
    stretches[s, LEFT] = stretches[s, RIGHT] = -1


@loop
def refresh(items, places, sizes, entries, stretches, values, numbers, parameters, s, spared):  # type: ignore[no-untyped-def]
    """Find the candidates of stretch s again. spared: an entry that is none, or -1."""
    if parameters[UNIT] != 2 or not numbers[SEEKS]:
        return
    left, right = stretches[s, HEAD], entries[stretches[s, TAIL], REACHED_BY]
    if stretches[s, LEFT] != left or stretches[s, RIGHT] != right:
        _unmark(items, places, sizes, entries, stretches, values, parameters, s)
        stretches[s, LEFT], stretches[s, RIGHT] = left, right
        _mark(items, places, sizes, entries, stretches, values, parameters, left, 0)
        _mark(items, places, sizes, entries, stretches, values, parameters, right, 0)
    best, least, recheck, grows = -1, 0, NEVER, False
    i = left
    while True:
        if i != spared and places[REDUNDANTS, i] < 0:
            cost, pieces, soon = cost_of(entries, stretches, numbers, parameters, i)
            recheck = min(recheck, soon)
            if parameters[KNOWS] and i == right and pieces > 0 and entries[right, END_] >= numbers[LEAST_BEGIN]:
                grows = True
                stretches[s, GROWING], stretches[s, GROWING_COST] = i, cost
            elif best < 0 or cost < least or (cost == least and goes_first(entries, parameters, i, best)):
                best, least = i, cost
        if parameters[SCANS]:
            if i == stretches[s, TAIL]:
                break
            i = entries[i, NEXT]
        elif i == right:
            break
        else:
            i = right
    if parameters[KNOWS] and entries[right, END_] >= numbers[LEAST_BEGIN]:
        recheck = min(recheck, entries[right, END_])
    if best >= 0:
        stretches[s, CANDIDATE], stretches[s, COST] = best, least
        put(COSTS, s, items, places, sizes, entries, stretches, values, parameters)
    else:
        take(COSTS, s, items, places, sizes, entries, stretches, values, parameters)
    if grows:
        put(GROWINGS, s, items, places, sizes, entries, stretches, values, parameters)
    else:
        take(GROWINGS, s, items, places, sizes, entries, stretches, values, parameters)
    if parameters[KNOWS] and recheck != NEVER and numbers[LEAST_BEGIN] != ALWAYS:
        stretches[s, RECHECK] = recheck
        put(RECHECKS, s, items, places, sizes, entries, stretches, values, parameters)
    else:
        take(RECHECKS, s, items, places, sizes, entries, stretches, values, parameters)


@loop
def judge(items, places, sizes, entries, stretches, values, parameters, i):  # type: ignore[no-untyped-def]
    """Note whether entry i is redundant."""
    if is_redundant(entries, i):
        if places[REDUNDANTS, i] < 0:
            put(REDUNDANTS, i, items, places, sizes, entries, stretches, values, parameters)
    else:
        take(REDUNDANTS, i, items, places, sizes, entries, stretches, values, parameters)


@loop
def _judge_around(  # type: ignore[no-untyped-def]
    items,
    places,
    sizes,
    entries,
    stretches,
    values,
    parameters,
    before,
    following,
    begin,
    end,
):
    """Judge those around [begin, end), which came or went between `before` and `following`.

    The one before covers what an earlier one that ends no later has in common with the period, and so on: the walk ends
    where no tuple beyond reaches further.
    """
    covered = begin
    i = before
    while i >= 0 and entries[i, REACH] > covered:
        if entries[i, END_] > covered:
            judge(items, places, sizes, entries, stretches, values, parameters, i)
            covered = entries[i, END_]
        i = entries[i, PREVIOUS]
    i = following
    covered = begin
    while i >= 0 and entries[i, BEGIN_] < end and covered < end:
        if min(entries[i, END_], end) > covered:
            judge(items, places, sizes, entries, stretches, values, parameters, i)
            covered = max(covered, entries[i, END_])
        i = entries[i, NEXT]


@loop
def _free_stretch(items, places, sizes, entries, stretches, values, numbers, parameters, free_stretches, s):  # type: ignore[no-untyped-def]
    _withdraw(items, places, sizes, entries, stretches, values, parameters, s)
    take(RECHECKS, s, items, places, sizes, entries, stretches, values, parameters)
    free_stretches[numbers[FREE_STRETCHES]] = s
    numbers[FREE_STRETCHES] += 1


@loop
def _new_stretch(stretches, numbers, free_stretches):  # type: ignore[no-untyped-def]
    numbers[FREE_STRETCHES] -= 1
    s = free_stretches[numbers[FREE_STRETCHES]]
    stretches[s, LOST_LEFT] = stretches[s, LOST_RIGHT] = 0
    stretches[s, LEFT] = stretches[s, RIGHT] = -1
    return s


@loop
def place_of(entries, stretches, values, slot, begin, end):  # type: ignore[no-untyped-def]
    """Return the entries before and behind which [begin, end) belongs in the list of a value; -1 for none."""
    before, following = values[slot, LAST], -1
    while before >= 0:
        if entries[before, BEGIN_] < begin or (entries[before, BEGIN_] == begin and entries[before, END_] >= end):
            break
        first = stretches[entries[before, STRETCH], HEAD]
        following = first if entries[first, BEGIN_] > begin else before
        before = entries[following, PREVIOUS]
    return before, following


@loop
def insert(  # type: ignore[no-untyped-def]
    items,
    places,
    sizes,
    entries,
    stretches,
    values,
    numbers,
    parameters,
    free_stretches,
    i,
    before,
    following,
):
    """Insert entry i, whose SLOT, period and so on are set, between two entries of its list."""
    slot, begin, end = entries[i, SLOT], entries[i, BEGIN_], entries[i, END_]
    entries[i, PREVIOUS], entries[i, NEXT], entries[i, INNER] = before, following, 1
    if before >= 0:
        entries[before, NEXT] = i
    if following >= 0:
        entries[following, PREVIOUS] = i
    else:
        values[slot, LAST] = i
    values[slot, COUNT] += 1
    values[slot, LAST_END] = max(values[slot, LAST_END], end)
    touches = before >= 0 and entries[before, REACH] >= begin
    # The stretches that are touched, as they were.
    old_begin, old_left, old_end, old_right, found = begin, 0, begin, 0, False
    if touches:
        s = entries[before, STRETCH]
        _withdraw(items, places, sizes, entries, stretches, values, parameters, s)
        found = True
        old_begin, old_left = entries[stretches[s, HEAD], BEGIN_], stretches[s, LOST_LEFT]
        old_end, old_right = entries[stretches[s, TAIL], REACH], stretches[s, LOST_RIGHT]
        numbers[COVERED] -= old_end - old_begin
        reach = max(old_end, end)
        if stretches[s, TAIL] == before:
            stretches[s, TAIL] = i
    else:
        s = _new_stretch(stretches, numbers, free_stretches)
        stretches[s, HEAD] = stretches[s, TAIL] = i
        stretches[s, SIZE] = 0
        reach = end
    entries[i, STRETCH] = s
    stretches[s, SIZE] += 1
    while True:
        last = stretches[s, TAIL]
        beyond = entries[last, NEXT]
        if beyond < 0 or entries[beyond, BEGIN_] > reach:
            break
        other = entries[beyond, STRETCH]
        _withdraw(items, places, sizes, entries, stretches, values, parameters, other)
        other_end = entries[stretches[other, TAIL], REACH]
        reach = max(reach, other_end)
        numbers[COVERED] -= other_end - entries[beyond, BEGIN_]
        if not found:
            found = True
            old_begin, old_left = entries[beyond, BEGIN_], stretches[other, LOST_LEFT]
        old_end, old_right = other_end, stretches[other, LOST_RIGHT]
        _unmark(items, places, sizes, entries, stretches, values, parameters, s)
        _unmark(items, places, sizes, entries, stretches, values, parameters, other)
        head, tail, size = stretches[s, HEAD], stretches[other, TAIL], stretches[s, SIZE] + stretches[other, SIZE]
        if stretches[s, SIZE] >= stretches[other, SIZE]:
            _relabel(entries, beyond, tail, s)
        else:
            _relabel(entries, head, last, other)
            s, other = other, s
        stretches[s, HEAD], stretches[s, TAIL], stretches[s, SIZE] = head, tail, size
        _free_stretch(items, places, sizes, entries, stretches, values, numbers, parameters, free_stretches, other)
    _reach(entries, i, before)
    _reach_on(entries, i)
    new_begin, new_end = entries[stretches[s, HEAD], BEGIN_], entries[stretches[s, TAIL], REACH]
    stretches[s, LOST_LEFT] = old_left if found and new_begin == old_begin else 0
    stretches[s, LOST_RIGHT] = old_right if found and new_end == old_end else 0
    numbers[COVERED] += new_end - new_begin
    if parameters[UNIT] == 2 and numbers[SEEKS]:
        judge(items, places, sizes, entries, stretches, values, parameters, i)
        _judge_around(
            items,
            places,
            sizes,
            entries,
            stretches,
            values,
            parameters,
            before,
            following,
            begin,
            end,
        )


@loop
def _relabel(entries, first, last, s):  # type: ignore[no-untyped-def]
    while True:
        entries[first, STRETCH] = s
        if first == last:
            return
        first = entries[first, NEXT]


@loop
def _reach(entries, i, before):  # type: ignore[no-untyped-def]
    """Set how far the list reaches up to entry i; return whether that changed."""
    reach, by = entries[i, END_], i
    if before >= 0 and entries[before, REACH] >= reach:
        reach, by = entries[before, REACH], entries[before, REACHED_BY]
    if entries[i, REACH] == reach and entries[i, REACHED_BY] == by:
        return False
    entries[i, REACH], entries[i, REACHED_BY] = reach, by
    return True


@loop
def _reach_on(entries, i):  # type: ignore[no-untyped-def]
    before, i = i, entries[i, NEXT]
    while i >= 0 and _reach(entries, i, before):
        before, i = i, entries[i, NEXT]


@loop
def remove(  # type: ignore[no-untyped-def]
    items,
    places,
    sizes,
    entries,
    stretches,
    values,
    numbers,
    parameters,
    free_entries,
    free_stretches,
    i,
    dropped,
    spared,
):
    """Remove entry i. dropped: or expired."""
    slot, s, begin, end = entries[i, SLOT], entries[i, STRETCH], entries[i, BEGIN_], entries[i, END_]
    before, following = entries[i, PREVIOUS], entries[i, NEXT]
    first, last = stretches[s, HEAD], stretches[s, TAIL]
    old_begin, old_end = entries[first, BEGIN_], entries[last, REACH]
    _withdraw(items, places, sizes, entries, stretches, values, parameters, s)
    take(REDUNDANTS, i, items, places, sizes, entries, stretches, values, parameters)
    if stretches[s, LEFT] == i:
        stretches[s, LEFT] = -1
    if stretches[s, RIGHT] == i:
        stretches[s, RIGHT] = -1
    if before >= 0:
        entries[before, NEXT] = following
    if following >= 0:
        entries[following, PREVIOUS] = before
    else:
        values[slot, LAST] = before
    values[slot, COUNT] -= 1
    if values[slot, COUNT] == 0:
        values[slot, LAST_END] = ALWAYS
    free_entries[numbers[FREE_ENTRIES]] = i
    numbers[FREE_ENTRIES] += 1
    numbers[COVERED] -= old_end - old_begin
    if first == last:
        _free_stretch(items, places, sizes, entries, stretches, values, numbers, parameters, free_stretches, s)
        return
    left, right = stretches[s, LOST_LEFT], stretches[s, LOST_RIGHT]
    was_first, was_last = first == i, last == i
    stretches[s, SIZE] -= 1
    if was_first:
        stretches[s, HEAD] = following
    if was_last:
        stretches[s, TAIL] = before
    beginning = s
    if not was_last:
        tail = last
        j, previous = following, before
        while True:
            changed = _reach(entries, j, previous)
            if j != stretches[s, HEAD] and entries[previous, REACH] < entries[j, BEGIN_]:
                _unmark(items, places, sizes, entries, stretches, values, parameters, s)
                was_beginning = beginning == s
                low, high = _split(entries, stretches, numbers, free_stretches, s, j)
                if was_beginning:
                    beginning = low
                s = high
            if not changed or j == tail:
                break
            previous, j = j, entries[j, NEXT]
        # Reaches behind the stretch are those of later stretches, which begin beyond its end.
    piece = beginning
    while True:
        stretches[piece, LOST_LEFT] = stretches[piece, LOST_RIGHT] = 0
        numbers[COVERED] += entries[stretches[piece, TAIL], REACH] - entries[stretches[piece, HEAD], BEGIN_]
        if piece == s:
            break
        piece = entries[entries[stretches[piece, TAIL], NEXT], STRETCH]
    if dropped:
        stretches[beginning, LOST_LEFT] = left + entries[stretches[beginning, HEAD], BEGIN_] - old_begin
        stretches[s, LOST_RIGHT] = right + old_end - entries[stretches[s, TAIL], REACH]
    else:
        stretches[beginning, LOST_LEFT] = 0 if was_first else left
        stretches[s, LOST_RIGHT] = right
    if parameters[UNIT] == 2 and numbers[SEEKS]:
        _judge_around(
            items,
            places,
            sizes,
            entries,
            stretches,
            values,
            parameters,
            before,
            following,
            begin,
            end,
        )
        piece = beginning
        while True:
            refresh(items, places, sizes, entries, stretches, values, numbers, parameters, piece, spared)
            if piece == s:
                break
            piece = entries[entries[stretches[piece, TAIL], NEXT], STRETCH]


@loop
def _split(entries, stretches, numbers, free_stretches, s, j):  # type: ignore[no-untyped-def]
    """Cut stretch s before entry j; return both parts. The smaller one gets a number of its own."""
    head, tail, before = stretches[s, HEAD], stretches[s, TAIL], entries[j, PREVIOUS]
    back, ahead, walked = before, j, 1
    while back != head and ahead != tail:
        back, ahead, walked = entries[back, PREVIOUS], entries[ahead, NEXT], walked + 1
    other = _new_stretch(stretches, numbers, free_stretches)
    size = stretches[s, SIZE]
    if back == head:
        low, high, low_size = other, s, walked
        _relabel(entries, head, before, other)
    else:
        low, high, low_size = s, other, size - walked
        _relabel(entries, j, tail, other)
    stretches[low, HEAD], stretches[low, TAIL], stretches[low, SIZE] = head, before, low_size
    stretches[high, HEAD], stretches[high, TAIL], stretches[high, SIZE] = j, tail, size - low_size
    return low, high
