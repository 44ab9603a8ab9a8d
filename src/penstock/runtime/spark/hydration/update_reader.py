"""Reading the updates of a relation again, as the run accepted them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import LogConnector, Split
from penstock.connectors.sources import is_rereadable, open_source
from penstock.physical.elements import Elements
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.progress import SourceProgress
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.hydration.past_input import KnownPast, tasks_of
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.input.round_history import RoundHistory
from penstock.storage.seals import damaged


@dataclass(frozen=True)
class ReadStep:
    """What is read at once of a relation.

    Args:
        position: round and number of splits before it.
        round: the round after it.
    """

    position: tuple[int, int]
    tasks: tuple[ReadTask, ...]
    round: int

    @property
    def splits(self) -> int:
        return sum(len(task.splits) for task in self.tasks)

    @property
    def bytes(self) -> int:
        return sum(map(bytes_of, self.tasks))


class UpdateSource:
    """A relation whose updates are read again.

    Args:
        folder: of the run.
        source: as the run reads it.
    """

    def __init__(self, folder: Folder, source: Source) -> None:
        self._folder = folder
        self._name = source.name
        self._is_log = isinstance(open_source(source), LogConnector)
        #: Which rows were late follows from the order of arrival alone; otherwise from the recorded rounds.
        self._by_splits = not (self._is_log or source.system_time or source.idle is not None)
        self.is_readable = self._is_log or is_rereadable(source)

    def unread(self, known: KnownPast, position: tuple[int, int]) -> list[ReadStep] | None:
        """Return what the run has read behind a position, in order; None where that cannot be read again.

        Args:
            position: round and number of splits before it; the beginning, or that of a step or of compacted updates.

        Raises:
            PenstockError: P0605, what stood for posts that have been removed is gone.
        """
        if not self.is_readable:
            return None
        offset, name = known.offset, self._name
        round_, splits = position
        done = offset.splits_done(name)
        if self._by_splits:
            if done <= splits:
                return []
            found = known.splits(name)[splits:done]
            if len(found) < done - splits:
                self._check_compacted(known, splits)
                return None
            return [
                ReadStep((round_, splits + i), (ReadTask("", 0, name, (split,)),), round_)
                for i, split in enumerate(found)
            ]
        if offset.round <= round_ or (not done and offset.high.get(name) is None):
            return []
        self._check_compacted(known, splits)
        rounds = RoundHistory(self._folder).until(offset.round, round_)
        tasks = [task for read in rounds for task in tasks_of(read, name, known.births)]
        if not self._are_all(tasks, done) if round_ == 0 else len(rounds) < offset.round - round_:
            return None
        steps: list[ReadStep] = []
        for read in rounds:
            step = ReadStep((round_, splits), tuple(tasks_of(read, name, known.births)), read.number)
            steps.append(step)
            round_, splits = read.number, splits + step.splits
        return steps

    def _are_all(self, tasks: Sequence[ReadTask], done: int) -> bool:
        """Return whether recorded tasks are all that have read the relation."""
        if not tasks or tasks[0].high is not None:
            return False
        return self._is_log or sum(len(task.splits) for task in tasks) == done

    def _check_compacted(self, known: KnownPast, splits: int) -> None:
        """Raise PenstockError P0605 where splits behind the first ones are not known any more."""
        if not self._is_log and known.splits(self._name).dropped > splits:
            missing = FileNotFoundError("it does not stand for all posts that have been removed")
            raise damaged(known.compacted(self._name).place, missing)


class UpdateReader:
    """Reads and stamps updates again, in the order in which they came.

    Args:
        progress: of the source before them.

    Attributes:
        progress: of the source after what has been read.
    """

    def __init__(self, source: Source, progress: SourceProgress) -> None:
        self.connector = open_source(source)
        self.progress = progress
        self._source = source
        self._columns = tuple(range(len(source.columns)))
        self._read = read_columns(source, self._columns)

    def read_task(self, task: ReadTask) -> Iterator[Elements]:
        """Yield the updates that were accepted when `task` read them, with all declared columns."""
        for split in task.splits:
            yield from self.read(split, task)

    def read(self, split: Split, task: ReadTask) -> Iterator[Elements]:
        """Yield the updates of a split that were accepted when `task` read it."""
        if task.beat is not None:
            self.progress = self.progress.merge(SourceProgress(beat=task.beat))
        for parsed in self.connector.read(split, self._read):
            if parsed.batch.num_rows:
                stamped = stamp(self._source, parsed.batch, self._read, self._columns, self.progress, task.now)
                self.progress = self.progress.merge(stamped.progress)
                yield stamped.elements


def bytes_of(task: ReadTask) -> int:
    """Return the bytes that a task reads, at least one for each split."""
    return sum(max(1, split.bytes) for split in task.splits)
