"""Grouped and ungrouped aggregates: a sweep over the ends of validity intervals [semantics 2].

Input are accumulator rows (`accumulators.py`), which may be ahead of the heartbeat. Each gives two events: its lanes
are added at ts and subtracted at exp. Between two events of a group its row does not change, so the output is one
element per interval: closed elements with both ends, and an open last one; when that ends in a later round, a negative
tuple is emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Float64s
from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.kernels.compiled import argsort_code_time, distinct_slots, group_codes
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.aggregates.accumulators import (
    all_lanes,
    early_added_up,
    pending_added_up,
    without_cells,
)
from penstock.physical.operators.aggregates.cells.pane_blocks import with_blocks
from penstock.physical.operators.aggregates.groups.events import GroupEvents, join, sweep, sweep_integers
from penstock.physical.operators.aggregates.groups.finalize import finish
from penstock.physical.operators.aggregates.groups.group_rows import GroupHistory, changed_rows
from penstock.physical.operators.aggregates.groups.values import GroupValues
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.final_groups import FinalSlots
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.aggregates import AggregateSpec
from penstock.physical.plan.joins.specs import AggregateLookupSpec
from penstock.physical.plan.panes import IncrementalSlideSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import make_queue
from penstock.physical.synopses.tables.keyed_table import KeyedTable, SlotAssignment
from penstock.storage.documents import Document, flag
from penstock.types import BEGIN, END


class Aggregation(Operator):
    """State: the groups' lanes; the accumulator rows with a pending expiration (FIFO or calendar queue); the elements
    ahead of the heartbeat; for every MIN, MAX and DISTINCT argument the bag of live values by group."""

    def __init__(self, spec: AggregateSpec | IncrementalSlideSpec | AggregateLookupSpec) -> None:
        plan = spec.plan
        self._plan = plan
        self._keys = len(plan.group)
        self._grouped = self._keys > 0
        self._groups = KeyedTable(plan.integers, plan.floats, spec.input_types[: self._keys])
        # Sketches have few cells: those of a pane that arrives in many batches are added up. Rows with other values are
        # not worth the search for equal ones.
        self._early = ReorderBuffer(partial(early_added_up, plan) if plan.sketched else None)
        combine = partial(pending_added_up, plan) if plan.sketched else None
        self._live = make_queue(spec.fifo, spec.listed, combine)
        self._value_types = spec.input_types[plan.values_at :]
        self._values = GroupValues(plan, self._groups, self._value_types)
        self._ending = FinalSlots(spec.ending, self._groups)
        self._double_sums = np.array(plan.double_sums, np.int64).reshape(-1, 3)
        self._factor_of = np.zeros(plan.integers, np.int64)
        for number, argument in enumerate((plan.arguments[i] for i in plan.distincts), 1):
            self._factor_of[argument.integers : argument.integers + argument.integer_lanes] = number
        self._started = False

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"groups": self._groups, "early": self._early.queue, "live": self._live, **self._values.synopses}

    def marks(self) -> Document:
        return {"started": self._started}

    def restore_marks(self, marks: Document) -> None:
        self._started = flag(marks, "started")

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []

    def portion(self, moment: Moment, rows: int) -> int:
        """See the contract. Each row that arrives or expires changes a group, whose row is retracted and emitted."""
        heartbeat = moment.heartbeat
        changes = np.concatenate([np.empty(0, np.int64), *self._times_of_changes(heartbeat)])
        changes = changes[changes <= heartbeat]
        if 2 * len(changes) <= rows:
            return heartbeat
        last = max(0, rows // 2 - 1)
        return max(int(np.partition(changes, last)[last]), BEGIN)

    def advance(self, moment: Moment) -> Iterable[Elements]:
        events = self._events(self._entering(moment.heartbeat), moment.heartbeat)
        result: list[Elements] = []
        # Not before the first heartbeat: rows from the beginning of time may still arrive.
        begun = moment.heartbeat >= BEGIN
        if begun and not self._grouped and not self._started and moment.shard == 0:
            result += self._first_row(events)
        if events is not None and len(events.slots):
            result += changed_rows(self._course(events), self._groups)
        self._drop(self._ending.until(moment.heartbeat))
        self._shrink()
        return result

    def _drop(self, slots: Int64s) -> None:
        """Drop the state of groups whose rows stay as they are."""
        if len(slots):
            self._groups.integers[0, slots] = 0
            self._groups.touch(slots)
            self._values.forget(slots)

    def _shrink(self) -> None:
        self._groups.shrink()
        self._values.shrink()

    # -- events ------------------------------------------------------------------------------------------------

    def _entering(self, heartbeat: int) -> Elements | None:
        """Return the rows up to `heartbeat` that have not been added yet."""
        return self._early.until(heartbeat)

    def _times_of_changes(self, heartbeat: int) -> Iterable[Int64s]:
        """Return when rows enter and leave up to `heartbeat`, which have not been added or subtracted; later times may
        be among them."""
        arriving = self._early.waiting(heartbeat)
        return (self._live.times_until(heartbeat), *(one.ts for one in arriving), *(one.exp for one in arriving))

    def _leaving(self, heartbeat: int) -> list[pa.RecordBatch]:
        """Return the rows of earlier rounds that expire up to `heartbeat`, as `_keep` makes them."""
        return self._live.pop_until(heartbeat)

    def _events(self, arrived: Elements | None, heartbeat: int) -> GroupEvents | None:
        """Return additions of the rows that arrived, and subtractions of those that have expired."""
        expired = self._leaving(heartbeat)
        parts: list[GroupEvents] = []
        if arrived is not None and len(arrived):
            parts += self._arrivals(arrived, heartbeat)
        parts += [events for batch in expired if len((events := self._expirations(batch)).slots)]
        return join(self._plan, parts) if parts else None

    def _arrivals(self, arrived: Elements, heartbeat: int) -> list[GroupEvents]:
        arrived = with_blocks(self._plan, arrived)
        placed = self._placed(arrived)
        slots = placed.slots
        values = tuple(arrived.columns[self._plan.values_at :])
        lanes = all_lanes(self._plan, arrived.columns[self._keys : self._plan.values_at], values, short=True)
        self._keep(arrived, placed, heartbeat)
        every = np.arange(len(arrived))
        ones = np.ones(len(every), np.int64)
        gone = arrived.exp <= heartbeat
        if not gone.any():
            return [GroupEvents(slots, arrived.ts, every, ones, *lanes, values, arrived.exp)]
        expired = np.flatnonzero(gone)
        return [
            GroupEvents(
                np.concatenate([slots, slots[expired]]),
                np.concatenate([arrived.ts, arrived.exp[expired]]),
                np.concatenate([every, expired]),
                np.concatenate([ones, np.full(len(expired), -1, np.int64)]),
                *lanes,
                values,
                arrived.exp,
            )
        ]

    def _placed(self, arrived: Elements) -> SlotAssignment:
        """Return the slots of the groups of rows."""
        return self._groups.place(arrived.columns[: self._keys], len(arrived))

    def _keep(self, arrived: Elements, placed: SlotAssignment, heartbeat: int) -> None:
        """Keep the rows that expire after `heartbeat`."""
        later = (arrived.exp > heartbeat) & (arrived.exp < END)
        if later.any():
            first, second = placed.first, placed.second
            if self._plan.registers:
                arrived, which = without_cells(self._plan, arrived, self._values.lasting, np.flatnonzero(later))
                first, second, later = first[which], second[which], np.ones(len(which), np.bool_)
            kept = [True] * (self._plan.values_at - self._keys) + list(self._values.lasting)
            columns = [c for c, k in zip(arrived.columns[self._keys :], kept, strict=True) if k]
            head = [pa.array(a) for a in (arrived.exp, first.view(np.int64), second.view(np.int64))]
            rows = unnamed(head + columns)
            self._live.push(rows if later.all() else rows.filter(pa.array(later)))

    def _expirations(self, batch: pa.RecordBatch) -> GroupEvents:
        first, second = (int64s(batch.column(i)).view(np.uint64) for i in (1, 2))
        codes, heads = group_codes(first, second)
        slots = self._groups.find(first[heads], second[heads])[codes]
        # A group whose rows were all retracted may have been removed while expirations are pending: these cancel.
        known = slots >= 0
        if not known.all():
            batch, slots = batch.filter(pa.array(known)), slots[known]
        arrays = batch.columns
        size = len(slots)
        carried = arrays[3 : 3 + self._plan.values_at - self._keys]
        lasting_values = iter(arrays[3 + len(carried) :])
        values = tuple(
            next(lasting_values) if kept else pa.nulls(size, type_)
            for kept, type_ in zip(self._values.lasting, self._value_types, strict=True)
        )
        due = int64s(arrays[0])
        lanes = all_lanes(self._plan, carried, values, short=True)
        return GroupEvents(slots, due, np.arange(size), np.full(size, -1, np.int64), *lanes, values, due)

    # -- the sweep ---------------------------------------------------------------------------------------------

    def _first_row(self, events: GroupEvents | None) -> list[Elements]:
        """Return the row of an ungrouped aggregate, which exists from the beginning of time."""
        self._started = True
        first, second = fingerprints((), 1)
        slot = self._groups.slots(first, second)
        if events is not None and bool(np.any(events.times == BEGIN)):
            return []
        return [Elements(tuple(self._rows(slot)), np.array([BEGIN]), np.array([END]))]

    def _course(self, events: GroupEvents) -> GroupHistory:
        """Apply `events` to the groups; return their history in the round."""
        events = self._values.with_registers(events)
        touched = distinct_slots(events.slots, self._groups.count)
        before = self._rows(touched)
        was_live = self._groups.integers[0, touched] > 0
        order = argsort_code_time(events.slots, events.times)
        factors = self._values.factors(events, order)
        count = len(order)
        out_integers = np.empty((self._plan.integers, count), np.int64)
        out_floats = np.zeros((self._plan.floats, count))
        out_event = np.empty(count, np.int64)
        groups = self._groups
        lanes = groups.by_slot
        changes = events.slots, events.times, events.rows, factors, self._factor_of, order, events.integers
        if self._plan.floats:
            count = sweep(
                *changes,
                events.floats,
                lanes.integers,
                lanes.floats,
                self._double_sums,
                out_integers,
                out_floats,
                out_event,
            )
        else:
            count = sweep_integers(*changes, lanes.integers, out_integers, out_event)
        groups.touch(touched)
        values = self._values.follow(events, order, count)
        slots, times = events.slots[out_event[:count]], events.times[out_event[:count]]
        results = finish(self._plan, out_integers[:, :count], out_floats[:, :count], values)
        live = out_integers[0, :count] > 0
        if not self._grouped:
            live = np.ones(count, np.bool_)
            # The row of an ungrouped aggregate that began with these events was never emitted.
            was_live = times[:1] != BEGIN
        return GroupHistory(slots, times, live, results, touched, was_live, before)

    def _rows(self, slots: Int64s) -> list[pa.Array]:
        """Return the current results of the groups in `slots`."""
        return finish(self._plan, *self._state(slots), self._values.now(slots))

    def _state(self, slots: Int64s) -> tuple[Any, Float64s]:
        return self._groups.integers[:, slots].copy(), self._groups.floats[:, slots].copy()
