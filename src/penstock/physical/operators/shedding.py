"""Load shedding below coalescing [temporal 2]: passes on what enters, and takes back what a budget pushes out.

Contract: after every arrival at most the budget is held, and what is dropped depends on the elements alone, whatever
the rounds, shards and restarts. Elements of an instant are taken in the order of (begin, hash of the value, end,
expiration); what expires at an instant leaves before the arrivals of it. A drop is a negative tuple at the timestamp of
the arrival that caused it, so a tuple dropped at the instant of its own arrival never enters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.shed import ENTRY_BYTES, bucket_budgets
from penstock.expressions.draws import draws
from penstock.expressions.value_sizes import value_bytes
from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.operators.contract import Moment
from penstock.physical.operators.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.plan.temporal.shedding import ShedSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.held_tuples import HeldTuples
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.shedding.contract import Shedding
from penstock.shedding.hashing import BUCKETS, all_salted
from penstock.shedding.layout import (
    DROPPED,
    DROPPED_AT,
    DROPPED_BEGIN,
    DROPPED_END,
    DROPPED_EXPIRES,
    DROPPED_SLOT,
)
from penstock.shedding.policies import POLICIES
from penstock.shedding.shedder import ArrivingTuples, Shedder


class Shed(ReorderingOperator):
    """State: the tuples held, with the values of them in slots, and elements ahead of the heartbeat."""

    def __init__(self, spec: ShedSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec = spec
        made = Shedding(POLICIES[spec.policy], spec.least, spec.ordered, spec.compact, seed=0, sample=spec.sample / 1e6)
        self._shedders = [Shedder(made, budget) for budget in bucket_budgets(spec.budget, spec.buckets)]
        # Its one lane: the number of entries of the value.
        self._values = KeyedTable(1, 0, spec.types[:-2])
        self._values.followers.append(self._renumbered)
        self._held = HeldTuples(self._shedders, self._values.key_columns)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "held": self._held}

    def _renumbered(self, slots: Int64s) -> None:
        for shedder in self._shedders:
            shedder.renumber(slots)

    def advance(self, moment: Moment) -> list[Elements]:
        self._held.take(lambda columns, rows: self._values.place(columns, rows).slots)
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        arrived = self._in_order(arrived)
        result = self._arrive(arrived) if len(arrived) else []
        self._held.changed = True
        self._forget()
        return [one for one in result if len(one)]

    def _in_order(self, elements: Elements) -> Elements:
        """Return the elements that have a period, one by one, in the order in which they are taken."""
        begin, end = elements.columns[-2:]
        there = np.asarray(begin.is_valid()) & np.asarray(end.is_valid())
        elements = elements.filter(there)
        elements = elements.filter(int64s(elements.columns[-2]) < int64s(elements.columns[-1]))
        if elements.sign is not None:
            elements = elements.take(np.repeat(np.arange(len(elements)), elements.sign))
        ranks = _ranks(elements.columns[:-2], len(elements))
        keys = (elements.exp, int64s(elements.columns[-1]), ranks, int64s(elements.columns[-2]), elements.ts)
        return Elements(elements.columns, elements.ts, elements.exp).take(np.lexsort(keys))

    def _arrive(self, arrived: Elements) -> list[Elements]:
        count, values = len(arrived), arrived.columns[:-2]
        slots, ranks = self._values.place(values, count).slots, _ranks(values, count)
        weights = np.ones(count, np.int64)
        if self._spec.in_bytes:
            weights = ENTRY_BYTES + value_bytes(values, count)
        begins, ends = (int64s(column) for column in arrived.columns[-2:])
        every = ArrivingTuples(slots, ranks, begins, ends, arrived.ts, arrived.ts, arrived.exp, weights)
        if self._spec.buckets == 1:
            return self._take(self._shedders[0], every, np.arange(count), arrived)
        buckets = all_salted(ranks, BUCKETS) % self._spec.buckets
        result: list[Elements] = []
        for number in np.unique(buckets).tolist():
            rows = np.flatnonzero(buckets == number)
            result += self._take(self._shedders[number], every.chosen(rows), rows, arrived)
        return result

    def _take(self, shedder: Shedder, arriving: ArrivingTuples, rows: Int64s, arrived: Elements) -> list[Elements]:
        """Return what a bucket passes on of `arriving`, which are `rows` of `arrived`, and what it takes back."""
        first = shedder.arrived
        outcome = shedder.arrive(arriving)
        drops = outcome.drops
        entered = outcome.entered == 1
        own = drops[:, DROPPED] - first
        fresh = own >= 0
        # What is dropped at the instant of its arrival never enters.
        at_once = np.zeros(len(drops), np.bool_)
        at_once[fresh] = arriving.stamps[own[fresh]] == drops[fresh, DROPPED_AT]
        entered[own[at_once]] = False
        return [arrived.take(rows[entered]), self._retractions(drops[~at_once])]

    def _retractions(self, drops: Int64s) -> Elements:
        values = self._values.key_columns(np.ascontiguousarray(drops[:, DROPPED_SLOT]))
        begins, ends, at, expires = (
            np.ascontiguousarray(drops[:, k]) for k in (DROPPED_BEGIN, DROPPED_END, DROPPED_AT, DROPPED_EXPIRES)
        )
        return Elements((*values, pa.array(begins), pa.array(ends)), at, expires, np.full(len(drops), -1, np.int64))

    def _forget(self) -> None:
        """Forget values of which nothing is held."""
        count = self._values.count
        live = sum((shedder.live(count) for shedder in self._shedders), np.zeros(count, np.int64))
        changed = np.flatnonzero(self._values.integers[0, :count] != live)
        self._values.integers[0, changed] = live[changed]
        self._values.touch(changed)
        self._values.shrink()


def _ranks(values: Sequence[pa.Array], count: int) -> Int64s:
    """Return a hash of 63 bits of every value."""
    return (draws(0, "", np.zeros(count, np.int64), values) >> np.uint64(1)).astype(np.int64)
