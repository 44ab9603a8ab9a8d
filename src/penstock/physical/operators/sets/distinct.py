"""Duplicate elimination.

`DistinctStar` is δ* `[golab 3.5.2]` for inputs whose expirations are known: for each tuple it keeps the end of the
validity emitted so far and the latest expiration seen; when the emitted validity ends and a copy is still live, it
emits the remaining interval. No copy is stored. `CountedDistinct` is for inputs with negative tuples: it counts the
live copies of each tuple.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.kernels.compiled import argsort_code_time, group_codes
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.extremes import transitions
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.final_groups import FinalSlots
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.sets.tuple_counts import NettingOperator, TupleEvents
from penstock.physical.plan.sets import DistinctSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.queues.expiration_queue import ListQueue
from penstock.physical.synopses.tables.keyed_table import KeyedTable


@compiled(reads="slots ts exp order")
def _extend(
    slots: Int64s,
    ts: Int64s,
    exp: Int64s,
    order: Int64s,
    emitted_until: Int64s,
    latest: Int64s,
    out_slot: Int64s,
    out_ts: Int64s,
    out_exp: Int64s,
) -> int:
    """Apply elements, sorted by (slot, ts), to δ*; return the number of intervals emitted. emitted_until: by slot, the
    end of the validity emitted so far."""
    k = 0
    for j in range(order.shape[0]):
        i = order[j]
        slot = slots[i]
        while emitted_until[slot] <= ts[i] and latest[slot] > emitted_until[slot]:
            out_slot[k], out_ts[k], out_exp[k] = slot, emitted_until[slot], latest[slot]
            emitted_until[slot] = latest[slot]
            k += 1
        if emitted_until[slot] <= ts[i]:
            out_slot[k], out_ts[k], out_exp[k] = slot, ts[i], exp[i]
            emitted_until[slot] = exp[i]
            latest[slot] = exp[i]
            k += 1
        elif exp[i] > latest[slot]:
            latest[slot] = exp[i]
    return k


class DistinctStar(ReorderingOperator):
    """State: per tuple, integer lanes [alive, end of the validity emitted, latest expiration]."""

    def __init__(self, spec: DistinctSpec) -> None:
        super().__init__(ReorderBuffer())
        self._tuples = KeyedTable(3, 0, spec.types)
        self._ends = ExpirationIndex(self._tuples, 1)
        # A list has all rows anyway.
        self._ending = FinalSlots(() if spec.listed else spec.ending, self._tuples)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"tuples": self._tuples, **super().synopses()}

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.frontier)
        result = self._arrive(arrived) if arrived is not None else []
        result += self._continue(moment.heartbeat)
        self._ending.drop(moment.heartbeat)
        self._tuples.shrink()
        return result

    def _arrive(self, arrived: Elements) -> list[Elements]:
        placed = self._tuples.place(arrived.columns, len(arrived))
        slots, unique = placed.slots, placed.unique
        emitted_until, latest = self._tuples.integers[1], self._tuples.integers[2]
        dead = unique[self._tuples.integers[0, unique] == 0]
        emitted_until[dead] = latest[dead] = np.iinfo(np.int64).min
        order = argsort_code_time(slots, arrived.ts)
        out = [np.empty(2 * len(arrived), np.int64) for _ in range(3)]
        count = int(_extend(slots, arrived.ts, arrived.exp, order, emitted_until, latest, *out))
        self._tuples.integers[0, unique] = 1
        self._tuples.touch(unique)
        self._ends.put(dead)
        return self._emit(*(o[:count] for o in out))

    def _continue(self, heartbeat: int) -> list[Elements]:
        """For tuples whose emitted validity has ended, emit the remaining interval if a copy is live, else remove the
        tuple."""
        result: list[Elements] = []
        alive, emitted_until, latest = self._tuples.integers
        ended = self._ends.until(heartbeat)
        more = ended[latest[ended] > emitted_until[ended]]
        if len(more):
            result += self._emit(more, emitted_until[more].copy(), latest[more].copy())
            emitted_until[more] = latest[more]
        over = emitted_until[ended] <= heartbeat
        alive[ended[over]] = 0
        self._tuples.touch(ended)
        self._ends.put(ended[~over])
        return result

    def _emit(self, slots: Int64s, ts: Int64s, exp: Int64s) -> list[Elements]:
        return [Elements(tuple(self._tuples.key_columns(slots)), ts, exp)] if len(slots) else []


class DistinctOverList(DistinctStar):
    """The baseline that δ* improves on: it keeps the whole input and scans all of it for copies that are still live
    `[golab 3.2.2]`."""

    def __init__(self, spec: DistinctSpec) -> None:
        super().__init__(spec)
        self._input = ListQueue()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "input": self._input}

    def _arrive(self, arrived: Elements) -> list[Elements]:
        result = super()._arrive(arrived)
        rows = [pa.array(arrived.exp), *arrived.columns]
        self._input.push(unnamed(rows))
        return result

    def _continue(self, heartbeat: int) -> list[Elements]:
        self._tuples.integers[2] = self._tuples.integers[1]
        for batch in self._input.contents():
            first, second = fingerprints(batch.columns[1:], batch.num_rows)
            codes, heads = group_codes(first, second)
            slots = self._tuples.slots(first[heads], second[heads])[codes]
            np.maximum.at(self._tuples.integers[2], slots, int64s(batch.column(0)))
        self._input.pop_until(heartbeat)
        return super()._continue(heartbeat)


class CountedDistinct(NettingOperator):
    """State: per tuple, integer lanes [copies]; the pending expirations."""

    def __init__(self, spec: DistinctSpec) -> None:
        super().__init__(spec.types, 1, listed=spec.listed)

    def _netted(self, events: TupleEvents, order: Int64s, event: Int64s, step: Int64s) -> int:
        copies = self._counted.tuples.integers[0]
        return int(transitions(events.slots, events.times, order, events.weights, copies, event, step))


def make_distinct(spec: DistinctSpec) -> Operator:
    """Return the duplicate elimination operator for `spec`."""
    if spec.strict:
        return CountedDistinct(spec)
    return DistinctOverList(spec) if spec.listed else DistinctStar(spec)
