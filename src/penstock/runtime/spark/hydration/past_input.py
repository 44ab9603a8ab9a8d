"""The input that a query reads which begins with a past: what the run has read of its sources, from where it matters.

Of each source the past consists of the splits that were read before the rounds were recorded, and of the recorded tasks
(`input/round_history.py`). It can be read, in this order,

- from the retained elements of a stream (`retention/`), where they hold what the queries read of it;
- by recorded tasks, of a source whose splits stay readable: files, tables, a topic within its retention;
- by its splits alone, where lateness and timestamps follow from the order of arrival: files without a clock.

A stream is read from the first task on that is preceded by a timestamp beyond the bound, since all elements before it
are older; how far back that is follows from what the queries need (`algebra/properties/need.py`). Updates of a relation
are read from the first one on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import Ticks, ticks_without
from penstock.connectors.contract import LogConnector, Split, Stretch
from penstock.connectors.sources import is_rereadable, open_source
from penstock.errors import PenstockError
from penstock.physical.plan.plan import Plan
from penstock.runtime.spark.checkpoint.epochs import OFFSET, Epoch, last_offset, source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Seen, round_name
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.input.input_planner import InputPlanner, ReadTask
from penstock.runtime.spark.input.known_splits import KnownSplits
from penstock.runtime.spark.input.round_history import ReadRound, RoundHistory
from penstock.runtime.spark.input.split_files import SplitFiles
from penstock.runtime.spark.retention.compacted_updates import CompactedLog, CompactedUpdates
from penstock.runtime.spark.retention.rejected_log import RejectedLog
from penstock.runtime.spark.retention.retained_log import RetainedFile, RetainedLog, retained_columns
from penstock.storage.seals import damaged
from penstock.types import END

#: The ticks of elements, by the folder of a retained stream and the file.
ReadTicks = dict[tuple[Path, RetainedFile], Ticks]


class SplitPlanner(InputPlanner):
    """Plans input that was read before, and nothing new; no source ends in the past."""

    def discover(self, start: Offset) -> None:
        return

    def _gathers(self, start: Offset, seconds: float | None) -> bool:
        return False

    def _log_stretches(self, start: Offset, seen: Mapping[str, Seen], limit: int) -> dict[str, Stretch]:
        return {}

    def _ended(self, start: Offset, done: Mapping[str, int], stretches: Mapping[str, Stretch]) -> tuple[str, ...]:
        return ()

    def _reported(self, start: Offset, done: Mapping[str, int]) -> dict[str, int]:
        return {}

    def _forget(self, start: Offset) -> None:
        # Records kept of the past belong to the run, so they are not removed here.
        return

    @property
    def _uses_wall_clock(self) -> bool:
        return False


@dataclass(frozen=True)
class PastStart:
    """From where the past of a source is read.

    Args:
        splits: those that were read before the rounds were recorded.
        task: how many of the recorded tasks are skipped.
        high: the largest timestamp of what is skipped, None where nothing is.
        retained: the log that is read in place of the source.
        gone: the source cannot be read again, and nothing that it has given matters.
        compacted: what is read before all of that.
    """

    splits: tuple[Split, ...] = ()
    task: int = 0
    high: int | None = None
    retained: RetainedLog | None = None
    gone: bool = False
    compacted: CompactedUpdates | None = None


class KnownPast:
    """What a run has read of its sources up to the round of `offset`.

    Args:
        births: the epochs in which sources began.
        splits: returns the splits in a file (`source_file`) where that is known without reading it.
    """

    def __init__(
        self,
        folder: Folder,
        births: Mapping[str, int],
        offset: Offset,
        splits: Callable[[str], KnownSplits | None] = lambda file: None,
    ) -> None:
        self._folder = folder
        self._splits = splits
        self._compacted: dict[str, CompactedUpdates] = {}
        self.births = births
        self.offset = offset

    def splits(self, source: str) -> KnownSplits:
        """Return the splits of a source that have been found, those that have been read first."""
        file = source_file(source, self.births)
        return self._splits(file) or SplitFiles(self._folder, file).read()

    def compacted(self, source: str) -> CompactedUpdates:
        """Return what stands for the first splits of a posted relation, the same each time. Raises PenstockError
        P0605."""
        if source not in self._compacted:
            self._compacted[source] = CompactedLog(self._folder, source_file(source, self.births)).read()
        return self._compacted[source]

    @cached_property
    def rounds(self) -> list[ReadRound]:
        """The recorded rounds."""
        return RoundHistory(self._folder).until(self.offset.round)

    def tasks(self, source: str) -> list[ReadTask]:
        """Return the recorded tasks of a source."""
        return [task for known in self.rounds for task in tasks_of(known, source, self.births)]

    def paths(self, source: str) -> dict[str, tuple[Split, ...] | None]:
        """Return the files that have been read of a source and are not compacted, in the order of arrival; with the
        splits that have been read of one that has not been read whole, or is compacted in part, None for the others."""
        splits = self.splits(source)
        done, first = self.offset.splits_done(source), self.compacted(source).splits
        in_part = {split.path for split in [*splits[done:], *splits[:first]]}
        read: dict[str, tuple[Split, ...] | None] = {}
        for split in splits[first:done]:
            known = read.get(split.path) or ()
            read[split.path] = (*known, split) if split.path in in_part else None
        return read

    def recorded_paths(self, source: str) -> dict[str, ReadTask]:
        """Return the files that recorded tasks have read, with these."""
        return {split.path: task for task in self.tasks(source) for split in task.splits}

    def clock_before(self, source: str) -> int | None:
        """Return the heartbeat of a source from the clock in the first recorded round, None without one."""
        beats = (dict(task.beats).get(source) for known in self.rounds[:1] for task in known.tasks)
        return next((beat for beat in beats if beat is not None), None)

    def start(self, source: Source, bound: int | None, columns: Collection[int]) -> PastStart | None:
        """Return from where to read a source so that no element after the tick `bound` is missed; None where that is
        not possible.

        Args:
            bound: None for all elements.
            columns: positions of the declared columns that are read.
        """
        name = source.name
        high = self.offset.high.get(name)
        matters = bound is None or not source.is_stream or (high is not None and high > bound)
        log = RetainedLog(self._folder, source_file(name, self.births), source.timestamp)
        is_judged = not source.is_checked or RejectedLog(self._folder, log.place.name).log.has(bound)
        if set(columns) <= set(retained_columns(source)) and log.has(bound) and is_judged:
            return PastStart(retained=log)
        if source.is_checked:
            # Which of its rows were rejected is kept beside what is retained alone.
            return PastStart(high=high, gone=True) if high is None or not matters else None
        if self.compacted(name).splits:
            return self._start_compacted(source, bound)
        tasks = self.tasks(name)
        is_log = isinstance(open_source(source), LogConnector)
        if not is_log and not is_rereadable(source):
            return PastStart(high=high, gone=True) if high is None or not matters else None
        if not matters and high is not None:
            return PastStart(task=len(tasks), high=high)
        if bound is not None and source.is_stream:
            older = [i for i, task in enumerate(tasks) if task.high is not None and task.high <= bound]
            if older:
                return PastStart(task=older[-1], high=tasks[older[-1]].high)
        if not self._is_unread(name) and (source.punctuated is not None or name in self.offset.punctuations):
            return None  # which elements had been punctuated is not known any more
        splits = () if is_log else self._splits_before(name, tasks)
        whole = tasks[0].high is None if tasks else self._is_unread(name)
        if whole and not splits:
            return PastStart()
        if is_log or source.system_time or source.idle is not None or name in self.offset.advanced:
            return None
        skipped, high = _skipped(splits, bound if source.is_stream else None)
        return PastStart(splits[skipped:], high=high)

    def lost(self, source: Source, columns: Collection[int]) -> int | None:
        """Return the tick up to which elements of a source cannot be read again, `END` where no tick is known or it is
        a relation; None where everything can.

        Args:
            columns: positions of the declared columns that are read.
        """
        if self.start(source, None, columns) is not None:
            return None
        if not source.is_stream:
            return END
        ticks = [self.offset.high.get(source.name), *(task.high for task in self.tasks(source.name)[:1])]
        log = RetainedLog(self._folder, source_file(source.name, self.births))
        if set(columns) <= set(retained_columns(source)) and log.is_begun:
            ticks.append(log.after)
            rejected = RejectedLog(self._folder, log.place.name).log
            if source.is_checked and rejected.is_begun:
                ticks.append(rejected.after)
        possible = [tick for tick in ticks if tick is not None and self.start(source, tick, columns) is not None]
        return min(possible, default=END)

    def retained_ticks(self, source: Source, after: int, until: int, read: ReadTicks | None = None) -> Ticks:
        """Return the ticks of the elements of a stream behind the tick `after` up to the tick `until`, where it retains
        these; none where it does not. Of a stream with several promises that are CHECKED there may be more. read: those
        of files, to which more are added.
        """
        log = RetainedLog(self._folder, source_file(source.name, self.births), source.timestamp)
        if not source.is_stream or not log.has(after):
            return np.empty(0, np.int64)
        while True:
            files = [file for file in log.files(last=self.offset.round) if file.high > after and file.low <= until]
            try:
                parts = [_ticks_in(log, file, read) for file in files]
            except PenstockError:
                # They may have been merged meanwhile.
                if all(map(log.size, files)):
                    raise
                continue
            ticks = np.concatenate([np.empty(0, np.int64), *parts])
            if source.is_checked:
                ticks = ticks_without(ticks, RejectedLog(self._folder, log.place.name).ticks(self.offset.round))
            return ticks[(ticks > after) & (ticks <= until)]

    def _start_compacted(self, source: Source, bound: int | None) -> PastStart | None:
        """Return the same for a posted relation of which updates have been compacted."""
        name, compacted = source.name, self.compacted(source.name)
        if not compacted.serves(bound):
            return None
        high, done, tasks = compacted.progress.high, self.offset.splits_done(name), self.tasks(name)
        if not (source.system_time or source.idle is not None):
            behind = tuple(self.splits(name)[compacted.splits : done])
            return PastStart(behind, len(tasks), high, compacted=compacted)
        if self.offset.round > compacted.round and (not self.rounds or self.rounds[0].number > compacted.round + 1):
            return None
        skipped = [task for task in tasks if int(task.round) <= compacted.round]
        return PastStart((), len(skipped), high, compacted=compacted)

    def _is_unread(self, source: str) -> bool:
        return self.offset.splits_done(source) == 0 and self.offset.high.get(source) is None

    def _splits_before(self, source: str, tasks: Sequence[ReadTask]) -> tuple[Split, ...]:
        splits = self.splits(source)
        # Heartbeats that were posted beside the rows are no splits of the source.
        beside = source in self.offset.advanced
        recorded = sum(not beside or split.record is None for task in tasks for split in task.splits)
        return tuple(splits[: max(0, self.offset.splits_done(source) - recorded)])


def past_of_run(folder: Folder, epoch: Epoch) -> KnownPast:
    """Return what the run in `folder` has read in batches that are delivered. epoch: its present one."""
    return KnownPast(folder, epoch.births, delivered_part(folder, last_offset(folder, epoch) or Offset(0, {}, {})))


def delivered_part(folder: Folder, offset: Offset) -> Offset:
    """Return `offset` without its round if that is outstanding, with the largest timestamps up to there."""
    if offset.before is not None and offset.round > folder.delivered().round:
        known = replace(offset.before, punctuations=offset.punctuations)
        return replace(known, high=offset.high, beats=offset.beats, again=True)
    return offset if offset.again else offset.after(folder.seen_in(round_name(offset.round)))


def tasks_of(known: ReadRound, source: str, births: Mapping[str, int]) -> list[ReadTask]:
    """Return the tasks of a source in a recorded round."""
    if known.files.get(source) != source_file(source, births):
        return []
    return [task for task in known.tasks if task.source == source]


def _ticks_in(log: RetainedLog, file: RetainedFile, read: ReadTicks | None) -> Ticks:
    """Return the ticks in a retained file. read: those that have been read."""
    key = log.place, file
    found = None if read is None else read.get(key)
    if found is None:
        found = np.concatenate([np.empty(0, np.int64), *(elements.ts for elements in log.read(file, ()))])
        if read is not None:
            read[key] = found
    return found


def _skipped(splits: Sequence[Split], bound: int | None) -> tuple[int, int | None]:
    """Return how many of the first splits have no timestamp after `bound`, and the largest one of them."""
    high: int | None = None
    for number, split in enumerate(splits):
        if bound is None or split.high is None or split.high > bound:
            return number, high
        high = split.high if high is None else max(high, split.high)
    return len(splits), high


@dataclass
class PastRound:
    """Parts of the past that are read together.

    Args:
        tasks: of sources that are read again.
        files: of retained elements, with the source of each.
        beats: heartbeats of sources.
        bytes: the size of all.
    """

    tasks: list[ReadTask] = field(default_factory=list)
    files: list[tuple[str, RetainedFile]] = field(default_factory=list)
    beats: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.tasks or self.files or self.beats)

    def add(self, other: PastRound) -> None:
        """Append what comes later."""
        self.tasks += other.tasks
        self.files += other.files
        self.beats |= {name: max(tick, self.beats.get(name, tick)) for name, tick in other.beats.items()}
        self.bytes += other.bytes

    def numbered(self, round_: int) -> list[ReadTask]:
        """Return the tasks as those of one round, of which the first carries the heartbeats. No source ends."""
        tasks = self.tasks or [ReadTask("", 0, None)]
        beats = tuple(sorted(self.beats.items()))
        return [
            replace(task, round=round_name(round_), task=i, ended=(), beats=() if i else beats, decided={})
            for i, task in enumerate(tasks)
        ]


def merged(parts: Iterable[PastRound], limit: int) -> Iterator[PastRound]:
    """Yield `parts` in their order, as many at once as have at most `limit` bytes."""
    some = PastRound()
    for part in parts:
        if (some.tasks or some.files) and some.bytes + part.bytes > limit:
            yield some
            some = PastRound()
        some.add(part)
    if not some.is_empty:
        yield some


def offset_at_start(folder: Folder, before: Epoch, epoch: Epoch, plan: Plan) -> Offset:
    """Return the offset at which `epoch` begins: that of `before` for the sources that it keeps, and the beginning for
    new ones. A round whose answers have not reached all sinks is repeated as it was planned.
    """
    offset = last_offset(folder, before)
    if offset is None and not folder.delivered().round:
        offset = Offset(0, {}, {})
    if offset is None:
        raise damaged(folder.root / f"{OFFSET}.json", FileNotFoundError("it is gone"))
    kept_sources = {name for name in plan.sources if epoch.sources[name].birth <= before.number}
    idle = {name for name, source in plan.sources.items() if source.idle is not None}

    def restricted(offset: Offset) -> Offset:
        return offset.only(kept_sources, plan.sources.keys(), idle)

    if offset.round > folder.delivered().round and offset.before is not None:
        return replace(restricted(offset), before=restricted(offset.before))
    return replace(restricted(offset.after(folder.seen_in(round_name(offset.round)))), again=True)
