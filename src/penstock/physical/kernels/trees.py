"""Balanced search trees in one array: for each group the values of its bag in order, with their counts.

A tree is a treap: ordered by value, and a heap by a priority that is a hash of the value, so that its shape depends
only on its content and paths are logarithmic. Every node stores the number of live values (TOTAL) and the largest count
(BEST) of its subtree, by which the k-th and the most frequent value are found in logarithmic time. A value whose count
falls to 0 stays until the bag drops its slot.

A node is a row of eight int64, one cache line; node 0 means none. PARENT -1: the node is in no tree.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Bytes, Float64s, Int64s
from penstock.compilation import loop
from penstock.expressions.aggregates.contract import Question
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.key_order import bytes_less

LEFT, RIGHT, PARENT, TOTAL, BEST, WEIGHT, KEY, PRIORITY = range(8)
WIDTH = 8

#: How far a product may be from an integer, as a share of it, to be taken for it.
_NEAR = 1e-12

#: The queries that a tree answers.
LEAST, GREATEST, QUANTILE, MODE, TOP, EVERY, RANK, COUNTS = map(int, Question)


@loop
def _pull(nodes: Int64s, n: int) -> None:
    """Recompute TOTAL and BEST of a node from its children."""
    left, right = nodes[n, LEFT], nodes[n, RIGHT]
    nodes[n, TOTAL] = nodes[n, WEIGHT] + nodes[left, TOTAL] + nodes[right, TOTAL]
    nodes[n, BEST] = max(nodes[n, WEIGHT], nodes[left, BEST], nodes[right, BEST])


@loop
def _less(nodes: Int64s, a: int, b: int, wide: bool, spans: Int64s, data: Bytes) -> bool:
    if nodes[a, KEY] != nodes[b, KEY] or not wide:
        return bool(nodes[a, KEY] < nodes[b, KEY])
    return bool(bytes_less(data, spans[a, 0], spans[a, 1], spans[b, 0], spans[b, 1]))


@loop
def rotate_up(nodes: Int64s, n: int) -> int:
    """Rotate `n` above its parent, in a tree of any nodes that begin with LEFT, RIGHT and PARENT; return that parent.
    What nodes know of their subtrees must be computed again, first that of the former parent."""
    p = nodes[n, PARENT]
    above = nodes[p, PARENT]
    inner, outer = (RIGHT, LEFT) if nodes[p, LEFT] == n else (LEFT, RIGHT)
    child = nodes[n, inner]
    nodes[p, outer] = child
    if child:
        nodes[child, PARENT] = p
    nodes[n, inner] = p
    nodes[p, PARENT] = n
    nodes[n, PARENT] = above
    if above:
        nodes[above, LEFT if nodes[above, LEFT] == p else RIGHT] = n
    return int(p)


@loop
def _lift(nodes: Int64s, n: int) -> None:
    """Rotate `n` above its parent."""
    p = rotate_up(nodes, n)
    _pull(nodes, p)
    _pull(nodes, n)


@loop
def _insert(nodes: Int64s, roots: Int64s, group: int, n: int, wide: bool, spans: Int64s, data: Bytes) -> None:
    """Insert the node `n`, of weight 0, into the group's tree."""
    nodes[n, LEFT] = nodes[n, RIGHT] = nodes[n, TOTAL] = nodes[n, BEST] = nodes[n, WEIGHT] = 0
    nodes[n, PARENT] = 0
    at = roots[group]
    while at:
        side = LEFT if _less(nodes, n, at, wide, spans, data) else RIGHT
        following = nodes[at, side]
        if following == 0:
            nodes[at, side] = n
            nodes[n, PARENT] = at
        at = following
    while nodes[n, PARENT] and nodes[nodes[n, PARENT], PRIORITY] < nodes[n, PRIORITY]:
        _lift(nodes, n)
    if nodes[n, PARENT] == 0:
        roots[group] = n


@compiled()
def _weigh(nodes: Int64s, n: int, weight: int) -> None:
    nodes[n, WEIGHT] = weight
    while n:
        _pull(nodes, n)
        n = nodes[n, PARENT]


