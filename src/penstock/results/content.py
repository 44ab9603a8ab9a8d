"""The present content of each relation among the results of a run, folded from its changes.

Contract: a content belongs to a batch. It is the bag of rows that the changes up to and with that batch make, equal
rows by the rules of GROUP BY, each with the bits of the last one added. Changes of later instants than the heartbeat of
the batch wait beside it. It is saved every `SAVE_EVERY` batches, and before rows are removed that it has not seen; a
start continues from what was saved. A content that is too large, or changes too much in one batch, is given up with a
warning: from then on there is no snapshot of that result (P0711).

Nothing of this is part of a round: contents read the result log as any reader does.
"""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.results.batch_file import BatchFile
from penstock.connectors.results.result_folder import ResultFolder, ResultRecord, content_path
from penstock.errors import PenstockError
from penstock.events import log_event
from penstock.physical.elements import Elements, concat, empty
from penstock.physical.execution.progress import NOTHING
from penstock.runtime.live.content import Content
from penstock.storage import storage
from penstock.types import END, TimeDomain

# --- The file of a content: the rows of a relation at a batch, and the changes that wait for their instant.
#
#     content/<id>.arrow    an Arrow IPC stream of items, `tick` and `sign`; settled rows have no tick. Its metadata
#                           hold the batch, the instant, and a checksum of the rest
#
# A file that is damaged counts as absent: the content is then folded from the beginning, where that is left.

_HEAD = b"PNSTKRC1"


@dataclass(frozen=True)
class SavedContent:
    """A content on disk: `ContentState`."""

    batch: int
    tick: int | None
    settled: Elements
    early: Elements
    given_up: str


def write_saved(folder: Path, id_: str, content: SavedContent) -> None:
    """Write a content in place of what was saved before, completely or not at all. Raises OSError."""
    settled, early = content.settled, content.early
    arrays = [pa.concat_arrays([s, e]) for s, e in zip(settled.columns, early.columns, strict=True)]
    ticks = pa.concat_arrays([pa.nulls(len(settled), pa.int64()), pa.array(early.ts, pa.int64())])
    signs = pa.concat_arrays([pa.array(settled.signs, pa.int64()), pa.array(early.signs, pa.int64())])
    batch = pa.RecordBatch.from_arrays(
        [*arrays, ticks, signs], names=[*(f"c{i}" for i in range(len(arrays))), "tick", "sign"]
    )
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    rows = out.getvalue()
    head = {"id": id_, "batch": content.batch, "tick": content.tick, "given_up": content.given_up}
    text = json.dumps(head).encode()
    checksum = zlib.crc32(rows, zlib.crc32(text))
    start = _HEAD + len(text).to_bytes(4, "little") + checksum.to_bytes(4, "little") + text
    storage().write(content_path(folder, id_), lambda file: (file.write(start), file.write(memoryview(rows))))


def read_saved(folder: Path, id_: str) -> SavedContent | None:
    """Return what was saved of a content; None without a file that can be used."""
    try:
        content = memoryview(storage().map(content_path(folder, id_)))
        length, checksum = (int.from_bytes(content[at : at + 4], "little") for at in (8, 12))
        text, rows = content[16 : 16 + length], content[16 + length :]
        if bytes(content[:8]) != _HEAD or zlib.crc32(rows, zlib.crc32(text)) != checksum:
            return None
        head = json.loads(bytes(text))
        if head["id"] != id_:
            return None
        return _read(head["batch"], head["tick"], head["given_up"], pa.py_buffer(rows))
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return None


def _read(batch: int, tick: int | None, given_up: str, rows: pa.Buffer) -> SavedContent:
    table = pa.ipc.open_stream(rows).read_all().combine_chunks()
    columns = [column.combine_chunks() for column in table.columns]
    ticks = columns[-2]
    settled = int(ticks.null_count)
    ts = ticks.fill_null(0).to_numpy()
    whole = Elements(tuple(columns[:-2]), ts, np.full(len(ts), END, np.int64), columns[-1].to_numpy())
    return SavedContent(batch, tick, whole.slice(0, settled), whole.slice(settled, len(whole)), given_up)


