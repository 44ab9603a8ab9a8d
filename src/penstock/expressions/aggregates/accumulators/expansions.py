"""Sums of doubles as expansions: several doubles, the exact sum of which is the value [shewchuk 2].

A term is added to the first double, the rounding error of that addition to the second, and so on, so a sum stays exact
while its bits, from the highest to the lowest, fit into the doubles: about 53 in each, wherever they are, and gaps of
zeros between doubles need none. So what expires leaves nothing behind, also after values of very different size. Where
an error is left after the last double, the expansion is normalised; only if its bits do not fit then, it is rounded.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from penstock.expressions.aggregates.accumulators.double_pairs import add_pair


@nb.njit(inline="always")
def _two_sum(a, b):  # type: ignore[no-untyped-def]
    """Return a + b and its rounding error (Knuth)."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


@nb.njit(inline="always")
def add_row(sums, slot, first, last, floats, row, sign):  # type: ignore[no-untyped-def]
    """Add the lanes first ... last - 1 of a row, `sign` times (1 or -1, or 0), to the sum in the same lanes of
    sums[slot]. Two lanes are a pair."""
    if last - first == 2:
        sums[slot, first], sums[slot, first + 1] = add_pair(
            sums[slot, first], sums[slot, first + 1], sign * floats[row, first], sign * floats[row, first + 1]
        )
        return
    for lane in range(first, last):
        if floats[row, lane] != 0.0:
            add_term(sums, slot, first, last, sign * floats[row, lane])


@nb.njit(inline="always")
def clear_empty(integers, floats, slot, sums):  # type: ignore[no-untyped-def]
    """Set the sums without terms to exactly 0. integers, floats: by (slot, lane); sums: as
    `AggregateLayout.double_sums`."""
    for s in range(sums.shape[0]):
        if integers[slot, sums[s, 0]] == 0:
            for lane in range(sums[s, 1], sums[s, 2]):
                floats[slot, lane] = 0.0


@nb.njit
def add_term(sums, slot, first, last, term):  # type: ignore[no-untyped-def]
    """Add a double to the expansion in the lanes first ... last - 1 of sums[slot]."""
    for lane in range(first, last):
        sums[slot, lane], term = _two_sum(sums[slot, lane], term)
        if term == 0.0:
            return
    _normalise(sums, slot, first, last, term)


@nb.njit
def _normalise(sums, slot, first, last, term):  # type: ignore[no-untyped-def]
    """Write the nearest expansion to that of the lanes and `term`."""
    terms = np.empty(last - first + 1)
    for lane in range(first, last):
        terms[lane - first] = sums[slot, lane]
    terms[last - first] = term
    count = distil(terms, len(terms))
    for lane in range(first, last):
        at = count - 1 - (lane - first)
        sums[slot, lane] = terms[at] if at >= 0 else 0.0


@nb.njit
def distil(terms, count):  # type: ignore[no-untyped-def]
    """Replace the first `count` terms by as few as have the same sum, in order of size, none of them 0; return how
    many. The last differs from the sum by less than a unit in its last place [shewchuk 2]."""
    size = 0
    for i in range(count):
        total = terms[i]
        kept = 0
        for k in range(size):
            total, error = _two_sum(total, terms[k])
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
        total, error = _two_sum(total, terms[k])
        if error != 0.0:
            terms[bottom] = total
            bottom -= 1
            total = error
    terms[bottom] = total
    kept = 0
    for k in range(bottom + 1, size):
        total, error = _two_sum(terms[k], total)
        if error != 0.0:
            terms[kept] = error
            kept += 1
    terms[kept] = total
    return kept + 1
