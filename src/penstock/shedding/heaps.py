"""Binary heaps with positions, over entries, stretches or values: the least on top, any member found at once.

`items[h]` are the members of heap h in heap order, `items[KEYS + h]` their keys, `places[h, m]` the place of member m,
or -1, `sizes[h]` their number.
"""

from __future__ import annotations

from penstock.shedding.compiled import loop_per_constant
from penstock.shedding.layout import (
    BEGIN_,
    CANDIDATE,
    COST,
    COSTS,
    EXPIRES,
    EXPIRIES,
    GROWING,
    GROWING_COST,
    GROWINGS,
    INNER,
    KEYS,
    NUMBER,
    RANK,
    RECHECK,
    RECHECKS,
    REDUNDANTS,
    SAMPLED,
    TIE,
    TIES,
    UNIT,
    VALUE_RANK,
)


@loop_per_constant
def goes_first(entries, parameters, a, b):  # type: ignore[no-untyped-def]
    """Return whether entry a goes before entry b where they cost the same."""
    if parameters[TIES] == 0:
        if entries[a, INNER] != entries[b, INNER]:
            return entries[a, INNER] < entries[b, INNER]
        if entries[a, EXPIRES] != entries[b, EXPIRES]:
            return entries[a, EXPIRES] < entries[b, EXPIRES]
        if entries[a, BEGIN_] != entries[b, BEGIN_]:
            return entries[a, BEGIN_] < entries[b, BEGIN_]
        if entries[a, RANK] != entries[b, RANK]:
            return entries[a, RANK] < entries[b, RANK]
    elif parameters[TIES] == 1 and entries[a, TIE] != entries[b, TIE]:
        return entries[a, TIE] < entries[b, TIE]
    return entries[a, NUMBER] < entries[b, NUMBER]


@loop_per_constant
def _key(heap, member, entries, stretches, values, parameters):  # type: ignore[no-untyped-def]
    """Return what the members of a heap are ordered by first. It is kept beside them: comparing them then reads what
    lies close together, and the rows of members only where keys are equal."""
    if heap in (EXPIRIES, SAMPLED):
        return entries[member, EXPIRES]
    if heap == RECHECKS:
        return stretches[member, RECHECK]
    if heap == GROWINGS:
        return stretches[member, GROWING_COST]
    if heap == COSTS and parameters[UNIT] == 2:
        return stretches[member, COST]
    if heap == COSTS and parameters[UNIT] == 1:
        return -values[member, VALUE_RANK]
    if parameters[TIES] == 0:
        return entries[member, INNER] if heap == REDUNDANTS else entries[member, EXPIRES]
    return entries[member, TIE] if parameters[TIES] == 1 else entries[member, NUMBER]


@loop_per_constant
def _wins(heap, a, b, entries, stretches, parameters):  # type: ignore[no-untyped-def]
    """Return whether member a is above member b, where their keys are equal."""
    if heap in (EXPIRIES, SAMPLED):
        return entries[a, NUMBER] < entries[b, NUMBER]
    if heap == GROWINGS:
        return goes_first(entries, parameters, stretches[a, GROWING], stretches[b, GROWING])
    if heap == COSTS and parameters[UNIT] == 2:
        return goes_first(entries, parameters, stretches[a, CANDIDATE], stretches[b, CANDIDATE])
    if heap == RECHECKS or (heap == COSTS and parameters[UNIT] == 1):
        return False
    return goes_first(entries, parameters, a, b)


@loop_per_constant
def put(heap, member, items, places, sizes, entries, stretches, values, parameters):  # type: ignore[no-untyped-def]
    """Insert a member, or move it to where it belongs now."""
    place = places[heap, member]
    if place < 0:
        place = sizes[heap]
        sizes[heap] += 1
    keys = KEYS + heap
    key = _key(heap, member, entries, stretches, values, parameters)
    while place > 0:
        above = (place - 1) // 2
        other = items[keys, above]
        if key > other or (
            key == other and not _wins(heap, member, items[heap, above], entries, stretches, parameters)
        ):
            break
        items[heap, place], items[keys, place] = items[heap, above], other
        places[heap, items[heap, place]] = place
        place = above
    size = sizes[heap]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        least = items[keys, child]
        if child + 1 < size:
            other = items[keys, child + 1]
            if other < least or (
                other == least
                and _wins(heap, items[heap, child + 1], items[heap, child], entries, stretches, parameters)
            ):
                child, least = child + 1, other
        if least > key or (
            least == key and not _wins(heap, items[heap, child], member, entries, stretches, parameters)
        ):
            break
        items[heap, place], items[keys, place] = items[heap, child], least
        places[heap, items[heap, place]] = place
        place = child
    items[heap, place], items[keys, place] = member, key
    places[heap, member] = place


@loop_per_constant
def take(heap, member, items, places, sizes, entries, stretches, values, parameters):  # type: ignore[no-untyped-def]
    """Remove a member, if it is one."""
    place = places[heap, member]
    if place < 0:
        return
    places[heap, member] = -1
    sizes[heap] -= 1
    last = items[heap, sizes[heap]]
    if last != member:
        items[heap, place], items[KEYS + heap, place] = last, items[KEYS + heap, sizes[heap]]
        places[heap, last] = place
        put(heap, last, items, places, sizes, entries, stretches, values, parameters)
