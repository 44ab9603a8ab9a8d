"""Entries come and go: the lists of values, the stretches in them, and what is redundant.

All functions change the arrays in place. They are those of a `Shedder`, passed one by one, since compiled
loops take no objects.
"""

from __future__ import annotations

from penstock.arrays import Records
from penstock.shedding.compiled import loop
from penstock.shedding.costs import cost_of, is_redundant
from penstock.shedding.heaps import goes_first, put, take
from penstock.shedding.layout import ALWAYS, COSTS, GROWINGS, NEVER, RECHECKS, REDUNDANTS, State


@loop
def _mark(state: State, i: int, inner: int) -> None:
    """Note whether entry i is an inner one of its stretch."""
    places, entries = state.places, state.entries
    if i >= 0 and entries[i].inner != inner:
        entries[i].inner = inner
        if places[REDUNDANTS, i] >= 0:
            put(state, REDUNDANTS, i)


@loop
def _withdraw(state: State, s: int) -> None:
    """Take the candidates of stretch s out of the heaps, before what they are ordered by changes."""
    parameters = state.parameters[0]
    if parameters.unit == 2:
        take(state, COSTS, s)
        take(state, GROWINGS, s)


@loop
def _unmark(state: State, s: int) -> None:
    stretches = state.stretches
    _mark(state, stretches[s].left, 1)
    _mark(state, stretches[s].right, 1)
    stretches[s].left = stretches[s].right = -1


@loop
def refresh(state: State, s: int, spared: int) -> None:
    """Find the candidates of stretch s again. spared: an entry that is none, or -1."""
    places = state.places
    entries, stretches = state.entries, state.stretches
    numbers, parameters = state.numbers[0], state.parameters[0]
    if parameters.unit != 2 or not numbers.seeks:
        return
    left, right = stretches[s].head, entries[stretches[s].tail].reached_by
    if stretches[s].left != left or stretches[s].right != right:
        _unmark(state, s)
        stretches[s].left, stretches[s].right = left, right
        _mark(state, left, 0)
        _mark(state, right, 0)
    best, least, recheck, grows = -1, 0, NEVER, False
    i = left
    while True:
        if i != spared and places[REDUNDANTS, i] < 0:
            cost, pieces, soon = cost_of(state, i)
            recheck = min(recheck, soon)
            if parameters.knows and i == right and pieces > 0 and entries[right].end >= numbers.least_begin:
                grows = True
                stretches[s].growing, stretches[s].growing_cost = i, cost
            elif best < 0 or cost < least or (cost == least and goes_first(state, i, best)):
                best, least = i, cost
        if parameters.scans:
            if i == stretches[s].tail:
                break
            i = entries[i].next
        elif i == right:
            break
        else:
            i = right
    if parameters.knows and entries[right].end >= numbers.least_begin:
        recheck = min(recheck, entries[right].end)
    if best >= 0:
        stretches[s].candidate, stretches[s].cost = best, least
        put(state, COSTS, s)
    else:
        take(state, COSTS, s)
    if grows:
        put(state, GROWINGS, s)
    else:
        take(state, GROWINGS, s)
    if parameters.knows and recheck != NEVER and numbers.least_begin != ALWAYS:
        stretches[s].recheck = recheck
        put(state, RECHECKS, s)
    else:
        take(state, RECHECKS, s)


@loop
def judge(state: State, i: int) -> None:
    """Note whether entry i is redundant."""
    places, entries = state.places, state.entries
    if is_redundant(entries, i):
        if places[REDUNDANTS, i] < 0:
            put(state, REDUNDANTS, i)
    else:
        take(state, REDUNDANTS, i)


@loop
def _judge_around(state: State, before: int, following: int, begin: int, end: int) -> None:
    """Judge those around [begin, end), which came or went between `before` and `following`.

    The one before covers what an earlier one that ends no later has in common with the period, and so on: the walk ends
    where no tuple beyond reaches further.
    """
    entries = state.entries
    covered = begin
    i = before
    while i >= 0 and entries[i].reach > covered:
        if entries[i].end > covered:
            judge(state, i)
            covered = entries[i].end
        i = entries[i].previous
    i = following
    covered = begin
    while i >= 0 and entries[i].begin < end and covered < end:
        if min(entries[i].end, end) > covered:
            judge(state, i)
            covered = max(covered, entries[i].end)
        i = entries[i].next


