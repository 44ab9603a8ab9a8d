"""RSTREAM of grouped sums over windows that differ only in length and slide: one pane store with many readers.

The store keeps the panes of all of them, once; each window reads them where they lie and tells its rows at its own
boundaries [semantics 4.3]: a basic interval synopsis that windows of different lengths share `[golab 8.3, SS1]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements
from penstock.physical.kernels.compiled import argsort_time
from penstock.physical.operators.aggregates.accumulators import pre_aggregate
from penstock.physical.operators.aggregates.finalize import finish
from penstock.physical.operators.aggregates.shared_pane_sums import WindowReader
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.reorder_buffer import ReorderBuffer
from penstock.physical.plan.panes import PaneStoreSpec, WindowSumsSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.windows.pane_log import PaneLog
from penstock.storage.documents import Document, optional_integer
from penstock.types import END


class PaneStore(Operator):
    """State: the panes that some window may still read, and those ahead of the heartbeat. It emits nothing."""

    def __init__(self, spec: PaneStoreSpec) -> None:
        self._plan = spec.plan
        self._early = ReorderBuffer()
        self.log = PaneLog(spec.plan, spec.types)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "panes": self.log}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        due = self._early.until(moment.heartbeat)
        if due is not None and len(due):
            due = pre_aggregate(self._plan, due)
            due = due.take(argsort_time(due.ts))
        self.log.turn(due)
        return []


class WindowSums(Operator):
    """State: the last instant evaluated. The panes that it sums belong to the store."""

    def __init__(self, spec: WindowSumsSpec) -> None:
        self._spec = spec
        self._reader: WindowReader | None = None

    def attach(self, inputs: Sequence[Operator]) -> None:
        (store,) = inputs
        assert isinstance(store, PaneStore)
        spec, before = self._spec, self._reader
        self._reader = WindowReader(store.log, spec.plan, spec.length, spec.slide, spec.align)
        self._log = store.log
        if before is not None:
            self._reader.done = before.done

    def detach(self) -> None:
        if self._reader is not None:
            self._log.readers.pop(self._reader, None)

    def marks(self) -> Document:
        return {"done": self._read.done}

    def restore_marks(self, marks: Document) -> None:
        self._read.done = optional_integer(marks, "done")

    @property
    def _read(self) -> WindowReader:
        assert self._reader is not None
        return self._reader

    def advance(self, moment: Moment) -> Iterator[Elements]:
        reader = self._read
        since, until = moment.start if reader.done is None else reader.done + 1, moment.heartbeat + 1
        if since is None or since >= until:
            return  # this round has no instant to evaluate
        for rows in reader.rows_at(reader.boundary(since), reader.boundary(until)):
            chosen = pa.array(rows.positions)
            keys = [key.take(chosen) for key in self._log.keys]
            columns = (*keys, *finish(self._spec.plan, rows.integers, rows.floats, {}))
            yield Elements(columns, rows.ticks, np.full(len(rows.ticks), END))
        reader.done = moment.heartbeat
