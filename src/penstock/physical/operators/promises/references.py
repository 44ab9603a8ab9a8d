"""When rows that refer to another stream are settled: after k elements of it, or the time k, from their own instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.algebra.properties.promises import ForeignKey
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.promises.closings import ClosingSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.promises.element_counts import ElementCounts
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END


@compiled(reads="values", counted=False)
def _behind(values: Int64s, value: int) -> int:
    """Return the place of the first of some ascending values that is greater; behind all for none."""
    low, high = 0, values.shape[0]
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(reads="came there", counted=False)
def _settle(
    came: Int64s,
    there: Bools,
    counts: tuple[Int64s, Int64s],
    counted: bool,
    rows: int,
    ticks: int,
    heartbeat: int,
    lanes: Int64s,
    first: int,
    until: int,
) -> None:
    """Do what `FollowedReference.arrive` says. counts: the instants and N of `ElementCounts`, read where `counted`;
    rows, ticks: how much later rows are settled."""
    instants, totals = counts
    place = reached = 0
    for i in range(came.shape[0]):
        if not there[i]:
            lanes[i, first], lanes[i, first + 1] = END, END
            continue
        at, number = came[i], 0
        instant = settled = min(at + ticks, END)
        if counted:
            if i > 0 and at < came[i - 1]:
                # Mostly they come in the order of time.
                place = _behind(instants, at)
                reached = _behind(totals, totals[place] + rows - 1)
            while place < instants.shape[0] and instants[place] <= at:
                place += 1
            number = min(totals[place] + rows, END)
            while reached < totals.shape[0] and totals[reached] < number:
                reached += 1
            if reached == totals.shape[0]:
                settled = END
            elif reached > 0:
                settled = max(settled, instants[reached - 1])
        lanes[i, first], lanes[i, first + 1] = number, instant
        if settled <= heartbeat:
            lanes[i, until] = min(lanes[i, until], settled)


class CountedStreams:
    """N of the streams that references count. State: N, and counts ahead of the heartbeat."""

    def __init__(self, references: Sequence[ClosingSpec]) -> None:
        bases = [base for one in references for base in one.bases]
        self.counts = {base.counts: ElementCounts() for base in bases if base.counts is not None}
        self._early = {port: ReorderBuffer() for port in self.counts}

    def synopses(self) -> Mapping[str, Synopsis]:
        found: dict[str, Synopsis] = {f"parents_{port}": early.queue for port, early in self._early.items()}
        return found | {f"parents_count_{port}": counts for port, counts in self.counts.items()}

    def process(self, port: int, elements: Elements) -> None:
        """Accept counts at a port of the operator; those of other ports are left out."""
        if port in self._early:
            self._early[port].add(elements)

    def advance(self, heartbeat: int) -> None:
        """Count the elements up to `heartbeat`."""
        for port, early in self._early.items():
            self.counts[port].take(early.until(heartbeat))


class FollowedReference:
    """A reference of the rows of a table; of a union those of all branches, of which the last to be settled decides.

    Args:
        table: the rows.
        first: of the two integer lanes that it uses: N, and the instant, at which a row is settled.
    """

    def __init__(self, reference: ClosingSpec, counted: CountedStreams, table: KeyedTable, first: int) -> None:
        within = [base.promise.within for base in reference.bases if isinstance(base.promise, ForeignKey)]
        self._rows = max((one.rows for one in within if one.rows is not None), default=0)
        self._ticks = max((one.ticks for one in within if one.ticks is not None), default=0)
        ports = [base.counts for base in reference.bases if base.counts is not None]
        self._counts = counted.counts[ports[0]] if ports and self._rows else None
        self._table, self._lanes = table, (first, first + 1)
        self._by_number = ExpirationIndex(table, first)
        self._by_instant = ExpirationIndex(table, first + 1)

    def arrive(self, came: Int64s, there: Bools, heartbeat: int, lanes: Int64s, until: int) -> None:
        """Note of rows that come when they are settled.

        Args:
            came: their timestamps, in this round.
            there: which of them refer to anything.
            lanes: their numbers by (row, lane), of which those of the reference are written.
            until: the lane that becomes the least of it and of when they are settled, where that is known.
        """
        counts = ElementCounts() if self._counts is None else self._counts
        counted = self._counts is not None
        first, rows, ticks = self._lanes[0], self._rows, self._ticks
        _settle(came, there, (counts.instants, counts.totals), counted, rows, ticks, heartbeat, lanes, first, until)

    def put(self, slots: Int64s) -> None:
        """Add slots that have become live."""
        self._by_instant.put(slots)

    def closed(self, heartbeat: int) -> tuple[Int64s, Int64s]:
        """Remove the slots that are settled in this round; return them, and when each was. Some may be dead."""
        slots = self._by_instant.until(heartbeat)
        if self._counts is not None:
            # After a restore an index has all slots.
            self._by_number.put(slots)
            slots = np.unique(self._by_number.until(self._counts.total))
        numbers, instants = (self._table.integers[lane, slots] for lane in self._lanes)
        settled = instants if self._counts is None else np.maximum(instants, self._counts.reached(numbers))
        known = settled <= heartbeat
        return slots[known], settled[known]
