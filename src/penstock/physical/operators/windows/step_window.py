"""Time windows that slide by rows, RANGE T SLIDE n ROWS: their content changes whenever n more elements have arrived.

Elements are counted in (timestamp, arrival) order; the tick of every n-th is a *boundary*. At a boundary the content
becomes the elements counted so far whose T has not passed. So an element enters at the first boundary at or after its
own number, and leaves at the first one at which its T has passed; if that boundary is not known yet, it is emitted
without expiration and ended by a negative tuple. Each element is processed when it arrives, enters and leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat_arrays, int64s, unnamed
from penstock.physical.kernels.ticks import later
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ArrivalOrderBuffer, ReorderingOperator
from penstock.physical.plan.windows import StepWindowSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import make_queue
from penstock.storage.documents import Document, integer
from penstock.types import END


class StepWindow(ReorderingOperator):
    """State: elements ahead of the heartbeat, those that wait for a boundary, and those that have entered and expire;
    the number of elements since the last boundary."""

    def __init__(self, spec: StepWindowSpec) -> None:
        super().__init__(ArrivalOrderBuffer(spec.arrival))
        self._spec = spec
        self._waiting = make_queue(True, False)
        self._live = make_queue(True, False)
        self._since = 0

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "waiting": self._waiting, "live": self._live}

    def marks(self) -> Document:
        return {"since": self._since}

    def restore_marks(self, marks: Document) -> None:
        self._since = integer(marks, "since")

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        step = self._spec.step
        positions = np.arange(step - self._since - 1, len(arrived), step)
        self._since = (self._since + len(arrived)) % step
        if not len(positions):
            self._waiting.push(_queued(arrived.ts, arrived.columns))
            return []
        return self._moved(arrived, positions, arrived.ts[positions])

    def _moved(self, arrived: Elements, positions: Int64s, boundaries: Int64s) -> list[Elements]:
        """Return the elements that enter and the negative tuples of those that leave at the `boundaries`, whose
        elements are at `positions` among those that arrived."""
        last = int(positions[-1]) + 1
        waited = self._waiting.pop_until(int(boundaries[-1]))
        self._waiting.push(_queued(arrived.ts[last:], [c.slice(last) for c in arrived.columns]))
        left = self._gone(boundaries)
        parts = [batch.columns for batch in waited]
        parts.append([pa.array(arrived.ts[:last]), *(c.slice(0, last) for c in arrived.columns)])
        ts, *columns = (concat_arrays([part[i] for part in parts]) for i in range(len(parts[0])))
        ticks = int64s(ts)
        start = np.full(len(ticks), boundaries[0], np.int64)
        start[len(ticks) - last :] = boundaries[np.searchsorted(positions, np.arange(last))]
        entered = Elements(tuple(columns), start, self._ends(ticks, boundaries))
        entered = entered.filter(entered.ts < entered.exp)
        if self._spec.length is not None:
            self._keep(ticks, columns, boundaries)
        return [part for part in (entered, *left) if len(part)]

    def _ends(self, ticks: Int64s, boundaries: Int64s) -> Int64s:
        """Return the first boundary at which the T of each element has passed, END if it is not known yet."""
        if self._spec.length is None:
            return np.full(len(ticks), END, np.int64)
        return np.append(boundaries, END)[np.searchsorted(boundaries, later(ticks, self._spec.length))]

    def _keep(self, ticks: Int64s, columns: list[pa.Array], boundaries: Int64s) -> None:
        """Keep the elements that have entered and whose expiration is pending."""
        assert self._spec.length is not None
        due = later(ticks, self._spec.length)
        kept = np.flatnonzero(due > boundaries[-1])
        self._live.push(_queued(due[kept], [c.take(pa.array(kept)) for c in columns]))

    def _gone(self, boundaries: Int64s) -> list[Elements]:
        """Return the negative tuples of elements that entered at earlier boundaries and leave at these."""
        parts = []
        for batch in self._live.pop_until(int(boundaries[-1])):
            due = int64s(batch.column(0))
            ends = boundaries[np.searchsorted(boundaries, due)]
            full = np.full(len(due), END, np.int64)
            parts.append(Elements(tuple(batch.columns[1:]), ends, full, np.full(len(due), -1, np.int64)))
        return parts


def _queued(due: Int64s, columns: tuple[pa.Array, ...] | list[pa.Array]) -> pa.RecordBatch:
    return unnamed([pa.array(due), *columns])
