"""Aggregates over windows of several lengths of one stream read one log of rows [bulletin 2.2].

`RowLog` keeps the accumulator rows of the longest window in the order of time, and emits nothing. For a reader whose
window is T long and which is at the instant h, the rows up to h have entered and those up to h - T have left. So what
enters and leaves up to its next instant are two ranges of the log: a reader stores its groups and the rows that may
become an extreme, but not the rows of its window. There is one writer and many readers; a reader notes the instant at
which it is, and rows go when the slowest needs them no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat, int64s, unnamed
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.kernels.ticks import later
from penstock.physical.operators.aggregates.aggregate import Aggregation
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reader_floors import ReaderFloors
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.plan.aggregates import LoggedAggregateSpec, RowLogSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import FifoQueue
from penstock.physical.synopses.tables.keyed_table import SlotAssignment
from penstock.storage.documents import Document, optional_integer
from penstock.types import BEGIN, END

#: The columns of a logged row before those of the accumulator row: its timestamp, the fingerprint of its group.
_HEAD = 3


class RowLog(ReorderingOperator):
    """State: the rows that some reader may still need, and those ahead of the heartbeat."""

    def __init__(self, spec: RowLogSpec) -> None:
        super().__init__(ReorderBuffer())
        self._keys = len(spec.plan.group)
        self._rows = FifoQueue()
        self._floors: ReaderFloors[LoggedAggregation] = ReaderFloors()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"rows": self._rows, **super().synopses()}

    def attach_reader(self, reader: LoggedAggregation, floor: int | None) -> None:
        """Keep rows for one more reader; floor: the timestamp up to which it needs none, None if that is unknown."""
        self._floors.put(reader, floor)

    def detach_reader(self, reader: LoggedAggregation) -> None:
        """Keep no rows for a reader any more."""
        self._floors.remove(reader)

    def advance(self, moment: Moment) -> list[Elements]:
        self._trim()
        due = self._early.until(moment.heartbeat)
        if due is not None:
            halves = fingerprints(due.columns[: self._keys], len(due))
            head = [pa.array(due.ts), *(pa.array(half.view(np.int64)) for half in halves)]
            self._rows.push(unnamed([*head, *due.columns]))
        return []

    def between(self, low: int, high: int) -> list[pa.RecordBatch]:
        """Return the rows with low < ts ≤ high, in batches."""
        return self._rows.between(low, high)

    def passed(self, reader: LoggedAggregation, floor: int) -> None:
        """Note up to which timestamp a reader needs no row any more."""
        self._floors.put(reader, floor)
        self._trim()

    def _trim(self) -> None:
        least = self._floors.least
        if least is not None:
            self._rows.pop_until(least)


class LoggedAggregation(Aggregation):
    """State: the groups, the values of arguments that are not sums, and the instant up to which it has read."""

    def __init__(self, spec: LoggedAggregateSpec) -> None:
        super().__init__(spec)
        self._length = spec.length
        self._done: int | None = None
        self._log: RowLog | None = None

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"groups": self._groups, **self._values.synopses}

    def marks(self) -> Document:
        return {**super().marks(), "done": self._done}

    def restore_marks(self, marks: Document) -> None:
        super().restore_marks(marks)
        self._done = optional_integer(marks, "done")

    def attach(self, inputs: Sequence[Operator]) -> None:
        (log,) = inputs
        assert isinstance(log, RowLog)
        self._log = log
        log.attach_reader(self, None if self._done is None else self._left(self._done))

    def detach(self) -> None:
        if self._log is not None:
            self._log.detach_reader(self)
            self._log = None

    def advance(self, moment: Moment) -> Iterable[Elements]:
        result = super().advance(moment)
        self._done = max(moment.heartbeat, BEGIN - 1 if self._done is None else self._done)
        self._read.passed(self, self._left(self._done))
        return result

    @property
    def _read(self) -> RowLog:
        assert self._log is not None
        return self._log

    def _left(self, instant: int) -> int:
        """Return the timestamp of the last rows that have left the window at `instant`."""
        return max(instant, BEGIN - 1 + self._length) - self._length

    def _entering(self, heartbeat: int) -> Elements | None:
        parts = self._read.between(BEGIN - 1 if self._done is None else self._done, heartbeat)
        if not parts:
            return None
        ts = [int64s(part.column(0)) for part in parts]
        return concat(
            [
                Elements(tuple(part.columns[_HEAD:]), times, later(times, self._length))
                for part, times in zip(parts, ts, strict=True)
            ]
        )

    def _times_of_changes(self, heartbeat: int) -> Iterable[Int64s]:
        entering = self._entering(heartbeat)
        if entering is not None:
            yield from (entering.ts, entering.exp)
        yield from (int64s(part.column(0)) for part in self._leaving(heartbeat))

    def _leaving(self, heartbeat: int) -> list[pa.RecordBatch]:
        if self._done is None:
            return []
        # Of the rows that have entered; those that enter and leave at once are among the entering.
        until = min(self._left(heartbeat), self._done, END - 1 - self._length)
        parts = self._read.between(self._left(self._done), until)
        carried = range(_HEAD + self._keys, _HEAD + self._plan.values_at)
        first_value = _HEAD + self._plan.values_at
        kept = [*carried, *(first_value + i for i, lasting in enumerate(self._values.lasting) if lasting)]
        ends = [pa.array(int64s(part.column(0)) + self._length) for part in parts]
        return [
            unnamed([end, part.column(1), part.column(2), *map(part.column, kept)])
            for end, part in zip(ends, parts, strict=True)
        ]

    def _keep(self, arrived: Elements, placed: SlotAssignment, heartbeat: int) -> None:
        """Keep nothing: the log has the rows."""
