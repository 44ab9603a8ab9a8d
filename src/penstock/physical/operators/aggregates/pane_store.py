"""RSTREAM of grouped sums over windows that differ only in length and slide: one pane store with many readers.

The store keeps the panes of all of them, once; each window reads them in place and emits its rows at its own
boundaries [semantics 4.3]: a basic interval synopsis that windows of different lengths share `[golab 8.3, SS1]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.physical.elements import Elements
from penstock.physical.kernels.compiled import argsort_time
from penstock.physical.operators.aggregates.accumulators import pre_aggregate
from penstock.physical.operators.aggregates.shared_pane_sums import PaneWindows
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.panes import PaneStoreSpec, WindowSumsSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.windows.pane_log import PaneLog
from penstock.storage.documents import Document, optional_integer


class PaneStore(Operator):
    """State: the panes that some window may still read, and those ahead of the heartbeat. It emits nothing."""

    def __init__(self, spec: PaneStoreSpec) -> None:
        self._plan = spec.plan
        self._early = ReorderBuffer()
        self.log = PaneLog(spec.plan, spec.types)
        self.windows = PaneWindows(self.log, spec.plan)

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
    """State: the last instant evaluated. The panes that it sums belong to the store, which computes its sums with those
    of other windows."""

    def __init__(self, spec: WindowSumsSpec) -> None:
        self._spec = spec
        #: What it is among, and its number there; None while nothing is read.
        self._among: tuple[PaneWindows, int] | None = None
        self._done: int | None = None

    def attach(self, inputs: Sequence[Operator]) -> None:
        (store,) = inputs
        assert isinstance(store, PaneStore)
        spec = self._spec
        self.detach()
        self._among = store.windows, store.windows.add(spec.length, spec.slide, spec.align, self._done)

    def detach(self) -> None:
        if self._among is not None:
            windows, number = self._among
            self._done, self._among = windows.remove(number), None

    def marks(self) -> Document:
        return {"done": self._done if self._among is None else self._among[0].done(self._among[1])}

    def restore_marks(self, marks: Document) -> None:
        self._done = optional_integer(marks, "done")
        if self._among is not None:
            windows, number = self._among
            windows.set_done(number, self._done)

    def portion(self, moment: Moment, rows: int) -> int:
        assert self._among is not None
        return self._among[0].portion(self._among[1], moment.start, moment.heartbeat, rows)

    def advance(self, moment: Moment) -> Iterable[Elements]:
        assert self._among is not None
        return self._among[0].advance(self._among[1], moment.start, moment.heartbeat)
