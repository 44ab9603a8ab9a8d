"""Binary heaps with positions, over entries, stretches or values: the least on top, any member found at once.

`items[h]` are the members of heap h in heap order, `places[h, m]` the place of member m, or -1,
`sizes[h]` their number.
"""

from __future__ import annotations

import numba as nb

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
    NUMBER,
    RANK,
    RECHECK,
    RECHECKS,
    SAMPLED,
    TIE,
    TIES,
    UNIT,
    VALUE_RANK,
)


@nb.njit(cache=True)
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


@nb.njit(cache=True)
def _below(heap, a, b, entries, stretches, values, parameters):  # type: ignore[no-untyped-def]
    if heap in (EXPIRIES, SAMPLED):
        if entries[a, EXPIRES] != entries[b, EXPIRES]:
            return entries[a, EXPIRES] < entries[b, EXPIRES]
        return entries[a, NUMBER] < entries[b, NUMBER]
    if heap == RECHECKS:
        return stretches[a, RECHECK] < stretches[b, RECHECK]
    if heap == GROWINGS:
        if stretches[a, GROWING_COST] != stretches[b, GROWING_COST]:
            return stretches[a, GROWING_COST] < stretches[b, GROWING_COST]
        return goes_first(entries, parameters, stretches[a, GROWING], stretches[b, GROWING])
    if heap == COSTS and parameters[UNIT] == 2:
        if stretches[a, COST] != stretches[b, COST]:
            return stretches[a, COST] < stretches[b, COST]
        return goes_first(entries, parameters, stretches[a, CANDIDATE], stretches[b, CANDIDATE])
    if heap == COSTS and parameters[UNIT] == 1:
        return values[a, VALUE_RANK] > values[b, VALUE_RANK]
    return goes_first(entries, parameters, a, b)


@nb.njit(cache=True)
def put(heap, member, items, places, sizes, entries, stretches, values, parameters):  # type: ignore[no-untyped-def]
    """Insert a member, or move it to where it belongs now."""
    place = places[heap, member]
    if place < 0:
        place = sizes[heap]
        sizes[heap] += 1
        items[heap, place] = member
    while place > 0:
        above = (place - 1) // 2
        if not _below(heap, member, items[heap, above], entries, stretches, values, parameters):
            break
        items[heap, place] = items[heap, above]
        places[heap, items[heap, place]] = place
        place = above
    size = sizes[heap]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _below(
            heap, items[heap, child + 1], items[heap, child], entries, stretches, values, parameters
        ):
            child += 1
        if not _below(heap, items[heap, child], member, entries, stretches, values, parameters):
            break
        items[heap, place] = items[heap, child]
        places[heap, items[heap, place]] = place
        place = child
    items[heap, place] = member
    places[heap, member] = place


@nb.njit(cache=True)
def take(heap, member, items, places, sizes, entries, stretches, values, parameters):  # type: ignore[no-untyped-def]
    """Remove a member, if it is one."""
    place = places[heap, member]
    if place < 0:
        return
    places[heap, member] = -1
    sizes[heap] -= 1
    last = items[heap, sizes[heap]]
    if last != member:
        items[heap, place] = last
        places[heap, last] = place
        put(heap, last, items, places, sizes, entries, stretches, values, parameters)
