"""Budgets of runs of granules [tls III]: under SLIDE, where all rows of a granule enter and leave a window together.

An entry is a run: granules in a row of one value, of which the window takes one off the begin at every boundary.
Cutting an end would free nothing. So what goes first is a run that has ended and is too short for the predicate, which
it can never pass any more; of several the one that leaves the window first, then the least hash. After these every
policy drops whole values: the one with the largest hash of those held, which is refused from then on.

Contract: what leaves at a boundary leaves before what arrives there; after every arrival the weight of the runs is at
most the budget; what is dropped depends on the arrivals alone, in the order of (boundary, hash), never on how they were
cut into calls. An arrival costs the logarithm of what is held, and so does every change of a run at a boundary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.arrays import Int64s, Records, joined, record_of
from penstock.compilation import loop
from penstock.shedding.compiled import compiled
from penstock.shedding.hashing import FallingThresholds, bucket_of
from penstock.shedding.layout import NEVER

RUN = record_of(
    "slot",  # its value
    "first",  # the ends of its first and last granule
    "last",
    "shown",  # the begin that is shown
    "rank",  # the hash and the weight of its value
    "weight",
    "alive",  # whether it is held
    # During a boundary: what was shown before it, and whether that is noted; and the next run of the same value.
    "old_shown",
    "old_last",
    "touched",
    "next",
)
#: A value: its last run, its list of runs, and whether it is in the heap of hashes.
_VALUE = record_of("open", "runs", "listed")
_NO_VALUE = np.array((-1, -1, 0), _VALUE)
#: The heaps: of runs by when they are cut next; of short runs, and of all, by (last granule, hash); of values by hash.
_CUTS, _SHORT, _OLDEST, _RANKS = range(4)
#: A member of a heap, which has the least (key, second) on top.
_HEAPED = record_of("key", "second", "member")
#: The single numbers. held: a weight; slide, length, least: as `GranuleBudgets` has them; made: runs, as `dropped`;
#: marked: the runs that are noted.
_NUMBERS = record_of("budget", "held", "threshold", "slide", "length", "least", "made", "dropped", "marked")
#: A run dropped, and whether its value was.
KILL = record_of("slot", "at", "begin", "end", "weight", "rank", "whole")
#: A change of what is shown.
CHANGE = record_of("slot", "at", "begin", "end", "sign")
#: Nothing is shown.
_NOTHING = np.int64(-(2**63))


class _RunsState(NamedTuple):
    """The arrays of a bucket. heaps: by (heap, place); touched: the runs that are noted."""

    runs: Records
    values: Records
    heaps: Records
    sizes: Int64s
    numbers: Records
    kills: Records
    touched: Int64s


@compiled()
def _push(state: _RunsState, which: int, key: int, second: int, member: int) -> None:
    """Add a member to a heap."""
    heap, place = state.heaps[which], state.sizes[which]
    state.sizes[which] += 1
    while place > 0:
        above = (place - 1) // 2
        if heap[above].key < key or (heap[above].key == key and heap[above].second <= second):
            break
        heap[place] = heap[above]
        place = above
    heap[place].key, heap[place].second, heap[place].member = key, second, member


@compiled()
def _pop(state: _RunsState, which: int) -> int:
    """Remove the top of a heap, and return its member."""
    heap = state.heaps[which]
    top = heap[0].member
    state.sizes[which] -= 1
    size = state.sizes[which]
    key, second, member = heap[size].key, heap[size].second, heap[size].member
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            heap[other].key < heap[child].key
            or (heap[other].key == heap[child].key and heap[other].second < heap[child].second)
        ):
            child = other
        if key < heap[child].key or (key == heap[child].key and second <= heap[child].second):
            break
        heap[place] = heap[child]
        place = child
    heap[place].key, heap[place].second, heap[place].member = key, second, member
    return int(top)


@loop
def _touch(state: _RunsState, run: int) -> None:
    """Note what is shown of a run before it changes."""
    runs, numbers = state.runs, state.numbers[0]
    if runs[run].touched:
        return
    runs[run].touched = 1
    runs[run].old_shown, runs[run].old_last = runs[run].shown, runs[run].last
    state.touched[numbers.marked] = run
    numbers.marked += 1


@loop
def _enter(state: _RunsState, run: int) -> None:
    """Hold a run, whose fields are set."""
    runs, values, numbers = state.runs, state.values, state.numbers[0]
    slot = runs[run].slot
    runs[run].alive, runs[run].next = 1, values[slot].runs
    values[slot].runs = run
    numbers.held += runs[run].weight
    _push(state, _CUTS, runs[run].shown + numbers.length + numbers.slide, 0, run)
    if not values[slot].listed:
        values[slot].listed = 1
        _push(state, _RANKS, -runs[run].rank, 0, slot)
    if numbers.least > 0:
        _push(state, _OLDEST, runs[run].last, runs[run].rank, run)
        if runs[run].last - runs[run].first + numbers.slide < numbers.least:
            _push(state, _SHORT, runs[run].last, runs[run].rank, run)


@loop
def _kill(state: _RunsState, run: int, at: int, whole: int) -> None:
    """Drop a run; whole: 1 where all of its value is dropped."""
    runs, kills, numbers = state.runs, state.kills, state.numbers[0]
    row = numbers.dropped
    numbers.dropped += 1
    kills[row].slot, kills[row].at, kills[row].end = runs[run].slot, at, runs[run].last
    kills[row].begin, kills[row].weight = runs[run].shown, runs[run].weight
    kills[row].rank, kills[row].whole = runs[run].rank, whole
    numbers.held -= runs[run].weight
    runs[run].alive = 0


@compiled()
def _failing(state: _RunsState, which: int) -> int:
    """Return the run on top of a heap by (last granule, hash), -1 for none; those that have changed are put right."""
    runs, heap, numbers = state.runs, state.heaps[which], state.numbers[0]
    while state.sizes[which] > 0:
        run = heap[0].member
        long = runs[run].last - runs[run].first + numbers.slide >= numbers.least
        if not runs[run].alive or (which == _SHORT and long):
            _pop(state, which)
        elif heap[0].key != runs[run].last:
            _pop(state, which)
            _push(state, which, runs[run].last, runs[run].rank, run)
        else:
            return int(run)
    return -1


@loop
def _first_to_fail(state: _RunsState, at: int) -> int:
    """Return the run that goes first of those that have ended and fail the predicate, -1 where none does."""
    runs, numbers = state.runs, state.numbers[0]
    if numbers.least <= 0:
        return -1
    ended = at - 2 * numbers.slide
    short = _failing(state, _SHORT)
    if short >= 0 and runs[short].last > ended:
        short = -1
    oldest = _failing(state, _OLDEST)
    if oldest >= 0 and runs[oldest].last > min(ended, at - numbers.length + numbers.least - 1):
        oldest = -1
    if short < 0 or oldest < 0:
        return int(max(short, oldest))
    if runs[short].last != runs[oldest].last:
        return int(short if runs[short].last < runs[oldest].last else oldest)
    return int(short if runs[short].rank <= runs[oldest].rank else oldest)


@loop
def _drop_value(state: _RunsState, at: int) -> None:
    """Drop all runs of the value with the largest hash, if any is held of it."""
    runs, values, numbers = state.runs, state.values, state.numbers[0]
    slot = _pop(state, _RANKS)
    values[slot].listed = 0
    run = values[slot].runs
    while run >= 0:
        if runs[run].alive:
            _touch(state, run)
            numbers.threshold = min(numbers.threshold, runs[run].rank)
            _kill(state, run, at, 1)
        run = runs[run].next
    values[slot].runs = -1


@compiled()
def _show(state: _RunsState, at: int, changes: Records, count: int) -> tuple[Records, int]:
    """Write what a boundary changes of the runs noted; return the changes, with more room if needed, and their
    number."""
    runs, numbers = state.runs, state.numbers[0]
    if count + 2 * numbers.marked > changes.shape[0]:
        wider = np.empty(2 * (count + 2 * numbers.marked), CHANGE)
        for k in range(count):
            wider[k] = changes[k]
        changes = wider
    for k in range(numbers.marked):
        run = state.touched[k]
        runs[run].touched = 0
        was, now = runs[run].old_shown != _NOTHING, runs[run].alive != 0
        same = runs[run].old_shown == runs[run].shown and runs[run].old_last == runs[run].last
        if was and not (now and same):
            changes[count].slot, changes[count].at, changes[count].sign = runs[run].slot, at, -1
            changes[count].begin, changes[count].end = runs[run].old_shown, runs[run].old_last
            count += 1
        if now and not (was and same):
            changes[count].slot, changes[count].at, changes[count].sign = runs[run].slot, at, 1
            changes[count].begin, changes[count].end = runs[run].shown, runs[run].last
            count += 1
    return changes, count


@loop
def _follow(
    state: _RunsState,
    slots: Int64s,
    ranks: Int64s,
    stamps: Int64s,
    weights: Int64s,
    entered: Int64s,
    held: int,
    refuses_from: int,
    until: int,
) -> Records:
    """Take arrivals in order, and let time pass to `until`; return the changes of what is shown. held: runs."""
    runs, values, heaps, sizes, numbers = state.runs, state.values, state.heaps, state.sizes, state.numbers[0]
    slide, length = numbers.slide, numbers.length
    changes, count = np.empty(64, CHANGE), 0
    for run in range(held):
        _enter(state, run)
        slot = runs[run].slot
        if values[slot].open < 0 or runs[values[slot].open].last < runs[run].last:
            values[slot].open = run
    numbers.made = held
    i = 0
    while True:
        while sizes[_CUTS] > 0 and not runs[heaps[_CUTS, 0].member].alive:
            _pop(state, _CUTS)
        at = heaps[_CUTS, 0].key if sizes[_CUTS] > 0 else NEVER
        if i < slots.shape[0]:
            at = min(at, stamps[i])
        if at > until:
            return changes[:count]
        numbers.marked = 0
        while sizes[_CUTS] > 0 and heaps[_CUTS, 0].key <= at:
            run = _pop(state, _CUTS)
            if not runs[run].alive:
                continue
            _touch(state, run)
            if at - length >= runs[run].last:
                runs[run].alive = 0
                numbers.held -= runs[run].weight
            else:
                runs[run].shown = at - length
                _push(state, _CUTS, at + slide, 0, run)
        if i < slots.shape[0] and stamps[i] == at and refuses_from < numbers.threshold:
            numbers.threshold = refuses_from
            while sizes[_RANKS] > 0 and -heaps[_RANKS, 0].key >= refuses_from:
                _drop_value(state, at)
        while i < slots.shape[0] and stamps[i] == at:
            slot = slots[i]
            entered[i] = 1
            if ranks[i] >= numbers.threshold:
                entered[i] = 2
            else:
                run = values[slot].open
                if run >= 0 and runs[run].alive and runs[run].last == at - slide:
                    _touch(state, run)
                    runs[run].last = at
                else:
                    run = numbers.made
                    numbers.made += 1
                    runs[run].slot, runs[run].first, runs[run].last = slot, at, at
                    runs[run].rank, runs[run].weight = ranks[i], weights[i]
                    runs[run].shown, runs[run].touched = _NOTHING, 0
                    _touch(state, run)
                    runs[run].shown = at - slide
                    values[slot].open = run
                    _enter(state, run)
            i += 1
            while numbers.held > numbers.budget:
                run = _first_to_fail(state, at)
                if run >= 0:
                    _touch(state, run)
                    _kill(state, run, at, 0)
                else:
                    _drop_value(state, at)
        changes, count = _show(state, at, changes, count)


@dataclass(frozen=True)
class GranuleArrivals:
    """Granules of values that arrive, one row for each, in the order of (boundary, hash), as int64 arrays of a length.

    Args:
        slots: the value of each, a number below a count that the caller knows.
        ranks: a hash of the value, 63 bits.
        stamps: the end of the granule, a boundary.
        weights: what a run of the value counts in the budget.
    """

    slots: Int64s
    ranks: Int64s
    stamps: Int64s
    weights: Int64s


@dataclass(frozen=True)
class GranuleOutcome:
    """What arrivals and time did.

    Args:
        runs: those held, of `RUN`.
        entered: per arrival 1 where its value is kept, 2 where it is refused.
        changes: of `CHANGE`: what the boundaries change of what is shown.
        kills: of `KILL`: the runs dropped.
    """

    runs: Records
    entered: Int64s
    changes: Records
    kills: Records


class GranuleBudgets:
    """The budgets of runs of granules in one shard, by bucket. It keeps no run between two calls.

    Args:
        budgets: of the buckets.
        slide: the length of a granule in ticks; length: that of the window, a multiple of it.
        least: the constant of LENGTH >= constant in ticks, 0 without one.
    """

    def __init__(self, budgets: list[int], slide: int, length: int, least: int = 0) -> None:
        self.budgets = budgets
        self.thresholds = [int(NEVER)] * len(budgets)
        #: How they fall, if anything reads it.
        self.falling: FallingThresholds | None = None
        self.dropped = 0
        self._slide, self._length, self._least = slide, length, least

    def admit(
        self, held: Records, arrivals: GranuleArrivals, values: int, refuses_from: int, until: int
    ) -> GranuleOutcome:
        """Take arrivals, and let time pass.

        Args:
            held: the runs held, of `RUN`.
            values: the number of slots.
            refuses_from: a threshold that has been decided, followed at the first arrival; NEVER for none.
            until: the last tick whose boundaries are looked at.
        """
        own, of = (self.bucket_of(np.ascontiguousarray(ranks)) for ranks in (arrivals.ranks, held["rank"]))
        entered = np.empty(len(arrivals.slots), np.int64)
        runs, changed, kills = [], [], []
        for bucket, budget in enumerate(self.budgets):
            rows, mine = np.flatnonzero(own == bucket), held.compress(of == bucket)
            room = len(mine) + len(rows)
            table, numbers = np.zeros(room, RUN), np.zeros(1, _NUMBERS)
            table[: len(mine)] = mine
            table["touched"][: len(mine)] = 0
            numbers["budget"], numbers["threshold"] = budget, self.thresholds[bucket]
            numbers["slide"], numbers["length"], numbers["least"] = self._slide, self._length, self._least
            state = _RunsState(
                runs=table,
                values=np.repeat(_NO_VALUE, values),
                heaps=np.empty((4, room + 1), _HEAPED),
                sizes=np.zeros(4, np.int64),
                numbers=numbers,
                kills=np.empty(room, KILL),
                touched=np.empty(room, np.int64),
            )
            self._note_decided(bucket, refuses_from, arrivals.stamps[rows])
            own_entered = np.empty(len(rows), np.int64)
            parts = (arrivals.slots, arrivals.ranks, arrivals.stamps, arrivals.weights)
            own_parts = (np.ascontiguousarray(part[rows]) for part in parts)
            changes = _follow(state, *own_parts, own_entered, len(mine), refuses_from, until)
            entered[rows] = own_entered
            made, dropped = table[: numbers["made"][0]], int(numbers["dropped"][0])
            runs.append(made.compress(made["alive"] != 0))
            changed.append(changes)
            kills.append(state.kills[:dropped])
            if self.falling is not None:
                whole = kills[-1].compress(kills[-1]["whole"] == 1)
                self.falling.note(bucket, whole["at"], whole["rank"])
            self.thresholds[bucket] = int(numbers["threshold"][0])
            self.dropped += dropped
        return GranuleOutcome(joined(runs), entered, joined(changed), joined(kills))

    def _note_decided(self, bucket: int, refuses_from: int, stamps: Int64s) -> None:
        """Note that a decided threshold is followed at the first arrival."""
        if self.falling is not None and len(stamps):
            self.falling.note(bucket, stamps[:1], np.array([refuses_from], np.int64))

    def bucket_of(self, ranks: Int64s) -> Int64s:
        """Return the bucket of each hash."""
        return bucket_of(ranks, len(self.budgets))
