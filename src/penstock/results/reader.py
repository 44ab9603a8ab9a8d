"""Readers of a result: from a cursor or from now on, with the content first, with progress, up to an instant.

A reader reads files, not queues: a slow one costs disk until its rows are removed, and then gets P0712 with the first
cursor that is left; it never misses rows in silence. The same reader with its last cursor gets every row once.

What a reader gets are the columns `ts`, `op` and the items. op is `+` for a row that is added (each row of a stream),
`-` for one that is removed, and `p` for progress: the answer up to `ts` is complete, and the other columns are NULL.
Rows with a later `ts` may have come before it, of answers that are emitted before they are complete: the changes up to
`ts` give the relation at `ts`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.query import distinct_names
from penstock.connectors.results.batch_file import BatchFile
from penstock.connectors.results.result_folder import ResultFolder
from penstock.errors import PenstockError
from penstock.physical.execution.progress import NOTHING
from penstock.results.content import ContentState, ResultContents, content_rows, has_no_content
from penstock.types import END, TimeDomain

# --- Cursors: how far a reader has read a result.
#
# A cursor is a text, `<id>.<batch>.<row>`: the result, and the number of rows of a batch that have been read. Clients
# may look at it, but only pass it back. The ids of results are never used again, so that a cursor of another result is
# recognized.

_TEXT = re.compile(r"([a-z0-9][a-z0-9_-]{0,99})\.([0-9]{1,15})\.([0-9]{1,15})")


@dataclass(frozen=True)
class Cursor:
    """All rows before `batch` have been read, and `row` rows of it."""

    id: str
    batch: int
    row: int

    def __str__(self) -> str:
        return f"{self.id}.{self.batch}.{self.row}"

    @staticmethod
    def parse(text: str) -> Cursor:
        """Return the cursor that a text stands for. Raises PenstockError P0712."""
        found = _TEXT.fullmatch(text)
        if found is None:
            shown = text if len(text) <= 60 else text[:60] + "..."
            raise PenstockError(
                "P0712", f"{shown!r} is no cursor", hint="pass the cursor that came with the last rows, unchanged"
            )
        return Cursor(found[1], int(found[2]), int(found[3]))


#: The bytes of a delivery, by the average row of its batch, unless a reader sets a number of rows. A delivery that
#: a slow reader has not taken yet is all that it holds in memory.
DELIVERY_BYTES = 2**15
#: Bytes from which on a snapshot waits on disk for its reader.
_LARGE_SNAPSHOT = 2**18


@dataclass(frozen=True)
class ResultRows:
    """Rows for a reader, at least one. cursor: behind the last of them; None within a snapshot, which is read from its
    beginning again when it is interrupted."""

    rows: pa.Table
    cursor: Cursor | None


def reader_schema(own: pa.Schema, is_stream: bool) -> pa.Schema:
    """Return the columns that a reader of a result gets. own: the columns of its rows in the log."""
    items = list(own)[1 if is_stream else 2 :]
    names = distinct_names(("ts", "op"), [item.name for item in items])
    types = [own.field(0).type, pa.string(), *(item.type for item in items)]
    return pa.schema(list(zip(names, types, strict=True)))


class ResultReader:
    """Reads the result of one query.

    Args:
        id_: of the result.
        contents: the contents of the relations in the folder, for snapshots; by default of this reader alone.
        name: of the query in errors; by default that in its record.
    """

    def __init__(self, folder: Path, id_: str, contents: ResultContents | None = None, name: str = "") -> None:
        self._folder = ResultFolder.at(folder)
        self.record = self._folder.record(id_)
        self._name = name or self.record.name
        self.id = id_
        self._contents = contents
        #: The columns of what it reads.
        self.schema = reader_schema(self.record.schema, self.record.is_stream)

    @property
    def first(self) -> Cursor:
        """Return the cursor before the first row that is left."""
        removed = self._folder.removed(self.id)
        return Cursor(self.id, max(0, removed.batch), removed.row)

    @property
    def end(self) -> Cursor:
        """Return the cursor behind the last row that has been delivered."""
        self._folder.refresh()
        return self._after(self._folder.last)

    def _after(self, batch: int) -> Cursor:
        """Return the cursor behind a batch."""
        file = self._folder.file(batch) if batch >= 0 else None
        section = file.sections.get(self.id) if file is not None else None
        return Cursor(self.id, max(0, batch), section.rows if section is not None else 0)

    def read(
        self,
        cursor: Cursor | str | None = None,
        *,
        snapshot: bool = False,
        progress: bool = False,
        up_to: int | None = None,
        until_now: bool = False,
        rows: int | None = None,
        after: int | None = None,
    ) -> Subscription:
        """Begin to read.

        Args:
            cursor: where to go on; by default now, or where the snapshot ends.
            snapshot: begin with the content of the relation, as rows that are added at its instant.
            progress: add a row when the answer up to a later instant is complete.
            up_to: end with the rows up to this tick, when they are complete.
            until_now: end with what has been delivered now.
            rows: maximum number of rows of a delivery, beside rows of progress; by default those of `DELIVERY_BYTES`.
            after: read rows after this tick only, by default from the first one that is left; a snapshot is the content
                at the tick.

        Raises:
            PenstockError: P0711 where the content is not known, P0712 for a cursor that does not fit, and where rows
                after `after` are gone.
        """
        if snapshot:
            state = self.content(after)
            check_snapshot(self.record.domain, cursor is not None, state.tick, up_to)
            return Subscription(self, self._after(state.batch), state, progress, up_to, until_now, rows, after)
        if cursor is None and after is not None:
            start = self._before_rows_after(after)
        else:
            start = self.end if cursor is None else self.checked(cursor)
        return Subscription(self, start, None, progress, up_to, until_now, rows, after)

    def content(self, tick: int | None = None) -> ContentState:
        """Return the content of the relation at a tick, by default at the last batch. Raises PenstockError P0711."""
        if self.record.is_stream:
            raise has_no_content(self._name)
        contents = self._contents or ResultContents(self._folder.path)
        if tick is None:
            return contents.latest(self.id, self._name)
        return contents.as_of(self.id, tick, self._name)

    def _before_rows_after(self, tick: int) -> Cursor:
        """Return the first cursor that is left. Raises PenstockError P0712 where rows after the tick are gone."""
        removed = self._folder.removed(self.id)
        if removed.batch >= 0 and self._first_tick() > tick:
            raise PenstockError(
                "P0712",
                f"rows after {self.record.domain.show(tick)} are gone; the first cursor that is left is {self.first}",
                hint="read from a later instant, or begin with a snapshot",
            )
        return self.first

    def _first_tick(self) -> int:
        """Return the tick of the first row that is left; END without one."""
        removed = self._folder.removed(self.id)
        for batch in self._folder.batches(max(0, removed.batch)):
            file = self._folder.file(batch)
            if file is None or self.id not in file.sections:
                continue
            rows = file.rows(self.id).slice(removed.row if batch == removed.batch else 0, 1)
            if rows.num_rows:
                return int(rows.column(0).cast(pa.int64())[0].as_py())
        return END

    def checked(self, cursor: Cursor | str) -> Cursor:
        """Return a cursor of this result. Raises PenstockError P0712 for any other, and where rows behind it are
        gone."""
        known = Cursor.parse(cursor) if isinstance(cursor, str) else cursor
        if known.id != self.id:
            raise PenstockError(
                "P0712",
                f"{known} is a cursor of another result, this one is {self.id}",
                hint=f"the query was created again or is another one; its first cursor is {self.first}",
            )
        self._folder.refresh()
        removed, file = self._folder.removed(self.id), self._folder.file(known.batch)
        section = file.sections.get(self.id) if file is not None else None
        rows = section.rows if section is not None else removed.row if known.batch == removed.batch else 0
        if known.batch > self._folder.last + 1 or (file is not None and known.row > rows):
            raise PenstockError(
                "P0712", f"{known} is beyond what this result has delivered", hint=f"its last cursor is {self.end}"
            )
        self.check_left(known)
        return known

    def check_left(self, cursor: Cursor) -> None:
        """Raises PenstockError P0712 where rows behind the cursor are gone."""
        removed = self._folder.removed(self.id)
        if (cursor.batch, cursor.row) < (removed.batch, removed.row):
            record = self.record
            raise PenstockError(
                "P0712",
                f"rows behind {cursor} are gone; the first cursor that is left is {self.first}",
                hint=f"results of {self._name} are kept for {record.retain:g} seconds and {record.max_bytes:,} bytes "
                "at most: continue there, or begin with a snapshot",
            )


class Subscription:
    """Rows of a result, read one delivery after the other; of one thread at a time."""

    def __init__(
        self,
        reader: ResultReader,
        cursor: Cursor,
        snapshot: ContentState | None,
        progress: bool,
        up_to: int | None,
        until_now: bool,
        rows: int | None,
        after: int | None = None,
    ) -> None:
        self._reader = reader
        self._folder = reader._folder
        #: Behind the last row that has been read.
        self.cursor = cursor
        self._snapshot = None if snapshot is None else self._of_snapshot(snapshot, progress, up_to, rows)
        self._progress = progress
        #: The instant up to which the rows that have been read are complete.
        self._complete = snapshot.reached if snapshot is not None and snapshot.reached is not None else NOTHING
        self._behind = after
        #: The largest tick of the rows that have been read.
        self._high = int(snapshot.early_changes().ts.max(initial=NOTHING)) if snapshot is not None else NOTHING
        self._up_to = up_to
        self._until = self._folder.last if until_now else None
        self._most = rows
        #: Whether nothing follows.
        self.ended = False
        self._closed = threading.Event()
        if up_to is not None and self._complete >= up_to and self._snapshot is None:
            self.ended = True

    def __iter__(self) -> Iterator[ResultRows]:
        """Yield all deliveries, waiting for those to come."""
        while (delivery := self.next()) is not None:
            yield delivery

    def next(self, timeout: float | None = None) -> ResultRows | None:
        """Return the next delivery; None when there is none within `timeout` seconds, or the subscription has ended.

        Raises:
            PenstockError: P0712 where the next rows are gone.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.ended and not self._closed.is_set():
            version = self._folder.version
            found = self.poll()
            if found is not None or self.ended:
                return found
            left = None if deadline is None else deadline - time.monotonic()
            if not self._folder.wait(version, left):
                return None
        return None

    def close(self) -> None:
        """End the subscription, from any thread."""
        self._closed.set()
        self.ended = True
        self._folder.wake()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, in another thread, whenever `poll` may have something; return what ends that."""
        return self._folder.listen(listener)

    # -- reading -----------------------------------------------------------------------------------------------

    def poll(self) -> ResultRows | None:
        """Return what can be delivered now. Raises PenstockError P0712."""
        if self._snapshot is not None:
            delivery = next(self._snapshot, None)
            if delivery is not None:
                return delivery
            self._snapshot = None
            if self._up_to is not None and self._complete >= self._up_to:
                self.ended = True
        if self.ended:
            return None
        self._folder.refresh()
        for batch in self._folder.batches(self.cursor.batch):
            if self._until is not None and batch > self._until:
                break
            file = self._folder.file(batch)
            self._reader.check_left(self.cursor)
            delivery = self._of_batch(file) if file is not None else None
            if delivery is not None or self.ended:
                return delivery
        if self._until is not None:
            self.ended = True
        return None

    def _of_batch(self, file: BatchFile) -> ResultRows | None:
        id_, behind = self._reader.id, self.cursor.row if file.batch == self.cursor.batch else 0
        section = file.sections.get(id_)
        count = section.rows if section is not None else 0
        again = file.batch == self.cursor.batch and behind >= count and file.batch != 0
        self.cursor = Cursor(id_, file.batch, behind)
        parts: list[pa.Table] = []
        if section is not None and behind < count:
            rows = file.rows(id_).slice(behind, self._most or _delivered_rows(section.rows, section.length))
            behind += rows.num_rows
            parts.append(self._limited(self._shaped(rows)))
        if behind >= count and not again:
            tick = self._tick(file, count)
            if self._progress and tick > self._complete:
                parts.append(self._progress_row(tick))
            self._complete = max(self._complete, tick)
        if behind >= count and self._up_to is not None and file.heartbeats.get(id_, NOTHING) >= self._up_to:
            self.ended = True
        self.cursor = Cursor(id_, file.batch, behind)
        table = pa.concat_tables(parts) if parts else None
        return ResultRows(table, self.cursor) if table is not None and table.num_rows else None

    def _tick(self, file: BatchFile, rows: int) -> int:
        """Return the instant up to which the answer is complete with a batch; where nothing follows, that of its last
        row or the one that was known before, 0 without one."""
        id_ = self._reader.id
        tick: int = file.heartbeats.get(id_, NOTHING)
        if rows:
            self._high = max(self._high, file.sections[id_].high)
        if tick >= END:
            last = max(self._high, self._complete)
            tick = last if last > NOTHING else 0
        return tick if self._up_to is None else min(tick, self._up_to)

    def _shaped(self, rows: pa.Table) -> pa.Table:
        if self._reader.record.is_stream:
            rows = rows.add_column(1, "op", pa.repeat(pa.scalar("+", pa.string()), rows.num_rows))
        return pa.table(rows.columns, schema=self._reader.schema)

    def _limited(self, rows: pa.Table) -> pa.Table:
        if self._behind is not None:
            rows = rows.filter(pc.greater(rows.column(0).cast(pa.int64()), self._behind))
        if self._up_to is None:
            return rows
        return rows.filter(pc.less_equal(rows.column(0).cast(pa.int64()), self._up_to))

    def _progress_row(self, tick: int) -> pa.Table:
        return result_row(self._reader.schema, tick, "p")

    def _of_snapshot(
        self, state: ContentState, progress: bool, up_to: int | None, rows: int | None
    ) -> Iterator[ResultRows]:
        table = self._snapshot_table(state, progress, up_to)
        # What is held while the reader is waited for is the table alone, and of a large one its file.
        del state
        most = rows or _delivered_rows(table.num_rows, table.nbytes)
        if rows is None and table.nbytes > _LARGE_SNAPSHOT:
            table = self._folder.set_aside(table)
        for start in range(0, table.num_rows, most):
            last = start + most >= table.num_rows
            yield ResultRows(table.slice(start, most), self.cursor if last else None)

    def _snapshot_table(self, state: ContentState, progress: bool, up_to: int | None) -> pa.Table:
        schema, tick = self._reader.schema, state.tick
        parts: list[pa.Table] = []
        if tick is not None:
            parts.append(content_rows(schema, tick, state.rows()))
            if progress:
                parts.append(self._progress_row(tick))
        later = state.early_changes()
        stamps = pa.array(later.ts).cast(schema.field(0).type)
        ops = pc.if_else(pa.array(later.signs > 0), "+", "-")
        parts.append(pa.table([stamps, ops, *later.columns], schema=schema))
        if progress and state.reached is not None and state.reached != tick:
            parts.append(self._progress_row(state.reached if up_to is None else min(state.reached, up_to)))
        table = pa.concat_tables(parts)
        if up_to is not None:
            table = table.filter(pc.less_equal(table.column(0).cast(pa.int64()), up_to))
        return table


def _delivered_rows(rows: int, size: int) -> int:
    """Return how many of `rows` rows of `size` bytes make a delivery."""
    return max(1, DELIVERY_BYTES * rows // max(1, size))


def check_snapshot(domain: TimeDomain, has_cursor: bool, tick: int | None, up_to: int | None) -> None:
    """Raise PenstockError P0711 where a subscription cannot begin with a snapshot. tick: of the snapshot."""
    if has_cursor:
        raise PenstockError(
            "P0711",
            "a snapshot begins where its content is known, not at a cursor",
            hint="leave out the cursor, or leave out the snapshot to continue from it",
        )
    if up_to is not None and tick is not None and tick > up_to:
        message = f"the snapshot is of {domain.show(tick)}, and nothing after {domain.show(up_to)} is to be read"
        raise PenstockError("P0711", message)


def result_row(schema: pa.Schema, tick: int, op: str) -> pa.Table:
    """Return one row of `op` at a tick, the other columns NULL."""
    first = pa.array([tick], pa.int64()).cast(schema.field(0).type)
    others = [pa.nulls(1, field.type) for field in list(schema)[2:]]
    return pa.table([first, pa.array([op], pa.string()), *others], schema=schema)
