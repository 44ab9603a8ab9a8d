"""Updates of a relation: every `-` takes away the oldest row that is equal but for timestamp and operation.

A `-` that finds no such row does nothing. Updates are taken in (timestamp, arrival) order.
"""

from __future__ import annotations

from collections.abc import Mapping

import numba as nb
import numpy as np

from penstock.physical.elements import Elements, concat
from penstock.physical.fingerprints import fingerprints
from penstock.physical.kernels import argsort_uint64, group_codes
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.pending import Early
from penstock.physical.plan import UpdatesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.held import Held
from penstock.types import END


@nb.njit(cache=True)
def _pair(codes, order, negative, partner, queue):  # type: ignore[no-untyped-def]
    """partner[i] of a `-` becomes the row it takes away, -1 for none; rows of one code are taken first in, first out.
    order: sorted by code, then in time."""
    n = order.shape[0]
    i = 0
    while i < n:
        code = codes[order[i]]
        head = tail = i
        while i < n and codes[order[i]] == code:
            row = order[i]
            if not negative[row]:
                queue[tail] = row
                tail += 1
            elif head < tail:
                partner[row] = queue[head]
                partner[queue[head]] = row
                head += 1
            i += 1


class Updates(Operator):
    """State: the rows of the relation, and updates ahead of the heartbeat."""

    def __init__(self, spec: UpdatesSpec) -> None:
        self._key = spec.key
        self._early = Early()
        self._rows = Held()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "rows": self._rows}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        arrived = arrived.take(np.argsort(arrived.ts, kind="stable"))
        held = self._rows.elements
        old = 0 if held is None else len(held)
        rows = arrived if held is None else concat([held, arrived])
        first, second = fingerprints([rows.columns[i] for i in self._key], len(rows))
        codes, _ = group_codes(first, second)
        negative = rows.signs < 0
        partner = np.full(len(rows), -1, np.int64)
        order = argsort_uint64(codes.astype(np.uint64))
        _pair(codes, order, negative, partner, np.empty(len(rows), np.int64))
        fresh = np.arange(len(rows)) >= old
        comings = np.flatnonzero(fresh & ~negative)
        goings = np.flatnonzero(negative & (partner >= 0))
        stays = rows.take(np.flatnonzero(~negative & (partner < 0)))
        self._rows.replace(Elements(stays.columns, stays.ts, stays.exp))
        # The negative tuple carries the columns of the row it takes away, at its own time.
        gone = rows.take(partner[goings])
        size = len(goings)
        taken = Elements(gone.columns, rows.ts[goings], np.full(size, END, np.int64), np.full(size, -1, np.int64))
        return [part for part in (rows.take(comings), taken) if len(part)]
