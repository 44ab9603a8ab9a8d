"""The rows of one source that a one-time query reads, described so that another process can read them.

What a run keeps in files is read in the process that computes the query: the process of the run reads nothing of it,
and memory and time are those of the query. Everything here can be pickled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.errors import PenstockError
from penstock.physical.elements import Elements, Int64s
from penstock.runtime.local.statics import read_relation
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.hydration.update_reader import UpdateReader
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.retention.compacted_updates import CompactedUpdates
from penstock.runtime.spark.retention.rejected_log import RejectedLog, by_promise, without_rejected
from penstock.runtime.spark.retention.retained_log import RetainedFile, RetainedLog, retained_columns
from penstock.types import Field, Schema


class SourceRows(Protocol):
    """The rows of one source, with all columns that the query's scan of it declares."""

    def table(self) -> pa.Table:
        """Read the rows, in the order in which the query takes them."""


@dataclass(frozen=True)
class RowsInMemory:
    """Rows that have been read."""

    rows: pa.Table

    def table(self) -> pa.Table:
        return self.rows


@dataclass(frozen=True)
class RowsInFile:
    """Rows in a file that only the query reads, which is mapped: it may be removed afterwards."""

    path: str

    def table(self) -> pa.Table:
        with pa.memory_map(self.path) as file:
            return pa.ipc.open_file(file).read_all()


@dataclass(frozen=True)
class DeclaredRows:
    """All rows of an input that ends."""

    source: Source

    def table(self) -> pa.Table:
        return read_relation(self.source)[0]


@dataclass(frozen=True)
class RetainedRows:
    """Retained elements of a stream.

    Args:
        source: as the query declares it.
        root: the folder of the run.
        log: the name of the stream's log there.
        files: those that hold the elements.
        columns: positions of the declared columns that the query reads; others are NULL.
        after, up_to: the elements with timestamps in (after, up_to] are read; after: None for all.
        rejected: the files of what was rejected of them.
        promises: that are CHECKED; what they have rejected is left out.
    """

    source: Source
    root: Path
    log: str
    files: tuple[RetainedFile, ...]
    columns: tuple[int, ...]
    after: int | None
    up_to: int
    rejected: tuple[RetainedFile, ...] = ()
    promises: tuple[str, ...] = ()

    def table(self) -> pa.Table:
        folder = Folder(self.root)
        log = RetainedLog(folder, self.log, self.source.timestamp)
        found = by_promise(RejectedLog(folder, self.log).log, self.rejected)
        rejected = [found[promise] for promise in self.promises if promise in found]
        parts = without_rejected(log, self.files, self.columns, rejected, len(self.source.columns))
        return ordered_rows(self.source, self.columns, elements_between(parts, self.after, self.up_to))


@dataclass(frozen=True)
class AcceptedUpdates:
    """The updates of a relation that a run has accepted, those of the tick `up_to` and before.

    Args:
        source: as the query declares it.
        read_as: as the run reads it.
        compacted: the first of them.
        tasks: that read the others, in order.
    """

    source: Source
    read_as: Source
    compacted: CompactedUpdates
    tasks: tuple[ReadTask, ...]
    up_to: int

    def table(self) -> pa.Table:
        reader = UpdateReader(self.read_as, self.compacted.progress)
        behind = (part for task in self.tasks for part in reader.read_task(task))
        return update_rows(self.source, elements_between(chain(self.compacted.read(), behind), None, self.up_to))


def check_declared(source: Source, now: Source) -> None:
    """Raise PenstockError P0721 where a source that a query reads has got another declaration since the query was
    bound: its columns would be taken for those of the former one.

    Args:
        source: the declaration in the query.
        now: that with which the rows are read.
    """
    if _layout(source) != _layout(now):
        message = f"{source.name} has been declared again since the query began"
        raise PenstockError("P0721", message, hint="send the query again")


def check_retained(source: Source, now: Source, columns: Collection[int]) -> None:
    """Raise PenstockError P0721 where a stream that a query reads has got another declaration since the query was
    bound, or retains less than the query reads.

    Args:
        source: the declaration in the query.
        now: that with which the elements are retained.
        columns: positions of the declared columns that the query reads.
    """
    check_declared(source, now)
    missing = [source.columns[i].name for i in columns if i not in retained_columns(now)]
    if missing:
        raise PenstockError(
            "P0721",
            f"the column {missing[0]} of {source.name} is not retained",
            hint=f"declare {source.name} with RETAIN for all columns, or leave {missing[0]} out",
        )


