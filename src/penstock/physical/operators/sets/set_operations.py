"""EXCEPT and INTERSECT, with ALL and without: both sides' copies of every tuple are counted [semantics 4.2].

A tuple with l copies on the left and r on the right has f(l, r) copies in the result; a change of l or r that changes f
is emitted as the difference. The cost is proportional to the events, not to the content of the windows.
"""

from __future__ import annotations

import numpy as np

from penstock.compilation import loop
from penstock.physical.elements import Int64s
from penstock.physical.operators.sets.tuple_counts import NettingOperator, TupleEvents
from penstock.physical.plan.sets import CopyRule, SetOperationSpec

_NUMBER = {kind: number for number, kind in enumerate(CopyRule)}


@loop
def _copies(kind: int, left: int, right: int) -> int:
    """Return f(l, r) of the set operation with number `kind`, in the order of `CopyRule`."""
    if kind == 0:
        return max(left - right, 0)
    if kind == 1:
        return min(left, right)
    if kind == 2:
        return int(np.int64(left > 0 and right <= 0))
    return int(np.int64(left > 0 and right > 0))


@loop
def _sweep(
    kind: int,
    slots: Int64s,
    times: Int64s,
    weights: Int64s,
    ports: Int64s,
    order: Int64s,
    both: Int64s,
    right: Int64s,
    event: Int64s,
    step: Int64s,
) -> int:
    """Apply events, sorted by (slot, time), to the counts `both` = l + r and `right` (by slot, in place); each
    instant at which f changes gives one entry: event[k] (one event of it), step[k] the change. Return the number of
    entries."""
    k = 0
    i = 0
    n = order.shape[0]
    while i < n:
        last = order[i]
        slot, time = slots[last], times[last]
        before = _copies(kind, both[slot] - right[slot], right[slot])
        while i < n and slots[order[i]] == slot and times[order[i]] == time:
            last = order[i]
            both[slot] += weights[last]
            if ports[last] == 1:
                right[slot] += weights[last]
            i += 1
        after = _copies(kind, both[slot] - right[slot], right[slot])
        if after != before:
            event[k] = last
            step[k] = after - before
            k += 1
    return k


class SetOperation(NettingOperator):
    """State: per tuple, integer lanes [copies on both sides, copies on the right]; the pending expirations."""

    def __init__(self, spec: SetOperationSpec) -> None:
        self._kind = _NUMBER[spec.kind]
        super().__init__(spec.types, 2, ports=2, listed=spec.listed)

    def _netted(self, events: TupleEvents, order: Int64s, event: Int64s, step: Int64s) -> int:
        both, right = self._counted.tuples.integers
        return int(
            _sweep(
                self._kind, events.slots, events.times, events.weights, events.ports, order, both, right, event, step
            )
        )
