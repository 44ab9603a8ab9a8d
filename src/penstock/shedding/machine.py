"""The compiled machine of one budget: arrivals are taken one by one, in order, and each may push others out.

An arrival costs O(log of the tuples held), and for `cals_i` the length of the stretches that it changes. An inner tuple
that leaves in the middle of a stretch costs the length of the smaller part.
"""

from __future__ import annotations

from penstock.shedding.compiled import compiled, loop
from penstock.shedding.costs import ticks_lost
from penstock.shedding.hashing import SAMPLES, of_tuple, salted
from penstock.shedding.heaps import goes_first, put, take
from penstock.shedding.layout import (
    ARRIVALS,
    BEGIN_,
    BUDGET,
    CANDIDATE,
    COMPACT,
    CONTINUED,
    COST,
    COSTS,
    DROPPED,
    DROPPED_AT,
    DROPPED_BEGIN,
    DROPPED_END,
    DROPPED_EXPIRES,
    DROPPED_LOST,
    DROPPED_SLOT,
    DROPPED_WEIGHT,
    END_,
    ENTRY_COLUMNS,
    EXPIRES,
    EXPIRIES,
    EXTRANEOUS,
    FREE_ENTRIES,
    FREE_STRETCHES,
    GROWING,
    GROWING_COST,
    GROWINGS,
    HEAD,
    HELD,
    LAST,
    LAST_END,
    LEAST_BEGIN,
    NEXT,
    NUMBER,
    ONE,
    ORDERED,
    PREVIOUS,
    RANK,
    RECHECK,
    RECHECKS,
    REDUNDANTS,
    SAMPLE,
    SAMPLE_BELOW,
    SAMPLE_HELD,
    SAMPLED,
    SEED,
    SEEKS,
    SLOT,
    SPARES_ARRIVING,
    STRETCH,
    THRESHOLD,
    TIE,
    UNIT,
    VALUE_RANK,
    VANISHED,
    WEIGHT,
)
from penstock.shedding.stretches import insert, judge, place_of, refresh, remove


@loop
def expire(  # type: ignore[no-untyped-def]
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
    clock,
):
    """Remove what has left the window at `clock`."""
    while sizes[EXPIRIES] and entries[items[EXPIRIES, 0], EXPIRES] <= clock:
        _leave(
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
            items[EXPIRIES, 0],
            False,
            -1,
        )
    while sizes[SAMPLED] and entries[items[SAMPLED, 0], EXPIRES] <= clock:
        _leave_sample(
            items, places, sizes, entries, stretches, values, numbers, parameters, free_entries, items[SAMPLED, 0]
        )


@loop
def _leave(  # type: ignore[no-untyped-def]
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
    take(EXPIRIES, i, items, places, sizes, entries, stretches, values, parameters)
    if parameters[UNIT] == 0:
        take(COSTS, i, items, places, sizes, entries, stretches, values, parameters)
    numbers[HELD] -= entries[i, WEIGHT]
    slot = entries[i, SLOT]
    remove(
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
    )
    if parameters[UNIT] == 1 and values[slot, LAST] < 0:
        take(COSTS, slot, items, places, sizes, entries, stretches, values, parameters)


@loop
def _leave_sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries, i):  # type: ignore[no-untyped-def]
    take(SAMPLED, i, items, places, sizes, entries, stretches, values, parameters)
    numbers[SAMPLE_HELD] -= entries[i, WEIGHT]
    free_entries[numbers[FREE_ENTRIES]] = i
    numbers[FREE_ENTRIES] += 1


@loop
def _new_entry(entries, numbers, free_entries):  # type: ignore[no-untyped-def]
    numbers[FREE_ENTRIES] -= 1
    return free_entries[numbers[FREE_ENTRIES]]


@loop
def _copy(entries, i, rows, k):  # type: ignore[no-untyped-def]
    for column in range(ENTRY_COLUMNS):
        entries[i, column] = rows[k, column]


@loop
def _describe(entries, i, number, slot, rank, begin, end, expires, weight):  # type: ignore[no-untyped-def]
    entries[i, SLOT], entries[i, BEGIN_], entries[i, END_] = slot, begin, end
    entries[i, EXPIRES], entries[i, NUMBER], entries[i, RANK], entries[i, WEIGHT] = expires, number, rank, weight


