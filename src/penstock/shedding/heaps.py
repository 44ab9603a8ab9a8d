"""Binary heaps with positions, over entries, stretches or values: the least on top, any member found at once.

`items[h]` are the members of heap h in heap order, `items[KEYS + h]` their keys, `places[h, m]` the place of member m,
or -1, `sizes[h]` their number.
"""

from __future__ import annotations

from penstock.shedding.compiled import loop_per_constant
from penstock.shedding.layout import COSTS, EXPIRIES, GROWINGS, KEYS, RECHECKS, REDUNDANTS, SAMPLED, State


@loop_per_constant
def goes_first(state: State, a: int, b: int) -> bool:
    """Return whether entry a goes before entry b where they cost the same."""
    entries, parameters = state.entries, state.parameters[0]
    if parameters.ties == 0:
        if entries[a].inner != entries[b].inner:
            return bool(entries[a].inner < entries[b].inner)
        if entries[a].expires != entries[b].expires:
            return bool(entries[a].expires < entries[b].expires)
        if entries[a].begin != entries[b].begin:
            return bool(entries[a].begin < entries[b].begin)
        if entries[a].rank != entries[b].rank:
            return bool(entries[a].rank < entries[b].rank)
    elif parameters.ties == 1 and entries[a].tie != entries[b].tie:
        return bool(entries[a].tie < entries[b].tie)
    return bool(entries[a].number < entries[b].number)


@loop_per_constant
def _key(state: State, heap: int, member: int) -> int:
    """Return what the members of a heap are ordered by first. It is kept beside them: comparing them then reads what
    lies close together, and the rows of members only where keys are equal."""
    entries, stretches, values, parameters = state.entries, state.stretches, state.values, state.parameters[0]
    if heap in (EXPIRIES, SAMPLED):
        return int(entries[member].expires)
    if heap == RECHECKS:
        return int(stretches[member].recheck)
    if heap == GROWINGS:
        return int(stretches[member].growing_cost)
    if heap == COSTS and parameters.unit == 2:
        return int(stretches[member].cost)
    if heap == COSTS and parameters.unit == 1:
        return int(-values[member].rank)
    if parameters.ties == 0:
        return int(entries[member].inner if heap == REDUNDANTS else entries[member].expires)
    return int(entries[member].tie if parameters.ties == 1 else entries[member].number)


@loop_per_constant
def _wins(state: State, heap: int, a: int, b: int) -> bool:
    """Return whether member a is above member b, where their keys are equal."""
    entries, stretches, parameters = state.entries, state.stretches, state.parameters[0]
    if heap in (EXPIRIES, SAMPLED):
        return bool(entries[a].number < entries[b].number)
    if heap == GROWINGS:
        return bool(goes_first(state, stretches[a].growing, stretches[b].growing))
    if heap == COSTS and parameters.unit == 2:
        return bool(goes_first(state, stretches[a].candidate, stretches[b].candidate))
    if heap == RECHECKS or (heap == COSTS and parameters.unit == 1):
        return False
    return bool(goes_first(state, a, b))


@loop_per_constant
def put(state: State, heap: int, member: int) -> None:
    """Insert a member, or move it to where it belongs now."""
    items, places, sizes = state.items, state.places, state.sizes
    place = places[heap, member]
    if place < 0:
        place = sizes[heap]
        sizes[heap] += 1
    keys = KEYS + heap
    key = _key(state, heap, member)
    while place > 0:
        above = (place - 1) // 2
        other = items[keys, above]
        if key > other or (key == other and not _wins(state, heap, member, items[heap, above])):
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
            if other < least or (other == least and _wins(state, heap, items[heap, child + 1], items[heap, child])):
                child, least = child + 1, other
        if least > key or (least == key and not _wins(state, heap, items[heap, child], member)):
            break
        items[heap, place], items[keys, place] = items[heap, child], least
        places[heap, items[heap, place]] = place
        place = child
    items[heap, place], items[keys, place] = member, key
    places[heap, member] = place


@loop_per_constant
def take(state: State, heap: int, member: int) -> None:
    """Remove a member, if it is one."""
    items, places, sizes = state.items, state.places, state.sizes
    place = places[heap, member]
    if place < 0:
        return
    places[heap, member] = -1
    sizes[heap] -= 1
    last = items[heap, sizes[heap]]
    if last != member:
        items[heap, place], items[KEYS + heap, place] = last, items[KEYS + heap, sizes[heap]]
        places[heap, last] = place
        put(state, heap, last)
