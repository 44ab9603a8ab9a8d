"""Binary heaps with places over waiting entries: the first on top, any entry found at once."""

from __future__ import annotations

from penstock.arrays import Records
from penstock.compilation import loop
from penstock.physical.synopses.preferences.layout import (
    BEST,
    EXPIRIES,
    ONE_UNIT,
    REST,
    WORST,
    Queue,
)


@loop
def _age(entries: Records, i: int) -> int:
    """Return what orders the entries of one element: the larger, the newer its zone or partner."""
    if entries[i].stage == ONE_UNIT:
        return int(entries[i].cursor)
    if entries[i].stretch == REST:
        return -1
    return int(entries[i].low)


@loop
def goes_before(entries: Records, a: int, b: int) -> bool:
    """Return whether entry a is worked on before entry b."""
    if entries[a].key != entries[b].key:
        return bool(entries[a].key < entries[b].key)
    if entries[a].order != entries[b].order:
        return bool(entries[a].order < entries[b].order)
    return bool(_age(entries, a) > _age(entries, b))


@loop
def _below(heap: int, entries: Records, a: int, b: int) -> bool:
    if heap == BEST:
        return bool(goes_before(entries, a, b))
    if heap == WORST:
        return bool(goes_before(entries, b, a))
    return bool(entries[a].ends < entries[b].ends)


@loop
def _sink(queue: Queue, heap: int, member: int, place: int, size: int) -> None:
    items, places, entries = queue.items, queue.places, queue.entries
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _below(heap, entries, items[heap, child + 1], items[heap, child]):
            child += 1
        if not _below(heap, entries, items[heap, child], member):
            break
        items[heap, place] = items[heap, child]
        places[heap, items[heap, place]] = place
        place = child
    items[heap, place] = member
    places[heap, member] = place


@loop
def _settle(queue: Queue, heap: int, member: int, place: int, size: int) -> None:
    """Put a member where it belongs, beginning at `place`."""
    items, places, entries = queue.items, queue.places, queue.entries
    while place > 0:
        above = (place - 1) // 2
        if not _below(heap, entries, member, items[heap, above]):
            break
        items[heap, place] = items[heap, above]
        places[heap, items[heap, place]] = place
        place = above
    _sink(queue, heap, member, place, size)


@loop
def put(queue: Queue, member: int, size: int) -> None:
    """Insert a member into all heaps, which have `size` members."""
    for heap in (BEST, WORST, EXPIRIES):
        _settle(queue, heap, member, size, size + 1)


@loop
def take(queue: Queue, member: int, size: int) -> None:
    """Remove a member from all heaps, which have `size` members with it."""
    for heap in (BEST, WORST, EXPIRIES):
        place = queue.places[heap, member]
        last = queue.items[heap, size - 1]
        if last != member:
            _settle(queue, heap, last, place, size - 1)


@loop
def move_end(queue: Queue, member: int, size: int) -> None:
    """Put a member whose end has changed where it belongs."""
    _settle(queue, EXPIRIES, member, queue.places[EXPIRIES, member], size)


@loop
def rebuild(queue: Queue, heap: int, size: int) -> None:
    """Restore the order of a heap all of whose members may have changed."""
    items, places = queue.items, queue.places
    for place in range(size // 2 - 1, -1, -1):
        _sink(queue, heap, items[heap, place], place, size)
    for place in range(size):
        places[heap, items[heap, place]] = place
