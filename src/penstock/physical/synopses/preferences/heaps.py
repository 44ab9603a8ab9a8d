"""Binary heaps with places over waiting entries: the first on top, any entry found at once."""

from __future__ import annotations

from penstock.compilation import loop
from penstock.physical.synopses.preferences.layout import (
    BEST,
    CURSOR,
    ENDS,
    EXPIRIES,
    KEY,
    LOW,
    ONE_UNIT,
    ORDER,
    REST,
    STAGE,
    STRETCH,
    WORST,
)


@loop
def _age(entries, i):  # type: ignore[no-untyped-def]
    """Return what orders the entries of one element: the larger, the newer its zone or partner."""
    if entries[i, STAGE] == ONE_UNIT:
        return entries[i, CURSOR]
    if entries[i, STRETCH] == REST:
        return -1
    return entries[i, LOW]


@loop
def goes_before(entries, ranks, a, b):  # type: ignore[no-untyped-def]
    """Return whether entry a is worked on before entry b."""
    if ranks[a, KEY] != ranks[b, KEY]:
        return ranks[a, KEY] < ranks[b, KEY]
    if entries[a, ORDER] != entries[b, ORDER]:
        return entries[a, ORDER] < entries[b, ORDER]
    return _age(entries, a) > _age(entries, b)


@loop
def _below(heap, entries, ranks, a, b):  # type: ignore[no-untyped-def]
    if heap == BEST:
        return goes_before(entries, ranks, a, b)
    if heap == WORST:
        return goes_before(entries, ranks, b, a)
    return entries[a, ENDS] < entries[b, ENDS]


@loop
def _sink(heap, member, place, size, items, places, entries, ranks):  # type: ignore[no-untyped-def]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _below(heap, entries, ranks, items[heap, child + 1], items[heap, child]):
            child += 1
        if not _below(heap, entries, ranks, items[heap, child], member):
            break
        items[heap, place] = items[heap, child]
        places[heap, items[heap, place]] = place
        place = child
    items[heap, place] = member
    places[heap, member] = place


@loop
def _settle(heap, member, place, size, items, places, entries, ranks):  # type: ignore[no-untyped-def]
    """Put a member where it belongs, beginning at `place`."""
    while place > 0:
        above = (place - 1) // 2
        if not _below(heap, entries, ranks, member, items[heap, above]):
            break
        items[heap, place] = items[heap, above]
        places[heap, items[heap, place]] = place
        place = above
    _sink(heap, member, place, size, items, places, entries, ranks)


@loop
def put(member, size, items, places, entries, ranks):  # type: ignore[no-untyped-def]
    """Insert a member into all heaps, which have `size` members."""
    for heap in (BEST, WORST, EXPIRIES):
        _settle(heap, member, size, size + 1, items, places, entries, ranks)


@loop
def take(member, size, items, places, entries, ranks):  # type: ignore[no-untyped-def]
    """Remove a member from all heaps, which have `size` members with it."""
    for heap in (BEST, WORST, EXPIRIES):
        place = places[heap, member]
        last = items[heap, size - 1]
        if last != member:
            _settle(heap, last, place, size - 1, items, places, entries, ranks)


@loop
def move_end(member, size, items, places, entries, ranks):  # type: ignore[no-untyped-def]
    """Put a member whose end has changed where it belongs."""
    _settle(EXPIRIES, member, places[EXPIRIES, member], size, items, places, entries, ranks)


@loop
def rebuild(heap, size, items, places, entries, ranks):  # type: ignore[no-untyped-def]
    """Restore the order of a heap all of whose members may have changed."""
    for place in range(size // 2 - 1, -1, -1):
        _sink(heap, items[heap, place], place, size, items, places, entries, ranks)
    for place in range(size):
        places[heap, items[heap, place]] = place
