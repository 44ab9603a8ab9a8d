"""Pairing heaps in one array: the smallest, the largest, or both, of each group's bag, where rows may be retracted.

A value is inserted when it becomes live, at constant cost, and is removed only when it reaches the top and is dead, at
logarithmic cost. So changes below the top cost nothing, unlike in a tree (`trees.py`).

A node is a row of eight int64 as in `trees.py`; node 0 means none. Each of the two heaps (side 0: the smallest on top,
side 1: the largest) has its columns CHILD and SIBLING; MEMBER is the sum of 1 and 2 for the sides it is a member of.
"""

from __future__ import annotations

from penstock.arrays import Bytes, Int64s
from penstock.compilation import loop
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.key_order import bytes_less
from penstock.physical.kernels.trees import KEY

_CHILD, _SIBLING, MEMBER = 0, 1, 5
_SIDE = 3


@compiled()
def _above(nodes: Int64s, a: int, b: int, side: int, wide: bool, spans: Int64s, data: Bytes) -> bool:
    if side:
        a, b = b, a
    if nodes[a, KEY] != nodes[b, KEY] or not wide:
        return bool(nodes[a, KEY] < nodes[b, KEY])
    return bool(bytes_less(data, spans[a, 0], spans[a, 1], spans[b, 0], spans[b, 1]))


@compiled()
def _merge(nodes: Int64s, a: int, b: int, side: int, wide: bool, spans: Int64s, data: Bytes) -> int:
    """Merge two heaps and return the new top; 0 is the empty heap."""
    if a == 0 or b == 0:
        return a + b
    if _above(nodes, b, a, side, wide, spans, data):
        a, b = b, a
    nodes[b, _SIBLING + _SIDE * side] = nodes[a, _CHILD + _SIDE * side]
    nodes[a, _CHILD + _SIDE * side] = b
    return a


@compiled()
def _pop(nodes: Int64s, top: int, side: int, wide: bool, spans: Int64s, data: Bytes) -> int:
    """Remove the top and return the new one."""
    child, sibling = _CHILD + _SIDE * side, _SIBLING + _SIDE * side
    left = nodes[top, child]
    nodes[top, child] = 0
    nodes[top, MEMBER] -= 1 + side
    pairs = 0
    while left:
        one, other = left, nodes[left, sibling]
        left = nodes[other, sibling] if other else 0
        nodes[one, sibling] = 0
        if other:
            nodes[other, sibling] = 0
        pair = _merge(nodes, one, other, side, wide, spans, data)
        nodes[pair, sibling] = pairs
        pairs = pair
    top = 0
    while pairs:
        following = nodes[pairs, sibling]
        nodes[pairs, sibling] = 0
        top = _merge(nodes, top, pairs, side, wide, spans, data)
        pairs = following
    return top


@compiled()
def _put(nodes: Int64s, tops: Int64s, group: int, n: int, side: int, wide: bool, spans: Int64s, data: Bytes) -> None:
    if nodes[n, MEMBER] & (1 + side) == 0:
        nodes[n, MEMBER] += 1 + side
        tops[group, side] = _merge(nodes, tops[group, side], n, side, wide, spans, data)


@loop
def fill(
    nodes: Int64s, tops: Int64s, groups: Int64s, slots: Int64s, sides: Int64s, wide: bool, spans: Int64s, data: Bytes
) -> None:
    """Insert the values in `slots` of the bag into the heaps of their `groups`."""
    for i in range(slots.shape[0]):
        for side in sides:
            _put(nodes, tops, groups[i], slots[i] + 1, side, wide, spans, data)


@loop
def clear(nodes: Int64s, tops: Int64s, groups: Int64s, wide: bool, spans: Int64s, data: Bytes) -> None:
    """Remove all values from the heaps of `groups`."""
    for group in groups:
        for side in range(2):
            while tops[group, side]:
                tops[group, side] = _pop(nodes, tops[group, side], side, wide, spans, data)


@compiled(reads="slots times order pairs weights")
def follow(
    slots: Int64s,
    times: Int64s,
    order: Int64s,
    pairs: Int64s,
    weights: Int64s,
    live: Int64s,
    nodes: Int64s,
    tops: Int64s,
    sides: Int64s,
    wide: bool,
    spans: Int64s,
    data: Bytes,
    found: Int64s,
) -> None:
    """Apply events to the bags and report the tops of the heaps.

    Events order[0], order[1], ..., sorted by (group, time), change the count of the value pairs[e] (-1: none) by
    weights[e]; found[q, k, 0] becomes the slot on top of the heap sides[q] after the k-th (group, time), or -1. `live`:
    counts by slot, changed in place.
    """
    n, i, k = order.shape[0], 0, 0
    while i < n:
        group, time = slots[order[i]], times[order[i]]
        while i < n and slots[order[i]] == group and times[order[i]] == time:
            event = order[i]
            pair = pairs[event]
            if pair >= 0:
                before = live[pair]
                live[pair] = before + weights[event]
                # Live values are in the heaps already; a value that dies at this instant is removed when it reaches the
                # top.
                if before <= 0 and live[pair] > 0:
                    for side in sides:
                        _put(nodes, tops, group, pair + 1, side, wide, spans, data)
            i += 1
        for q in range(sides.shape[0]):
            side = sides[q]
            while tops[group, side] and live[tops[group, side] - 1] <= 0:
                tops[group, side] = _pop(nodes, tops[group, side], side, wide, spans, data)
            found[q, k, 0] = found[q, k, 1] = tops[group, side] - 1
        k += 1
