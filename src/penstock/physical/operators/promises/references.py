"""When rows that refer to another stream are settled: after k elements of it, or the time k, from their own instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.algebra.properties.promises import ForeignKey
from penstock.physical.elements import Elements, Int64s
from penstock.physical.kernels.ticks import later
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.promises.closings import ClosingSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.promises.element_counts import ElementCounts
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END

_NONE = np.empty(0, np.int64)


class CountedStreams:
    """N of the streams that references count. State: N, and elements ahead of the heartbeat."""

    def __init__(self, references: Sequence[ClosingSpec]) -> None:
        bases = [base for one in references for base in one.bases]
        self.counts = {base.counts: ElementCounts() for base in bases if base.counts is not None}
        self._early = {port: ReorderBuffer() for port in self.counts}

    def synopses(self) -> Mapping[str, Synopsis]:
        found: dict[str, Synopsis] = {f"parents_{port}": early.queue for port, early in self._early.items()}
        return found | {f"parents_count_{port}": counts for port, counts in self.counts.items()}

    def process(self, port: int, elements: Elements) -> None:
        """Accept elements at a port of the operator; those of other ports are left out."""
        if port in self._early:
            self._early[port].add(elements)

    def advance(self, heartbeat: int) -> None:
        """Count the elements up to `heartbeat`."""
        for port, early in self._early.items():
            rows = early.until(heartbeat)
            self.counts[port].advance(_NONE if rows is None else rows.ts)


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

    def dues(self, came: Int64s) -> tuple[Int64s, Int64s]:
        """Return N and the instant at which rows are settled.

        Args:
            came: their timestamps, in this round.
        """
        counted = np.zeros(len(came), np.int64) if self._counts is None else later(self._counts.at(came), self._rows)
        return counted, later(came, self._ticks)

    def settled(self, numbers: Int64s, instants: Int64s, heartbeat: int) -> Int64s:
        """Return when rows are settled, of which `dues` are these; END where it is not known yet."""
        found = instants if self._counts is None else np.maximum(instants, self._counts.reached(numbers))
        return np.where(found <= heartbeat, found, END)

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
        settled = self.settled(numbers, instants, heartbeat)
        known = settled < END
        return slots[known], settled[known]