@loop
def _sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries, i):  # type: ignore[no-untyped-def]
    """Hold a copy of entry i in the sample, if its value is in it."""
    if salted(entries[i, RANK], SAMPLES, parameters[SEED]) < numbers[SAMPLE_BELOW]:
        j = _new_entry(entries, numbers, free_entries)
        _copy(entries, j, entries, i)
        put(SAMPLED, j, items, places, sizes, entries, stretches, values, parameters)
        numbers[SAMPLE_HELD] += entries[j, WEIGHT]


@loop
def _halve_sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries):  # type: ignore[no-untyped-def]
    """Thin out the sample until it takes a tenth of the budget at most."""
    while numbers[SAMPLE_HELD] > numbers[BUDGET] // 10:
        numbers[SAMPLE_BELOW] //= 2
        # The heap changes as members leave: those that go are a list first.
        gone = -1
        for k in range(sizes[SAMPLED]):
            i = items[SAMPLED, k]
            if salted(entries[i, RANK], SAMPLES, parameters[SEED]) >= numbers[SAMPLE_BELOW]:
                entries[i, NEXT], gone = gone, i
        while gone >= 0:
            following = entries[gone, NEXT]
            _leave_sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries, gone)
            gone = following


@loop
def _cheapest(items, sizes, entries, stretches, values, numbers, parameters):  # type: ignore[no-untyped-def]
    """Return the entry that goes first, or -1. By values: an entry of the value that goes first."""
    if parameters[UNIT] == 0:
        return items[COSTS, 0] if sizes[COSTS] else -1
    if parameters[UNIT] == 1:
        return values[items[COSTS, 0], LAST] if sizes[COSTS] else -1
    best, least = -1, 0
    if sizes[REDUNDANTS]:
        best = items[REDUNDANTS, 0]
    if sizes[COSTS]:
        s = items[COSTS, 0]
        i, cost = stretches[s, CANDIDATE], stretches[s, COST]
        if best < 0 or cost < least or (cost == least and goes_first(entries, parameters, i, best)):
            best, least = i, cost
    if sizes[GROWINGS]:
        s = items[GROWINGS, 0]
        charge = int(float(numbers[CONTINUED]) / float(numbers[ARRIVALS]) * ONE)
        i, cost = stretches[s, GROWING], stretches[s, GROWING_COST] + charge
        if best < 0 or cost < least or (cost == least and goes_first(entries, parameters, i, best)):
            best = i
    return best


@loop
def _drop(  # type: ignore[no-untyped-def]
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
    at,
    spared,
    drops,
    n,
):
    drops[n, DROPPED], drops[n, DROPPED_AT], drops[n, DROPPED_SLOT] = entries[i, NUMBER], at, entries[i, SLOT]
    drops[n, DROPPED_LOST], drops[n, DROPPED_EXPIRES] = ticks_lost(entries, i), entries[i, EXPIRES]
    drops[n, DROPPED_WEIGHT] = entries[i, WEIGHT]
    drops[n, DROPPED_BEGIN], drops[n, DROPPED_END] = entries[i, BEGIN_], entries[i, END_]
    free = numbers[FREE_STRETCHES]
    _leave(
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
        True,
        spared,
    )
    # Every further piece takes a row of its own; a stretch of which nothing is left gives its row back.
    numbers[EXTRANEOUS] += max(0, free - numbers[FREE_STRETCHES])
    numbers[VANISHED] += max(0, numbers[FREE_STRETCHES] - free)


@loop
def _seek(items, places, sizes, entries, stretches, values, numbers, parameters):  # type: ignore[no-untyped-def]
    """Find all candidates, before the first drop. Before it, and behind a restart, they cost nothing."""
    numbers[SEEKS] = 1
    for k in range(sizes[EXPIRIES]):
        i = items[EXPIRIES, k]
        if parameters[UNIT] == 2:
            judge(items, places, sizes, entries, stretches, values, parameters, i)
        else:
            member = i if parameters[UNIT] == 0 else entries[i, SLOT]
            put(COSTS, member, items, places, sizes, entries, stretches, values, parameters)
    for k in range(sizes[EXPIRIES]):
        i = items[EXPIRIES, k]
        if stretches[entries[i, STRETCH], HEAD] == i:
            refresh(items, places, sizes, entries, stretches, values, numbers, parameters, entries[i, STRETCH], -1)


