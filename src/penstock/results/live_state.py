"""What one-time queries read of a live system: contents of relations and retained elements of streams, all as of one
delivered batch.

Contract (isolation 'window'): everything that a `LiveState` gives belongs to one batch, whatever is delivered
meanwhile. The heartbeat of a source is the tick up to which its elements are complete; `END` of a source that has
ended, `NOTHING` of one without an element.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.connectors.results.result_folder import ResultFolder
from penstock.physical.execution.progress import NOTHING
from penstock.results.content import ResultContents
from penstock.types import END


class LiveContent(Protocol):
    """The content of a relation: a declared one, or the answer of a query."""

    @property
    def heartbeat(self) -> int:
        """Return the tick up to which it is complete."""

    @property
    def last(self) -> int:
        """Return the tick of its last change, `NOTHING` without one."""

    def at(self, tick: int) -> pa.Table:
        """Return its rows, with all declared columns, at an instant up to the heartbeat. Raises PenstockError P0711
        where they are not known any more."""


class LivePast(Protocol):
    """The retained elements of a stream."""

    @property
    def heartbeat(self) -> int:
        """Return the tick up to which its elements are complete."""

    @property
    def dropped(self) -> int | None:
        """Return the tick up to which elements have been dropped, None where all are kept."""

    def elements(self, after: int | None, up_to: int) -> tuple[pa.Table, pa.Array]:
        """Return the elements with ticks in (after, up_to], with all declared columns, and their ticks, in the order
        in which they arrived. after: None for all that are kept."""


@dataclass(frozen=True)
class LiveState:
    """What can be read at one delivered batch. All names are in lower case.

    Args:
        batch: its number.
        delivered: when it was delivered, in seconds since 1970.
        contents: relations with updates, and relation queries.
        past: streams that are retained, and stream queries.
        statics: static relations, with all declared columns.
    """

    batch: int
    delivered: float
    contents: Mapping[str, LiveContent] = field(default_factory=dict)
    past: Mapping[str, LivePast] = field(default_factory=dict)
    statics: Mapping[str, Callable[[], pa.Table]] = field(default_factory=dict)


@dataclass(frozen=True)
class _DeliveredState:
    """The answer of a query as its run keeps it, at a batch."""

    folder: ResultFolder
    id: str
    batch: int

    @property
    def heartbeat(self) -> int:
        file = self.folder.file(self.batch) if self.batch >= 0 else None
        return NOTHING if file is None else file.heartbeats.get(self.id, NOTHING)


@dataclass(frozen=True)
class ResultContent(_DeliveredState):
    """The content of a relation query."""

    contents: ResultContents

    @property
    def last(self) -> int:
        tick = self.contents.latest(self.id).tick
        return NOTHING if tick is None else tick

    def at(self, tick: int) -> pa.Table:
        return self.contents.at(self.id, tick)


@dataclass(frozen=True)
class ResultElements(_DeliveredState):
    """The rows of a stream query that are left."""

    @property
    def dropped(self) -> int | None:
        if self.folder.removed(self.id).batch < 0:
            return None
        for batch in self.folder.batches(self.folder.removed(self.id).batch + 1):
            file = self.folder.file(batch)
            if file is not None and self.id in file.sections:
                ticks = file.rows(self.id).column(0).cast(pa.int64())
                return int(ticks[0].as_py()) - 1
        return self.heartbeat

    def elements(self, after: int | None, up_to: int) -> tuple[pa.Table, pa.Array]:
        schema = self.folder.record(self.id).schema
        parts = [schema.empty_table()]
        for batch in self.folder.batches(max(0, self.folder.removed(self.id).batch + 1)):
            file = self.folder.file(batch) if batch <= self.batch else None
            if file is not None and self.id in file.sections:
                parts.append(file.rows(self.id))
        rows = pa.concat_tables(parts).combine_chunks()
        ticks = rows.column(0).cast(pa.int64()).combine_chunks()
        kept = ticks.to_numpy() <= up_to
        if after is not None:
            kept &= ticks.to_numpy() > after
        chosen = pa.array(np.flatnonzero(kept))
        return rows.remove_column(0).take(chosen), ticks.take(chosen)


def state_of_results(folder: Path, ids: Mapping[str, tuple[Query, str]], contents: ResultContents) -> LiveState:
    """Return what can be read of the answers of queries at the last batch.

    Args:
        ids: by name in lower case, a query and the id of its result.
    """
    results = ResultFolder.at(folder)
    results.refresh()
    batch = results.last
    file = results.file(batch) if batch >= 0 else None
    delivered = file.delivered / 1_000_000 if file is not None else time.time()
    relations = {n: ResultContent(results, i, batch, contents) for n, (q, i) in ids.items() if not q.root.is_stream}
    streams = {n: ResultElements(results, i, batch) for n, (q, i) in ids.items() if q.root.is_stream}
    return LiveState(batch, delivered, relations, streams)


def latest_tick(heartbeats: Mapping[str, int]) -> int:
    """Return the instant up to which all sources are complete; END where all have ended, and without sources."""
    return min(heartbeats.values(), default=END)