LOG = logging.getLogger("penstock.results")
SAVE_EVERY = 100
#: Changes of one batch beyond which a content is given up.
MOST_CHANGES = 100_000


@dataclass
class ContentState:
    """The content of a relation at a batch.

    Args:
        record: of the result.
        batch: -1 before the first.
        tick: the instant of the content, None while there is none.
        settled: the content at `tick`.
        early: changes of later instants.
        given_up: why there is no content any more; empty while there is one.
        known: up to which tick the changes are complete, where that is later than `tick`.
    """

    record: ResultRecord
    batch: int
    tick: int | None
    settled: Content
    early: list[Elements] = field(default_factory=list)
    given_up: str = ""
    known: int | None = None

    @property
    def reached(self) -> int | None:
        """Return the tick up to which content and changes are complete, None while there is no content."""
        return self.tick if self.known is None else self.known

    @property
    def types(self) -> list[pa.DataType]:
        return list(self.record.schema.types[2:])

    def apply(self, file: BatchFile) -> None:
        """Go on to a batch."""
        id_ = self.record.id
        self.batch = file.batch
        section = file.sections.get(id_)
        if section is not None and not self.given_up:
            if section.rows > MOST_CHANGES:
                self.give_up(f"batch {file.batch} has {section.rows:,} changes, {MOST_CHANGES:,} are the most")
            else:
                self.early.append(as_elements(file.rows(id_)))
        tick = file.heartbeats.get(id_, NOTHING)
        if tick >= END:
            # Nothing follows: the last instant is that of the last change, or was known before, 0 without one.
            known = 0 if self.tick is None else self.tick
            tick = max((int(part.ts.max()) for part in self.early if len(part)), default=known)
        if tick > NOTHING and (self.tick is None or tick > self.tick):
            self.tick = tick
        if self.tick is not None and self.early:
            whole = concat(self.early)
            final = whole.ts <= self.tick
            self.settled.add(whole.filter(final))
            self.early = [] if final.all() else [whole.filter(~final)]

    def give_up(self, reason: str) -> None:
        """Drop the content and log a warning."""
        self.given_up, self.early = reason, []
        self.settled = Content(self.types)
        message = f"the content of {self.record.name} is not kept: {reason}"
        log_event(LOG, logging.WARNING, "content_given_up", message, query=self.record.name, result=self.record.id)

    def check_size(self) -> None:
        """Give the content up where it is larger than its result may be."""
        if not self.given_up:
            waiting = sum(part.nbytes for part in self.early)
            if self.settled.nbytes + waiting <= self.record.max_bytes:
                return
            size = self.settled.rows().nbytes + waiting
            if size > self.record.max_bytes:
                self.give_up(f"it has {size:,} bytes, max_bytes is {self.record.max_bytes:,}")

    def rows(self) -> pa.Table:
        """Return the content at `tick`, each row as often as it is there."""
        kept = self.settled.rows()
        return self.as_table(kept.take(np.repeat(np.arange(len(kept)), np.maximum(kept.signs, 0))))

    def as_table(self, rows: Elements) -> pa.Table:
        """Return the items of `rows`."""
        return pa.table(list(rows.columns), schema=pa.schema(list(self.record.schema)[2:]))

    def early_changes(self) -> Elements:
        """Return the changes after `tick`, in the order of time, removals first."""
        whole = concat(self.early) if self.early else empty(self.types)
        return whole.take(np.lexsort((whole.signs, whole.ts)))

    def copy(self) -> ContentState:
        """Return the state as it is now."""
        return ContentState(self.record, self.batch, self.tick, self.settled.copy(), list(self.early), self.given_up)

    def saved(self) -> SavedContent:
        """Return what is written to disk."""
        early = concat(self.early) if self.early else empty(self.types)
        return SavedContent(self.batch, self.tick, self.settled.rows(), early, self.given_up)


def as_elements(rows: pa.Table) -> Elements:
    """Return changes `ts, op, items` as elements."""
    rows = rows.combine_chunks()
    columns = [column.combine_chunks() for column in rows.columns]
    ts = columns[0].cast(pa.int64()).to_numpy(zero_copy_only=False)
    signs = np.where(pc.equal(columns[1], "-").to_numpy(zero_copy_only=False), -1, 1).astype(np.int64)
    return Elements(tuple(columns[2:]), ts, np.full(len(ts), END, np.int64), signs)