@loop
def begin_sample(  # type: ignore[no-untyped-def]
    items,
    places,
    sizes,
    entries,
    stretches,
    values,
    numbers,
    parameters,
    free_entries,
):
    """Begin the sample with what is held, before the first drop: so it begins complete."""
    if numbers[SAMPLE_BELOW] > 0 or parameters[SAMPLE] == 0:
        return
    numbers[SAMPLE_BELOW] = parameters[SAMPLE]
    for k in range(sizes[EXPIRIES]):
        i = items[EXPIRIES, k]
        _sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries, i)
        _halve_sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries)


@loop
def drop_value(  # type: ignore[no-untyped-def]
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
    slot,
    at,
    drops,
    n,
):
    """Drop all tuples of a value, the last of its list first; return the number of drops so far."""
    i = values[slot, LAST]
    while i >= 0:
        before = entries[i, PREVIOUS]
        _drop(
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
            at,
            -1,
            drops,
            n,
        )
        n += 1
        i = before
    return n


@loop
def _shed(  # type: ignore[no-untyped-def]
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
    arrived,
    at,
    drops,
    n,
):
    """Drop until the budget holds; return the number of drops so far. arrived: the entry of this arrival, or -1."""
    if not numbers[SEEKS]:
        _seek(items, places, sizes, entries, stretches, values, numbers, parameters)
    begin_sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries)
    spared = -1
    if parameters[SPARES_ARRIVING] and arrived >= 0:
        spared = arrived
        take(REDUNDANTS, arrived, items, places, sizes, entries, stretches, values, parameters)
        refresh(
            items, places, sizes, entries, stretches, values, numbers, parameters, entries[arrived, STRETCH], spared
        )
    while numbers[HELD] + numbers[SAMPLE_HELD] > numbers[BUDGET]:
        i = _cheapest(items, sizes, entries, stretches, values, numbers, parameters)
        if i < 0:
            i = spared
            spared = -1
        if parameters[UNIT] == 1:
            slot = entries[i, SLOT]
            numbers[THRESHOLD] = min(numbers[THRESHOLD], values[slot, VALUE_RANK])
            n = drop_value(
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
                slot,
                at,
                drops,
                n,
            )
        else:
            _drop(
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
                at,
                spared,
                drops,
                n,
            )
            n += 1
            if spared >= 0:
                take(REDUNDANTS, spared, items, places, sizes, entries, stretches, values, parameters)
    return n


