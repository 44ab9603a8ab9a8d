"""Budgets of whole stretches, or sessions, of which only the one that goes on is known of every value [tls III].

An entry is the stretch of a value that goes on, or each of its elements. Cutting its end would make it wrong, so every
policy drops whole values: of those that go on the one with the largest hash, which is refused from then on. What goes
on when an instant begins is what no arrival before has closed.

Contract: after every arrival the weight of what goes on is at most the budget; what is dropped depends on the arrivals
alone, in their order, never on how they were cut into calls. An arrival costs the logarithm of what goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Int64s
from penstock.shedding.compiled import compiled, loop
from penstock.shedding.hashing import FallingThresholds, bucket_of
from penstock.shedding.layout import NEVER

#: By value, at the begin of a call: whether a stretch goes on, its begin, its end, the hash, the weight, whether it is
#: in the heap of hashes, and how many entries it counts.
ALIVE, FIRST, LAST, RANK, WEIGHT, LISTED, COUNT = range(7)
LANES = 7
#: The single numbers of a budget: its size, the weight that goes on, the hash from which on values are refused, the
#: sizes of the two heaps, and the number of values dropped.
_BUDGET, _HELD, _THRESHOLD, _ENDS, _RANKS, _DROPPED = range(6)
#: A row per value that is dropped: its slot, the timestamp of the drop, its stretch, and the entries of it.
KILL_SLOT, KILL_AT, KILL_BEGIN, KILL_END, KILL_WEIGHT, KILL_COUNT = range(6)


@loop
def _push(keys: Int64s, members: Int64s, size: int, key: int, member: int) -> int:
    """Add a member to a heap with the least key on top; return its size."""
    place = size
    while place > 0 and keys[(place - 1) // 2] > key:
        keys[place], members[place] = keys[(place - 1) // 2], members[(place - 1) // 2]
        place = (place - 1) // 2
    keys[place], members[place] = key, member
    return size + 1


@loop
def _pop(keys: Int64s, members: Int64s, size: int) -> int:
    """Remove the top of a heap; return its size."""
    size -= 1
    key, member = keys[size], members[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place], members[place] = keys[child], members[child]
        place = child
    keys[place], members[place] = key, member
    return size


@loop
def _list(lanes: Int64s, heaps: Int64s, numbers: Int64s, slot: int) -> None:
    """Put a value whose stretch goes on into both heaps."""
    numbers[_ENDS] = _push(heaps[0], heaps[1], numbers[_ENDS], lanes[LAST, slot], slot)
    if not lanes[LISTED, slot]:
        numbers[_RANKS] = _push(heaps[2], heaps[3], numbers[_RANKS], -lanes[RANK, slot], slot)
        lanes[LISTED, slot] = 1


@loop
def _begin(lanes: Int64s, heaps: Int64s, numbers: Int64s, slots: Int64s) -> None:
    """Find what goes on, of the values of one budget."""
    for k in range(slots.shape[0]):
        numbers[_HELD] += lanes[WEIGHT, slots[k]]
        _list(lanes, heaps, numbers, slots[k])


@loop
def _close(lanes: Int64s, heaps: Int64s, numbers: Int64s, limit: int) -> None:
    """End the stretches that end at `limit` or before."""
    while numbers[_ENDS] > 0 and heaps[0, 0] <= limit:
        slot = heaps[1, 0]
        numbers[_ENDS] = _pop(heaps[0], heaps[1], numbers[_ENDS])
        if not lanes[ALIVE, slot]:
            continue
        if lanes[LAST, slot] > limit:
            numbers[_ENDS] = _push(heaps[0], heaps[1], numbers[_ENDS], lanes[LAST, slot], slot)
            continue
        lanes[ALIVE, slot] = 0
        numbers[_HELD] -= lanes[WEIGHT, slot]


@loop
def _drop(lanes: Int64s, heaps: Int64s, numbers: Int64s, at: int, kills: Int64s, killed: int) -> int:
    """Drop the value with the largest hash of those that go on; return the number of drops so far."""
    while True:
        slot = heaps[3, 0]
        numbers[_RANKS] = _pop(heaps[2], heaps[3], numbers[_RANKS])
        lanes[LISTED, slot] = 0
        if lanes[ALIVE, slot]:
            break
    lanes[ALIVE, slot] = 0
    numbers[_HELD] -= lanes[WEIGHT, slot]
    numbers[_THRESHOLD] = min(numbers[_THRESHOLD], lanes[RANK, slot])
    numbers[_DROPPED] += 1
    kills[killed, KILL_SLOT], kills[killed, KILL_AT] = slot, at
    kills[killed, KILL_BEGIN], kills[killed, KILL_END] = lanes[FIRST, slot], lanes[LAST, slot]
    kills[killed, KILL_WEIGHT], kills[killed, KILL_COUNT] = lanes[WEIGHT, slot], lanes[COUNT, slot]
    return killed + 1


@compiled(reads="order slots ranks stamps begins reaches weights limits", counted=False)
def _follow(
    order: Int64s,
    slots: Int64s,
    ranks: Int64s,
    stamps: Int64s,
    begins: Int64s,
    reaches: Int64s,
    weights: Int64s,
    limits: Int64s,
    at_most: int,
    by_element: bool,
    refuses_from: int,
    lanes: Int64s,
    heaps: Int64s,
    numbers: Int64s,
    entered: Int64s,
    kills: Int64s,
    killed: int,
    thresholds: Int64s,
) -> int:
    """Take arrivals in order; return the number of drops so far.

    Args:
        by_element: whether each element of a stretch is an entry, else the stretch is.
        refuses_from: a threshold that has been decided, which is followed at the first arrival.
        thresholds: by arrival the one that it meets, and the one behind it.
    """
    for n in range(order.shape[0]):
        i = order[n]
        slot = slots[i]
        _close(lanes, heaps, numbers, limits[i])
        if refuses_from < numbers[_THRESHOLD]:
            numbers[_THRESHOLD] = refuses_from
            while numbers[_RANKS] > 0 and -heaps[2, 0] >= refuses_from:
                if lanes[ALIVE, heaps[3, 0]]:
                    killed = _drop(lanes, heaps, numbers, stamps[i], kills, killed)
                else:
                    lanes[LISTED, heaps[3, 0]] = 0
                    numbers[_RANKS] = _pop(heaps[2], heaps[3], numbers[_RANKS])
        thresholds[0, i] = numbers[_THRESHOLD]
        if ranks[i] < numbers[_THRESHOLD]:
            entered[i] = 1
            alive = lanes[ALIVE, slot] != 0
            goes_on = alive and begins[i] <= lanes[LAST, slot]
            if goes_on and at_most > 0 and begins[i] >= lanes[FIRST, slot] + at_most:
                goes_on = False
            if by_element and goes_on:
                numbers[_HELD] += weights[i]
                lanes[WEIGHT, slot] += weights[i]
                lanes[COUNT, slot] += 1
            elif by_element and alive:
                # Another stretch follows within the instant: the one before is final.
                numbers[_HELD] += weights[i] - lanes[WEIGHT, slot]
                lanes[WEIGHT, slot], lanes[COUNT, slot] = weights[i], 1
            if not goes_on:
                lanes[FIRST, slot] = lanes[LAST, slot] = begins[i]
            lanes[LAST, slot] = max(lanes[LAST, slot], reaches[i])
            if at_most > 0:
                lanes[LAST, slot] = min(lanes[LAST, slot], lanes[FIRST, slot] + at_most)
            if not alive:
                lanes[ALIVE, slot], lanes[RANK, slot], lanes[WEIGHT, slot] = 1, ranks[i], weights[i]
                lanes[COUNT, slot] = 1
                numbers[_HELD] += weights[i]
                _list(lanes, heaps, numbers, slot)
        else:
            entered[i] = 2
        while numbers[_HELD] > numbers[_BUDGET]:
            killed = _drop(lanes, heaps, numbers, stamps[i], kills, killed)
        thresholds[1, i] = numbers[_THRESHOLD]
    return killed


@dataclass(frozen=True)
class StretchArrivals:
    """Elements that arrive, as int64 arrays of one length.

    Args:
        slots: the value of each, a number below that of the lanes.
        ranks: a hash of the value, 63 bits.
        stamps: the timestamp.
        begins, reaches: the period [begin, reach).
        weights: what it counts in the budget, or its value does.
        limits: a stretch that ends there or before has been closed before the instant of the element.
    """

    slots: Int64s
    ranks: Int64s
    stamps: Int64s
    begins: Int64s
    reaches: Int64s
    weights: Int64s
    limits: Int64s

    def chosen(self, rows: Int64s) -> StretchArrivals:
        """Return some of the arrivals."""
        return StretchArrivals(
            self.slots[rows],
            self.ranks[rows],
            self.stamps[rows],
            self.begins[rows],
            self.reaches[rows],
            self.weights[rows],
            self.limits[rows],
        )


class WholeStretches:
    """The budgets of whole stretches in one shard, by bucket. It keeps no stretch between two calls: the operator that
    has them does.

    Args:
        budgets: of the buckets.
        at_most: how long a stretch may be, 0 for any length.
        by_element: whether each element of a stretch is an entry, else the stretch is.
    """

    def __init__(self, budgets: list[int], at_most: int = 0, by_element: bool = False) -> None:
        self.budgets = budgets
        self.thresholds = [int(NEVER)] * len(budgets)
        #: How they fall, if anything reads it.
        self.falling: FallingThresholds | None = None
        self.at_most, self.by_element = at_most, by_element
        self.dropped = 0

    def bucket_of(self, ranks: Int64s) -> Int64s:
        """Return the bucket of each hash."""
        return bucket_of(ranks, len(self.budgets))

    def admit(self, lanes: Int64s, arrivals: StretchArrivals, refuses_from: int) -> tuple[Int64s, Int64s, Int64s]:
        """Take arrivals.

        Args:
            lanes: (lane, slot), which are changed.
            refuses_from: a threshold that has been decided; NEVER for none.

        Returns:
            Per arrival 1 where its value is kept, 2 where it is refused; the values dropped, rows of KILL_..; and the
            thresholds that each arrival meets, and leaves behind. An arrival of a value that is dropped later counts as
            kept.
        """
        entered, thresholds = np.empty(len(arrivals.slots), np.int64), np.empty((2, len(arrivals.slots)), np.int64)
        order = np.lexsort((arrivals.reaches, arrivals.ranks, arrivals.begins, arrivals.stamps))
        goes_on = np.flatnonzero(lanes[ALIVE])
        kills = np.empty((len(goes_on) + len(order), 6), np.int64)
        killed = 0
        own, of = self.bucket_of(arrivals.ranks), self.bucket_of(np.ascontiguousarray(lanes[RANK, goes_on]))
        for bucket, budget in enumerate(self.budgets):
            numbers = np.array([budget, 0, self.thresholds[bucket], 0, 0, 0], np.int64)
            mine, its_order = goes_on[of == bucket], order[own[order] == bucket]
            # A value enters the heap of ends once for each stretch that begins after an end, or that it had at first.
            heaps = np.empty((4, len(mine) + len(its_order) + 1), np.int64)
            _begin(lanes, heaps, numbers, mine)
            killed = _follow(
                its_order,
                arrivals.slots,
                arrivals.ranks,
                arrivals.stamps,
                arrivals.begins,
                arrivals.reaches,
                arrivals.weights,
                arrivals.limits,
                self.at_most,
                self.by_element,
                refuses_from,
                lanes,
                heaps,
                numbers,
                entered,
                kills,
                killed,
                thresholds,
            )
            self.thresholds[bucket] = int(numbers[_THRESHOLD])
            if self.falling is not None:
                self.falling.note(bucket, arrivals.stamps[its_order], thresholds[1, its_order])
            self.dropped += int(numbers[_DROPPED])
        return entered, kills[:killed], thresholds
