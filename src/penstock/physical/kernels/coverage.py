"""How often every tick is covered by periods, for each group: search trees of the ends of periods in one array.

A tree is a treap over ticks: every node has the number of periods that begin at its tick less those that end there
(DELTA). The cover behind a tick is the sum of DELTA up to it. Every node stores the sum of its subtree (SUM) and the
least sum of a beginning of it (LEAST), by which the next tick from which nothing is covered is found in logarithmic
time. A *stretch* is a maximal covered period. Periods that touch leave no such tick between them.

A node is a row of int64; node 0 means none. Nodes that are free form a list by LEFT; FREE is its head, in the row of
node 0.
"""

from __future__ import annotations

import numpy as np

from penstock.compilation import loop
from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.trees import LEFT, PARENT, RIGHT, rotate_up
from penstock.types import END

TICK, DELTA, USES, SUM, LEAST, PRIORITY = range(PARENT + 1, 9)
WIDTH = 9
FREE = LEFT
#: The least sum of no beginning.
NOTHING = np.int64(2**62)


def no_nodes(capacity: int = 16) -> Int64s:
    """Return room for `capacity` nodes, none of which is in use."""
    nodes = np.zeros((0, WIDTH), np.int64)
    return grown(nodes, capacity)


def grown(nodes: Int64s, capacity: int) -> Int64s:
    """Return `nodes` with room for `capacity` of them."""
    made = np.zeros((capacity, WIDTH), np.int64)
    used = len(nodes)
    made[:used] = nodes
    if used == 0:
        made[0, LEAST] = NOTHING
        used = 1
    made[used : capacity - 1, LEFT] = np.arange(used + 1, capacity)
    made[capacity - 1, LEFT] = made[0, FREE]
    made[0, FREE] = used
    return made


@loop
def _pull(nodes: Int64s, n: int) -> None:
    left, right = nodes[n, LEFT], nodes[n, RIGHT]
    before = (nodes[left, SUM] if left else 0) + nodes[n, DELTA]
    nodes[n, SUM] = before + (nodes[right, SUM] if right else 0)
    least = before
    if left and nodes[left, LEAST] < least:
        least = nodes[left, LEAST]
    if right and before + nodes[right, LEAST] < least:
        least = before + nodes[right, LEAST]
    nodes[n, LEAST] = least


@loop
def _lift(nodes: Int64s, n: int) -> None:
    """Rotate `n` above its parent."""
    p = rotate_up(nodes, n)
    _pull(nodes, p)
    _pull(nodes, n)


@loop
def _mixed(tick: int) -> int:
    """Return a hash of a tick, by which the shape of a tree depends on its content alone."""
    z = np.uint64(tick) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int(np.int64(z >> np.uint64(2)))


@compiled()
def _use(nodes: Int64s, roots: Int64s, group: int, tick: int, delta: int, uses: int) -> None:
    """Add `delta` to the DELTA of `tick`, and `uses` (1 or -1) to the number of periods that begin or end there."""
    at, parent, side = roots[group], 0, LEFT
    while at and nodes[at, TICK] != tick:
        parent = at
        side = LEFT if tick < nodes[at, TICK] else RIGHT
        at = nodes[at, side]
    if not at:
        at = nodes[0, FREE]
        nodes[0, FREE] = nodes[at, LEFT]
        nodes[at, LEFT] = nodes[at, RIGHT] = nodes[at, DELTA] = nodes[at, USES] = 0
        nodes[at, TICK] = tick
        nodes[at, PARENT] = parent
        nodes[at, PRIORITY] = _mixed(tick)
        if parent:
            nodes[parent, side] = at
        _pull(nodes, at)
        while nodes[at, PARENT] and nodes[nodes[at, PARENT], PRIORITY] < nodes[at, PRIORITY]:
            _lift(nodes, at)
        if nodes[at, PARENT] == 0:
            roots[group] = at
    nodes[at, DELTA] += delta
    nodes[at, USES] += uses
    if nodes[at, USES] > 0:
        while at:
            _pull(nodes, at)
            at = nodes[at, PARENT]
        return
    _remove(nodes, roots, group, at)