@compiled(reads="slots ranks begins ends stamps clocks expires weights", counted=False)
def run(  # type: ignore[no-untyped-def]
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
    first_number,
    slots,
    ranks,
    begins,
    ends,
    stamps,
    clocks,
    expires,
    weights,
    entered,
    drops,
):
    """Take arrivals in order; return the number of drops, described in `drops`.

    entered[k] becomes 1 where arrival k is a new entry, 0 where it equals one, 2 where it is refused by a threshold.
    """
    n = 0
    for k in range(slots.shape[0]):
        expire(
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
            clocks[k],
        )
        slot, begin, end = slots[k], begins[k], ends[k]
        if parameters[ORDERED] and begin > numbers[LEAST_BEGIN]:
            numbers[LEAST_BEGIN] = begin
            while sizes[RECHECKS] and stretches[items[RECHECKS, 0], RECHECK] < begin:
                refresh(items, places, sizes, entries, stretches, values, numbers, parameters, items[RECHECKS, 0], -1)
        if ranks[k] >= numbers[THRESHOLD]:
            # It is shed, but of a value of the sample it is known.
            entered[k] = 2
            if salted(ranks[k], SAMPLES, parameters[SEED]) < numbers[SAMPLE_BELOW]:
                i = _new_entry(entries, numbers, free_entries)
                _describe(entries, i, first_number + k, slot, ranks[k], begin, end, expires[k], weights[k])
                put(SAMPLED, i, items, places, sizes, entries, stretches, values, parameters)
                numbers[SAMPLE_HELD] += weights[k]
            if numbers[SAMPLE_BELOW] > 0:
                _halve_sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries)
            if numbers[HELD] + numbers[SAMPLE_HELD] > numbers[BUDGET]:
                n = _shed(
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
                    -1,
                    stamps[k],
                    drops,
                    n,
                )
            continue
        before, following = place_of(entries, stretches, values, slot, begin, end)
        same = before
        if parameters[COMPACT]:
            while same >= 0 and entries[same, BEGIN_] == begin and entries[same, END_] == end:
                if entries[same, EXPIRES] == expires[k]:
                    break
                same = entries[same, PREVIOUS]
            if same >= 0 and entries[same, BEGIN_] == begin and entries[same, END_] == end:
                entered[k] = 0
                if numbers[HELD] + numbers[SAMPLE_HELD] > numbers[BUDGET]:
                    # The budget has become smaller.
                    n = _shed(
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
                        -1,
                        stamps[k],
                        drops,
                        n,
                    )
                continue
        entered[k] = 1
        numbers[ARRIVALS] += 1
        if begin <= values[slot, LAST_END]:
            numbers[CONTINUED] += 1
        i = _new_entry(entries, numbers, free_entries)
        _describe(entries, i, first_number + k, slot, ranks[k], begin, end, expires[k], weights[k])
        tie = of_tuple(ranks[k], begin, end, stamps[k], parameters[SEED])
        entries[i, TIE] = -tie if parameters[UNIT] == 0 else tie
        values[slot, VALUE_RANK] = ranks[k]
        enter(
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
        )
        if numbers[SAMPLE_BELOW] > 0:
            _sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries, i)
            _halve_sample(items, places, sizes, entries, stretches, values, numbers, parameters, free_entries)
        if numbers[HELD] + numbers[SAMPLE_HELD] > numbers[BUDGET]:
            n = _shed(
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
                stamps[k],
                drops,
                n,
            )
            if parameters[SPARES_ARRIVING] and places[EXPIRIES, i] >= 0 and entries[i, NUMBER] == first_number + k:
                settle(items, places, sizes, entries, stretches, values, numbers, parameters, i)
    return n


@loop
def enter(  # type: ignore[no-untyped-def]
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
    """Insert entry i, whose period and so on are set, everywhere."""
    insert(
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
    )
    numbers[HELD] += entries[i, WEIGHT]
    put(EXPIRIES, i, items, places, sizes, entries, stretches, values, parameters)
    if not numbers[SEEKS]:
        return
    if parameters[UNIT] == 0:
        put(COSTS, i, items, places, sizes, entries, stretches, values, parameters)
    elif parameters[UNIT] == 1:
        put(COSTS, entries[i, SLOT], items, places, sizes, entries, stretches, values, parameters)
    refresh(items, places, sizes, entries, stretches, values, numbers, parameters, entries[i, STRETCH], -1)


@loop
def settle(items, places, sizes, entries, stretches, values, numbers, parameters, i):  # type: ignore[no-untyped-def]
    """Make the entry that has arrived a candidate like any other."""
    judge(items, places, sizes, entries, stretches, values, parameters, i)
    refresh(items, places, sizes, entries, stretches, values, numbers, parameters, entries[i, STRETCH], -1)


@loop
def restore_entries(  # type: ignore[no-untyped-def]
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
    rows,
):
    """Insert saved entries, in the order in which they arrived."""
    for k in range(rows.shape[0]):
        i = _new_entry(entries, numbers, free_entries)
        _copy(entries, i, rows, k)
        slot = entries[i, SLOT]
        values[slot, VALUE_RANK] = entries[i, RANK]
        before, following = place_of(entries, stretches, values, slot, entries[i, BEGIN_], entries[i, END_])
        enter(
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
        )


@loop
def restore_sample(  # type: ignore[no-untyped-def]
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
    rows,
):
    """Insert saved entries of the sample."""
    for k in range(rows.shape[0]):
        i = _new_entry(entries, numbers, free_entries)
        _copy(entries, i, rows, k)
        put(SAMPLED, i, items, places, sizes, entries, stretches, values, parameters)
        numbers[SAMPLE_HELD] += entries[i, WEIGHT]
