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

import numpy as np

from penstock.compilation import loop
from penstock.shedding.compiled import compiled
from penstock.shedding.hashing import FallingThresholds, bucket_of
from penstock.shedding.layout import NEVER, Int64s

#: Of a run: its value, the ends of its first and last granule, the begin that is shown, the hash and the weight of its
#: value, whether it is held.
SLOT, FIRST, LAST, SHOWN, RANK, WEIGHT, ALIVE = range(7)
#: During a boundary: what was shown before it, and whether that is noted; and the next run of the same value.
_OLD_SHOWN, _OLD_LAST, _TOUCHED, _NEXT = range(7, 11)
RUN_COLUMNS = 11
#: Of a value: its last run, its list of runs, and whether it is in the heap of hashes.
_OPEN, _RUNS, _LISTED = range(3)
#: The heaps: of runs by when they are cut next; of short runs, and of all, by (last granule, hash); of values by hash.
_CUTS, _SHORT, _OLDEST, _RANKS = range(4)
#: The single numbers: budget, weight held, threshold, runs made, runs dropped.
_BUDGET, _HELD, _THRESHOLD, _MADE, _DROPPED = range(5)
#: A row per run dropped, and whether its value was.
KILL_SLOT, KILL_AT, KILL_BEGIN, KILL_END, KILL_WEIGHT, KILL_RANK, KILL_WHOLE = range(7)
#: A row per change of what is shown.
CHANGE_SLOT, CHANGE_AT, CHANGE_BEGIN, CHANGE_END, CHANGE_SIGN = range(5)
#: Nothing is shown.
_NOTHING = np.int64(-(2**63))


@compiled()
def _push(heaps, sizes, which, key, second, member):  # type: ignore[no-untyped-def]
    """Add a member to a heap with the least (key, second) on top."""
    heap, place = heaps[which], sizes[which]
    sizes[which] += 1
    while place > 0:
        above = (place - 1) // 2
        if heap[0, above] < key or (heap[0, above] == key and heap[1, above] <= second):
            break
        heap[:, place] = heap[:, above]
        place = above
    heap[0, place], heap[1, place], heap[2, place] = key, second, member


@compiled()
def _pop(heaps, sizes, which):  # type: ignore[no-untyped-def]
    """Remove the top of a heap, and return its member."""
    heap = heaps[which]
    top = heap[2, 0]
    sizes[which] -= 1
    size = sizes[which]
    key, second, member = heap[0, size], heap[1, size], heap[2, size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            heap[0, other] < heap[0, child] or (heap[0, other] == heap[0, child] and heap[1, other] < heap[1, child])
        ):
            child = other
        if key < heap[0, child] or (key == heap[0, child] and second <= heap[1, child]):
            break
        heap[:, place] = heap[:, child]
        place = child
    heap[0, place], heap[1, place], heap[2, place] = key, second, member
    return top


@compiled()
def _touch(runs, run, touched, marked):  # type: ignore[no-untyped-def]
    """Note what is shown of a run before it changes; return how many are noted."""
    if runs[run, _TOUCHED]:
        return marked
    runs[run, _TOUCHED] = 1
    runs[run, _OLD_SHOWN], runs[run, _OLD_LAST] = runs[run, SHOWN], runs[run, LAST]
    touched[marked] = run
    return marked + 1


@loop
def _enter(runs, run, values, heaps, sizes, numbers, slide, length, least):  # type: ignore[no-untyped-def]
    """Hold a run, whose columns are set."""
    slot = runs[run, SLOT]
    runs[run, ALIVE], runs[run, _NEXT] = 1, values[_RUNS, slot]
    values[_RUNS, slot] = run
    numbers[_HELD] += runs[run, WEIGHT]
    _push(heaps, sizes, _CUTS, runs[run, SHOWN] + length + slide, 0, run)
    if not values[_LISTED, slot]:
        values[_LISTED, slot] = 1
        _push(heaps, sizes, _RANKS, -runs[run, RANK], 0, slot)
    if least > 0:
        _push(heaps, sizes, _OLDEST, runs[run, LAST], runs[run, RANK], run)
        if runs[run, LAST] - runs[run, FIRST] + slide < least:
            _push(heaps, sizes, _SHORT, runs[run, LAST], runs[run, RANK], run)


