"""The compiled machine of one budget: arrivals are taken one by one, in order, and each may push others out.

An arrival costs O(log of the tuples held), and for `cals_i` the length of the stretches that it changes. An inner tuple
that leaves in the middle of a stretch costs the length of the smaller part.
"""

from __future__ import annotations

from penstock.arrays import Int64s, Records
from penstock.shedding.compiled import compiled, loop
from penstock.shedding.costs import ticks_lost
from penstock.shedding.hashing import SAMPLES, of_tuple, salted
from penstock.shedding.heaps import goes_first, put, take
from penstock.shedding.layout import COSTS, EXPIRIES, GROWINGS, ONE, RECHECKS, REDUNDANTS, SAMPLED, State
from penstock.shedding.stretches import insert, judge, place_of, refresh, remove


@loop
def expire(state: State, clock: int) -> None:
    """Remove what has left the window at `clock`."""
    items, sizes, entries = state.items, state.sizes, state.entries
    while sizes[EXPIRIES] and entries[items[EXPIRIES, 0]].expires <= clock:
        _leave(state, items[EXPIRIES, 0], False, -1)
    while sizes[SAMPLED] and entries[items[SAMPLED, 0]].expires <= clock:
        _leave_sample(state, items[SAMPLED, 0])


@loop
def _leave(state: State, i: int, dropped: bool, spared: int) -> None:
    entries, values, numbers, parameters = state.entries, state.values, state.numbers[0], state.parameters[0]
    take(state, EXPIRIES, i)
    if parameters.unit == 0:
        take(state, COSTS, i)
    numbers.held -= entries[i].weight
    slot = entries[i].slot
    remove(state, i, dropped, spared)
    if parameters.unit == 1 and values[slot].last < 0:
        take(state, COSTS, slot)


@loop
def _leave_sample(state: State, i: int) -> None:
    entries, numbers, free_entries = state.entries, state.numbers[0], state.free_entries
    take(state, SAMPLED, i)
    numbers.sample_held -= entries[i].weight
    free_entries[numbers.free_entries] = i
    numbers.free_entries += 1


@loop
def _new_entry(state: State) -> int:
    numbers, free_entries = state.numbers[0], state.free_entries
    numbers.free_entries -= 1
    return int(free_entries[numbers.free_entries])


@loop
def _describe(
    entries: Records, i: int, number: int, slot: int, rank: int, begin: int, end: int, expires: int, weight: int
) -> None:
    entries[i].slot, entries[i].begin, entries[i].end = slot, begin, end
    entries[i].expires, entries[i].number, entries[i].rank, entries[i].weight = expires, number, rank, weight


@loop
def _sample(state: State, i: int) -> None:
    """Hold a copy of entry i in the sample, if its value is in it."""
    entries, numbers, parameters = state.entries, state.numbers[0], state.parameters[0]
    if salted(entries[i].rank, SAMPLES, parameters.seed) < numbers.sample_below:
        j = _new_entry(state)
        entries[j] = entries[i]
        put(state, SAMPLED, j)
        numbers.sample_held += entries[j].weight


@loop
def _halve_sample(state: State) -> None:
    """Thin out the sample until it takes a tenth of the budget at most."""
    items, sizes = state.items, state.sizes
    entries = state.entries
    numbers, parameters = state.numbers[0], state.parameters[0]
    while numbers.sample_held > numbers.budget // 10:
        numbers.sample_below //= 2
        # The heap changes as members leave: those that go are a list first.
        gone = -1
        for k in range(sizes[SAMPLED]):
            i = items[SAMPLED, k]
            if salted(entries[i].rank, SAMPLES, parameters.seed) >= numbers.sample_below:
                entries[i].next, gone = gone, i
        while gone >= 0:
            following = entries[gone].next
            _leave_sample(state, gone)
            gone = following


