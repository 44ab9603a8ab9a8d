"""RSTREAM of sums over windows that count elements and hardly overlap, at their boundaries (LANGUAGE 6).

Where a row is seen at few boundaries it is counted at each of them, and what stands at a boundary is one sum of panes:
nothing expires, no group is carried on from boundary to boundary, and a boundary that is told leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.fingerprints import UInt64s, fingerprints
from penstock.physical.finish import finish
from penstock.physical.kernels import argsort_time, argsort_uint64, group_codes, repeat
from penstock.physical.lanes import pre_aggregate
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.pending import Early
from penstock.physical.pane_plan import BoundarySumsSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.types import END


class BoundarySums(Operator):
    """State: the panes of boundaries ahead of the heartbeat, each at its boundary."""

    def __init__(self, spec: BoundarySumsSpec) -> None:
        self._plan, self._slide = spec.plan, spec.slide
        self._early = Early()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(self._at_boundaries(elements))
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        due = self._early.until(moment.heartbeat)
        return [self._told(pre_aggregate(self._plan, due))] if due is not None and len(due) else []

    def _at_boundaries(self, panes: Elements) -> Elements:
        """Every pane once for each boundary at which it is seen."""
        copies = -((panes.ts - panes.exp) // self._slide)
        if bool(np.all(copies == 1)):
            return Elements(panes.columns, panes.ts, panes.ts + self._slide)
        rows, nth = repeat(copies)
        copied = panes.take(rows)
        at = copied.ts + self._slide * nth
        return Elements(copied.columns, at, at + self._slide)

    def _told(self, sums: Elements) -> Elements:
        """The rows of groups: by instant, and there in an order that follows from the keys."""
        plan = self._plan
        keys, lanes = sums.columns[: len(plan.group)], sums.columns[len(plan.group) :]
        integers = np.stack([int64s(lane) for lane in lanes[: plan.integers]])
        floats = np.empty((plan.floats, len(sums)))
        for i in range(plan.floats):
            floats[i] = lanes[plan.integers + i].to_numpy(zero_copy_only=True)
        told = Elements((*keys, *finish(plan, integers, floats, {})), sums.ts, np.full(len(sums), END))
        return told.take(_by_instant(sums.ts, *fingerprints(keys, len(sums))))


def _by_instant(ts: Int64s, first: UInt64s, second: UInt64s) -> Int64s:
    codes, heads = group_codes(first, second)
    ranks = np.empty(len(heads), np.int64)
    ranks[argsort_uint64(first[heads])] = np.arange(len(heads))
    by_key = argsort_uint64(ranks[codes].astype(np.uint64))
    return by_key[argsort_time(ts[by_key])]
