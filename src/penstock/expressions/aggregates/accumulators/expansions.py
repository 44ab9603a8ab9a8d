"""Sums of doubles as expansions: `WIDTH` doubles, the exact sum of which is the value [shewchuk 2].

A term is added to the first double, the rounding error of that addition to the second, and so on, so a sum stays exact
while its bits, from the highest to the lowest, fit into the doubles: about 53 in each, wherever they are, and gaps of
zeros between doubles need none. So what expires leaves nothing behind, also after values of very different size. Where
an error is left after the last double, the expansion is normalised; only if its bits do not fit then, it is rounded.
The same sum may have different doubles: `nearest` rounds it.
"""

from __future__ import annotations

import numba as nb

from penstock.arrays import Float64s, Int64s
from penstock.expressions.aggregates.accumulators.double_pairs import add_pair

#: Doubles of an expansion.
WIDTH = 4
#: At most so many passes over an expansion: as many as move a double through it twice, and some more.
_PASSES = 16


@nb.njit(inline="always")
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return a + b and its rounding error (Knuth)."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


@nb.njit(inline="always")
def add_row(sums: Float64s, slot: int, first: int, last: int, floats: Float64s, row: int, sign: int) -> None:
    """Add the lanes first ... last - 1 of a row, `sign` times (1 or -1, or 0), to the sum in the same lanes of
    sums[slot]. Two lanes are a pair, four an expansion."""
    if last - first == 2:
        sums[slot, first], sums[slot, first + 1] = add_pair(
            sums[slot, first], sums[slot, first + 1], sign * floats[row, first], sign * floats[row, first + 1]
        )
        return
    # Of most rows and sums the lanes behind the second are 0: one test for all of them is the fastest.
    high, error = two_sum(sums[slot, first], sign * floats[row, first])
    low, error = two_sum(sums[slot, first + 1], error)
    low, other = two_sum(low, sign * floats[row, first + 1])
    sums[slot, first], sums[slot, first + 1] = high, low
    if (error != 0.0) | (other != 0.0) | (floats[row, first + 2] != 0.0) | (floats[row, first + 3] != 0.0):
        _pass_on(sums, slot, first + 2, first, last, error)
        _pass_on(sums, slot, first + 2, first, last, other)
        _pass_on(sums, slot, first + 2, first, last, sign * floats[row, first + 2])
        _pass_on(sums, slot, first + 3, first, last, sign * floats[row, first + 3])


@nb.njit(inline="always")
def add_lanes(state: Float64s, slot: int, sums: Int64s, s: int, floats: Float64s, row: int, sign: int) -> None:
    """Add the lanes of a row, `sign` times, to the sum number s of state[slot]. sums: as `AggregateLayout.double_sums`;
    floats: by (row, lane), or by (row, sum) the first lanes of rows whose other lanes are 0."""
    first, last = sums[s, 1], sums[s, 2]
    if floats.shape[1] < state.shape[1]:
        add_value(state, slot, first, last, sign * floats[row, s])
    else:
        add_row(state, slot, first, last, floats, row, sign)


@nb.njit(inline="always")
def add_value(sums: Float64s, slot: int, first: int, last: int, value: float) -> None:
    """Do the same as `add_row` with a row of which the first lane is `value` and the others are 0."""
    if last - first == 2:
        sums[slot, first], sums[slot, first + 1] = add_pair(sums[slot, first], sums[slot, first + 1], value, 0.0)
        return
    sums[slot, first], error = two_sum(sums[slot, first], value)
    sums[slot, first + 1], error = two_sum(sums[slot, first + 1], error)
    if error != 0.0:
        _pass_on(sums, slot, first + 2, first, last, error)


@nb.njit(inline="always")
def clear_empty(integers: Int64s, floats: Float64s, slot: int, sums: Int64s) -> None:
    """Set the sums without terms to exactly 0. integers, floats: by (slot, lane); sums: as
    `AggregateLayout.double_sums`."""
    for s in range(sums.shape[0]):
        if integers[slot, sums[s, 0]] == 0:
            for lane in range(sums[s, 1], sums[s, 2]):
                floats[slot, lane] = 0.0


@nb.njit
def _pass_on(sums: Float64s, slot: int, lane: int, first: int, last: int, term: float) -> None:
    """Add a double to the lanes lane ... last - 1 of the expansion in the lanes first ... last - 1 of sums[slot]."""
    while term != 0.0:
        if lane == last:
            _normalise(sums, slot, first, last, term)
            return
        sums[slot, lane], term = two_sum(sums[slot, lane], term)
        lane += 1


@nb.njit
def _normalise(sums: Float64s, slot: int, first: int, last: int, term: float) -> None:
    """Write the nearest expansion to that of the lanes and `term`. It makes no array, which loops that count no
    references may not."""
    for _ in range(_PASSES):
        # From below, each double becomes the nearest to the sum of those down to it, and the one below what is left.
        total, moved = term, False
        for lane in range(last - 1, first - 1, -1):
            total, error = two_sum(sums[slot, lane], total)
            if lane == last - 1:
                moved |= error != term
                term = error
            else:
                moved |= error != sums[slot, lane + 1]
                sums[slot, lane + 1] = error
        moved |= total != sums[slot, first]
        sums[slot, first] = total
        if term == 0.0 or not moved:
            return


@nb.njit
def distil(terms: Float64s, count: int) -> int:
    """Replace the first `count` terms by as few as have the same sum, in order of size, none of them 0; return how
    many. The last differs from the sum by less than a unit in its last place [shewchuk 2]."""
    size = 0
    for i in range(count):
        total = terms[i]
        kept = 0
        for k in range(size):
            total, error = two_sum(total, terms[k])
            if error != 0.0:
                terms[kept] = error
                kept += 1
        if total != 0.0:
            terms[kept] = total
            kept += 1
        size = kept
    if size < 2:
        return size
    total = terms[size - 1]
    bottom = size - 1
    for k in range(size - 2, -1, -1):
        total, error = two_sum(total, terms[k])
        if error != 0.0:
            terms[bottom] = total
            bottom -= 1
            total = error
    terms[bottom] = total
    kept = 0
    for k in range(bottom + 1, size):
        total, error = two_sum(terms[k], total)
        if error != 0.0:
            terms[kept] = error
            kept += 1
    terms[kept] = total
    return kept + 1


@nb.njit
def nearest(terms: Float64s, count: int) -> float:
    """Return the sum of the first `count` terms, rounded once, to even where two doubles are as near; change the terms.
    No sum of some of them may overflow."""
    at = distil(terms, count) - 1
    if at < 0:
        return 0.0
    total, error = terms[at], 0.0
    while at > 0 and error == 0.0:
        at -= 1
        total, error = two_sum(total, terms[at])
    # The error may be half a unit in the last place: what is below it decides to which side the sum is nearer.
    if at > 0 and error != 0.0 and (error > 0.0) == (terms[at - 1] > 0.0):
        doubled = 2.0 * error
        other = total + doubled
        if other - total == doubled:
            total = other
    return float(total)