@loop
def _remove(nodes: Int64s, roots: Int64s, group: int, n: int) -> None:
    while True:
        left, right = nodes[n, LEFT], nodes[n, RIGHT]
        if not left and not right:
            break
        if not right or (left and nodes[left, PRIORITY] > nodes[right, PRIORITY]):
            lifted = left
        else:
            lifted = right
        _lift(nodes, lifted)
        if nodes[lifted, PARENT] == 0:
            roots[group] = lifted
    parent = nodes[n, PARENT]
    if parent:
        nodes[parent, LEFT if nodes[parent, LEFT] == n else RIGHT] = 0
    else:
        roots[group] = 0
    nodes[n, LEFT] = nodes[0, FREE]
    nodes[0, FREE] = n
    while parent:
        _pull(nodes, parent)
        parent = nodes[parent, PARENT]


@loop
def _from(nodes: Int64s, root: int, tick: int) -> tuple[int, int]:
    """Return the first node at or behind `tick`, and the cover behind it; (0, 0) where there is none."""
    at, found, cover, before = root, 0, 0, 0
    while at:
        behind = before + (nodes[nodes[at, LEFT], SUM] if nodes[at, LEFT] else 0) + nodes[at, DELTA]
        if nodes[at, TICK] >= tick:
            found, cover = at, behind
            at = nodes[at, LEFT]
        else:
            before = behind
            at = nodes[at, RIGHT]
    return found, cover


@loop
def _before(nodes: Int64s, root: int, tick: int) -> tuple[int, int]:
    """Return the last node before `tick`, and the cover behind it; (0, 0) where there is none."""
    at, found, cover, before = root, 0, 0, 0
    while at:
        behind = before + (nodes[nodes[at, LEFT], SUM] if nodes[at, LEFT] else 0) + nodes[at, DELTA]
        if nodes[at, TICK] < tick:
            found, cover = at, behind
            before = behind
            at = nodes[at, RIGHT]
        else:
            at = nodes[at, LEFT]
    return found, cover


@loop
def _next(nodes: Int64s, n: int) -> int:
    """Return the node behind `n`, 0 for none."""
    if nodes[n, RIGHT]:
        n = nodes[n, RIGHT]
        while nodes[n, LEFT]:
            n = nodes[n, LEFT]
        return n
    while nodes[n, PARENT] and nodes[nodes[n, PARENT], RIGHT] == n:
        n = nodes[n, PARENT]
    return int(nodes[n, PARENT])


@loop
def _end(nodes: Int64s, root: int, tick: int) -> int:
    """Return the first node at or behind `tick` behind which nothing is covered; 0 for none."""
    n, cover = _from(nodes, root, tick)
    while n:
        if cover == 0:
            return int(n)
        right = nodes[n, RIGHT]
        if right and cover + nodes[right, LEAST] == 0:
            n = right
            while True:
                left = nodes[n, LEFT]
                if left and cover + nodes[left, LEAST] == 0:
                    n = left
                    continue
                cover += (nodes[left, SUM] if left else 0) + nodes[n, DELTA]
                if cover == 0:
                    return int(n)
                n = nodes[n, RIGHT]
        if right:
            cover += nodes[right, SUM]
        while nodes[n, PARENT] and nodes[nodes[n, PARENT], RIGHT] == n:
            n = nodes[n, PARENT]
        n = nodes[n, PARENT]
        cover += nodes[n, DELTA]
    return 0


@loop
def _last_end(nodes: Int64s, root: int, tick: int) -> int:
    """Return the last node before `tick` behind which nothing is covered; 0 for none."""
    n, cover = _before(nodes, root, tick)
    while n:
        if cover == 0:
            return int(n)
        left = nodes[n, LEFT]
        cover -= nodes[n, DELTA]
        if left:
            first = cover - nodes[left, SUM]
            if first + nodes[left, LEAST] == 0:
                n, before = left, first
                while True:
                    behind = before + (nodes[nodes[n, LEFT], SUM] if nodes[n, LEFT] else 0) + nodes[n, DELTA]
                    right = nodes[n, RIGHT]
                    if right and behind + nodes[right, LEAST] == 0:
                        n, before = right, behind
                        continue
                    if behind == 0:
                        return int(n)
                    n = nodes[n, LEFT]
            cover = first
        while nodes[n, PARENT] and nodes[nodes[n, PARENT], LEFT] == n:
            n = nodes[n, PARENT]
        n = nodes[n, PARENT]
    return 0


@loop
def _first_stretch(nodes: Int64s, root: int, tick: int) -> int:
    """Return the begin of the first stretch that ends at or behind `tick`; 0 for none."""
    last = _last_end(nodes, root, tick)
    if last:
        return int(_next(nodes, last))
    n = root
    while n and nodes[n, LEFT]:
        n = nodes[n, LEFT]
    return n


