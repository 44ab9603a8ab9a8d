"""What one-time queries read of a live system: contents of relations and retained elements of streams, all as of one
delivered batch.

Contract (isolation 'window'): everything that a `LiveState` gives belongs to one batch, whatever is delivered
meanwhile. The heartbeat of a source is the tick up to which its elements are complete; `END` of a source that has
ended, `NOTHING` of one without an element.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.connectors.results.batch_file import BatchFile
from penstock.connectors.results.result_folder import ResultFolder
from penstock.physical.execution.progress import NOTHING
from penstock.results.content import ResultContents, as_elements, no_content
from penstock.results.source_rows import RowsInMemory, SourceRows, stamped_rows
from penstock.runtime.live.content import Content
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

    def elements(self, source: Source, columns: tuple[int, ...], after: int | None, up_to: int) -> SourceRows:
        """Return the elements with ticks in (after, up_to], as rows of `read_source(source)`. Those after `dropped` are
        all there.

        Args:
            source: the declaration in the query.
            columns: positions of the declared columns that the query reads.
            after: None for all that are kept.

        Raises:
            PenstockError: P0721 for a column that is not kept.
        """


class LiveUpdates(Protocol):
    """All updates of a relation."""

    @property
    def heartbeat(self) -> int:
        """Return the tick up to which they are complete."""

    def updates(
        self, source: Source, up_to: int, back: int | None, often: bool, check: Callable[[], None]
    ) -> SourceRows:
        """Return those with ticks up to `up_to`, as rows of `updates_source(source)`.

        Args:
            back: of those so many ticks before that, it suffices to return the ones that make the content there; None
                where all are needed.
            often: whether other readers that need as early instants are to be expected.
            check: called now and then while this takes time; ends it by raising.
        """


@dataclass(frozen=True)
class LiveState:
    """What can be read at one delivered batch. All names are in lower case.

    Args:
        batch: its number.
        delivered: when it was delivered, in seconds since 1970; None where that is not known.
        contents: relation queries, and relations of which the present content is kept.
        past: streams that are retained, and stream queries.
        updates: relations of which all updates are kept.
        whole: static relations, and other inputs that end, with all declared columns.
        newest: of what is read, the largest tick that has been read of its sources.
    """

    batch: int
    delivered: float | None
    contents: Mapping[str, LiveContent] = field(default_factory=dict)
    past: Mapping[str, LivePast] = field(default_factory=dict)
    updates: Mapping[str, LiveUpdates] = field(default_factory=dict)
    whole: Mapping[str, SourceRows] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _DeliveredState:
    """The answer of a query as its run keeps it, at a batch."""

    folder: ResultFolder
    id: str
    batch: int
    #: The tick up to which the answer is complete at that batch, whose file may be removed meanwhile.
    heartbeat: int


@dataclass(frozen=True)
class ResultContent(_DeliveredState):
    """The content of a relation query. name: of the query in errors."""

    contents: ResultContents
    name: str

    @property
    def last(self) -> int:
        tick = self.contents.latest(self.id).tick
        return NOTHING if tick is None else tick

    def at(self, tick: int) -> pa.Table:
        return self.contents.at(self.id, tick, self.name)


@dataclass(frozen=True)
class ResultElements(_DeliveredState):
    """The rows of a stream query that are left."""

    @property
    def dropped(self) -> int | None:
        removed = self.folder.removed(self.id)
        if removed.batch < 0:
            return None
        if removed.high is not None:
            return removed.high
        for batch in self.folder.batches(removed.batch + 1):
            file = self.folder.file(batch)
            if file is not None and self.id in file.sections:
                # Rows of that instant may have come early, with a batch that is gone.
                return int(file.rows(self.id).column(0).cast(pa.int64())[0].as_py())
        return self.heartbeat

    def elements(self, source: Source, columns: tuple[int, ...], after: int | None, up_to: int) -> SourceRows:
        schema = self.folder.record(self.id).schema
        parts = [schema.empty_table()]
        for batch in self.folder.batches(max(0, self.folder.removed(self.id).batch + 1)):
            file = self.folder.file(batch) if batch <= self.batch else None
            if file is not None and self.id in file.sections:
                parts.append(file.rows(self.id))
        rows = pa.concat_tables(parts).combine_chunks()
        ticks = rows.column(0).cast(pa.int64()).combine_chunks().to_numpy()
        kept = ticks <= up_to
        if after is not None:
            kept &= ticks > after
        chosen = np.flatnonzero(kept)
        chosen = pa.array(chosen[np.argsort(ticks[chosen], kind="stable")])
        return RowsInMemory(stamped_rows(source, rows.take(chosen), pa.array(ticks).take(chosen)))


@dataclass(frozen=True)
class EmittedRows:
    """The answer of a query in memory: of a stream its elements, of a relation its content. See the contracts
    `LivePast` and `LiveContent`.

    Args:
        parts: what has been emitted since the answer has begun, in order.
        heartbeat: the tick up to which that is complete.
        dropped: the tick up to which rows have been dropped, None where all are kept.
    """

    query: Query
    parts: Sequence[pa.Table]
    heartbeat: int
    dropped: int | None = None

    @property
    def last(self) -> int:
        return max((int(part.column(0).cast(pa.int64())[-1].as_py()) for part in self.parts), default=NOTHING)

    def elements(self, source: Source, columns: tuple[int, ...], after: int | None, up_to: int) -> SourceRows:
        rows = pa.concat_tables([self.query.output_schema.empty_table(), *self.parts]).combine_chunks()
        ticks = rows.column(0).cast(pa.int64())
        chosen = pc.less_equal(ticks, up_to)
        if after is not None:
            chosen = pc.and_(chosen, pc.greater(ticks, after))
        return RowsInMemory(stamped_rows(source, rows.filter(chosen), ticks.filter(chosen)))

    def at(self, tick: int) -> pa.Table:
        if self.dropped is not None and tick <= self.dropped:
            raise no_content(self.query.name, f"its changes up to {self.query.domain.show(self.dropped)} are gone")
        content = Content(self.query.root.schema.types)
        for part in self.parts:
            changes = as_elements(part)
            content.add(changes.filter(changes.ts <= tick))
        kept = content.rows()
        repeated = kept.take(np.repeat(np.arange(len(kept)), np.maximum(kept.signs, 0)))
        return pa.table(list(repeated.columns), names=list(self.query.output_names[2:]))


def answers_at(folder: ResultFolder, batch: int | None) -> BatchFile | None:
    """Return the file with the heartbeats of queries at `batch`, None for the last batch; None without a file. A batch
    in which nothing advanced has none."""
    while True:
        known = folder.batches()
        place = len(known) if batch is None else bisect_right(known, batch)
        file = folder.file(known[place - 1]) if place else None
        # One that has been removed meanwhile is no longer among them.
        if file is not None or not place:
            return file


def state_of_results(
    folder: Path,
    ids: Mapping[str, tuple[Query, str]],
    contents: ResultContents,
    batch: int | None = None,
    answers: BatchFile | None = None,
) -> LiveState:
    """Return what can be read of the answers of queries.

    Args:
        ids: by name in lower case, a query and the id of its result.
        batch: the batch as of which they are read; None for the last one.
        answers: the file of that batch, where it has been read before others could be removed.
    """
    results = ResultFolder.at(folder)
    results.refresh()
    file = answers or answers_at(results, batch)
    if file is None:
        batch, delivered, beats = -1, None, dict[str, int]()
    else:
        batch, delivered, beats = file.batch, file.delivered / 1_000_000, file.heartbeats
    places = {name: (query, id_, beats.get(id_, NOTHING)) for name, (query, id_) in ids.items()}
    relations = {
        n: ResultContent(results, i, batch, beat, contents, q.name)
        for n, (q, i, beat) in places.items()
        if not q.root.is_stream
    }
    streams = {n: ResultElements(results, i, batch, beat) for n, (q, i, beat) in places.items() if q.root.is_stream}
    return LiveState(batch, delivered, relations, streams)


def latest_tick(heartbeats: Mapping[str, int]) -> int:
    """Return the instant up to which all sources are complete; END where all have ended, and without sources."""
    return min(heartbeats.values(), default=END)
