"""The groups that are open, where promises close the values of their columns.

A group is its columns together with the time for which its values are open: after a closing a later row begins it
again. So the rows of a round are in as many groups as there are such times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.kernels.compiled import distinct_slots, with_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.promises.closed_counts import ClosedCounts, first_to_close
from penstock.physical.operators.promises.follower import ClosingFollower
from penstock.physical.operators.promises.held_slots import held_slots
from penstock.physical.plan.promises.groups import ValueClosing
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.keyed_table import KeyedTable, SlotAssignment
from penstock.types import BEGIN, END

_NONE = np.empty(0, np.int64)


class OpenGroups:
    """The live slots of a table of groups, whose key columns are those of the groups. In a round: `begin`, `place` for
    all rows of it, `closed`, `end` when the slots of what is closed are dead.

    Args:
        closings: columns are places among the key columns; the first to close ends a group.
    """

    def __init__(self, closings: Sequence[ValueClosing], table: KeyedTable) -> None:
        self._table = table
        self._places = [one.columns for one in closings]
        self._follower = ClosingFollower([one.closing for one in closings if one.closing is not None])
        assert len(self._follower.promises) == len(closings), "UNIQUE ends no group"
        pairs = zip(self._follower.promises, self._places, strict=True)
        self._counts = ClosedCounts(table, [one.text for one in closings])
        self._held = [held_slots(promise, table, places) for promise, places in pairs]
        #: Groups of earlier rounds a value of which was closed in this one; the number of slots before this round.
        self._ended, self._before = _NONE, 0
        #: Of the groups with rows in this round: their slots, and the instant of one of the rows.
        self._touched, self._instants = _NONE, _NONE

    def synopses(self) -> Mapping[str, Synopsis]:
        """Return what closes values, by names that are unique in the operator."""
        return self._follower.synopses()

    def process(self, port: int, elements: Elements) -> None:
        """Accept thin rows at a port of the operator."""
        self._follower.process(port, elements)

    def begin(self, heartbeat: int) -> None:
        """Find the closings up to `heartbeat`."""
        self._follower.advance(heartbeat)
        self._ended = np.concatenate([one.closed() for one in self._held])
        self._before, self._touched, self._instants = self._table.count, _NONE, _NONE

    def can_close(self, keys: Sequence[pa.Array], length: int) -> Bools:
        """Return which of some rows are in groups that a promise may close. keys: the columns of the groups."""
        pairs = zip(self._follower.promises, self._places, strict=True)
        ending = [promise.can_close([keys[c] for c in places], length) for promise, places in pairs]
        found: Bools = reduce(np.logical_or, ending)
        return found

    def place(self, keys: Sequence[pa.Array], ts: Int64s) -> SlotAssignment:
        """Return the slots of the groups of rows. keys: the columns of the groups."""
        pairs = zip(self._follower.promises, self._places, strict=True)
        since = reduce(np.maximum, [promise.since([keys[c] for c in places], ts) for promise, places in pairs])
        first, second = with_time(*fingerprints(keys, len(ts)), since)
        slots = self._table.slots(first, second, keys)
        unique = distinct_slots(slots, self._table.count)
        instants = np.empty(self._table.count, np.int64)
        instants[slots] = ts
        self._touched = np.concatenate([self._touched, unique])
        self._instants = np.concatenate([self._instants, instants[unique]])
        return SlotAssignment(slots, unique, first, second)

    def closed(self) -> tuple[Int64s, Int64s]:
        """Return the groups that are closed, and when."""
        slots, firsts = np.unique(np.concatenate([self._touched, self._ended]), return_index=True)
        # All of a group's rows have one next closing, so any instant of them will do.
        instants = np.concatenate([self._instants, np.full(len(self._ended), BEGIN)])[firsts]
        live = self._table.integers[0, slots] > 0
        slots, instants = slots[live], instants[live]
        by, until = first_to_close([one.promise.until(one.values(slots), instants) for one in self._held])
        self._counts.add(by)
        over = until < END
        return slots[over], until[over]

    def end(self) -> None:
        """Follow the groups that have begun in this round and are open."""
        fresh = np.unique(self._touched[self._touched >= self._before])
        fresh = fresh[self._table.integers[0, fresh] > 0]
        for one in self._held:
            one.put(fresh)