@loop
def _free_stretch(state: State, s: int) -> None:
    numbers, free_stretches = state.numbers[0], state.free_stretches
    _withdraw(state, s)
    take(state, RECHECKS, s)
    free_stretches[numbers.free_stretches] = s
    numbers.free_stretches += 1


@loop
def _new_stretch(state: State) -> int:
    stretches, numbers, free_stretches = state.stretches, state.numbers[0], state.free_stretches
    numbers.free_stretches -= 1
    s = free_stretches[numbers.free_stretches]
    stretches[s].lost_left = stretches[s].lost_right = 0
    stretches[s].left = stretches[s].right = -1
    return int(s)


@loop
def place_of(state: State, slot: int, begin: int, end: int) -> tuple[int, int]:
    """Return the entries before and behind which [begin, end) belongs in the list of a value; -1 for none."""
    entries, stretches, values = state.entries, state.stretches, state.values
    before, following = values[slot].last, -1
    while before >= 0:
        if entries[before].begin < begin or (entries[before].begin == begin and entries[before].end >= end):
            break
        first = stretches[entries[before].stretch].head
        following = first if entries[first].begin > begin else before
        before = entries[following].previous
    return before, following


@loop
def insert(state: State, i: int, before: int, following: int) -> None:
    """Insert entry i, whose SLOT, period and so on are set, between two entries of its list."""
    entries, stretches, values = state.entries, state.stretches, state.values
    numbers, parameters = state.numbers[0], state.parameters[0]
    slot, begin, end = entries[i].slot, entries[i].begin, entries[i].end
    entries[i].previous, entries[i].next, entries[i].inner = before, following, 1
    if before >= 0:
        entries[before].next = i
    if following >= 0:
        entries[following].previous = i
    else:
        values[slot].last = i
    values[slot].count += 1
    values[slot].last_end = max(values[slot].last_end, end)
    touches = before >= 0 and entries[before].reach >= begin
    # The stretches that are touched, as they were.
    old_begin, old_left, old_end, old_right, found = begin, 0, begin, 0, False
    if touches:
        s = entries[before].stretch
        _withdraw(state, s)
        found = True
        old_begin, old_left = entries[stretches[s].head].begin, stretches[s].lost_left
        old_end, old_right = entries[stretches[s].tail].reach, stretches[s].lost_right
        numbers.covered -= old_end - old_begin
        reach = max(old_end, end)
        if stretches[s].tail == before:
            stretches[s].tail = i
    else:
        s = _new_stretch(state)
        stretches[s].head = stretches[s].tail = i
        stretches[s].count = 0
        reach = end
    entries[i].stretch = s
    stretches[s].count += 1
    while True:
        last = stretches[s].tail
        beyond = entries[last].next
        if beyond < 0 or entries[beyond].begin > reach:
            break
        other = entries[beyond].stretch
        _withdraw(state, other)
        other_end = entries[stretches[other].tail].reach
        reach = max(reach, other_end)
        numbers.covered -= other_end - entries[beyond].begin
        if not found:
            found = True
            old_begin, old_left = entries[beyond].begin, stretches[other].lost_left
        old_end, old_right = other_end, stretches[other].lost_right
        _unmark(state, s)
        _unmark(state, other)
        head, tail, size = stretches[s].head, stretches[other].tail, stretches[s].count + stretches[other].count
        if stretches[s].count >= stretches[other].count:
            _relabel(entries, beyond, tail, s)
        else:
            _relabel(entries, head, last, other)
            s, other = other, s
        stretches[s].head, stretches[s].tail, stretches[s].count = head, tail, size
        _free_stretch(state, other)
    _reach(entries, i, before)
    _reach_on(entries, i)
    new_begin, new_end = entries[stretches[s].head].begin, entries[stretches[s].tail].reach
    stretches[s].lost_left = old_left if found and new_begin == old_begin else 0
    stretches[s].lost_right = old_right if found and new_end == old_end else 0
    numbers.covered += new_end - new_begin
    if parameters.unit == 2 and numbers.seeks:
        judge(state, i)
        _judge_around(state, before, following, begin, end)


@loop
def _relabel(entries: Records, first: int, last: int, s: int) -> None:
    while True:
        entries[first].stretch = s
        if first == last:
            return
        first = entries[first].next


