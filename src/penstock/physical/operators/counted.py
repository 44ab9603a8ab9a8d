"""What operators share that count the live copies of every tuple: elements become events on a table of tuples.

An element is two events: its copies come at ts and go at exp. Ends beyond the heartbeat wait in a calendar queue. A
tuple whose copies are 0 may be forgotten while ends of it still wait: those of an element and of the negative tuple
that took it back. They are due together and cancel, so ends are netted before the tuple is looked up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.fingerprints import UInt64s
from penstock.physical.kernels import argsort_code_time, group_codes, sum_by_code, with_time
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.pending import Early
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues import make_queue
from penstock.physical.synopses.slots import SlotTable
from penstock.types import END


@dataclass(frozen=True)
class Events:
    """At `times`, `weights` copies of the tuple in `slots` come (or go) at input `ports`."""

    slots: Int64s
    times: Int64s
    weights: Int64s
    ports: Int64s


class CountedTuples:
    """Tuples in slots with integer lanes, of which lane 0 must be 0 where no copy lives. New slots have lanes 0; the
    caller keeps the counts."""

    def __init__(self, types: Sequence[pa.DataType], lanes: int, ports: int = 1, listed: bool = False) -> None:
        self.tuples = SlotTable(lanes, 0, types)
        self._early = [Early() for _ in range(ports)]
        self._live = make_queue(False, listed)

    def synopses(self) -> Mapping[str, Synopsis]:
        early = {f"early{port}": held.queue for port, held in enumerate(self._early)}
        return {"tuples": self.tuples, "live": self._live, **early}

    def add(self, port: int, elements: Elements) -> None:
        self._early[port].add(elements)

    def events(self, heartbeat: int) -> Events | None:
        """What happens until `heartbeat`, in no order; None for nothing."""
        parts = self._ended(heartbeat)
        for port, early in enumerate(self._early):
            arrived = early.until(heartbeat)
            if arrived is not None:
                parts.append(self._arrive(arrived, port, heartbeat))
        if not parts:
            return None
        return Events(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _ended(self, heartbeat: int) -> list[tuple[Int64s, ...]]:
        batches = self._live.pop_until(heartbeat)
        if not batches:
            return []
        due, one, two, sign, port = (np.concatenate([int64s(b.column(i)) for b in batches]) for i in range(5))
        codes, heads = group_codes(*with_time(one.view(np.uint64), two.view(np.uint64), 2 * due + port))
        sums = sum_by_code(codes, sign, len(heads))
        kept = heads[sums != 0]
        if not len(kept):
            return []
        slots = self._known(one[kept].view(np.uint64), two[kept].view(np.uint64))
        return [(slots, due[kept], -sums[sums != 0], port[kept])]

    def _known(self, first: UInt64s, second: UInt64s) -> Int64s:
        codes, heads = group_codes(first, second)
        return self.tuples.slots(first[heads], second[heads])[codes]

    def _arrive(self, arrived: Elements, port: int, heartbeat: int) -> tuple[Int64s, ...]:
        placed = self.tuples.place(arrived.columns, len(arrived))
        slots, first, second = placed.slots, placed.first, placed.second
        signs = arrived.signs
        gone = arrived.exp <= heartbeat
        later = ~gone & (arrived.exp < END)
        if later.any():
            ports = np.full(int(later.sum()), port, np.int64)
            ends = (arrived.exp[later], first[later].view(np.int64), second[later].view(np.int64), signs[later], ports)
            names = ["due", "first", "second", "sign", "port"]
            self._live.push(pa.RecordBatch.from_arrays([pa.array(e) for e in ends], names=names))
        times = np.concatenate([arrived.ts, arrived.exp[gone]])
        weights = np.concatenate([signs, -signs[gone]])
        return np.concatenate([slots, slots[gone]]), times, weights, np.full(len(times), port, np.int64)

    def told(self, slots: Int64s, times: Int64s, steps: Int64s) -> list[Elements]:
        """Elements for changes of copies by `steps`, given in order of (slot, time): what comes and goes again whole at
        the tuple's next change is one closed element; other comings are open, other goings negative tuples."""
        if not len(slots):
            return []
        exp = np.full(len(slots), END, np.int64)
        came = steps > 0
        paired = came[:-1] & (steps[1:] == -steps[:-1]) & (slots[:-1] == slots[1:])
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
    """A counted operator whose answer for a tuple follows from the tuple's own counts alone."""

    def advance(self, moment: Moment) -> list[Elements]:
        found = self._counted.events(moment.heartbeat)
        if found is None:
            return []
        tuples = self._counted.tuples
        order = argsort_code_time(found.slots, found.times)
        event, step = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        count = self._netted(found, order, event, step)
        tuples.touch(found.slots)
        chosen = event[:count]
        result = self._counted.told(found.slots[chosen], found.times[chosen], step[:count])
        tuples.shrink()
        return result

    @abstractmethod
    def _netted(self, found: Events, order: Int64s, event: Int64s, step: Int64s) -> int:
        """Feed the events, put in `order` by (slot, time), to the lanes. Each instant at which the answer changes gives
        one entry: event[k], one event of it, and step[k], by how many copies. Returns how many."""
