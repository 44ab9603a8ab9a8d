"""A query in the sequence model: its own time line of instants, and inside a plan that runs on it (LANGUAGE 6).

In each round the elements of all streams up to the heartbeat are put into order, with the boundaries of frequencies in
time among them, and numbered. The windows turn them into elements that live from instant to instant, and the inner plan
is run up to the last instant by the very executor that runs the job: to its operators instants are ticks. What it
answers at an instant leaves with the instant's timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.expressions.evaluate import mask
from penstock.physical.elements import Bools, Elements, Int64s, concat, empty, round_up
from penstock.physical.kernels import argsort_time
from penstock.physical.operators import Tables
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.inner import InnerPlan
from penstock.physical.operators.pending import Early, InOrder
from penstock.physical.order import argsort_values
from penstock.physical.sequence_plan import INSTANTS, SequenceSpec, SequenceWindow
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.jumps import Instants, Jumps
from penstock.types import END


class Line(Operator):
    """State: the elements ahead of the heartbeat; of every window what it holds or may hold; boundaries to come; that
    of the inner plan. Marks: the number of the last instant, the tick up to which boundaries have been counted."""

    def __init__(self, spec: SequenceSpec, tables: Tables) -> None:
        self._spec = spec
        self._early = [InOrder(arrival) for arrival in spec.arrival]
        self._jumps = [Jumps(_types(spec, window), window.shape) for window in spec.windows]
        self._boundaries = Early()
        self._inner = InnerPlan(spec.inner, tables)
        self._count = 0
        self._done: int | None = None

    def synopses(self) -> Mapping[str, Synopsis]:
        found: dict[str, Synopsis] = {f"early{port}": early.queue for port, early in enumerate(self._early)}
        found["boundaries"] = self._boundaries.queue
        for number, jumps in enumerate(self._jumps):
            found |= {f"substreams{number}": jumps.substreams, f"window{number}": jumps}
        return found | self._inner.synopses()

    def marks(self) -> dict[str, Any]:
        return {"count": self._count, "done": self._done, "inner": self._inner.marks()}

    def restore_marks(self, marks: dict[str, Any]) -> None:
        self._count, self._done = marks["count"], marks["done"]
        self._inner.restore_marks(marks["inner"])

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early[port].add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        if moment.shard:
            return []  # all elements are sent to the first shard; in the others are boundaries alone
        if moment.start is None or moment.heartbeat < moment.start:
            for early in (*self._early, self._boundaries):
                early.hold()
            return []
        streams = [early.until(moment.heartbeat) for early in self._early]
        arrived = [np.empty(0, np.int64) if s is None else s.ts for s in streams]
        boundaries = self._boundary_ticks(arrived, moment)
        self._done = moment.heartbeat
        ticks = np.concatenate([*arrived, boundaries])
        if not len(ticks):
            return []
        # A boundary stands behind the elements of its tick, streams at one tick in their order.
        order = argsort_time(ticks)
        return self._answered(self._given(streams, arrived, ticks, order), ticks[order])

    # -- boundaries --------------------------------------------------------------------------------------------

    def _boundary_ticks(self, arrived: Sequence[Int64s], moment: Moment) -> Int64s:
        """The boundaries that are instants now, each once."""
        assert moment.start is not None
        if self._spec.all_instants:
            since = moment.start if self._done is None else self._done + 1
            parts = [
                np.arange(round_up(since, slide, align), moment.heartbeat + 1, slide)
                for slide, align in self._spec.periods
            ]
            return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        if not self._spec.periods:
            return np.empty(0, np.int64)
        self._note(arrived if self._done is not None else [*arrived, np.array([moment.start])])
        due = self._boundaries.until(moment.heartbeat)
        return np.unique(due.ts) if due is not None else np.empty(0, np.int64)

    def _note(self, arrived: Sequence[Int64s]) -> None:
        """Nothing changes but at the boundaries behind an arrival, and behind the instant that makes it too old; what
        is there from the beginning is told at the first."""
        changes = [np.unique(ticks) for ticks in arrived]
        for window in self._spec.windows:
            if window.shape.length is not None:
                changes.append(np.unique(arrived[window.stream]) + window.shape.length)
        every = np.unique(np.concatenate(changes))
        if len(every):
            ahead = np.unique(np.concatenate([round_up(every, *period) for period in self._spec.periods]))
            self._boundaries.add(Elements((), ahead, np.full(len(ahead), END)))

    # -- instants ----------------------------------------------------------------------------------------------

    def _given(
        self, streams: Sequence[Elements | None], arrived: Sequence[Int64s], ticks: Int64s, order: Int64s
    ) -> dict[str, Elements]:
        """What the inner plan's sources give: the windows' elements, and the instants of evaluation."""
        first, line = self._count + 1, ticks[order]
        starts = np.cumsum([0, *map(len, arrived)])
        told: Bools = np.zeros(len(order), np.bool_)
        given: dict[str, Elements] = {}
        for window, jumps in zip(self._spec.windows, self._jumps, strict=True):
            low, high = int(starts[window.stream]), int(starts[window.stream + 1])
            rows = np.where((order >= low) & (order < high), order - low, -1)
            slide, align = window.shape.slide, window.shape.align
            boundary = order >= starts[-1]
            if slide is not None:
                boundary &= round_up(line, slide, align) == line
            columns, rows = _coming(window, streams[window.stream] or empty(self._spec.types[window.stream]), rows)
            if window.stamped:
                columns = (*columns, pa.array(_places(rows) + first))
            made, evaluated = jumps.follow(columns, Instants(first, line, rows, boundary))
            told |= evaluated
            if made is not None:
                given[window.source] = made
        self._count += len(order)
        at = np.flatnonzero(told) + first
        given[INSTANTS] = Elements((), at, np.full(len(at), END))
        return given

    def _still_asked(self) -> int:
        """The first instant at which something has arrived that is yet to come into its window."""
        windows = zip(self._spec.windows, self._jumps, strict=True)
        waiting = (jumps.oldest_waiting() for window, jumps in windows if window.stamped)
        return min((int(row[-1].as_py()) for row in waiting if row is not None), default=self._count + 1)

    def _answered(self, given: Mapping[str, Elements], line: Int64s) -> list[Elements]:
        first = self._count - len(line) + 1
        answers = [part for part in self._inner.run(given, self._count) if len(part)]
        if not answers:
            return []
        made = concat(answers)
        if self._spec.ordered:
            made = made.take(argsort_values(made))
        return [Elements(made.columns, line[made.ts - first], np.full(len(made), END), made.sign)]


def _types(spec: SequenceSpec, window: SequenceWindow) -> tuple[pa.DataType, ...]:
    return (*spec.types[window.stream], pa.int64()) if window.stamped else spec.types[window.stream]


def _coming(window: SequenceWindow, arrived: Elements, rows: Int64s) -> tuple[tuple[pa.Array, ...], Int64s]:
    """What comes into the window of the elements that have arrived, and at which instants; rows: those of all."""
    if window.where is None:
        return arrived.columns, rows
    chosen = mask(window.where, arrived.columns, len(arrived))
    # An instant that is no element looks at the last place, which is none.
    place = np.append(np.where(chosen, np.cumsum(chosen) - 1, -1), -1)
    return arrived.filter(chosen).columns, place[rows]


def _places(rows: Int64s) -> Int64s:
    """Where each of a window's new elements stands among the instants."""
    own = np.flatnonzero(rows >= 0)
    found = np.empty(len(own), np.int64)
    found[rows[own]] = own
    return found
