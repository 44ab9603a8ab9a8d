"""The changes of a DISTINCT over an input whose expirations are known: δ* `[golab 3.5.2]` that emits insertions and
deletions itself.

δ* emits validity intervals, and an operator that emits their changes keeps the ends, and nets an interval that ends
against the one that begins there. If no other operator reads the intervals, one end per tuple is enough: it is extended
whenever a copy with a later expiration arrives, and the deletion is emitted only when the end is reached.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.compiled import argsort_code_time
from penstock.physical.kernels.compiling import compiled
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.final_groups import FinalSlots
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.streams.changes import from_start, of_kind
from penstock.physical.plan.streams import DistinctChangesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END


@compiled(reads="slots ts exp order")
def _follow(
    slots: Int64s,
    ts: Int64s,
    exp: Int64s,
    order: Int64s,
    alive: Int64s,
    until: Int64s,
    out_slot: Int64s,
    out_ts: Int64s,
    out_sign: Int64s,
) -> int:
    """Apply elements, sorted by (slot, ts); return the number of changes. If a copy begins at the end of
    another, the tuple stays live."""
    k = 0
    for j in range(order.shape[0]):
        i = order[j]
        slot = slots[i]
        if alive[slot] == 1 and until[slot] < ts[i]:
            out_slot[k], out_ts[k], out_sign[k] = slot, until[slot], -1
            alive[slot] = 0
            k += 1
        if alive[slot] == 0:
            out_slot[k], out_ts[k], out_sign[k] = slot, ts[i], 1
            alive[slot], until[slot] = 1, exp[i]
            k += 1
        elif exp[i] > until[slot]:
            until[slot] = exp[i]
    return k


class DistinctChanges(ReorderingOperator):
    """State: per tuple, integer lanes [alive, the latest expiration of its copies]; elements ahead of the heartbeat."""

    def __init__(self, spec: DistinctChangesSpec) -> None:
        super().__init__(ReorderBuffer())
        self._kind = spec.kind
        self._comings_only = not spec.waits
        self._tuples = KeyedTable(2, 0, spec.types)
        self._ends = ExpirationIndex(self._tuples, 1)
        self._final = FinalSlots(spec.ending, self._tuples)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"tuples": self._tuples, **super().synopses()}

    def advance(self, moment: Moment) -> list[Elements]:
        until = moment.frontier if self._comings_only else moment.heartbeat
        if moment.start is None or until < moment.start:
            self._early.hold()
            return []
        arrived = self._early.until(until)
        events = [] if arrived is None else self._arrive(from_start(arrived, moment.start))
        events += self._end(moment.heartbeat)
        self._final.drop(moment.heartbeat)
        self._tuples.shrink()
        return of_kind(concat(events), self._kind) if events else []

    def _arrive(self, arrived: Elements) -> list[Elements]:
        placed = self._tuples.place(arrived.columns, len(arrived))
        slots, unique = placed.slots, placed.unique
        order = argsort_code_time(slots, arrived.ts)
        alive, until = self._tuples.integers
        dead = unique[alive[unique] == 0]
        out = [np.empty(2 * len(arrived), np.int64) for _ in range(3)]
        count = int(_follow(slots, arrived.ts, arrived.exp, order, alive, until, *out))
        self._tuples.touch(unique)
        self._ends.put(dead)
        return self._changes(*(o[:count] for o in out))

    def _end(self, heartbeat: int) -> list[Elements]:
        """Emit deletions of the tuples whose last copy has expired."""
        alive, until = self._tuples.integers
        ended = self._ends.until(heartbeat)
        result = self._changes(ended, until[ended].copy(), np.full(len(ended), -1))
        alive[ended] = 0
        self._tuples.touch(ended)
        return result

    def _changes(self, slots: Int64s, ts: Int64s, signs: Int64s) -> list[Elements]:
        if not len(slots):
            return []
        return [Elements(tuple(self._tuples.key_columns(slots)), ts, np.full(len(ts), END), signs)]