@loop
def _kill(runs, run, numbers, at, whole, kills):  # type: ignore[no-untyped-def]
    """Drop a run; whole: 1 where all of its value is dropped."""
    row = numbers[_DROPPED]
    numbers[_DROPPED] += 1
    kills[row, KILL_SLOT], kills[row, KILL_AT], kills[row, KILL_END] = runs[run, SLOT], at, runs[run, LAST]
    kills[row, KILL_BEGIN], kills[row, KILL_WEIGHT] = runs[run, SHOWN], runs[run, WEIGHT]
    kills[row, KILL_RANK], kills[row, KILL_WHOLE] = runs[run, RANK], whole
    numbers[_HELD] -= runs[run, WEIGHT]
    runs[run, ALIVE] = 0


@compiled()
def _failing(runs, heaps, sizes, which, slide, least):  # type: ignore[no-untyped-def]
    """Return the run on top of a heap by (last granule, hash), -1 for none; those that have changed are put right."""
    while sizes[which] > 0:
        run = heaps[which, 2, 0]
        if not runs[run, ALIVE] or (which == _SHORT and runs[run, LAST] - runs[run, FIRST] + slide >= least):
            _pop(heaps, sizes, which)
        elif heaps[which, 0, 0] != runs[run, LAST]:
            _pop(heaps, sizes, which)
            _push(heaps, sizes, which, runs[run, LAST], runs[run, RANK], run)
        else:
            return run
    return -1


@loop
def _first_to_fail(runs, heaps, sizes, at, slide, length, least):  # type: ignore[no-untyped-def]
    """Return the run that goes first of those that have ended and fail the predicate, -1 where none does."""
    if least <= 0:
        return -1
    ended = at - 2 * slide
    short = _failing(runs, heaps, sizes, _SHORT, slide, least)
    if short >= 0 and runs[short, LAST] > ended:
        short = -1
    oldest = _failing(runs, heaps, sizes, _OLDEST, slide, least)
    if oldest >= 0 and runs[oldest, LAST] > min(ended, at - length + least - 1):
        oldest = -1
    if short < 0 or oldest < 0:
        return max(short, oldest)
    if runs[short, LAST] != runs[oldest, LAST]:
        return short if runs[short, LAST] < runs[oldest, LAST] else oldest
    return short if runs[short, RANK] <= runs[oldest, RANK] else oldest


@loop
def _drop_value(runs, values, heaps, sizes, numbers, at, touched, marked, kills):  # type: ignore[no-untyped-def]
    """Drop all runs of the value with the largest hash, if any is held of it; return how many runs are noted."""
    slot = _pop(heaps, sizes, _RANKS)
    values[_LISTED, slot] = 0
    run = values[_RUNS, slot]
    while run >= 0:
        if runs[run, ALIVE]:
            marked = _touch(runs, run, touched, marked)
            numbers[_THRESHOLD] = min(numbers[_THRESHOLD], runs[run, RANK])
            _kill(runs, run, numbers, at, 1, kills)
        run = runs[run, _NEXT]
    values[_RUNS, slot] = -1
    return marked