@loop
def plant(
    nodes: Int64s,
    roots: Int64s,
    groups: Int64s,
    slots: Int64s,
    counts: Int64s,
    distinct: bool,
    wide: bool,
    spans: Int64s,
    data: Bytes,
) -> None:
    """Insert the values in `slots` of the bag into the trees of their `groups`."""
    for i in range(slots.shape[0]):
        n = slots[i] + 1
        _insert(nodes, roots, groups[i], n, wide, spans, data)
        _weigh(nodes, n, 1 if distinct else counts[slots[i]])


@loop
def uproot(nodes: Int64s, roots: Int64s, groups: Int64s) -> None:
    """Remove all nodes from the trees of `groups`."""
    for i in range(groups.shape[0]):
        n = roots[groups[i]]
        while n:
            if nodes[n, LEFT]:
                n = nodes[n, LEFT]
            elif nodes[n, RIGHT]:
                n = nodes[n, RIGHT]
            else:
                above = nodes[n, PARENT]
                if above:
                    nodes[above, LEFT if nodes[above, LEFT] == n else RIGHT] = 0
                nodes[n, PARENT] = -1
                n = above
        roots[groups[i]] = 0


@compiled()
def _kth(nodes: Int64s, n: int, k: int) -> int:
    """Return the node of the k-th live value, counted from 0, of more than k."""
    while True:
        before = nodes[nodes[n, LEFT], TOTAL]
        if k < before:
            n = nodes[n, LEFT]
        elif k < before + nodes[n, WEIGHT]:
            return n
        else:
            k -= before + nodes[n, WEIGHT]
            n = nodes[n, RIGHT]


@loop
def _most(nodes: Int64s, n: int) -> int:
    """Return the node of the most frequent value, of several the smallest."""
    best = nodes[n, BEST]
    while True:
        if nodes[nodes[n, LEFT], BEST] == best:
            n = nodes[n, LEFT]
        elif nodes[n, WEIGHT] == best:
            return n
        else:
            n = nodes[n, RIGHT]


@compiled()
def _roomy(array: Int64s, size: int, more: int) -> Int64s:
    """Return `array`, grown to hold `more` after the first `size`."""
    if size + more <= array.shape[0]:
        return array
    grown = np.empty(2 * (size + more), np.int64)
    for i in range(size):
        grown[i] = array[i]
    return grown


@loop
def _rank(total: int, fraction: float, rounded: float, spread: float) -> int:
    """Return the rank from 1 to `total` that RANK asks for (`OrderedFunction.parameters`); 0 where there is none. A
    fraction is meant as it was written in decimals, so a product that is an integer but for rounding is one."""
    if rounded == 0.0:
        product = fraction * (total - 1)
        near = np.floor(product + 0.5)
        rank = 1 + int(near if abs(product - near) <= _NEAR * max(1.0, near) else np.floor(product))
    else:
        product = fraction * total
        near = np.floor(product + 0.5)
        rank = int(near if abs(product - near) <= _NEAR * max(1.0, near) else np.ceil(product))
        rank = max(1, rank)
    if spread > 0.0:
        rank += total // int(spread)
    elif spread < 0.0:
        rank -= total // int(-spread)
    return rank if 1 <= rank <= total else 0


