"""Sums of groups, emitted at every boundary of a round, in the order of emission [semantics 4.3].

`events.sweep` processes group by group, for aggregates that emit changes. Where every live group is emitted at every
boundary, processing boundary by boundary touches state that fits the cache instead of rows scattered over memory, and
the output needs no sorting: it is written by boundary, and within a boundary by rank.

Contract: all events happen at boundaries of the round. The terms of a group's sum are added in the same order as
`sweep` adds them, so both give the same bits.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Float64s, Int64s
from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.expansions import add_lanes, clear_empty
from penstock.physical.kernels.compiled import with_room
from penstock.physical.kernels.compiling import compiled
from penstock.physical.operators.aggregates.running_sums import shown_places, with_new

#: Maximum number of output rows allocated at first.
_FIRST_ROOM = 2**20


@loop
def _by_step(steps: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """Return (order, starts): the events of step k are order[starts[k]:starts[k + 1]], in their old order."""
    starts = np.zeros(count + 1, np.int64)
    for e in range(steps.shape[0]):
        starts[steps[e] + 1] += 1
    for k in range(count):
        starts[k + 1] += starts[k]
    next_index = starts.copy()
    order = np.empty(steps.shape[0], np.int64)
    for e in range(steps.shape[0]):
        order[next_index[steps[e]]] = e
        next_index[steps[e]] += 1
    return order, starts


@compiled(reads="order slots rows signs integers floats sums", counted=False)
def _apply(
    order: Int64s,
    slots: Int64s,
    rows: Int64s,
    signs: Int64s,
    integers: Int64s,
    floats: Float64s,
    state_integers: Int64s,
    state_floats: Float64s,
    sums: Int64s,
) -> None:
    """Apply the events of `order`, all of one instant, to the state by (slot, lane)."""
    width = integers.shape[1]
    for event in order:
        slot, row, sign = slots[event], rows[event], signs[event]
        for lane in range(width):
            state_integers[slot, lane] += sign * integers[row, lane]
        for k in range(sums.shape[0]):
            add_lanes(state_floats, slot, sums, k, floats, row, sign)
    if sums.shape[0] == 0:
        return
    for event in order:
        clear_empty(state_integers, state_floats, slots[event], sums)


@compiled(reads="slots steps rows signs integers floats sums ranks by_rank")
def sums_at_boundaries(
    slots: Int64s,
    steps: Int64s,
    rows: Int64s,
    signs: Int64s,
    integers: Int64s,
    floats: Float64s,
    state_integers: Int64s,
    state_floats: Float64s,
    sums: Int64s,
    ranks: Int64s,
    by_rank: Int64s,
    count: int,
) -> tuple[Int64s, Int64s, Float64s]:
    """Apply events to the state, by (slot, lane), each at the boundary steps[e] of `count`, and emit every live
    group at every boundary. sums: as in `sweep`; ranks: by slot; by_rank: its inverse. Return (boundary and rank,
    integer lanes, float lanes) of the emitted rows, each by (lane, row)."""
    order, starts = _by_step(steps, count)
    shown = np.zeros(ranks.shape[0], np.bool_)  # by rank: whether it is emitted
    for rank in range(ranks.shape[0]):
        shown[rank] = state_integers[by_rank[rank], 0] > 0
    active = np.empty(ranks.shape[0], np.int64)  # the ranks that are shown, in order
    live = shown_places(shown, active)
    size = min(live * count, _FIRST_ROOM)  # the groups live now may all end at the first boundary
    out_rows = np.empty((2, size), np.int64)
    out_integers = np.empty((integers.shape[1], size), np.int64)
    out_floats = np.empty((state_floats.shape[1], size), np.float64)
    fresh = np.empty(ranks.shape[0], np.int64)
    total = 0
    for k in range(count):
        mine = order[starts[k] : starts[k + 1]]
        _apply(mine, slots, rows, signs, integers, floats, state_integers, state_floats, sums)
        new = 0
        for event in mine:
            rank = ranks[slots[event]]
            if not shown[rank] and state_integers[slots[event], 0] > 0:
                shown[rank] = True
                fresh[new] = rank
                new += 1
        if new:
            live = with_new(active, live, fresh, new, shown)
        needed = total + live
        out_rows = with_room(out_rows, total, needed)
        out_integers = with_room(out_integers, total, needed)
        out_floats = with_room(out_floats, total, needed)
        kept = 0
        for i in range(live):
            rank = active[i]
            slot = by_rank[rank]
            if state_integers[slot, 0] <= 0:
                shown[rank] = False
                continue
            active[kept] = rank
            kept += 1
            out_rows[0, total] = k
            out_rows[1, total] = rank
            for lane in range(out_integers.shape[0]):
                out_integers[lane, total] = state_integers[slot, lane]
            for lane in range(out_floats.shape[0]):
                out_floats[lane, total] = state_floats[slot, lane]
            total += 1
        live = kept
    return out_rows[:, :total], out_integers[:, :total], out_floats[:, :total]