@compiled()
def _append(out: Int64s, count: int, group: int, event: int, begin: int, end: int, sign: int) -> Int64s:
    """Append a stretch that comes (sign 1) or goes (-1); return the array, which may be a larger one."""
    if count == out.shape[1]:
        made = np.empty((out.shape[0], 2 * count), np.int64)
        made[:, :count] = out
        out = made
    out[0, count], out[1, count], out[2, count] = group, event, begin
    out[3, count], out[4, count] = end, sign
    return out


@compiled(reads="groups order begins ends weights")
def follow(
    nodes: Int64s, roots: Int64s, groups: Int64s, order: Int64s, begins: Int64s, ends: Int64s, weights: Int64s
) -> Int64s:
    """Apply periods that come (weight 1) and go (-1), in `order`; return the stretches that come and go, one per
    column: (group, event, begin, end, sign). There must be room for two nodes for every period that comes."""
    out, count = np.empty((5, 16), np.int64), 0
    for k in range(order.shape[0]):
        i = order[k]
        group, begin, end = groups[i], begins[i], ends[i]
        if weights[i] > 0:
            low, high = begin, end
            n = _first_stretch(nodes, roots[group], begin)
            while n and nodes[n, TICK] <= end:
                first = nodes[n, TICK]
                last = _end(nodes, roots[group], first)
                out = _append(out, count, group, i, first, nodes[last, TICK], -1)
                count += 1
                low, high = min(low, first), max(high, nodes[last, TICK])
                n = _next(nodes, last)
            _use(nodes, roots, group, begin, 1, 1)
            _use(nodes, roots, group, end, -1, 1)
            out = _append(out, count, group, i, low, high, 1)
            count += 1
        else:
            first = nodes[_first_stretch(nodes, roots[group], begin), TICK]
            last = nodes[_end(nodes, roots[group], begin), TICK]
            out = _append(out, count, group, i, first, last, -1)
            count += 1
            _use(nodes, roots, group, begin, -1, -1)
            _use(nodes, roots, group, end, 1, -1)
            n, _ = _from(nodes, roots[group], first)
            while n and nodes[n, TICK] < last:
                until = _end(nodes, roots[group], nodes[n, TICK])
                out = _append(out, count, group, i, nodes[n, TICK], nodes[until, TICK], 1)
                count += 1
                n = _next(nodes, until)
    return out[:, :count]


@compiled(reads="groups begins ends")
def plant(nodes: Int64s, roots: Int64s, groups: Int64s, begins: Int64s, ends: Int64s) -> None:
    """Add periods without returning changes."""
    for i in range(groups.shape[0]):
        _use(nodes, roots, groups[i], begins[i], 1, 1)
        _use(nodes, roots, groups[i], ends[i], -1, 1)


@compiled(reads="groups order begins ends weights")
def follow_gaps(
    nodes: Int64s, roots: Int64s, groups: Int64s, order: Int64s, begins: Int64s, ends: Int64s, weights: Int64s
) -> Int64s:
    """Apply stretches that come (weight 1) and go (-1), in `order`, of which those of a group never touch; return the
    gaps between neighbours that come and go, one per column: (group, event, begin, end, sign). Behind the last stretch
    of a group is a gap that ends at END, unless the stretch does. There must be room as for `follow`."""
    out = np.empty((5, 3 * order.shape[0]), np.int64)
    never, count = np.int64(END), 0
    for k in range(order.shape[0]):
        i = order[k]
        group, begin, end, weight = groups[i], begins[i], ends[i], weights[i]
        if weight < 0:
            _use(nodes, roots, group, begin, -1, -1)
            _use(nodes, roots, group, end, 1, -1)
        before, _ = _before(nodes, roots[group], begin)
        after, _ = _from(nodes, roots[group], end)
        until = nodes[after, TICK] if after else never
        if before and nodes[before, TICK] < until:
            out[0, count], out[1, count], out[2, count] = group, i, nodes[before, TICK]
            out[3, count], out[4, count] = until, -weight
            count += 1
        if before:
            out[0, count], out[1, count], out[2, count] = group, i, nodes[before, TICK]
            out[3, count], out[4, count] = begin, weight
            count += 1
        if end < until:
            out[0, count], out[1, count], out[2, count] = group, i, end
            out[3, count], out[4, count] = until, weight
            count += 1
        if weight > 0:
            _use(nodes, roots, group, begin, 1, 1)
            _use(nodes, roots, group, end, -1, 1)
    return out[:, :count]
