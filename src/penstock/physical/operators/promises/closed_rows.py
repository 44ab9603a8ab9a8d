"""WHERE CLOSED(c, ..): rows that enter at the first closing of their value at or after their own instant, under every
condition (docs/promises.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from penstock.figures.figure import FigureValues
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.kernels.compiled import distinct_slots, with_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.promises.closed_counts import ClosedCounts, first_to_close, promise_figures
from penstock.physical.operators.promises.follower import ClosingFollower
from penstock.physical.operators.promises.held_slots import HeldSlots, held_slots
from penstock.physical.plan.promises.groups import ClosedRowsSpec, ValueClosing
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.promises.closing_index import can_close
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import BEGIN, END

_NONE = np.empty(0, np.int64)
#: The lanes of a row: its copies; its timestamp; then by condition the closing, END before it.
_COPIES, _TS, _UNTIL = range(3)


class ClosedRows(Operator):
    """State: the rows that are not closed, equal ones of one instant once; what closes values; rows ahead of the
    heartbeat."""

    def __init__(self, spec: ClosedRowsSpec) -> None:
        closings = [one.closing for condition in spec.conditions for one in condition if one.closing is not None]
        self._conditions = spec.conditions
        self._early = ReorderBuffer()
        self._follower = ClosingFollower(closings)
        self._rows = KeyedTable(_UNTIL + len(spec.conditions), 0, spec.types)
        #: By condition.
        self._counts = [ClosedCounts(self._rows, [one.text for one in condition]) for condition in spec.conditions]
        followed = iter(self._follower.promises)
        #: By condition its promises in their order; None for UNIQUE.
        self._held: list[list[HeldSlots | None]] = [
            [None if one.closing is None else held_slots(next(followed), self._rows, one.columns) for one in condition]
            for condition in spec.conditions
        ]

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"rows": self._rows, "early": self._early.queue, **self._follower.synopses()}

    def figures(self) -> FigureValues:
        return promise_figures(self.synopses().values())

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port == 0:
            self._early.add(elements)
        else:
            self._follower.process(port, elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        self._follower.advance(moment.heartbeat)
        closed = [self._close(number) for number in range(len(self._conditions))]
        arrived = self._early.until(moment.heartbeat)
        fresh = _NONE if arrived is None else self._arrive(arrived)
        made = self._emit(np.unique(np.concatenate([fresh, *closed])))
        fresh = fresh[self._rows.integers[_COPIES, fresh] > 0]
        for condition in self._held:
            for one in condition:
                if one is not None:
                    one.put(fresh)
        self._rows.shrink()
        return made

    def _arrive(self, arrived: Elements) -> Int64s:
        """Add rows; return their slots. A row that is never closed is never emitted."""
        rows = np.flatnonzero(
            reduce(
                np.logical_and,
                [self._can_close(*pair, arrived) for pair in zip(self._conditions, self._held, strict=True)],
            )
        )
        arrived = arrived.take(rows)
        if not len(arrived):
            return _NONE
        first, second = with_time(*fingerprints(arrived.columns, len(arrived)), arrived.ts)
        slots = self._rows.slots(first, second, arrived.columns)
        unique = distinct_slots(slots, self._rows.count)
        lanes = self._rows.integers
        np.add.at(lanes[_COPIES], slots, arrived.signs)
        lanes[_TS, slots] = arrived.ts
        for number, condition in enumerate(self._conditions):
            pairs = zip(condition, self._held[number], strict=True)
            until = [self._until(one, held, arrived.columns, arrived.ts) for one, held in pairs]
            by, lanes[_UNTIL + number, slots] = first_to_close(until)
            self._counts[number].add(by, arrived.signs)
        self._rows.touch(unique)
        return unique

    @staticmethod
    def _can_close(condition: Sequence[ValueClosing], held: Sequence[HeldSlots | None], rows: Elements) -> Bools:
        ending = []
        for one, slots in zip(condition, held, strict=True):
            close = can_close if slots is None else slots.promise.can_close
            ending.append(close([rows.columns[c] for c in one.columns], len(rows)))
        found: Bools = reduce(np.logical_or, ending)
        return found

    @staticmethod
    def _until(one: ValueClosing, held: HeldSlots | None, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        own = [columns[c] for c in one.columns]
        if held is not None:
            return held.promise.until(own, ts)
        return np.where(can_close(own, len(ts)), ts, END)

    def _close(self, number: int) -> Int64s:
        """Note which rows of earlier rounds were closed in this one under a condition; return them."""
        held = [one for one in self._held[number] if one is not None]
        slots: Int64s = np.unique(np.concatenate([_NONE, *(one.closed() for one in held)]))
        lanes = self._rows.integers
        slots = slots[(lanes[_COPIES, slots] > 0) & (lanes[_UNTIL + number, slots] == END)]
        if len(slots):
            begin = np.full(len(slots), BEGIN)
            until = [one.promise.until(one.values(slots), begin) for one in held]
            by, lanes[_UNTIL + number, slots] = first_to_close(until)
            self._counts[number].add(by, lanes[_COPIES, slots])
            self._rows.touch(slots)
        return slots

    def _emit(self, changed: Int64s) -> list[Elements]:
        """Remove and return the rows of some slots that are closed under every condition."""
        lanes = self._rows.integers
        enter = lanes[_UNTIL:, changed].max(axis=0, initial=BEGIN)
        slots, enter = changed[enter < END], enter[enter < END]
        if not len(slots):
            return []
        copies = lanes[_COPIES, slots]
        rows, ts = np.repeat(slots, copies), np.repeat(enter, copies)
        made = Elements(tuple(self._rows.key_columns(rows)), ts, np.full(len(rows), END))
        lanes[_COPIES, slots] = 0
        self._rows.touch(slots)
        return [made]