@loop
def _cheapest(state: State) -> int:
    """Return the entry that goes first, or -1. By values: an entry of the value that goes first."""
    items, sizes = state.items, state.sizes
    stretches, values = state.stretches, state.values
    numbers, parameters = state.numbers[0], state.parameters[0]
    if parameters.unit == 0:
        return items[COSTS, 0] if sizes[COSTS] else -1
    if parameters.unit == 1:
        return values[items[COSTS, 0]].last if sizes[COSTS] else -1
    best, least = -1, 0
    if sizes[REDUNDANTS]:
        best = items[REDUNDANTS, 0]
    if sizes[COSTS]:
        s = items[COSTS, 0]
        i, cost = stretches[s].candidate, stretches[s].cost
        if best < 0 or cost < least or (cost == least and goes_first(state, i, best)):
            best, least = i, cost
    if sizes[GROWINGS]:
        s = items[GROWINGS, 0]
        charge = int(float(numbers.continued) / float(numbers.arrivals) * ONE)
        i, cost = stretches[s].growing, stretches[s].growing_cost + charge
        if best < 0 or cost < least or (cost == least and goes_first(state, i, best)):
            best = i
    return best


@loop
def _drop(state: State, i: int, at: int, spared: int, drops: Records, n: int) -> None:
    entries, numbers = state.entries, state.numbers[0]
    drops[n].number, drops[n].at, drops[n].slot = entries[i].number, at, entries[i].slot
    drops[n].lost, drops[n].expires = ticks_lost(entries, i), entries[i].expires
    drops[n].weight = entries[i].weight
    drops[n].begin, drops[n].end = entries[i].begin, entries[i].end
    free = numbers.free_stretches
    _leave(state, i, True, spared)
    # Every further piece takes a row of its own; a stretch of which nothing is left gives its row back.
    numbers.extraneous += max(0, free - numbers.free_stretches)
    numbers.vanished += max(0, numbers.free_stretches - free)


@loop
def _seek(state: State) -> None:
    """Find all candidates, before the first drop. Before it, and behind a restart, they cost nothing."""
    items, sizes = state.items, state.sizes
    entries, stretches = state.entries, state.stretches
    numbers, parameters = state.numbers[0], state.parameters[0]
    numbers.seeks = 1
    for k in range(sizes[EXPIRIES]):
        i = items[EXPIRIES, k]
        if parameters.unit == 2:
            judge(state, i)
        else:
            member = i if parameters.unit == 0 else entries[i].slot
            put(state, COSTS, member)
    for k in range(sizes[EXPIRIES]):
        i = items[EXPIRIES, k]
        if stretches[entries[i].stretch].head == i:
            refresh(state, entries[i].stretch, -1)


@loop
def begin_sample(state: State) -> None:
    """Begin the sample with what is held, before the first drop: so it begins complete."""
    items, sizes, numbers, parameters = state.items, state.sizes, state.numbers[0], state.parameters[0]
    if numbers.sample_below > 0 or parameters.sample == 0:
        return
    numbers.sample_below = parameters.sample
    for k in range(sizes[EXPIRIES]):
        i = items[EXPIRIES, k]
        _sample(state, i)
        _halve_sample(state)


@loop
def drop_value(state: State, slot: int, at: int, drops: Records, n: int) -> int:
    """Drop all tuples of a value, the last of its list first; return the number of drops so far."""
    entries, values = state.entries, state.values
    i = values[slot].last
    while i >= 0:
        before = entries[i].previous
        _drop(state, i, at, -1, drops, n)
        n += 1
        i = before
    return n


@loop
def _shed(state: State, arrived: int, at: int, drops: Records, n: int) -> int:
    """Drop until the budget holds; return the number of drops so far. arrived: the entry of this arrival, or -1."""
    entries, values, numbers, parameters = state.entries, state.values, state.numbers[0], state.parameters[0]
    if not numbers.seeks:
        _seek(state)
    begin_sample(state)
    spared = -1
    if parameters.spares_arriving and arrived >= 0:
        spared = arrived
        take(state, REDUNDANTS, arrived)
        refresh(state, entries[arrived].stretch, spared)
    while numbers.held + numbers.sample_held > numbers.budget:
        i = _cheapest(state)
        if i < 0:
            i = spared
            spared = -1
        if parameters.unit == 1:
            slot = entries[i].slot
            numbers.threshold = min(numbers.threshold, values[slot].rank)
            n = drop_value(state, slot, at, drops, n)
        else:
            _drop(state, i, at, spared, drops, n)
            n += 1
            if spared >= 0:
                take(state, REDUNDANTS, spared)
    return n


