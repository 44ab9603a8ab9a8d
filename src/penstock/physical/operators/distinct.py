"""Duplicate elimination.

`DistinctStar` is δ* `[golab 3.5.2]` for inputs whose expirations are known: of each tuple it keeps the end of what it
has said and the latest expiration seen; when what was said ends and a copy lives on, it says the rest. No copy is
stored. `CountedDistinct` serves inputs with negative tuples: it counts the live copies of each tuple.
"""

from __future__ import annotations

from collections.abc import Mapping

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.extremes import transitions
from penstock.physical.fingerprints import fingerprints
from penstock.physical.kernels import argsort_code_time, group_codes
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.counted import Events, NettingOperator
from penstock.physical.operators.pending import Early, EarlyOperator
from penstock.physical.plan import DistinctSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.due import Due
from penstock.physical.synopses.queues import ListQueue
from penstock.physical.synopses.slots import SlotTable


@nb.njit(cache=True)
def _extend(slots, ts, exp, order, said, latest, out_slot, out_ts, out_exp):  # type: ignore[no-untyped-def]
    """Feed elements, sorted by (slot, ts), to δ*; returns the number of stretches said."""
    k = 0
    for j in range(order.shape[0]):
        i = order[j]
        slot = slots[i]
        while said[slot] <= ts[i] and latest[slot] > said[slot]:
            out_slot[k], out_ts[k], out_exp[k] = slot, said[slot], latest[slot]
            said[slot] = latest[slot]
            k += 1
        if said[slot] <= ts[i]:
            out_slot[k], out_ts[k], out_exp[k] = slot, ts[i], exp[i]
            said[slot] = exp[i]
            latest[slot] = exp[i]
            k += 1
        elif exp[i] > latest[slot]:
            latest[slot] = exp[i]
    return k


class DistinctStar(EarlyOperator):
    """State: per tuple, integer lanes [alive, said until, latest expiration]."""

    def __init__(self, spec: DistinctSpec) -> None:
        super().__init__(Early())
        self._tuples = SlotTable(3, 0, spec.types)
        self._ends = Due(self._tuples, 1)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"tuples": self._tuples, **super().synopses()}

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        result = self._arrive(arrived) if arrived is not None else []
        result += self._continue(moment.heartbeat)
        self._tuples.shrink()
        return result

    def _arrive(self, arrived: Elements) -> list[Elements]:
        placed = self._tuples.place(arrived.columns, len(arrived))
        slots, unique = placed.slots, placed.unique
        said, latest = self._tuples.integers[1], self._tuples.integers[2]
        dead = unique[self._tuples.integers[0, unique] == 0]
        said[dead] = latest[dead] = np.iinfo(np.int64).min
        order = argsort_code_time(slots, arrived.ts)
        out = [np.empty(2 * len(arrived), np.int64) for _ in range(3)]
        count = int(_extend(slots, arrived.ts, arrived.exp, order, said, latest, *out))
        self._tuples.integers[0, unique] = 1
        self._tuples.touch(unique)
        self._ends.put(dead)
        return self._say(*(o[:count] for o in out))

    def _continue(self, heartbeat: int) -> list[Elements]:
        """Where what was said has ended, say the rest if a copy lives on, else forget the tuple."""
        result: list[Elements] = []
        alive, said, latest = self._tuples.integers
        ended = self._ends.until(heartbeat)
        more = ended[latest[ended] > said[ended]]
        if len(more):
            result += self._say(more, said[more].copy(), latest[more].copy())
            said[more] = latest[more]
        over = said[ended] <= heartbeat
        alive[ended[over]] = 0
        self._tuples.touch(ended)
        self._ends.put(ended[~over])
        return result

    def _say(self, slots: Int64s, ts: Int64s, exp: Int64s) -> list[Elements]:
        return [Elements(tuple(self._tuples.key_columns(slots)), ts, exp)] if len(slots) else []


class DistinctOverList(DistinctStar):
    """What δ* improves on: the whole input is kept, and looked through from end to end for copies that live on
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
    """State: per tuple, integer lanes [copies]; the ends to come of elements that expire by themselves."""

    def __init__(self, spec: DistinctSpec) -> None:
        super().__init__(spec.types, 1, listed=spec.listed)

    def _netted(self, found: Events, order: Int64s, event: Int64s, step: Int64s) -> int:
        copies = self._counted.tuples.integers[0]
        return int(transitions(found.slots, found.times, order, found.weights, copies, event, step))


def make_distinct(spec: DistinctSpec) -> Operator:
    """The duplicate elimination that `spec` asks for."""
    if spec.strict:
        return CountedDistinct(spec)
    return DistinctOverList(spec) if spec.listed else DistinctStar(spec)