def _layout(source: Source) -> tuple[object, ...]:
    """Return what decides what the columns of a source are."""
    return (
        source.is_stream,
        source.columns,
        source.timestamp,
        source.computed_timestamp,
        source.domain,
        source.operation,
    )


def elements_between(parts: Iterable[Elements], after: int | None, up_to: int) -> Iterator[Elements]:
    """Yield the elements with ticks in (after, up_to]; after: None for all up to there."""
    for part in parts:
        chosen = part.ts <= up_to
        if after is not None:
            chosen &= part.ts > after
        if chosen.all():
            yield part
        elif chosen.any():
            yield part.filter(chosen)


def updates_source(source: Source) -> Source:
    """Return the declaration of a relation as a query reads the updates that have been accepted of it, in order."""
    if not source.has_timestamps:
        return read_source(source)
    # What a `-` deletes is identified by all columns but those of the timestamp and the operation.
    return replace(source, connector="MEMORY", options=(), slack=0, idle=None, ahead=None)


def update_rows(source: Source, parts: Iterable[Elements]) -> pa.Table:
    """Return updates, with all declared columns, as rows of `updates_source(source)`."""
    rows = ordered_rows(source, range(len(source.columns)), parts)
    return rows.select(range(len(source.columns))) if source.has_timestamps else rows


def read_source(source: Source) -> Source:
    """Return the declaration of a timed source as a query reads what has been accepted of it: its last column is the
    tick of each row, and rows come in order. Rows of a relation are those that are there. That they have the declared
    period has been checked; its columns are NULL where the query does not read them."""
    assert source.domain is not None, "the source has time"
    # The timestamp of a relation's answer is its last column already.
    is_stamped = source.connector == "RESULTS" and not source.is_stream
    own = source.columns.fields[:-1] if is_stamped else source.columns.fields
    columns = Schema((*own, Field("tick of the element", source.domain.type())))
    return replace(
        source,
        columns=columns,
        connector="MEMORY",
        options=(),
        timestamp=len(columns) - 1,
        computed_timestamp=None,
        slack=0,
        system_time=False,
        idle=None,
        ahead=None,
        retain=None,
        retain_columns=(),
        period=None,
    )


def content_source(source: Source) -> Source:
    """Return the declaration for the rows of a relation that are there at the instant."""
    return replace(read_source(source), operation=None, primary_key=(), upserts=False)


def ordered_rows(source: Source, columns: Sequence[int], parts: Iterable[Elements]) -> pa.Table:
    """Return elements as rows of `read_source(source)`, in the order of their ticks, those of one tick in the order of
    arrival.

    Args:
        columns: positions of the declared columns that the elements have; the others are NULL.
    """
    schema = declared_schema(read_source(source))
    batches = [_row_batch(schema, columns, part) for part in parts]
    rows = pa.Table.from_batches(batches, schema)
    ticks = rows.column(rows.num_columns - 1).cast(pa.int64())
    order = np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in ticks.chunks] or [np.empty(0, np.int64)])
    if (order[1:] >= order[:-1]).all():
        return rows
    return rows.combine_chunks().take(pa.array(np.argsort(order, kind="stable")))


def _row_batch(schema: pa.Schema, columns: Sequence[int], part: Elements) -> pa.RecordBatch:
    known = dict(zip(columns, part.columns, strict=True))
    arrays = [known[i] if i in known else pa.nulls(len(part), field.type) for i, field in enumerate(list(schema)[:-1])]
    return pa.RecordBatch.from_arrays([*arrays, _ticks(part.ts).cast(schema.types[-1])], schema=schema)


def _ticks(ts: Int64s) -> pa.Array:
    return pa.array(ts, pa.int64())


def stamped_rows(source: Source, rows: pa.Table, ticks: pa.Array) -> pa.Table:
    """Return rows with their ticks as rows of `read_source(source)`."""
    schema = declared_schema(read_source(source))
    return pa.table([*rows.columns, ticks.cast(schema.types[-1])], schema=schema)


def declared_schema(source: Source) -> pa.Schema:
    """Return the declared columns."""
    return pa.schema([pa.field(field.name, field.type) for field in source.columns])