@compiled(reads="slots ranks begins ends stamps clocks expires weights", counted=False)
def run(
    state: State,
    first_number: int,
    slots: Int64s,
    ranks: Int64s,
    begins: Int64s,
    ends: Int64s,
    stamps: Int64s,
    clocks: Int64s,
    expires: Int64s,
    weights: Int64s,
    entered: Int64s,
    drops: Records,
) -> int:
    """Take arrivals in order; return the number of drops, described in `drops`.

    entered[k] becomes 1 where arrival k is a new entry, 0 where it equals one, 2 where it is refused by a threshold.
    """
    items, places, sizes = state.items, state.places, state.sizes
    entries, stretches, values = state.entries, state.stretches, state.values
    numbers, parameters = state.numbers[0], state.parameters[0]
    n = 0
    for k in range(slots.shape[0]):
        expire(state, clocks[k])
        slot, begin, end = slots[k], begins[k], ends[k]
        if parameters.ordered and begin > numbers.least_begin:
            numbers.least_begin = begin
            while sizes[RECHECKS] and stretches[items[RECHECKS, 0]].recheck < begin:
                refresh(state, items[RECHECKS, 0], -1)
        if ranks[k] >= numbers.threshold:
            # It is shed, but of a value of the sample it is known.
            entered[k] = 2
            if salted(ranks[k], SAMPLES, parameters.seed) < numbers.sample_below:
                i = _new_entry(state)
                _describe(entries, i, first_number + k, slot, ranks[k], begin, end, expires[k], weights[k])
                put(state, SAMPLED, i)
                numbers.sample_held += weights[k]
            if numbers.sample_below > 0:
                _halve_sample(state)
            if numbers.held + numbers.sample_held > numbers.budget:
                n = _shed(state, -1, stamps[k], drops, n)
            continue
        before, following = place_of(state, slot, begin, end)
        same = before
        if parameters.compact:
            while same >= 0 and entries[same].begin == begin and entries[same].end == end:
                if entries[same].expires == expires[k]:
                    break
                same = entries[same].previous
            if same >= 0 and entries[same].begin == begin and entries[same].end == end:
                entered[k] = 0
                if numbers.held + numbers.sample_held > numbers.budget:
                    # The budget has become smaller.
                    n = _shed(state, -1, stamps[k], drops, n)
                continue
        entered[k] = 1
        numbers.arrivals += 1
        if begin <= values[slot].last_end:
            numbers.continued += 1
        i = _new_entry(state)
        _describe(entries, i, first_number + k, slot, ranks[k], begin, end, expires[k], weights[k])
        tie = of_tuple(ranks[k], begin, end, stamps[k], parameters.seed)
        entries[i].tie = -tie if parameters.unit == 0 else tie
        values[slot].rank = ranks[k]
        enter(state, i, before, following)
        if numbers.sample_below > 0:
            _sample(state, i)
            _halve_sample(state)
        if numbers.held + numbers.sample_held > numbers.budget:
            n = _shed(state, i, stamps[k], drops, n)
            if parameters.spares_arriving and places[EXPIRIES, i] >= 0 and entries[i].number == first_number + k:
                settle(state, i)
    return n


@loop
def enter(state: State, i: int, before: int, following: int) -> None:
    """Insert entry i, whose period and so on are set, everywhere."""
    entries, numbers, parameters = state.entries, state.numbers[0], state.parameters[0]
    insert(state, i, before, following)
    numbers.held += entries[i].weight
    put(state, EXPIRIES, i)
    if not numbers.seeks:
        return
    if parameters.unit == 0:
        put(state, COSTS, i)
    elif parameters.unit == 1:
        put(state, COSTS, entries[i].slot)
    refresh(state, entries[i].stretch, -1)


@loop
def settle(state: State, i: int) -> None:
    """Make the entry that has arrived a candidate like any other."""
    entries = state.entries
    judge(state, i)
    refresh(state, entries[i].stretch, -1)


@loop
def restore_entries(state: State, rows: Records) -> None:
    """Insert saved entries, in the order in which they arrived."""
    entries, values = state.entries, state.values
    for k in range(rows.shape[0]):
        i = _new_entry(state)
        entries[i] = rows[k]
        slot = entries[i].slot
        values[slot].rank = entries[i].rank
        before, following = place_of(state, slot, entries[i].begin, entries[i].end)
        enter(state, i, before, following)


@loop
def restore_sample(state: State, rows: Records) -> None:
    """Insert saved entries of the sample."""
    entries, numbers = state.entries, state.numbers[0]
    for k in range(rows.shape[0]):
        i = _new_entry(state)
        entries[i] = rows[k]
        put(state, SAMPLED, i)
        numbers.sample_held += entries[i].weight
