"""Compaction of posted relations: few files stand for the posts that have been read long ago; and of retained streams,
of which many files become one (`retention/merging.py`).

Every post is a file, and an entry of the list of what was read. Once there are many, those that have been read are
written together as accepted updates (`retention/compacted_updates.py`), and then removed. A new file is merged with the
ones before it that are not much larger, so an update is written again only a few times, and files are few. Where all of
them become one, the updates are folded.

Contract: updates are folded up to a tick that trails the least heartbeat of all sources by `relation_retention`: every
query that begins NOW and every SELECT needs the relation at an instant after it, whichever sources it reads. A source
without an element has no heartbeat and holds nothing back; of a query over it that begins NOW before that tick, the
past of the relation happens there (`relation_contents.py`). What cannot be compacted now stays as it is.
"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from penstock.algebra.nodes.scans import Source
from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.physical.elements import Elements, concat
from penstock.physical.execution.progress import NOTHING
from penstock.runtime.live.history import folded
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.hydration.past_input import KnownPast
from penstock.runtime.spark.hydration.start_options import is_posted
from penstock.runtime.spark.hydration.update_reader import ReadStep, UpdateReader, UpdateSource
from penstock.runtime.spark.input.round_log import RoundLog
from penstock.runtime.spark.retention import merging
from penstock.runtime.spark.retention.compacted_updates import CompactedLog, CompactedUpdates
from penstock.runtime.spark.retention.merging import MergedFile, files_to_merge, merged_file, put_in_place
from penstock.runtime.spark.retention.rejected_log import RejectedLog
from penstock.runtime.spark.retention.retained_log import Pins, RetainedLog
from penstock.settings import Settings
from penstock.storage import storage

LOG = logger_of("runtime")

#: Posts that stay as they are.
FEW = 256
#: Bytes of posts that are compacted at once.
_AT_ONCE = 64 * 2**20
#: A file is merged with the one before it if that one is at most so many times as large.
_RATIO = 2
#: Bytes up to which it is merged in any case.
_SMALL = 2**18
#: Posts that are removed at once: no round is planned meanwhile.
_REMOVED_AT_ONCE = 256
#: What is retained of a stream lies in at least about so many files, so that what is too old goes bit by bit.
_SPANS = 8
#: Seconds between two looks.
_EVERY = 1.0


class Compaction:
    """The compaction of the relations and retained streams of one run.

    Args:
        rounds: of the run.
        intake: returns what the run reads now.
        retention: seconds for which updates are kept one by one.
        limit: bytes of a relation beyond which its updates are not folded, and of a file beyond which it is not merged.
    """

    def __init__(
        self, folder: Folder, rounds: RoundLog, intake: Callable[[], Intake], retention: float, limit: int
    ) -> None:
        self._folder = folder
        self._rounds = rounds
        self._intake = intake
        self._stopped = threading.Event()
        self._workers = (
            PostCompaction(folder, rounds, self._stopped, retention, limit),
            FileMerging(folder, rounds, self._stopped),
        )
        self._thread: threading.Thread | None = None

    def start(self) -> Compaction:
        """Compact in a thread from now on; return this."""
        self._thread = threading.Thread(target=self._loop, name="penstock-compaction", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while not self._stopped.wait(_EVERY):
            self.compact()

    def compact(self) -> None:
        """Compact what is due."""
        intake = self._intake()
        for source in intake.sources:
            for worker in self._workers:
                if worker.is_for(source) and not self._stopped.is_set():
                    worker.attempt(source, intake)


class Compactor(ABC):
    """Compacts the sources of one kind. What fails is logged, and tried again when more has come.

    Args:
        rounds: of the run.
        stopped: set when it is to end soon.
    """

    #: What stays as it is where it fails, of a source.
    what: ClassVar[str]

    def __init__(self, folder: Folder, rounds: RoundLog, stopped: threading.Event) -> None:
        self._folder, self._rounds, self._stopped = folder, rounds, stopped
        #: By file of a source, how much of it had come when it could not be compacted.
        self.failed: dict[str, int] = {}

    @abstractmethod
    def is_for(self, source: Source) -> bool:
        """Return whether a source is of the kind."""

    @abstractmethod
    def come(self, source: Source, offset: Offset) -> int:
        """Return how much of a source has come."""

    @abstractmethod
    def compact(self, source: Source, file: str, known: KnownPast, intake: Intake) -> None:
        """Compact what is due of a source."""

    def attempt(self, source: Source, intake: Intake) -> None:
        """Compact what is due of a source, of what the run reads now."""
        file, come = source_file(source.name, intake.births), 0
        try:
            known = self._rounds.delivered_state(
                lambda offset, batch: KnownPast(self._folder, intake.births, offset, self._rounds.splits)
            )
            come = self.come(source, known.offset)
            self.compact(source, file, known, intake)
        except Exception as error:
            # Whatever it is, the posts and files are still there, and the run goes on.
            if self.failed.get(file) is None:
                message = f"the {self.what} {source.name} stay as they are: {error}"
                log_event(LOG, logging.WARNING, "not_compacted", message, source=source.name)
            self.failed[file] = come


class PostCompaction(Compactor):
    """Writes the posts to relations together. retention, limit: as of `Compaction`."""

    what = "posts to"

    def __init__(
        self, folder: Folder, rounds: RoundLog, stopped: threading.Event, retention: float, limit: int
    ) -> None:
        super().__init__(folder, rounds, stopped)
        self._retention, self._limit = retention, limit
        #: By relation, up to how many splits posts and files have been removed by this process.
        self._removed: dict[str, int] = {}

    def is_for(self, source: Source) -> bool:
        return is_posted(source) and not _is_retained(source)

    def come(self, source: Source, offset: Offset) -> int:
        return offset.splits_done(source.name)

    def compact(self, source: Source, file: str, known: KnownPast, intake: Intake) -> None:
        done = self.come(source, known.offset)
        if done < self.failed.get(file, 0) + FEW and file in self.failed:
            return
        log = CompactedLog(self._folder, file)
        before = known.compacted(source.name)
        if done - before.splits >= FEW:
            steps = UpdateSource(self._folder, source).unread(known, (before.round, before.splits))
            if steps is None:
                # Which rows were late is not known any more.
                self.failed[file] = done
                return
            foldable = foldable_until(source, intake, known.offset, self._retention)
            while steps and not self._stopped.is_set():
                count = _count(steps)
                before = self._written(source, log, before, steps[:count], foldable)
                steps = steps[count:]
            self.failed.pop(file, None)
        if self._removed.get(file, 0) < before.splits:
            self._remove(log, file, before)

    def _remove(self, log: CompactedLog, file: str, compacted: CompactedUpdates) -> None:
        """Remove the updates that compacted ones replace, as far as they are not needed any more."""
        removed: int | None = -1
        while not self._stopped.is_set():
            before, removed = removed, self._rounds.release(file, compacted.splits, _REMOVED_AT_ONCE)
            if removed is None or removed == before:
                break
            self._removed[file] = removed
        if removed is not None:
            log.forget_others(compacted.files)

    def _written(
        self, source: Source, log: CompactedLog, before: CompactedUpdates, steps: Sequence[ReadStep], foldable: int
    ) -> CompactedUpdates:
        """Write what `steps` read behind `before`; return both. foldable: up to which tick they may be folded."""
        reader = UpdateReader(source, before.progress)
        parts = [part for step in steps for task in step.tasks for part in reader.read_task(task)]
        kept, size = [*before.files], sum(part.nbytes for part in parts)
        merged: list[Elements] = []
        while kept and kept[-1].bytes <= max(_SMALL, _RATIO * size) and kept[-1].bytes + size <= self._limit:
            size += kept[-1].bytes
            merged = [*before.read_file(kept.pop()), *merged]
        parts = [part for part in [*merged, *parts] if len(part)]
        until = before.folded
        if parts and not kept and foldable > NOTHING and size <= self._limit:
            whole = concat(parts)
            left = folded(source, whole, foldable)
            if len(left) < len(whole):
                until = max(foldable, NOTHING if until is None else until)
            parts = [left]
        last = steps[-1]
        written = replace(
            before, round=last.round, splits=last.position[1] + last.splits, progress=reader.progress, folded=until
        )
        return log.write(written, kept, [concat(parts)] if parts else [])


class FileMerging(Compactor):
    """Merges the files of retained streams, and of what was rejected of them."""

    what = "files kept of"

    def __init__(self, folder: Folder, rounds: RoundLog, stopped: threading.Event) -> None:
        super().__init__(folder, rounds, stopped)
        #: By stream, the round up to which its files have been looked at.
        self._merged: dict[str, int] = {}

    def is_for(self, source: Source) -> bool:
        return _is_retained(source)

    def come(self, source: Source, offset: Offset) -> int:
        return offset.round

    def compact(self, source: Source, file: str, known: KnownPast, intake: Intake) -> None:
        """Merge the files of a stream of rounds up to now, where there are many and no reader has them open."""
        last = known.offset.round
        seen = max(self._merged.get(file, 0), self.failed.get(file, 0))
        if last < seen + merging.FEW // 4:
            return
        pins = Pins(self._folder)
        span = (source.retain or 0) // _SPANS
        logs = [RetainedLog(self._folder, file), RejectedLog(self._folder, file).log]
        # A reader that begins lists the files, and pins them, in a delivered state too.
        if file not in self._merged and not pins.has(file):
            # What an earlier process has left.
            self._rounds.delivered_state(lambda *state: None if pins.has(file) else _remove_replaced(logs))
        if all(self._merge(log, last, span, lambda: not pins.has(file)) for log in logs):
            self._merged[file] = last
            self.failed.pop(file, None)

    def _merge(self, log: RetainedLog, last: int, span: int, is_free: Callable[[], bool]) -> bool:
        """Merge files of rounds up to `last`; return whether no reader has kept it from that."""

        def placed(merged: MergedFile) -> bool:
            found = is_free()
            if found:
                put_in_place(log, merged)
            return found

        free = is_free()
        while free and not self._stopped.is_set() and (files := files_to_merge(log, last, span)):
            try:
                with merged_file(log, files) as merged:
                    free = self._rounds.delivered_state(lambda *state, merged=merged: placed(merged))
            except PenstockError:
                # Some may have been removed meanwhile, as too old.
                if all(map(log.size, files)):
                    raise
        return free


def _remove_replaced(logs: Iterable[RetainedLog]) -> None:
    """Remove the files that merged ones have replaced."""
    for log in logs:
        for left in log.replaced():
            storage().remove(log.place / left.name)


def _is_retained(source: Source) -> bool:
    return source.is_stream and source.retain is not None


def compacting(folder: Folder, rounds: RoundLog, intake: Callable[[], Intake], settings: Settings) -> Compaction:
    """Return the compaction of a run, begun. Arguments as those of `Compaction`."""
    retention, limit = float(settings["relation_retention"]), settings.get_int("snapshot_memory")
    return Compaction(folder, rounds, intake, retention, limit).start()


def foldable_until(relation: Source, intake: Intake, offset: Offset, retention: float) -> int:
    """Return up to which tick updates of a relation may be folded, `NOTHING` for none.

    Args:
        offset: up to which the sources have been read.
        retention: seconds that it stays behind the least heartbeat.
    """
    beats = [
        offset.progress(one.name).heartbeat(one.slack)
        for one in intake.sources
        if one.domain == relation.domain and one.name not in offset.ended
    ]
    least = min((beat for beat in beats if beat != NOTHING), default=NOTHING)
    if least == NOTHING:
        return NOTHING
    assert relation.domain is not None, "a relation that is updated has a time"
    return max(NOTHING, least - math.ceil(retention * 1_000_000 / relation.domain.unit.value))


def _count(steps: Sequence[ReadStep]) -> int:
    """Return how many of the first steps are compacted at once, at least one."""
    size = 0
    for count, step in enumerate(steps, 1):
        size += step.bytes
        if size >= _AT_ONCE:
            return count
    return len(steps)
