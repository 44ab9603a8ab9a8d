"""Changes of groups: the input events of an aggregate, and the sweep that applies them to the groups' lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Float64s
from penstock.expressions.aggregates.accumulators.expansions import add_lanes, clear_empty
from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.plan.state.aggregate_layout import AggregateLayout


@dataclass(frozen=True)
class GroupEvents:
    """Changes of groups. Event e changes the group in slots[e] at times[e]: the lanes of row rows[e] are added
    (signs[e] = 1) or subtracted (-1). A row that is added and subtracted in one round is stored once, for two events.

    integers, floats: (rows, lanes), so that a row's lanes are contiguous, those of DISTINCT arguments as if their value
    were new, floats as `add_lanes` takes them; values: of the rows, the arguments of `AggregateLayout.valued`; ends:
    the expiration of each added row."""

    slots: Int64s
    times: Int64s
    rows: Int64s
    signs: Int64s
    integers: Int64s
    floats: Float64s
    values: tuple[pa.Array, ...]
    ends: Int64s

    def weights(self, lane: int = 0) -> Int64s:
        """Return by how many rows each event changes its group; for the lane of a sketch, how often a cell counts."""
        weights: Int64s = self.signs * self.integers[self.rows, lane]
        return weights

    def of_events(self, column: pa.Array) -> pa.Array:
        """Return `column`, which has a value per row, with a value per event."""
        # Where no row is added and subtracted in one round, rows and events are the same.
        return column if len(self.rows) == len(column) else column.take(pa.array(self.rows))


def join(plan: AggregateLayout, parts: list[GroupEvents]) -> GroupEvents:
    if len(parts) == 1:
        return parts[0]
    floats = [part.floats for part in parts]
    if len({rows.shape[1] for rows in floats}) > 1:
        floats = [_all_lanes(plan, rows) for rows in floats]
    sizes = [len(p.integers) for p in parts]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return GroupEvents(
        np.concatenate([p.slots for p in parts]),
        np.concatenate([p.times for p in parts]),
        np.concatenate([p.rows + start for p, start in zip(parts, starts, strict=True)]),
        np.concatenate([p.signs for p in parts]),
        np.concatenate([p.integers for p in parts]),
        np.concatenate(floats),
        tuple(pa.concat_arrays([p.values[i] for p in parts]) for i in range(len(parts[0].values))),
        np.concatenate([p.ends for p in parts]),
    )


def _all_lanes(plan: AggregateLayout, floats: Float64s) -> Float64s:
    if floats.shape[1] == plan.floats:
        return floats
    made = np.zeros((len(floats), plan.floats))
    made[:, [first for _, first, _ in plan.double_sums]] = floats
    return made


@compiled(reads="slots times rows factors factor_of order integers", counted=False)
def sweep_integers(
    slots: Int64s,
    times: Int64s,
    rows: Int64s,
    factors: Int64s,
    factor_of: Int64s,
    order: Int64s,
    integers: Int64s,
    state_integers: Int64s,
    out_integers: Int64s,
    out_event: Int64s,
) -> int:
    """Do the same as `sweep` where no aggregate has sums of doubles, whose loops take a second to compile."""
    n = order.shape[0]
    width = integers.shape[1]
    i = 0
    k = 0
    while i < n:
        event = order[i]
        slot, time = slots[event], times[event]
        while i < n and slots[order[i]] == slot and times[order[i]] == time:
            event = order[i]
            row = rows[event]
            for lane in range(width):
                state_integers[slot, lane] += factors[event, factor_of[lane]] * integers[row, lane]
            i += 1
        for lane in range(width):
            out_integers[lane, k] = state_integers[slot, lane]
        out_event[k] = event
        k += 1
    return k


@compiled(reads="slots times rows factors factor_of order integers floats sums", counted=False)
def sweep(
    slots: Int64s,
    times: Int64s,
    rows: Int64s,
    factors: Int64s,
    factor_of: Int64s,
    order: Int64s,
    integers: Int64s,
    floats: Float64s,
    state_integers: Int64s,
    state_floats: Float64s,
    sums: Int64s,
    out_integers: Int64s,
    out_floats: Float64s,
    out_event: Int64s,
) -> int:
    """Apply events, sorted by (slot, time), to the state, by (slot, lane); one output per (slot, time). Event e
    adds the lanes of row rows[e], integer lane l times factors[e, factor_of[l]]. sums: as
    `AggregateLayout.double_sums`; the lane that counts the terms of a sum has its factor, and where it is 0 the sum is
    exactly 0. out_floats: filled with 0. Return the number of outputs."""
    n = order.shape[0]
    width = integers.shape[1]
    i = 0
    k = 0
    while i < n:
        event = order[i]
        slot, time = slots[event], times[event]
        while i < n and slots[order[i]] == slot and times[order[i]] == time:
            event = order[i]
            row = rows[event]
            for lane in range(width):
                state_integers[slot, lane] += factors[event, factor_of[lane]] * integers[row, lane]
            for s in range(sums.shape[0]):
                sign = factors[event, factor_of[sums[s, 0]]]
                if sign != 0:
                    add_lanes(state_floats, slot, sums, s, floats, row, sign)
            i += 1
        clear_empty(state_integers, state_floats, slot, sums)
        for lane in range(width):
            out_integers[lane, k] = state_integers[slot, lane]
        for lane in range(state_floats.shape[1]):
            # Most lanes are 0, and so is memory that was not touched.
            if state_floats[slot, lane] != 0.0:
                out_floats[lane, k] = state_floats[slot, lane]
        out_event[k] = event
        k += 1
    return k
