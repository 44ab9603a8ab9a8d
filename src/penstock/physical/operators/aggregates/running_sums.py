"""The sums of windows over a log of panes, carried from boundary to boundary and emitted there. Compiled.

The content of a window at a boundary is a contiguous range of the log; from one boundary to the next the panes that
leave are subtracted and those that enter are added. At boundaries that are fixed in time the sums are computed afresh,
so that they depend on the panes alone, never on where a run began or stopped, and no error outlasts two windows.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Bools, Float64s, Int32s, Int64s
from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.expansions import WIDTH, add_row
from penstock.expressions.aggregates.accumulators.total import rounded_sum
from penstock.physical.kernels.compiled import sort_first, with_room
from penstock.physical.kernels.compiling import compiled

#: New places are merged by scanning all places if at least one in this many is new.
_MANY = 16


@compiled(counted=False)
def _leave(
    start: int,
    stop: int,
    slots: Int64s,
    integers: Int64s,
    floats: Float64s,
    positions: Int64s,
    sums: Int64s,
    doubles: Float64s,
    guards: Int64s,
) -> None:
    """Subtract the rows start ... stop - 1 of the log."""
    width, floating = integers.shape[1], guards.shape[0]
    for row in range(start, stop):
        p = positions[slots[row]]
        for lane in range(width):
            sums[p, lane] -= integers[row, lane]
        for k in range(floating):
            first = WIDTH * k
            if sums[p, guards[k]] == 0:
                for lane in range(first, first + WIDTH):
                    doubles[p, lane] = 0.0
                continue
            add_row(doubles, p, first, first + WIDTH, floats, row, -1)


@compiled(counted=False)
def _enter(
    start: int,
    stop: int,
    slots: Int64s,
    integers: Int64s,
    floats: Float64s,
    positions: Int64s,
    sums: Int64s,
    doubles: Float64s,
    guards: Int64s,
    shown: Bools,
    new: Int64s,
) -> int:
    """Add the rows start ... stop - 1 of the log. Return how many groups that were not shown are written to `new`."""
    width, floating = integers.shape[1], guards.shape[0]
    fresh = 0
    for row in range(start, stop):
        p = positions[slots[row]]
        for lane in range(width):
            sums[p, lane] += integers[row, lane]
        for k in range(floating):
            add_row(doubles, p, WIDTH * k, WIDTH * (k + 1), floats, row, 1)
        if not shown[p]:
            shown[p] = True
            new[fresh] = p
            fresh += 1
    return fresh


@compiled(reads="new_positions warm active sums doubles")
def move(
    new_positions: Int64s,
    warm: Bools,
    active: Int64s,
    counts: Int64s,
    sums: Int64s,
    doubles: Float64s,
    new_active: Int64s,
    new_sums: Int64s,
    new_doubles: Float64s,
    shown: Bools,
) -> None:
    """Move the sums of the windows that are `warm` to `new_positions`, into arrays filled with 0: of window w those at
    the first counts[w] positions of active[w]. Write to counts[w] how many remain. Removed positions have no sums, and
    the others keep their order."""
    for w in range(warm.shape[0]):
        if not warm[w]:
            continue
        kept = 0
        for i in range(counts[w]):
            old = active[w, i]
            now = new_positions[old]
            if now < 0:
                continue
            for lane in range(sums.shape[2]):
                new_sums[w, now, lane] = sums[w, old, lane]
            for lane in range(doubles.shape[2]):
                new_doubles[w, now, lane] = doubles[w, old, lane]
            shown[w, now] = True
            new_active[w, kept] = now
            kept += 1
        counts[w] = kept


@loop
def shown_places(shown: Bools, active: Int64s) -> int:
    """Write the places that are shown to `active`, in order; return how many they are."""
    count = 0
    for position in range(shown.shape[0]):
        if shown[position]:
            active[count] = position
            count += 1
    return count


@compiled()
def with_new(active: Int64s, count: int, new: Int64s, fresh: int, shown: Bools) -> int:
    """Merge the first `fresh` places of `new` into the first `count` places of `active`, keeping only places that are
    shown, in order."""
    if fresh * _MANY > shown.shape[0]:
        return int(shown_places(shown, active))
    sort_first(new, fresh)
    i, j = count - 1, fresh - 1
    for k in range(count + fresh - 1, -1, -1):
        if j < 0 or (i >= 0 and active[i] > new[j]):
            active[k] = active[i]
            i -= 1
        else:
            active[k] = new[j]
            j -= 1
    return count + fresh


@compiled(reads="slots integers floats positions windows edges bottoms tops anew quiet guards units")
def carry(
    slots: Int64s,
    integers: Int64s,
    floats: Float64s,
    positions: Int64s,
    windows: Int64s,
    edges: Int64s,
    bottoms: Int64s,
    tops: Int64s,
    anew: Bools,
    quiet: Int64s,
    all_sums: Int64s,
    all_doubles: Float64s,
    guards: Int64s,
    units: Int64s,
    all_shown: Bools,
    all_active: Int64s,
    counts: Int64s,
    lows: Int64s,
    highs: Int64s,
    base: int,
    size: int,
) -> tuple[Int32s, Int64s, Float64s, Int64s]:
    """Carry the sums of windows on to their boundaries: of windows[n] to edges[n] ... edges[n + 1] - 1, in order. At
    boundary b it contains the rows bottoms[b] ... tops[b] - 1 of the log. Compute them afresh where anew[b]; emit the
    groups that have rows, at all boundaries of windows[n] but the first quiet[n].

    By window w: all_sums, all_doubles: (windows, places, lanes), of the rows lows[w] - base ... highs[w] - base - 1;
    all_active: the places that may be shown, counts[w] of them, in order. By sum of doubles: guards, units: the integer
    lanes that count its terms and its units, negative where these are 0. size: number of output rows allocated at
    first. Return (places, integer lanes and sums of doubles with their units, rounded, by (lane, row) of the emitted
    rows, number of emitted rows by boundary)."""
    out_positions = np.empty((1, size), np.int32)
    out_integers = np.empty((integers.shape[1], size), np.int64)
    out_floats = np.empty((guards.shape[0], size), np.float64)
    lengths = np.zeros(bottoms.shape[0], np.int64)
    new = np.empty(positions.shape[0], np.int64)
    total = 0
    for n in range(windows.shape[0]):
        w = windows[n]
        sums, doubles, shown, active = all_sums[w], all_doubles[w], all_shown[w], all_active[w]
        count, low, high = counts[w], lows[w] - base, highs[w] - base
        for b in range(edges[n], edges[n + 1]):
            if anew[b]:
                for i in range(count):
                    p = active[i]
                    for lane in range(sums.shape[1]):
                        sums[p, lane] = 0
                    for lane in range(doubles.shape[1]):
                        doubles[p, lane] = 0.0
                    shown[p] = False
                count = 0
                low = high = bottoms[b]
            _leave(low, min(bottoms[b], high), slots, integers, floats, positions, sums, doubles, guards)
            start = max(high, bottoms[b])
            fresh = _enter(start, tops[b], slots, integers, floats, positions, sums, doubles, guards, shown, new)
            low, high = bottoms[b], tops[b]
            if fresh:
                count = with_new(active, count, new, fresh, shown)
            if b - edges[n] < quiet[n]:
                continue
            out_positions = with_room(out_positions, total, total + count)
            out_integers = with_room(out_integers, total, total + count)
            out_floats = with_room(out_floats, total, total + count)
            kept = 0
            before = total
            for i in range(count):
                p = active[i]
                if sums[p, 0] <= 0:
                    shown[p] = False
                    continue
                active[kept] = p
                kept += 1
                out_positions[0, total] = p
                for lane in range(out_integers.shape[0]):
                    out_integers[lane, total] = sums[p, lane]
                for k in range(out_floats.shape[0]):
                    first = WIDTH * k
                    huge = sums[p, units[k]] if units[k] >= 0 else 0
                    if huge != 0 or doubles[p, first + 2] != 0.0 or doubles[p, first + 3] != 0.0:
                        out_floats[k, total] = rounded_sum(huge, doubles, p, first)
                    else:
                        out_floats[k, total] = doubles[p, first] + doubles[p, first + 1]
                total += 1
            count = kept
            lengths[b] = total - before
        counts[w], lows[w], highs[w] = count, low + base, high + base
    return out_positions[0, :total], out_integers[:, :total], out_floats[:, :total], lengths
