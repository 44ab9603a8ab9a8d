"""What groups of plain sums are at given instants: all changes and all questions in one pass in the order of time.

Nothing is sorted by group, and nothing is told of a change that nobody asks about. Rows that come lie in order of time
as they arrive, rows that go do where the window is one of constant length; only then is the order no work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np

from penstock.physical.elements import Int64s
from penstock.physical.kernels import argsort_time
from penstock.physical.lanes import Float64s, add_pair


@dataclass(frozen=True)
class Changes:
    """Lane rows: those that are gone came first, `old` of them; the others come at `ts`. All go at `exp`, if that is at
    `heartbeat` or before. slots: of their groups, -1 of one that is forgotten; lanes: which integer lanes are not 0
    throughout; integers: by (row, one of `lanes`); floats: by (row, lane)."""

    slots: Int64s
    ts: Int64s
    exp: Int64s
    old: int
    lanes: Int64s
    integers: Int64s
    floats: Float64s

    def coming(self) -> Int64s:
        """The rows that come, in order of time."""
        return argsort_time(self.ts) + self.old

    def going(self, heartbeat: int) -> Int64s:
        """The rows that go, in order of time."""
        ends = self.exp <= heartbeat
        if ends.all():
            return argsort_time(self.exp)
        rows = np.flatnonzero(ends)
        return rows[argsort_time(self.exp[rows])]


@nb.njit(cache=True)
def follow(  # type: ignore[no-untyped-def]
    coming, going, old, ts, exp, slots, lanes, integers, floats, asked, instants, groups, state_integers, state_floats,
    guards, out_integers, out_floats,
):  # fmt: skip
    """Apply changes to the state in the order of time, comings before goings, and note what the state is when it is
    asked for: question q is about the group groups[q] after all changes up to instants[q]; asked: the questions in the
    order of time. guards: as in `events.sweep`."""
    pairs = guards.shape[0]
    i, j = 0, 0
    for k in range(asked.shape[0] + 1):
        while True:
            comes = i < coming.shape[0]
            goes = j < going.shape[0]
            if comes and (not goes or ts[coming[i] - old] <= exp[going[j]]):
                row, sign, time = coming[i], 1, ts[coming[i] - old]
            elif goes:
                row, sign, time = going[j], -1, exp[going[j]]
            else:
                break
            if k < asked.shape[0] and time > instants[asked[k]]:
                break
            if sign > 0:
                i += 1
            else:
                j += 1
            slot = slots[row]
            if slot < 0:
                continue
            for lane in range(lanes.shape[0]):
                state_integers[lanes[lane], slot] += sign * integers[row, lane]
            for p in range(pairs):
                if state_integers[guards[p], slot] == 0:
                    state_floats[2 * p, slot] = 0.0
                    state_floats[2 * p + 1, slot] = 0.0
                    continue
                high, low = state_floats[2 * p, slot], state_floats[2 * p + 1, slot]
                more, rest = sign * floats[row, 2 * p], sign * floats[row, 2 * p + 1]
                whole = high + more
                back = whole - high
                if low == 0.0 and rest == 0.0 and (high - (whole - back)) + (more - back) == 0.0:
                    # The sum has no rest: what the error-free addition would give, too.
                    state_floats[2 * p, slot] = whole
                else:
                    state_floats[2 * p, slot], state_floats[2 * p + 1, slot] = add_pair(high, low, more, rest)
        if k < asked.shape[0]:
            question = asked[k]
            slot = groups[question]
            if slot >= 0:
                for lane in range(out_integers.shape[0]):
                    out_integers[lane, question] = state_integers[lane, slot]
                for lane in range(2 * pairs):
                    out_floats[lane, question] = state_floats[lane, slot]