class ResultContents:
    """The contents of the relations in one folder. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = ResultFolder.at(folder)
        self._states: dict[str, ContentState] = {}
        self._saved_at: dict[str, int] = {}
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    # -- reading -----------------------------------------------------------------------------------------------

    def latest(self, id_: str, name: str = "") -> ContentState:
        """Return the content of a relation at the last batch, which is the caller's. Raises PenstockError P0711.

        Args:
            name: of the query in errors; by default that in its record.
        """
        state = self.state(id_)
        if state.given_up:
            raise no_content(name or state.record.name, state.given_up)
        return state

    def state(self, id_: str) -> ContentState:
        """Return the same, also of a content that was given up. Raises PenstockError P0711 for a stream."""
        self._folder.refresh()
        with self._lock:
            return self._advanced(id_).copy()

    def at(self, id_: str, tick: int, name: str = "") -> pa.Table:
        """Return the content of a relation at an instant up to its heartbeat, as a table of its items. Raises
        PenstockError P0711 where it is not known any more. name: as of `latest`."""
        state = self.latest(id_, name)
        if state.tick is None or tick >= state.tick:
            return state.rows()
        return self._undone(state, tick, name).rows()

    def as_of(self, id_: str, tick: int, name: str = "") -> ContentState:
        """Return the content of a relation at an instant that it has reached, and the changes after that. Raises
        PenstockError P0711. name: as of `latest`."""
        state = self.latest(id_, name)
        if state.tick is None or tick > state.tick:
            raise not_reached(name or state.record.name, state.record.domain, tick, state.tick)
        return state if tick == state.tick else self._undone(state, tick, name)

    def _undone(self, state: ContentState, tick: int, name: str) -> ContentState:
        """Go back to an earlier instant. Raises PenstockError P0711 where that is not known any more."""
        undone = self._since(state, tick, name)
        if undone is not None:
            state.settled.add(Elements(undone.columns, undone.ts, undone.exp, -undone.signs))
            state.early = [undone, *state.early]
        state.tick, state.known = tick, state.tick
        return state

    def _since(self, state: ContentState, tick: int, name: str) -> Elements | None:
        """Return the settled changes after `tick`. Raises PenstockError P0711 where some are gone."""
        id_, settled = state.record.id, state.tick
        assert settled is not None, "only a content that has an instant has been at an earlier one"
        parts: list[Elements] = []
        #: The last batch up to which the query has changed nothing after `tick`.
        before = -1
        for batch in reversed(self._folder.batches()):
            file = self._folder.file(batch) if batch <= state.batch else None
            section = file.sections.get(id_) if file is not None else None
            if file is None or section is None:
                continue
            if section.high <= tick:
                before = batch
                break
            changes = as_elements(file.rows(id_))
            parts.append(changes.filter((changes.ts > tick) & (changes.ts <= settled)))
        # A file with rows of other queries outlasts later ones, and rows may have gone while these files were read.
        removed = self._folder.removed(id_)
        if before < removed.batch and (removed.high is None or removed.high > tick):
            domain = state.record.domain
            raise no_content(name or state.record.name, f"its changes since {domain.show(tick)} are gone")
        return concat(parts) if parts else None

    def _advanced(self, id_: str) -> ContentState:
        state = self._states.get(id_)
        if state is None:
            state = self._states[id_] = self._begun(self._folder.record(id_))
        if state.given_up:
            return state
        if self._is_gap(state):
            state.give_up("rows were removed before they were read")
            return state
        for batch in self._folder.batches(state.batch + 1):
            file = self._folder.file(batch)
            if file is None:
                state.give_up("rows were removed before they were read")
                break
            state.apply(file)
        state.check_size()
        return state

    def _is_gap(self, state: ContentState) -> bool:
        return state.batch < self._folder.removed(state.record.id).batch

    def _begun(self, record: ResultRecord) -> ContentState:
        """Return what was saved of a content, or its beginning."""
        if record.is_stream:
            raise has_no_content(record.name)
        state = ContentState(record, -1, None, Content(record.schema.types[2:]))
        saved = read_saved(self._folder.path, record.id)
        if saved is not None and not saved.given_up:
            rows = saved.settled
            early = [saved.early] if len(saved.early) else []
            state = ContentState(record, saved.batch, saved.tick, Content((), rows), early)
            self._saved_at[record.id] = saved.batch
        elif saved is not None:
            state.given_up = saved.given_up
        elif not record.whole:
            state.given_up = "its answer began before these results"
        return state

    # -- saving ------------------------------------------------------------------------------------------------

    def save(self, id_: str) -> None:
        """Save a content as it is. Raises OSError."""
        with self._lock:
            state = self._states[id_]
            write_saved(self._folder.path, id_, state.saved())
            self._saved_at[id_] = state.batch

    def guard(self) -> None:
        """Bring contents up to date before rows are removed that they have not seen, until `close`."""
        self._folder.guards.append(self._before_removal)
        self._folder.on_forgotten.append(self._forget)

    def follow(self) -> None:
        """Keep all contents up to date in a thread of their own, and save them in time."""
        self.guard()
        self._thread = threading.Thread(target=self._keep, name="penstock-contents", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following."""
        self._stopped.set()
        if self._before_removal in self._folder.guards:
            self._folder.guards.remove(self._before_removal)
            self._folder.on_forgotten.remove(self._forget)
        self._folder.wake()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        version = -1
        while not self._stopped.is_set():
            if self._folder.wait(version, 1.0):
                version = self._folder.version
                self.catch_up()

    def catch_up(self, ids: Mapping[str, int] | None = None) -> None:
        """Bring contents to the last batch, and save those that are due. ids: the results whose rows are about to be
        removed, by the last batch that goes; by default all results, saved every `SAVE_EVERY` batches."""
        for id_ in self._folder.ids() if ids is None else ids:
            if self._stopped.is_set():
                return
            try:
                with self._lock:
                    if self._folder.record(id_).is_stream:
                        continue
                    state = self._advanced(id_)
                    saved = self._saved_at.get(id_, -1)
                    due = saved < ids[id_] if ids is not None else state.batch - saved >= SAVE_EVERY
                    if due or (state.given_up and saved < state.batch):
                        self.save(id_)
            except (PenstockError, OSError) as error:
                log_event(LOG, logging.WARNING, "content_not_saved", f"a content cannot be kept: {error}", result=id_)

    def _before_removal(self, ends: Mapping[str, int]) -> None:
        self.catch_up(ends)

    def _forget(self, ids: Collection[str]) -> None:
        with self._lock:
            for id_ in ids:
                self._states.pop(id_, None)
                self._saved_at.pop(id_, None)


