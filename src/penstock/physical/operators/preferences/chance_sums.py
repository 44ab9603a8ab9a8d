"""What sums of x/π change by where probabilities change. Compiled; to the bit what rows would add and take away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numba as nb
import numpy as np

from penstock.arrays import Float64s, Int64s, Numbers
from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.double_pairs import HUGE, MOST_UNITS, UNIT
from penstock.expressions.aggregates.accumulators.expansions import WIDTH, add_row, add_value
from penstock.expressions.aggregates.accumulators.total import UP
from penstock.physical.kernels.compiling import compiled
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.synopses.preferences.result_chances import ChanceChanges, longer


class ScaledLanes(NamedTuple):
    """Where accumulators are.

    Args:
        integers, floats: how many there are.
        scaled: of each sum of x/π, the integer lane that counts its terms and its first float lane.
        own: which integer lanes do not depend on π.
        sums: of each other sum of doubles, its first float lane, and the one after its last.
    """

    integers: int
    floats: int
    scaled: Int64s
    own: Int64s
    sums: Int64s

    @staticmethod
    def of(plan: AggregateLayout, scaled: Sequence[int]) -> ScaledLanes:
        """Return those of a layout of sums alone. scaled: the arguments that are sums of x/π."""
        chosen = [plan.arguments[place] for place in scaled]
        found = np.array([(one.integers, one.floats) for one in chosen], np.int64).reshape(-1, 2)
        marks = {one.integers + lane for one in chosen for lane in (1, 2, 3)}
        firsts = {one.floats for one in chosen}
        own = np.array([lane for lane in range(plan.integers) if lane not in marks], np.int64)
        sums = [(first, last) for _, first, last in plan.double_sums if first not in firsts]
        return ScaledLanes(plan.integers, plan.floats, found, own, np.array(sums, np.int64).reshape(-1, 2))


class ResultSums(NamedTuple):
    """Results, by row.

    Args:
        slots: the group of each.
        heads: by group, a result of it.
        integers, floats: the lanes that each has at a probability of 1, by (row, lane).
        x: the values that are divided by the probability, by (row, number).
    """

    slots: Int64s
    heads: Int64s
    integers: Int64s
    floats: Float64s
    x: Float64s


class Added(NamedTuple):
    """What is added to groups at instants. integers, floats: by (lane, row)."""

    slots: Int64s
    at: Int64s
    integers: Int64s
    floats: Float64s


def summed_changes(
    changes: ChanceChanges, costs: Float64s, chances: Float64s, sums: ResultSums, lanes: ScaledLanes
) -> tuple[Added, Int64s, Int64s]:
    """Return what changes of results add to groups; then the results whose probability is 1 now, which are no part of
    the groups any more, and since when. Write `chances`. costs, chances: as `ResultChances` has them."""
    *added, done, at = _sum_changes(
        changes.rows,
        changes.at,
        changes.met,
        costs,
        chances,
        sums.slots,
        len(sums.heads),
        sums.integers,
        sums.floats,
        sums.x,
        lanes.scaled,
        lanes.own,
        lanes.sums,
    )
    return Added(*added), done, at


def ended_sums(rows: Int64s, at: Int64s, chances: Float64s, sums: ResultSums, lanes: ScaledLanes) -> Added:
    """Return what the ends of results add to their groups. at: when they are, ascending."""
    added = _sum_ends(
        rows,
        at,
        chances,
        sums.slots,
        len(sums.heads),
        sums.integers,
        sums.floats,
        sums.x,
        lanes.scaled,
        lanes.own,
        lanes.sums,
    )
    return Added(*added)


@nb.njit(inline="always")
def _add_value(integers: Int64s, floats: Float64s, at: int, count: int, first: int, value: float, sign: int) -> None:
    """Add a value, `sign` times, to the lanes of a sum of doubles as `SumOfValues` has them."""
    if math.isnan(value):
        integers[at, count + 1] += sign
    elif math.isinf(value):
        if value > 0:
            integers[at, count + 1] += sign * UP
        else:
            integers[at, count + 2] += sign
    else:
        if not abs(value) < HUGE:
            units = min(max(np.rint(value / UNIT), -MOST_UNITS), MOST_UNITS)
            integers[at, count + 3] += sign * np.int64(units)
            value -= units * UNIT
        add_value(floats, at, first, first + WIDTH, sign * value)


@compiled()
def _add_whole(
    r: int,
    chance: float,
    sign: int,
    at: int,
    integers: Int64s,
    floats: Float64s,
    x: Float64s,
    scaled: Int64s,
    own: Int64s,
    sums: Int64s,
    out_integers: Int64s,
    out_floats: Float64s,
) -> None:
    """Add all lanes of a result with a probability, `sign` times."""
    for lane in own:
        out_integers[at, lane] += sign * integers[r, lane]
    for s in range(sums.shape[0]):
        add_row(out_floats, at, sums[s, 0], sums[s, 1], floats, r, sign)
    for s in range(scaled.shape[0]):
        if integers[r, scaled[s, 0]]:
            _add_value(out_integers, out_floats, at, scaled[s, 0], scaled[s, 1], x[r, s] / chance, sign)


@nb.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
def _sum_changes(
    rows: Int64s,
    at: Int64s,
    met: Float64s,
    costs: Float64s,
    chances: Float64s,
    slots: Int64s,
    groups: int,
    integers: Int64s,
    floats: Float64s,
    x: Float64s,
    scaled: Int64s,
    own: Int64s,
    sums: Int64s,
) -> tuple[Int64s, Int64s, Int64s, Float64s, Int64s, Int64s]:
    size, count, ready = 1024, 0, 0
    out_slots, out_at = np.empty(size, np.int64), np.empty(size, np.int64)
    out_integers = np.zeros((size, integers.shape[1]), np.int64)
    out_floats = np.zeros((size, floats.shape[1]))
    done, done_at = np.empty(rows.shape[0], np.int64), np.empty(rows.shape[0], np.int64)
    latest = np.full(groups, -1)
    for i in range(rows.shape[0]):
        r = rows[i]
        before = chances[r]
        chance = -math.expm1(-(met[i] / costs[r]))
        if chance == before:
            continue
        chances[r] = chance
        slot = slots[r]
        if chance >= 1.0:
            done[ready], done_at[ready] = r, at[i]
            ready += 1
            if before == 0.0:
                continue
        k = latest[slot]
        if k < 0 or out_at[k] != at[i]:
            if count == size:
                size *= 2
                out_slots, out_at = longer(out_slots, size), longer(out_at, size)
                out_integers, out_floats = _higher(out_integers, size), _higher(out_floats, size)
            k = latest[slot] = count
            out_slots[k], out_at[k] = slot, at[i]
            count += 1
        if chance >= 1.0:
            _add_whole(r, before, -1, k, integers, floats, x, scaled, own, sums, out_integers, out_floats)
        elif before == 0.0:
            _add_whole(r, chance, 1, k, integers, floats, x, scaled, own, sums, out_integers, out_floats)
        else:
            for s in range(scaled.shape[0]):
                if integers[r, scaled[s, 0]]:
                    _add_value(out_integers, out_floats, k, scaled[s, 0], scaled[s, 1], x[r, s] / before, -1)
                    _add_value(out_integers, out_floats, k, scaled[s, 0], scaled[s, 1], x[r, s] / chance, 1)
    return (
        out_slots[:count],
        out_at[:count],
        out_integers[:count].T.copy(),
        out_floats[:count].T.copy(),
        done[:ready],
        done_at[:ready],
    )


@nb.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
def _sum_ends(
    rows: Int64s,
    at: Int64s,
    chances: Float64s,
    slots: Int64s,
    groups: int,
    integers: Int64s,
    floats: Float64s,
    x: Float64s,
    scaled: Int64s,
    own: Int64s,
    sums: Int64s,
) -> tuple[Int64s, Int64s, Int64s, Float64s]:
    size, count = rows.shape[0], 0
    out_slots, out_at = np.empty(size, np.int64), np.empty(size, np.int64)
    out_integers = np.zeros((size, integers.shape[1]), np.int64)
    out_floats = np.zeros((size, floats.shape[1]))
    latest = np.full(groups, -1)
    for i in range(size):
        r = rows[i]
        k = latest[slots[r]]
        if k < 0 or out_at[k] != at[i]:
            k = latest[slots[r]] = count
            out_slots[k], out_at[k] = slots[r], at[i]
            count += 1
        _add_whole(r, chances[r], -1, k, integers, floats, x, scaled, own, sums, out_integers, out_floats)
    return out_slots[:count], out_at[:count], out_integers[:count].T.copy(), out_floats[:count].T.copy()


@loop
def _higher(matrix: Numbers, size: int) -> Numbers:
    more = np.zeros((size, matrix.shape[1]), matrix.dtype)
    for i in range(matrix.shape[0]):
        for k in range(matrix.shape[1]):
            more[i, k] = matrix[i, k]
    return more
