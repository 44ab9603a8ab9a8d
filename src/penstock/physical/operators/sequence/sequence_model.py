"""A query in the sequence model: its own time line of instants, and inside a plan that runs on it [semantics 6].

In each round the elements of all streams up to the heartbeat are sorted together with the boundaries of time
frequencies, and numbered: the numbers are the instants. The windows turn the stream elements into elements valid from
one instant to another, and the same executor that runs the job runs the nested plan up to the last instant; its
operators see instants as ticks. A result of the nested plan is emitted with the timestamp of its instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.expressions.evaluation.evaluate import mask
from penstock.physical.elements import Bools, Elements, Int64s, concat, empty
from penstock.physical.kernels.arrival_order import argsort_values
from penstock.physical.kernels.compiled import argsort_time
from penstock.physical.kernels.ticks import boundaries, later, round_up
from penstock.physical.operators.base.contract import Moment, Operator, RunPlan, Tables
from penstock.physical.operators.base.reorder_buffer import ArrivalOrderBuffer, ReorderBuffer
from penstock.physical.plan.sequence import INSTANTS, SequenceModelSpec, SequenceWindow
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.windows.jumping_window import Instants, JumpingWindowBuffer
from penstock.storage.documents import Document, array, integer, optional_integer
from penstock.types import END

#: About how many boundaries are processed at once.
PIECE = 2**16
_NONE = np.empty(0, np.int64)


class SequenceModel(Operator):
    """State: the elements ahead of the heartbeat; for every window the elements that it contains or may still contain;
    pending boundaries; the state of the nested plan. Marks: the number of the last instant, and the tick up to which
    boundaries have been numbered."""

    def __init__(self, spec: SequenceModelSpec, tables: Tables, run_plan: RunPlan) -> None:
        self._spec = spec
        self._early = [ArrivalOrderBuffer(arrival) for arrival in spec.arrival]
        self._jumps = [JumpingWindowBuffer(_types(spec, window), window.shape) for window in spec.windows]
        self._boundaries = ReorderBuffer()
        self._inner = run_plan(spec.inner, tables)
        self._count = 0
        self._done: int | None = None

    def synopses(self) -> Mapping[str, Synopsis]:
        synopses: dict[str, Synopsis] = {f"early{port}": early.queue for port, early in enumerate(self._early)}
        synopses["boundaries"] = self._boundaries.queue
        for number, jumps in enumerate(self._jumps):
            synopses |= {f"substreams{number}": jumps.substreams, f"window{number}": jumps}
        return synopses | self._inner.synopses()

    def marks(self) -> Document:
        return {"count": self._count, "done": self._done, "inner": self._inner.marks()}

    def restore_marks(self, marks: Document) -> None:
        self._count, self._done = integer(marks, "count"), optional_integer(marks, "done")
        self._inner.restore_marks(array(marks, "inner"))

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early[port].add(elements)
        return []

    def advance(self, moment: Moment) -> Iterator[Elements]:
        if moment.shard:
            return  # all elements are sent to the first shard; the others have boundaries only
        if moment.start is None or moment.heartbeat < moment.start:
            for early in (*self._early, self._boundaries):
                early.hold()
            return
        ready = [early.until(moment.heartbeat) for early in self._early]
        streams = [empty(types) if s is None else s for s, types in zip(ready, self._spec.types, strict=True)]
        changes = self._changes([s.ts for s in streams], moment) if self._spec.periods else _NONE
        since = moment.start if self._done is None else self._done + 1
        self._done = moment.heartbeat
        if self._spec.all_instants and self._spec.periods:
            yield from self._evaluate_all(streams, changes, since, moment.heartbeat)
        else:
            yield from self._evaluate(streams, changes)

    def _evaluate_all(self, streams: list[Elements], changes: Int64s, since: int, until: int) -> Iterator[Elements]:
        """Emit the results of all instants from `since` to `until`, in batches. Of a long interval without changes and
        without results, the single boundaries are not visited. changes: as `_changes` returns them."""
        shortest = min(slide for slide, _ in self._spec.periods)
        long = PIECE * shortest
        if until - since > long:
            changes = changes[changes >= since]
            # An interval without changes ends before the first boundary after a change, or with the round.
            starts, stops = np.concatenate([[since], changes + 1]), np.append(changes, until + 1)
            quiet = np.flatnonzero(stops - starts > long)
            for start, stop in zip(starts[quiet].tolist(), stops[quiet].tolist(), strict=True):
                yield from self._evaluate_in_batches(streams, since, start - 1, long)
                yield from self._repeat_results(streams, start, stop - 1, shortest)
                since = stop
        yield from self._evaluate_in_batches(streams, since, until, long)
        yield from self._evaluate(self._take_until(streams, until), _NONE)

    def _repeat_results(self, streams: list[Elements], since: int, until: int, shortest: int) -> Iterator[Elements]:
        """Emit the results of all instants from `since` to `until`, between which no boundary brings a change: the
        results at the first boundary are repeated at all of them."""
        first = min(round_up(since, *period) for period in self._spec.periods)
        rows = 0
        for results in self._evaluate(self._take_until(streams, first), self._all(since, first)):
            rows += len(results)
            yield results
        if rows:
            yield from self._evaluate_in_batches(streams, first + 1, until, max(1, PIECE // rows) * shortest)

    def _evaluate_in_batches(self, streams: list[Elements], since: int, until: int, ticks: int) -> Iterator[Elements]:
        """Emit the results of all instants from `since` to `until`, `ticks` ticks at a time."""
        for start in range(since, until + 1, ticks):
            stop = min(start + ticks - 1, until)
            yield from self._evaluate(self._take_until(streams, stop), self._all(start, stop))

    def _take_until(self, streams: list[Elements], tick: int) -> list[Elements]:
        """Remove the elements up to `tick` from `streams` and return them."""
        taken = []
        for number, stream in enumerate(streams):
            count = int(np.searchsorted(stream.ts, tick, "right"))
            taken.append(stream.slice(0, count))
            streams[number] = stream.slice(count, len(stream))
        return taken

    def _evaluate(self, streams: Sequence[Elements], boundaries: Int64s) -> Iterator[Elements]:
        """Emit the results at the elements of `streams` and at `boundaries`, all later than those of earlier calls."""
        arrived = [stream.ts for stream in streams]
        ticks = np.concatenate([*arrived, boundaries])
        if not len(ticks):
            return
        # A boundary follows the elements of its tick; streams at one tick are in their declared order.
        order = argsort_time(ticks)
        yield from self._results(self._nested_input(streams, arrived, ticks, order), ticks[order])

    # -- boundaries --------------------------------------------------------------------------------------------

    def _all(self, since: int, until: int) -> Int64s:
        """Return all boundaries from `since` to `until`, without duplicates."""
        parts = [boundaries(since, until, *period) for period in self._spec.periods]
        return np.unique(np.concatenate(parts)) if parts else _NONE

    def _changes(self, arrived: Sequence[Int64s], moment: Moment) -> Int64s:
        """Return the boundaries up to the heartbeat at which the result may change, ascending and without duplicates:
        the first boundary after each arrival and after the instant at which it leaves a window, and the very first
        boundary, at which the initial content is emitted."""
        assert moment.start is not None
        self._note(arrived if self._done is not None else [*arrived, np.array([moment.start])])
        due = self._boundaries.until(moment.heartbeat)
        return np.unique(due.ts) if due is not None else _NONE

    def _note(self, arrived: Sequence[Int64s]) -> None:
        """Record the boundaries that `_changes` will return because of these arrivals."""
        changes = [np.unique(ticks) for ticks in arrived]
        for window in self._spec.windows:
            if window.shape.length is not None:
                changes.append(later(np.unique(arrived[window.stream]), window.shape.length))
        every = np.unique(np.concatenate(changes))
        if len(every):
            ahead = np.unique(np.concatenate([round_up(every, *period) for period in self._spec.periods]))
            self._boundaries.add(Elements((), ahead, np.full(len(ahead), END)))

    # -- instants ----------------------------------------------------------------------------------------------

    def _nested_input(
        self, streams: Sequence[Elements], arrived: Sequence[Int64s], ticks: Int64s, order: Int64s
    ) -> dict[str, Elements]:
        """Return the input of the nested plan by source: the windows' elements, and the evaluation instants."""
        first, line = self._count + 1, ticks[order]
        starts = np.cumsum([0, *map(len, arrived)])
        emits: Bools = np.zeros(len(order), np.bool_)
        nested_input: dict[str, Elements] = {}
        for window, jumps in zip(self._spec.windows, self._jumps, strict=True):
            low, high = int(starts[window.stream]), int(starts[window.stream + 1])
            rows = np.where((order >= low) & (order < high), order - low, -1)
            slide, align = window.shape.slide, window.shape.align
            boundary = order >= starts[-1]
            if slide is not None:
                boundary &= round_up(line, slide, align) == line
            columns, rows = _entering(window, streams[window.stream], rows)
            if window.stamped:
                columns = (*columns, pa.array(_positions(rows) + first))
            entering, evaluated = jumps.follow(columns, Instants(first, line, rows, boundary))
            emits |= evaluated
            if window.evaluated is not None:
                at = np.flatnonzero(evaluated)
                chosen = pa.array(rows[at])
                values = tuple(columns[i].take(chosen) for i in window.shape.key)
                nested_input[window.evaluated] = Elements(values, at + first, np.full(len(at), END))
            if entering is not None:
                nested_input[window.source] = entering
        self._count += len(order)
        at = np.flatnonzero(emits) + first
        nested_input[INSTANTS] = Elements((), at, np.full(len(at), END))
        return nested_input

    def _first_waiting_instant(self) -> int:
        """Return the first instant with an arrival that has not entered its window yet."""
        windows = zip(self._spec.windows, self._jumps, strict=True)
        waiting = (jumps.oldest_waiting() for window, jumps in windows if window.stamped)
        return min((int(row[-1].as_py()) for row in waiting if row is not None), default=self._count + 1)

    def _results(self, nested_input: Mapping[str, Elements], line: Int64s) -> list[Elements]:
        first = self._count - len(line) + 1
        parts = [part for part in self._inner.run(nested_input, self._count) if len(part)]
        if not parts:
            return []
        # Rows of one instant are emitted in the order in which a frequency above would pick of them.
        results = concat(parts)
        results = results.take(argsort_values(results))
        return [Elements(results.columns, line[results.ts - first], np.full(len(results), END), results.sign)]


def _types(spec: SequenceModelSpec, window: SequenceWindow) -> tuple[pa.DataType, ...]:
    return (*spec.types[window.stream], pa.int64()) if window.stamped else spec.types[window.stream]


def _entering(window: SequenceWindow, arrived: Elements, rows: Int64s) -> tuple[tuple[pa.Array, ...], Int64s]:
    """Return the columns of the arrived elements that enter the window, and by instant the row of these or -1. rows: by
    instant, the row of `arrived` or -1."""
    if window.where is None:
        return arrived.columns, rows
    chosen = mask(window.where, arrived.columns, len(arrived))
    # An instant without an element has row -1 and so reads the last entry, which is -1.
    position = np.append(np.where(chosen, np.cumsum(chosen) - 1, -1), -1)
    return arrived.filter(chosen).columns, position[rows]


def _positions(rows: Int64s) -> Int64s:
    """Return by row the position among the instants. rows: by instant, the row or -1."""
    own = np.flatnonzero(rows >= 0)
    positions = np.empty(len(own), np.int64)
    positions[rows[own]] = own
    return positions