def has_no_content(name: str) -> PenstockError:
    """Return the error for a snapshot of a stream."""
    return PenstockError("P0711", f"{name} is a stream, and has no content", hint="read it without a snapshot")


def not_reached(name: str, domain: TimeDomain, tick: int, complete: int | None) -> PenstockError:
    """Return the error for the content at an instant that a relation has not reached. complete: up to which tick it is
    complete."""
    reached = "at no instant yet" if complete is None else f"up to {domain.show(complete)}"
    message = f"the content of {name} at {domain.show(tick)}: it is complete {reached}"
    return PenstockError("P0711", message, hint="leave out AS OF, or ask again later")


def content_rows(schema: pa.Schema, tick: int, content: pa.Table) -> pa.Table:
    """Return a content as rows that are added at a tick. schema: of the changes."""
    stamps = pa.repeat(pa.scalar(tick, pa.int64()), content.num_rows).cast(schema.field(0).type)
    ops = pa.repeat(pa.scalar("+", pa.string()), content.num_rows)
    return pa.table([stamps, ops, *content.columns], schema=schema)


def no_content(name: str, reason: str) -> PenstockError:
    return PenstockError(
        "P0711",
        f"there is no snapshot of {name}: {reason}",
        hint="read its changes without a snapshot; a query that is created again begins with its content",
    )