@compiled()
def _answer(
    nodes: Int64s,
    root: int,
    asked: Int64s,
    parameters: Float64s,
    k: int,
    found: Int64s,
    between: Float64s,
    members: Int64s,
    counts: Int64s,
    size: int,
) -> tuple[Int64s, Int64s, int]:
    """Answer every query about one tree into found[:, k]; return (members, counts, size).

    The answers are slots, or for TOP, EVERY and COUNTS a range of `members` (and `counts`); -1 where no value is live.
    `between`: the distance of a quantile from the first of its two slots.
    """
    total = nodes[root, TOTAL]
    for q in range(asked.shape[0]):
        found[q, k, 0] = found[q, k, 1] = -1
        between[q, k] = 0.0
        if total == 0:
            continue
        what = asked[q]
        if what == LEAST:
            found[q, k, 0] = _kth(nodes, root, 0) - 1
        elif what == GREATEST:
            found[q, k, 0] = _kth(nodes, root, total - 1) - 1
        elif what == QUANTILE:
            place = (total - 1) * parameters[q, 0]
            low = int(np.floor(place))
            found[q, k, 0] = found[q, k, 1] = _kth(nodes, root, low) - 1
            if place > low:
                found[q, k, 1] = _kth(nodes, root, low + 1) - 1
                between[q, k] = place - low
        elif what == RANK:
            rank = _rank(total, parameters[q, 0], parameters[q, 1], parameters[q, 2])
            if rank > 0:
                found[q, k, 0] = found[q, k, 1] = _kth(nodes, root, rank - 1) - 1
        elif what == MODE:
            found[q, k, 0] = _most(nodes, root) - 1
        elif what == TOP:
            found[q, k, 0] = size
            most = int(parameters[q, 0])
            while nodes[root, BEST] > 0 and size - found[q, k, 0] < most:
                members, counts = _roomy(members, size, 1), _roomy(counts, size, 1)
                n = _most(nodes, root)
                members[size], counts[size] = n - 1, nodes[n, WEIGHT]
                size += 1
                _weigh(nodes, n, 0)
            for i in range(found[q, k, 0], size):
                _weigh(nodes, members[i] + 1, counts[i])
            found[q, k, 1] = size
        else:
            found[q, k, 0] = size
            if what == EVERY:
                members, counts = _roomy(members, size, total), _roomy(counts, size, total)
            n = root
            while nodes[n, LEFT]:
                n = nodes[n, LEFT]
            while n:
                if what == COUNTS and nodes[n, WEIGHT] > 0:
                    members, counts = _roomy(members, size, 1), _roomy(counts, size, 1)
                    members[size], counts[size] = n - 1, nodes[n, WEIGHT]
                    size += 1
                for _ in range(nodes[n, WEIGHT] if what == EVERY else 0):
                    members[size] = n - 1
                    size += 1
                if nodes[n, RIGHT]:
                    n = nodes[n, RIGHT]
                    while nodes[n, LEFT]:
                        n = nodes[n, LEFT]
                else:
                    while nodes[n, PARENT] and nodes[nodes[n, PARENT], RIGHT] == n:
                        n = nodes[n, PARENT]
                    n = nodes[n, PARENT]
            found[q, k, 1] = size
    return members, counts, size


@loop
def ask(
    nodes: Int64s, roots: Int64s, groups: Int64s, asked: Int64s, parameters: Float64s, found: Int64s, between: Float64s
) -> tuple[Int64s, Int64s]:
    """Answer the queries for the current state of each of `groups`."""
    members, counts, size = np.empty(16, np.int64), np.empty(16, np.int64), 0
    for k in range(groups.shape[0]):
        members, counts, size = _answer(
            nodes, roots[groups[k]], asked, parameters, k, found, between, members, counts, size
        )
    return members[:size], counts[:size]


@compiled(reads="slots times order pairs weights")
def follow(
    slots: Int64s,
    times: Int64s,
    order: Int64s,
    pairs: Int64s,
    weights: Int64s,
    live: Int64s,
    distinct: bool,
    nodes: Int64s,
    roots: Int64s,
    wide: bool,
    spans: Int64s,
    data: Bytes,
    asked: Int64s,
    parameters: Float64s,
    found: Int64s,
    between: Float64s,
) -> tuple[Int64s, Int64s]:
    """Apply events to the bags and answer the queries.

    Events order[0], order[1], ..., sorted by (group, time), change the count of the value pairs[e] (-1: none) by
    weights[e]; after the k-th (group, time) the queries are answered into found[:, k]. `live`: counts by slot, changed
    in place.
    """
    members, counts, size = np.empty(16, np.int64), np.empty(16, np.int64), 0
    n, i, k = order.shape[0], 0, 0
    while i < n:
        group, time = slots[order[i]], times[order[i]]
        first = i
        while i < n and slots[order[i]] == group and times[order[i]] == time:
            if pairs[order[i]] >= 0:
                live[pairs[order[i]]] += weights[order[i]]
            i += 1
        for j in range(first, i):
            pair = pairs[order[j]]
            if pair >= 0:
                weight = live[pair]
                if distinct and weight > 1:
                    weight = 1
                if nodes[pair + 1, PARENT] < 0:
                    _insert(nodes, roots, group, pair + 1, wide, spans, data)
                if weight != nodes[pair + 1, WEIGHT]:
                    _weigh(nodes, pair + 1, weight)
        members, counts, size = _answer(
            nodes, roots[group], asked, parameters, k, found, between, members, counts, size
        )
        k += 1
    return members[:size], counts[:size]