@loop
def _reach(entries: Records, i: int, before: int) -> bool:
    """Set how far the list reaches up to entry i; return whether that changed."""
    reach, by = entries[i].end, i
    if before >= 0 and entries[before].reach >= reach:
        reach, by = entries[before].reach, entries[before].reached_by
    if entries[i].reach == reach and entries[i].reached_by == by:
        return False
    entries[i].reach, entries[i].reached_by = reach, by
    return True


@loop
def _reach_on(entries: Records, i: int) -> None:
    before, i = i, entries[i].next
    while i >= 0 and _reach(entries, i, before):
        before, i = i, entries[i].next


@loop
def remove(state: State, i: int, dropped: bool, spared: int) -> None:
    """Remove entry i. dropped: or expired."""
    entries, stretches, values = state.entries, state.stretches, state.values
    numbers, parameters, free_entries = state.numbers[0], state.parameters[0], state.free_entries
    slot, s, begin, end = entries[i].slot, entries[i].stretch, entries[i].begin, entries[i].end
    before, following = entries[i].previous, entries[i].next
    first, last = stretches[s].head, stretches[s].tail
    old_begin, old_end = entries[first].begin, entries[last].reach
    _withdraw(state, s)
    take(state, REDUNDANTS, i)
    if stretches[s].left == i:
        stretches[s].left = -1
    if stretches[s].right == i:
        stretches[s].right = -1
    if before >= 0:
        entries[before].next = following
    if following >= 0:
        entries[following].previous = before
    else:
        values[slot].last = before
    values[slot].count -= 1
    if values[slot].count == 0:
        values[slot].last_end = ALWAYS
    free_entries[numbers.free_entries] = i
    numbers.free_entries += 1
    numbers.covered -= old_end - old_begin
    if first == last:
        _free_stretch(state, s)
        return
    left, right = stretches[s].lost_left, stretches[s].lost_right
    was_first, was_last = first == i, last == i
    stretches[s].count -= 1
    if was_first:
        stretches[s].head = following
    if was_last:
        stretches[s].tail = before
    beginning = s
    if not was_last:
        tail = last
        j, previous = following, before
        while True:
            changed = _reach(entries, j, previous)
            if j != stretches[s].head and entries[previous].reach < entries[j].begin:
                _unmark(state, s)
                was_beginning = beginning == s
                low, high = _split(state, s, j)
                if was_beginning:
                    beginning = low
                s = high
            if not changed or j == tail:
                break
            previous, j = j, entries[j].next
        # Reaches behind the stretch are those of later stretches, which begin beyond its end.
    piece = beginning
    while True:
        stretches[piece].lost_left = stretches[piece].lost_right = 0
        numbers.covered += entries[stretches[piece].tail].reach - entries[stretches[piece].head].begin
        if piece == s:
            break
        piece = entries[entries[stretches[piece].tail].next].stretch
    if dropped:
        stretches[beginning].lost_left = left + entries[stretches[beginning].head].begin - old_begin
        stretches[s].lost_right = right + old_end - entries[stretches[s].tail].reach
    else:
        stretches[beginning].lost_left = 0 if was_first else left
        stretches[s].lost_right = right
    if parameters.unit == 2 and numbers.seeks:
        _judge_around(state, before, following, begin, end)
        piece = beginning
        while True:
            refresh(state, piece, spared)
            if piece == s:
                break
            piece = entries[entries[stretches[piece].tail].next].stretch


@loop
def _split(state: State, s: int, j: int) -> tuple[int, int]:
    """Cut stretch s before entry j; return both parts. The smaller one gets a number of its own."""
    entries, stretches = state.entries, state.stretches
    head, tail, before = stretches[s].head, stretches[s].tail, entries[j].previous
    back, ahead, walked = before, j, 1
    while back != head and ahead != tail:
        back, ahead, walked = entries[back].previous, entries[ahead].next, walked + 1
    other = _new_stretch(state)
    size = stretches[s].count
    if back == head:
        low, high, low_size = other, s, walked
        _relabel(entries, head, before, other)
    else:
        low, high, low_size = s, other, size - walked
        _relabel(entries, j, tail, other)
    stretches[low].head, stretches[low].tail, stretches[low].count = head, before, low_size
    stretches[high].head, stretches[high].tail, stretches[high].count = j, tail, size - low_size
    return low, high
