"""Point look-up: the sums of groups at requested instants, with all changes and all look-ups in one pass in time order.

Nothing is sorted by group, and nothing is emitted for a change that no look-up reads. Added rows are in time order as
they arrive, and removed rows are if the window has a constant length; then no sorting is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Float64s
from penstock.expressions.aggregates.accumulators.expansions import add_lanes
from penstock.physical.elements import Int64s, int64s
from penstock.physical.kernels.compiled import argsort_time, in_time
from penstock.physical.kernels.compiling import compiled


@dataclass(frozen=True)
class AccumulatorChanges:
    """Accumulator rows: the first `old` ones are from earlier rounds and expire in this one; the others are added at
    `ts`. All are removed at `exp`, if that is at the heartbeat or before. slots: of their groups, -1 for a group that
    was removed; ones, lanes: the integer lanes that are 1 in all rows, and those that are neither that nor 0 in all
    rows; integers: by (row, index in `lanes`); floats: as `add_lanes` takes them."""

    slots: Int64s
    ts: Int64s
    exp: Int64s
    old: int
    ones: Int64s
    lanes: Int64s
    integers: Int64s
    floats: Float64s

    def additions(self) -> Int64s:
        """Return the numbers of the added rows in time order; empty if they are in time order already."""
        return np.empty(0, np.int64) if in_time(self.ts) else argsort_time(self.ts) + self.old

    def removals(self, heartbeat: int) -> tuple[Int64s, int]:
        """Return the numbers of the removed rows in time order, empty if they are in time order already; and their
        count."""
        if in_time(self.exp):
            return np.empty(0, np.int64), int(np.searchsorted(self.exp, heartbeat, side="right"))
        rows = np.flatnonzero(self.exp <= heartbeat)
        return rows[argsort_time(self.exp[rows])], len(rows)


def changes(
    slots: Int64s, ts: Int64s, exp: Int64s, old: int, parts: Sequence[Sequence[pa.Array]], width: int, sums: Int64s
) -> AccumulatorChanges:
    """Collect accumulator rows into one `AccumulatorChanges`. parts: the lanes of the rows in batches, `width` integer
    lanes and those of doubles. sums: as `AggregateLayout.double_sums`."""
    columns = [[int64s(part[lane]) for part in parts] for lane in range(width)]
    ones = [lane for lane, batches in enumerate(columns) if all(bool((c == 1).all()) for c in batches)]
    lanes = [lane for lane, batches in enumerate(columns) if lane not in ones and any(bool(c.any()) for c in batches)]
    floats = int(sums[:, 2].max(initial=0))
    doubles = [[part[width + k].to_numpy(zero_copy_only=True) for part in parts] for k in range(floats)]
    firsts = sums[:, 1].tolist()
    first_lanes = not any(bool(c.any()) for k in range(floats) if k not in firsts for c in doubles[k])
    integers = _beside([columns[lane] for lane in lanes], len(slots), np.int64)
    values = _beside([doubles[k] for k in firsts] if first_lanes else doubles, len(slots), np.float64)
    return AccumulatorChanges(
        slots, ts, exp, old, np.array(ones, np.int64), np.array(lanes, np.int64), integers, values
    )


def _beside(columns: list[list[npt.NDArray[Any]]], size: int, kind: type) -> npt.NDArray[Any]:
    """Return columns in batches as one array by (row, column), so that the values of a row are contiguous."""
    if len(columns) == 1 and len(columns[0]) == 1:
        return columns[0][0].reshape(size, 1)
    laid: npt.NDArray[Any] = np.empty((size, len(columns)), kind)
    for k, pieces in enumerate(columns):
        start = 0
        for piece in pieces:
            laid[start : start + len(piece), k] = piece
            start += len(piece)
    return laid


@compiled(
    reads="additions removals ts exp slots ones lanes integers floats lookups instants groups sums", counted=False
)
def follow(
    additions: Int64s,
    removals: Int64s,
    removal_count: int,
    old: int,
    ts: Int64s,
    exp: Int64s,
    slots: Int64s,
    ones: Int64s,
    lanes: Int64s,
    integers: Int64s,
    floats: Float64s,
    progress: Int64s,
    lookups: Int64s,
    instants: Int64s,
    groups: Int64s,
    state_integers: Int64s,
    state_floats: Float64s,
    sums: Int64s,
    out_integers: Int64s,
    out_floats: Float64s,
) -> None:
    """Apply changes to the state, by (slot, lane), in time order, additions before removals, and record the state at
    each look-up. out_floats: filled with 0.

    The k-th look-up is number lookups[k]: it reads the group groups[lookups[k]] after all changes up to
    instants[lookups[k]]. lookups: in time order; additions, removals: the numbers of the added and removed rows, empty
    if the rows are in time order; progress: how many rows have been added and removed so far, updated in place. Without
    look-ups all remaining changes are applied. sums: as in `events.sweep`."""
    addition_count, lookup_count = ts.shape[0], lookups.shape[0]
    last = np.iinfo(np.int64).max
    i, j, added, removed = progress[0], progress[1], 0, 0
    added_at, removed_at = last, last
    if i < addition_count:
        added = additions[i] if additions.shape[0] > 0 else old + i
        added_at = ts[added - old]
    if j < removal_count:
        removed = removals[j] if removals.shape[0] > 0 else j
        removed_at = exp[removed]
    for k in range(max(lookup_count, 1)):
        until = instants[lookups[k]] if lookup_count > 0 else last
        while (i < addition_count and added_at <= until) or (j < removal_count and removed_at <= until):
            if i < addition_count and added_at <= removed_at:
                row, sign = added, 1
                i += 1
                added_at = last
                if i < addition_count:
                    added = additions[i] if additions.shape[0] > 0 else old + i
                    added_at = ts[added - old]
            else:
                row, sign = removed, -1
                j += 1
                removed_at = last
                if j < removal_count:
                    removed = removals[j] if removals.shape[0] > 0 else j
                    removed_at = exp[removed]
            slot = slots[row]
            if slot < 0:
                continue
            for lane in range(ones.shape[0]):
                state_integers[slot, ones[lane]] += sign
            for lane in range(lanes.shape[0]):
                state_integers[slot, lanes[lane]] += sign * integers[row, lane]
            for s in range(sums.shape[0]):
                if state_integers[slot, sums[s, 0]] == 0:
                    for lane in range(sums[s, 1], sums[s, 2]):
                        state_floats[slot, lane] = 0.0
                    continue
                add_lanes(state_floats, slot, sums, s, floats, row, sign)
        if lookup_count > 0:
            slot = groups[lookups[k]]
            for lane in range(out_integers.shape[0]):
                out_integers[lane, k] = state_integers[slot, lane] if slot >= 0 else 0
            for lane in range(out_floats.shape[0]):
                # Most lanes are 0, and so is memory that was not touched.
                if slot >= 0 and state_floats[slot, lane] != 0.0:
                    out_floats[lane, k] = state_floats[slot, lane]
    progress[0], progress[1] = i, j
