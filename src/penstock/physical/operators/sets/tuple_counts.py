"""Shared base of operators that count the live copies of every tuple: elements become events on a table of tuples.

An element is two events: its copies are added at ts and removed at exp. Expirations beyond the heartbeat wait in a
calendar queue. A tuple with 0 copies may be removed while expirations of it are pending: those of an element and of the
negative tuple that cancelled it. They are due together and cancel, so expirations are netted before the tuple is looked
up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.kernels.compiled import argsort_code_time, group_codes, sum_by_code, with_time
from penstock.physical.kernels.fingerprints import UInt64s
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import make_queue
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END


@dataclass(frozen=True)
class TupleEvents:
    """Events, one per row: at `times`, `weights` copies of the tuple in `slots` are added (or, if negative, removed) at
    input `ports`."""

    slots: Int64s
    times: Int64s
    weights: Int64s
    ports: Int64s


class CountedTuples:
    """Tuples in slots with integer lanes, of which lane 0 must be 0 where no copy lives. New slots have lanes 0; the
    caller keeps the counts."""

    def __init__(self, types: Sequence[pa.DataType], lanes: int, ports: int = 1, listed: bool = False) -> None:
        self.tuples = KeyedTable(lanes, 0, types)
        self._early = [ReorderBuffer() for _ in range(ports)]
        self._live = make_queue(False, listed)

    def synopses(self) -> Mapping[str, Synopsis]:
        early = {f"early{port}": buffer.queue for port, buffer in enumerate(self._early)}
        return {"tuples": self.tuples, "live": self._live, **early}

    def add(self, port: int, elements: Elements) -> None:
        self._early[port].add(elements)

    def events(self, heartbeat: int) -> TupleEvents | None:
        """Return the events up to `heartbeat`, in no particular order; None if there are none."""
        parts = self._ended(heartbeat)
        for port, early in enumerate(self._early):
            arrived = early.until(heartbeat)
            if arrived is not None:
                parts.append(self._arrive(arrived, port, heartbeat))
        if not parts:
            return None
        return TupleEvents(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _ended(self, heartbeat: int) -> list[tuple[Int64s, ...]]:
        batches = self._live.pop_until(heartbeat)
        if not batches:
            return []
        due, first_half, second_half, sign, port = (
            np.concatenate([int64s(b.column(i)) for b in batches]) for i in range(5)
        )
        codes, heads = group_codes(*with_time(first_half.view(np.uint64), second_half.view(np.uint64), 2 * due + port))
        sums = sum_by_code(codes, sign, len(heads))
        kept = heads[sums != 0]
        if not len(kept):
            return []
        slots = self._known(first_half[kept].view(np.uint64), second_half[kept].view(np.uint64))
        return [(slots, due[kept], -sums[sums != 0], port[kept])]

    def _known(self, first: UInt64s, second: UInt64s) -> Int64s:
        codes, heads = group_codes(first, second)
        return self.tuples.slots(first[heads], second[heads])[codes]

    def _arrive(self, arrived: Elements, port: int, heartbeat: int) -> tuple[Int64s, ...]:
        placed = self.tuples.place(arrived.columns, len(arrived))
        slots, first, second = placed.slots, placed.first, placed.second
        signs = arrived.signs
        expired = arrived.exp <= heartbeat
        later = ~expired & (arrived.exp < END)
        if later.any():
            ports = np.full(int(later.sum()), port, np.int64)
            self._push(arrived.exp[later], first[later], second[later], signs[later], ports)
        times = np.concatenate([arrived.ts, arrived.exp[expired]])
        weights = np.concatenate([signs, -signs[expired]])
        return np.concatenate([slots, slots[expired]]), times, weights, np.full(len(times), port, np.int64)

    @property
    def ending(self) -> int:
        """The number of rows with an expiration to come."""
        return self._live.rows

    def ends(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return the expirations to come: (slot, expiration, copies), several of a slot and expiration perhaps."""
        batches = self._live.contents()
        if not batches:
            return (np.empty(0, np.int64),) * 3
        due, first, second, sign, _ = (np.concatenate([int64s(b.column(i)) for b in batches]) for i in range(5))
        return self._known(first.view(np.uint64), second.view(np.uint64)), due, sign

    def keep_ends(self, slots: Int64s, due: Int64s, copies: Int64s) -> None:
        """Replace the expirations to come by these, of input 0, of which those of 0 copies are none."""
        self._live.pop_until(END)
        kept = copies > 0
        slots, due, copies = slots[kept], due[kept], copies[kept]
        first, second = self.tuples.fingerprints(slots)
        self._push(due, first, second, copies, np.zeros(len(due), np.int64))

    def _push(self, due: Int64s, first: UInt64s, second: UInt64s, sign: Int64s, ports: Int64s) -> None:
        ends = (due, first.view(np.int64), second.view(np.int64), sign, ports)
        names = ["due", "first", "second", "sign", "port"]
        self._live.push(pa.RecordBatch.from_arrays([pa.array(e) for e in ends], names=names))

    def changes(self, slots: Int64s, times: Int64s, steps: Int64s) -> list[Elements]:
        """Return elements for changes of copies by `steps`, which are sorted by (slot, time). Copies that are added and
        all removed again at the tuple's next change become one closed element; other additions are open elements,
        other removals negative tuples."""
        if not len(slots):
            return []
        exp = np.full(len(slots), END, np.int64)
        inserted = steps > 0
        paired = inserted[:-1] & (steps[1:] == -steps[:-1]) & (slots[:-1] == slots[1:])
        exp[:-1][paired] = times[1:][paired]
        shown = np.concatenate([[True], ~paired])
        return [Elements(tuple(self.tuples.key_columns(slots[shown])), times[shown], exp[shown], steps[shown])]


class CountedOperator(Operator):
    """An operator whose whole state is counted tuples. lanes, ports, listed: as for `CountedTuples`."""

    def __init__(self, types: Sequence[pa.DataType], lanes: int, ports: int = 1, listed: bool = False) -> None:
        self._counted = CountedTuples(types, lanes, ports, listed)

    def synopses(self) -> Mapping[str, Synopsis]:
        return self._counted.synopses()

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._counted.add(port, elements)
        return []


class NettingOperator(CountedOperator, ABC):
    """A counted operator whose output for a tuple follows from the tuple's own counts alone."""

    def advance(self, moment: Moment) -> list[Elements]:
        events = self._counted.events(moment.heartbeat)
        if events is None:
            return []
        tuples = self._counted.tuples
        order = argsort_code_time(events.slots, events.times)
        event, step = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        count = self._netted(events, order, event, step)
        tuples.touch(events.slots)
        chosen = event[:count]
        result = self._counted.changes(events.slots[chosen], events.times[chosen], step[:count])
        tuples.shrink()
        return result

    @abstractmethod
    def _netted(self, events: TupleEvents, order: Int64s, event: Int64s, step: Int64s) -> int:
        """Apply the events, sorted in `order` by (slot, time), to the counts. Each instant at which the output
        changes gives one entry: event[k], one event of that instant, and step[k], the change in copies. Return the
        number of entries."""
