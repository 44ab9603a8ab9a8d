"""The writing side of a result log: one file a batch for all queries INTO RESULTS of a run.

A file for each query and batch would cost two syncs each; one file costs two for all queries together (measured in
docs/decisions/results-log.md). Every query has bounds of its own, `retain` and `max_bytes`, and there is one over all.
What is beyond a bound is removed oldest first: the rows of a query are first noted as gone (`removed.json`), then files
without other rows are removed, and files of which most is gone are written again without it. The last batch stays.

Contract: a batch is complete or absent, and a reader sees it when it is synced. A batch that is written again replaces
the rows of the queries that write it, and keeps its time of delivery. That time is the clock of this process: it
decides how long rows are kept, and stands in no answer.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from weakref import WeakValueDictionary

import pyarrow as pa

from penstock.connectors.contract import BatchLog
from penstock.connectors.results.batch_file import BatchFile, BatchWriter, complete_files, is_unfinished
from penstock.connectors.results.result_folder import RemovedRows, ResultFolder, ResultRecord
from penstock.errors import PenstockError
from penstock.events import log_event
from penstock.storage import storage
from penstock.types import BEGIN

LOG = logging.getLogger("penstock.results")
#: Bounds are passed by this share before rows are removed, so that a removal is worth its syncs.
_SLACK = 16
#: Minimum seconds between two looks for rows that have become too old.
_LOOK_EVERY = 1.0
_MICROSECONDS = 1_000_000

_LOGS: WeakValueDictionary[Path, ResultLog]
_REGISTRY = threading.Lock()


@dataclass
class _Batch:
    """What a file holds. size: of the file; the lists go together: by query the bytes and number of its rows, and the
    largest tick of all its rows up to there."""

    delivered: int
    size: int
    ids: list[str]
    bytes: array[int]
    rows: array[int]
    highs: array[int]

    @staticmethod
    def of(file: BatchFile) -> _Batch:
        sections = file.sections
        return _Batch(
            file.delivered,
            file.size,
            list(sections),
            array("q", (s.length for s in sections.values())),
            array("q", (s.rows for s in sections.values())),
            array("q", (s.high for s in sections.values())),
        )


class ResultLog(BatchLog):
    """Writes the results of one run into one folder.

    Args:
        limit: bytes of all files together.
        clock: seconds since 1970.
    """

    def __init__(self, folder: Path, limit: int, clock: Callable[[], float] = time.time) -> None:
        self.reading = ResultFolder.at(folder)
        self._folder = self.reading.path
        self._limit = limit
        self._clock = clock
        self._records: dict[str, ResultRecord] = {}
        self._writer: BatchWriter | None = None
        self._batches: dict[int, _Batch] = {}
        self._held: dict[str, int] = {}
        self._high: dict[str, int] = {}
        self._beats: dict[str, int] = {}
        self._size = 0
        self._looked = float("-inf")
        #: The ids of all queries of the run, None before they have been named.
        self._kept: frozenset[str] | None = None
        self._known: set[str] = set()
        for place in (self._folder, self._folder / "queries", self._folder / "content"):
            for name in storage().list(place):
                if is_unfinished(name):
                    storage().remove(place / name)
        self.reading.reload(announced=True)
        self._known.update(self.reading.ids())
        for file in complete_files(self._folder, self.reading.batches()):
            self._note(file)

    @staticmethod
    def start(folder: Path) -> None:
        """Begin a start of the run whose results are in `folder`: what joins from now on joins a new log."""
        with _REGISTRY:
            _LOGS.pop(folder.absolute(), None)

    @staticmethod
    def join(folder: Path, limit: int) -> ResultLog:
        """Return the log of the run that writes into `folder`, which a query joins. Raises OSError, and PenstockError
        P0605."""
        place = folder.absolute()
        with _REGISTRY:
            known = _LOGS.get(place)
            if known is None:
                known = _LOGS[place] = ResultLog(place, limit)
            known._discard()
            return known

    @staticmethod
    def keep(folder: Path, ids: Collection[str]) -> None:
        """Name the queries that the run in `folder` answers or has paused. Of all others the record goes when their
        rows are gone."""
        with _REGISTRY:
            known = _LOGS.get(folder.absolute())
        if known is not None:
            known._kept = frozenset(ids)

    def register(self, record: ResultRecord) -> None:
        """Begin to write the results of a query. Raises OSError."""
        if not record.is_in(self._folder):
            record.write(self._folder)
        self._records[record.id] = record
        self._known.add(record.id)
        self.reading.recorded(record)

    def close(self, id_: str) -> None:
        """End writing the results of a query; its rows stay for as long as its bounds say."""
        self._records.pop(id_, None)
        self._beats.pop(id_, None)
        if not self._records:
            self._discard()
            self.reading.reload(announced=False)

    def _note(self, file: BatchFile) -> None:
        """Count what a file holds."""
        self._forget(file.batch)
        batch = self._batches[file.batch] = _Batch.of(file)
        self._size += batch.size
        for id_, size in zip(batch.ids, batch.bytes, strict=True):
            self._held[id_] = self._held.get(id_, 0) + size
        for id_, section in file.sections.items():
            self._high[id_] = max(section.high, self._high.get(id_, section.high))
        self._beats.update(file.heartbeats)

    def _forget(self, number: int) -> None:
        batch = self._batches.pop(number, None)
        if batch is not None:
            self._size -= batch.size
            for id_, size in zip(batch.ids, batch.bytes, strict=True):
                self._held[id_] -= size

    # -- writing -----------------------------------------------------------------------------------------------

    def add(self, batch: int, id_: str, pieces: Iterable[pa.Table]) -> None:
        """Write the rows of a query, which become visible with the batch. Raises OSError."""
        if self._writer is not None and self._writer.batch != batch:
            self._discard()
        if self._writer is None:
            self._writer = BatchWriter(self._folder, batch)
        self._writer.add(id_, pieces, self._high.get(id_, BEGIN))

    def _discard(self) -> None:
        if self._writer is not None:
            self._writer.discard()
            self._writer = None

    def commit(self, batch: int, heartbeats: Mapping[str, int], queries: Collection[str]) -> None:
        try:
            self._commit(batch, heartbeats, queries)
        except OSError as error:
            self._discard()
            reason = error.strerror or str(error)
            raise PenstockError(
                "P0502",
                f"batch {batch} of the results cannot be written to {self._folder}: {reason}",
                cause=error,
                hint="free space on that disk, or allow writing there; nothing of this batch is visible",
            ) from error
        self._remove_old()

    def _commit(self, batch: int, heartbeats: Mapping[str, int], queries: Collection[str]) -> None:
        before = self._former(batch)
        if self._writer is None or self._writer.batch != batch:
            self._discard()
            own = [id_ for id_ in (before.sections if before is not None else ()) if id_ in queries]
            if not own and all(self._beats.get(id_) == tick for id_, tick in heartbeats.items()):
                return
            self._writer = BatchWriter(self._folder, batch)
        beats = dict(heartbeats)
        if before is not None:
            for id_ in before.sections:
                if id_ not in queries:
                    self._writer.copy(before, id_)
            beats = {id_: tick for id_, tick in before.heartbeats.items() if id_ not in queries} | beats
        now = int(self._clock() * _MICROSECONDS)
        self._writer.finish(now if before is None else before.delivered, beats)
        self._writer = None
        self._note(BatchFile(self._folder, batch))
        self.reading.published(batch)

    def _former(self, batch: int) -> BatchFile | None:
        """Return what has been written of a batch, None for a new one."""
        return self.reading.file(batch) if batch in self._batches else None

    # -- removing ----------------------------------------------------------------------------------------------

    def _remove_old(self) -> None:
        """Remove what is beyond the bounds. What fails is tried again with a later batch."""
        try:
            ends = self._ends()
            if ends:
                self._remove(ends)
            self._forget_ended()
        except (OSError, PenstockError) as error:
            log_event(LOG, logging.WARNING, "results_not_removed", f"old results cannot be removed: {error}")

    def _forget_ended(self) -> None:
        """Remove what is known of queries that have ended and of which no row is left."""
        if self._kept is None:
            return
        kept = self._kept | self._records.keys()
        ended = [id_ for id_ in self._known if id_ not in kept and not self._held.get(id_)]
        if not ended:
            return
        self.reading.forget(ended)
        for id_ in ended:
            self._known.discard(id_)
            for table in (self._held, self._high, self._beats):
                table.pop(id_, None)

    def _ends(self) -> dict[str, int]:
        """Return by query the last batch whose rows are beyond a bound."""
        ends: dict[str, int] = {}
        numbers = sorted(self._batches)[:-1]
        if self._size > self._limit:
            excess = self._size - self._limit + self._limit // _SLACK
            for number in numbers:
                excess -= self._batches[number].size
                ends.update(dict.fromkeys((*self._held, *self._records), number))
                if excess <= 0:
                    break
        self._add_too_large(ends, numbers)
        self._add_too_old(ends, numbers)
        return ends

    def _add_too_large(self, ends: dict[str, int], numbers: list[int]) -> None:
        bounds = {id_: record.max_bytes for id_, record in self._records.items()}
        excess = {
            id_: self._held[id_] - bound + bound // _SLACK
            for id_, bound in bounds.items()
            if self._held.get(id_, 0) > bound
        }
        for number in numbers:
            if not excess:
                return
            batch = self._batches[number]
            for id_, size in zip(batch.ids, batch.bytes, strict=True):
                if id_ in excess:
                    ends[id_] = max(number, ends.get(id_, -1))
                    excess[id_] -= size
                    if excess[id_] <= 0:
                        del excess[id_]

    def _add_too_old(self, ends: dict[str, int], numbers: list[int]) -> None:
        now = self._clock()
        retains = {id_: self._retain(id_) for id_ in (*self._held, *self._records)}
        shortest = min(retains.values(), default=0.0)
        if not 0 <= now - self._looked < max(_LOOK_EVERY, shortest / _SLACK):
            self._looked = now
            last: dict[float, int] = {}
            for retain in set(retains.values()):
                bound = (now - retain) * _MICROSECONDS
                for number in numbers:
                    if self._batches[number].delivered >= bound:
                        break
                    last[retain] = number
            for id_, retain in retains.items():
                if retain in last:
                    ends[id_] = max(last[retain], ends.get(id_, -1))

    def _retain(self, id_: str) -> float:
        """Return for how many seconds the rows of a query are kept, also of one that has ended."""
        if id_ in self._records:
            return self._records[id_].retain
        try:
            return self.reading.record(id_).retain
        except PenstockError:
            return 0.0

    def _remove(self, ends: Mapping[str, int]) -> None:
        """Remove the rows of the queries `ends` up to these batches."""
        removed = {id_: rows for id_, rows in self.reading.all_removed().items() if id_ in self._known}
        dead: dict[int, set[str]] = {}
        until = max(ends.values())
        for number in sorted(n for n in self._batches if n <= until):
            batch = self._batches[number]
            gone = {id_ for id_ in batch.ids if number <= max(ends.get(id_, -1), self.reading.removed(id_).batch)}
            for id_, rows, high in zip(batch.ids, batch.rows, batch.highs, strict=True):
                if id_ in gone:
                    before = removed.get(id_, RemovedRows(-1, 0))
                    removed[id_] = max(before, RemovedRows(number, rows, high), key=attrgetter("batch", "row"))
            # A file of heartbeats alone goes with the oldest rows: no row is lost with it.
            if gone or not batch.ids:
                dead[number] = gone
        for guard in list(self.reading.guards) if dead else ():
            guard(ends)
        if removed != self.reading.all_removed():
            self.reading.remove_before(removed)
        for number, gone in dead.items():
            self._shrink(number, gone)

    def _shrink(self, number: int, gone: set[str]) -> None:
        """Remove a file without other rows, or write it again where most of it is gone."""
        batch = self._batches[number]
        lost = sum(size for id_, size in zip(batch.ids, batch.bytes, strict=True) if id_ in gone)
        if len(gone) == len(batch.ids):
            self.reading.remove(number)
            self._forget(number)
        elif 2 * lost > batch.size:
            before = BatchFile(self._folder, number)
            writer = BatchWriter(self._folder, number)
            try:
                for id_ in batch.ids:
                    if id_ not in gone:
                        writer.copy(before, id_)
                writer.finish(before.delivered, before.heartbeats)
            except BaseException:
                writer.discard()
                raise
            self._note(BatchFile(self._folder, number))
            self.reading.replaced(number)


_LOGS = WeakValueDictionary()