@compiled()
def _show(runs, touched, marked, at, changes, count):  # type: ignore[no-untyped-def]
    """Write what a boundary changes of the runs noted; return the rows, with more room if needed, and their number."""
    if count + 2 * marked > changes.shape[0]:
        wider = np.empty((2 * (count + 2 * marked), 5), np.int64)
        wider[:count] = changes[:count]
        changes = wider
    for k in range(marked):
        run = touched[k]
        runs[run, _TOUCHED] = 0
        was, now = runs[run, _OLD_SHOWN] != _NOTHING, runs[run, ALIVE] != 0
        same = runs[run, _OLD_SHOWN] == runs[run, SHOWN] and runs[run, _OLD_LAST] == runs[run, LAST]
        if was and not (now and same):
            changes[count, 0], changes[count, 1], changes[count, 4] = runs[run, SLOT], at, -1
            changes[count, 2], changes[count, 3] = runs[run, _OLD_SHOWN], runs[run, _OLD_LAST]
            count += 1
        if now and not (was and same):
            changes[count, 0], changes[count, 1], changes[count, 4] = runs[run, SLOT], at, 1
            changes[count, 2], changes[count, 3] = runs[run, SHOWN], runs[run, LAST]
            count += 1
    return changes, count


@loop
def _follow(  # type: ignore[no-untyped-def]
    slots,
    ranks,
    stamps,
    weights,
    entered,
    runs,
    held,
    values,
    heaps,
    sizes,
    numbers,
    slide,
    length,
    least,
    refuses_from,
    until,
    kills,
    touched,
):
    """Take arrivals in order, and let time pass to `until`; return the changes of what is shown."""
    changes, count = np.empty((64, 5), np.int64), 0
    for run in range(held):
        _enter(runs, run, values, heaps, sizes, numbers, slide, length, least)
        slot = runs[run, SLOT]
        if values[_OPEN, slot] < 0 or runs[values[_OPEN, slot], LAST] < runs[run, LAST]:
            values[_OPEN, slot] = run
    numbers[_MADE] = held
    i = 0
    while True:
        while sizes[_CUTS] > 0 and not runs[heaps[_CUTS, 2, 0], ALIVE]:
            _pop(heaps, sizes, _CUTS)
        at = heaps[_CUTS, 0, 0] if sizes[_CUTS] > 0 else NEVER
        if i < slots.shape[0]:
            at = min(at, stamps[i])
        if at > until:
            return changes[:count]
        marked = 0
        while sizes[_CUTS] > 0 and heaps[_CUTS, 0, 0] <= at:
            run = _pop(heaps, sizes, _CUTS)
            if not runs[run, ALIVE]:
                continue
            marked = _touch(runs, run, touched, marked)
            if at - length >= runs[run, LAST]:
                runs[run, ALIVE] = 0
                numbers[_HELD] -= runs[run, WEIGHT]
            else:
                runs[run, SHOWN] = at - length
                _push(heaps, sizes, _CUTS, at + slide, 0, run)
        if i < slots.shape[0] and stamps[i] == at and refuses_from < numbers[_THRESHOLD]:
            numbers[_THRESHOLD] = refuses_from
            while sizes[_RANKS] > 0 and -heaps[_RANKS, 0, 0] >= refuses_from:
                marked = _drop_value(runs, values, heaps, sizes, numbers, at, touched, marked, kills)
        while i < slots.shape[0] and stamps[i] == at:
            slot = slots[i]
            entered[i] = 1
            if ranks[i] >= numbers[_THRESHOLD]:
                entered[i] = 2
            else:
                run = values[_OPEN, slot]
                if run >= 0 and runs[run, ALIVE] and runs[run, LAST] == at - slide:
                    marked = _touch(runs, run, touched, marked)
                    runs[run, LAST] = at
                else:
                    run = numbers[_MADE]
                    numbers[_MADE] += 1
                    runs[run, SLOT], runs[run, FIRST], runs[run, LAST] = slot, at, at
                    runs[run, RANK], runs[run, WEIGHT] = ranks[i], weights[i]
                    runs[run, SHOWN], runs[run, _TOUCHED] = _NOTHING, 0
                    marked = _touch(runs, run, touched, marked)
                    runs[run, SHOWN] = at - slide
                    values[_OPEN, slot] = run
                    _enter(runs, run, values, heaps, sizes, numbers, slide, length, least)
            i += 1
            while numbers[_HELD] > numbers[_BUDGET]:
                run = _first_to_fail(runs, heaps, sizes, at, slide, length, least)
                if run >= 0:
                    marked = _touch(runs, run, touched, marked)
                    _kill(runs, run, numbers, at, 0, kills)
                else:
                    marked = _drop_value(runs, values, heaps, sizes, numbers, at, touched, marked, kills)
        changes, count = _show(runs, touched, marked, at, changes, count)


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
        runs: those held, rows of SLOT .. ALIVE.
        entered: per arrival 1 where its value is kept, 2 where it is refused.
        changes: rows of CHANGE_..: what the boundaries change of what is shown.
        kills: rows of KILL_..: the runs dropped.
    """

    runs: Int64s
    entered: Int64s
    changes: Int64s
    kills: Int64s


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
        self, held: Int64s, arrivals: GranuleArrivals, values: int, refuses_from: int, until: int
    ) -> GranuleOutcome:
        """Take arrivals, and let time pass.

        Args:
            held: the runs held, rows of SLOT .. ALIVE.
            values: the number of slots.
            refuses_from: a threshold that has been decided, followed at the first arrival; NEVER for none.
            until: the last tick whose boundaries are looked at.
        """
        own, of = (self.bucket_of(np.ascontiguousarray(ranks)) for ranks in (arrivals.ranks, held[:, RANK]))
        entered = np.empty(len(arrivals.slots), np.int64)
        runs, changed, kills = [], [], []
        for bucket, budget in enumerate(self.budgets):
            rows, mine = np.flatnonzero(own == bucket), held[of == bucket]
            room = len(mine) + len(rows)
            table = np.zeros((room, RUN_COLUMNS), np.int64)
            table[: len(mine), : ALIVE + 1] = mine
            marks = np.zeros((3, values), np.int64)
            marks[:_LISTED] = -1
            numbers = np.array([budget, 0, self.thresholds[bucket], 0, 0], np.int64)
            self._note_decided(bucket, refuses_from, arrivals.stamps[rows])
            dropped, own_entered = np.empty((room, 7), np.int64), np.empty(len(rows), np.int64)
            heaps, sizes = np.empty((4, 3, room + 1), np.int64), np.zeros(4, np.int64)
            parts = (arrivals.slots, arrivals.ranks, arrivals.stamps, arrivals.weights)
            changes = _follow(
                *(np.ascontiguousarray(part[rows]) for part in parts),
                own_entered,
                table,
                len(mine),
                marks,
                heaps,
                sizes,
                numbers,
                self._slide,
                self._length,
                self._least,
                refuses_from,
                until,
                dropped,
                np.empty(room, np.int64),
            )
            entered[rows] = own_entered
            made = table[: numbers[_MADE]]
            runs.append(made[made[:, ALIVE] != 0][:, : ALIVE + 1])
            changed.append(changes)
            kills.append(dropped[: numbers[_DROPPED]])
            if self.falling is not None:
                whole = kills[-1][kills[-1][:, KILL_WHOLE] == 1]
                self.falling.note(bucket, whole[:, KILL_AT], whole[:, KILL_RANK])
            self.thresholds[bucket] = int(numbers[_THRESHOLD])
            self.dropped += int(numbers[_DROPPED])
        return GranuleOutcome(np.concatenate(runs), entered, np.concatenate(changed), np.concatenate(kills))

    def _note_decided(self, bucket: int, refuses_from: int, stamps: Int64s) -> None:
        """Note that a decided threshold is followed at the first arrival."""
        if self.falling is not None and len(stamps):
            self.falling.note(bucket, stamps[:1], np.array([refuses_from], np.int64))

    def bucket_of(self, ranks: Int64s) -> Int64s:
        """Return the bucket of each hash."""
        return bucket_of(ranks, len(self.budgets))
