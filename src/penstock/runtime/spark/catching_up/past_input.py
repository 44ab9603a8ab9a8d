"""The input that a query reads which begins with a past: what the run has read of its sources, from where it matters.

Of each source the past consists of the splits that were read before the rounds were recorded, and of the recorded tasks
(`input/round_history.py`). It can be read

- by recorded tasks, of a source whose splits stay readable: files, tables, a topic within its retention;
- by its splits alone, where lateness and timestamps follow from the order of arrival: files without a clock.

A stream is read from the first task on that is preceded by a timestamp beyond the bound, since all elements before it
are older; how far back that is follows from what the queries need (`algebra/properties/need.py`). Updates of a relation
are read from the first one on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import LogConnector, Split, Stretch
from penstock.connectors.sources import is_rereadable, open_source
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Seen, round_name
from penstock.runtime.spark.input.input_planner import InputPlanner, ReadTask
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.input.round_history import ReadRound, RoundHistory


class SplitPlanner(InputPlanner):
    """Plans input that was read before, and nothing new; no source ends in the past."""

    def _discover_files(self, start: Offset) -> None:
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
    """

    splits: tuple[Split, ...] = ()
    task: int = 0
    high: int | None = None


class KnownPast:
    """What a run has read of its sources up to the round of `offset`.

    Args:
        births: the epochs in which sources began.
    """

    def __init__(self, folder: Folder, births: Mapping[str, int], offset: Offset) -> None:
        self._folder = folder
        self._births = births
        self.offset = offset
        self.rounds = RoundHistory(folder).until(offset.round)

    def tasks(self, source: str) -> list[ReadTask]:
        """Return the recorded tasks of a source."""
        return [task for known in self.rounds for task in tasks_of(known, source, self._births)]

    def start(self, source: Source, bound: int | None) -> PastStart | None:
        """Return from where to read a source so that no element after the tick `bound` is missed; None where that is
        not possible.

        Args:
            bound: None for all elements.
        """
        name = source.name
        tasks = self.tasks(name)
        is_log = isinstance(open_source(source), LogConnector)
        if not is_log and not is_rereadable(source):
            return PastStart() if self._is_unread(name) else None
        if bound is not None and source.is_stream:
            older = [i for i, task in enumerate(tasks) if task.high is not None and task.high <= bound]
            if older:
                return PastStart(task=older[-1], high=tasks[older[-1]].high)
        splits = () if is_log else self._splits_before(name, tasks)
        whole = tasks[0].high is None if tasks else self._is_unread(name)
        if whole and not splits:
            return PastStart()
        if is_log or source.system_time or source.idle is not None:
            return None
        skipped, high = _skipped(splits, bound if source.is_stream else None)
        return PastStart(splits[skipped:], high=high)

    def _is_unread(self, source: str) -> bool:
        return self.offset.splits_done(source) == 0 and self.offset.high.get(source) is None

    def _splits_before(self, source: str, tasks: Sequence[ReadTask]) -> tuple[Split, ...]:
        splits = self._folder.read_splits(source_file(source, self._births))
        recorded = sum(len(task.splits) for task in tasks)
        return tuple(splits[: max(0, self.offset.splits_done(source) - recorded)])


def tasks_of(known: ReadRound, source: str, births: Mapping[str, int]) -> list[ReadTask]:
    """Return the tasks of a source in a recorded round."""
    if known.files.get(source) != source_file(source, births):
        return []
    return [task for task in known.tasks if task.source == source]


def _skipped(splits: Sequence[Split], bound: int | None) -> tuple[int, int | None]:
    """Return how many of the first splits have no timestamp after `bound`, and the largest one of them."""
    high: int | None = None
    for number, split in enumerate(splits):
        if bound is None or split.high is None or split.high > bound:
            return number, high
        high = split.high if high is None else max(high, split.high)
    return len(splits), high


@dataclass(frozen=True)
class PastRound:
    """The tasks that read a part of the past together, and the bytes of their splits."""

    tasks: list[ReadTask]
    bytes: int


def merged(
    rounds: Iterable[ReadRound], chosen: Mapping[int, Sequence[ReadTask]], limit: int, sources: Iterable[str]
) -> Iterator[PastRound]:
    """Yield the recorded `rounds` in their order, as many at once as read at most `limit` bytes.

    Args:
        chosen: by the number of a round, its tasks that are read.
        sources: whose heartbeats matter.
    """
    names = set(sources)
    tasks: list[ReadTask] = []
    beats: dict[str, int] = {}
    size = 0
    for known in rounds:
        own = list(chosen.get(known.number, ()))
        read = sum(max(1, split.bytes) for task in own for split in task.splits)
        if tasks and size + read > limit:
            yield PastRound(with_beats(tasks, beats), size)
            tasks, size, beats = [], 0, {}
        tasks += own
        size += read
        for task in known.tasks:
            beats |= {name: max(tick, beats.get(name, tick)) for name, tick in task.beats if name in names}
    if tasks or beats:
        yield PastRound(with_beats(tasks, beats), size)


def with_beats(tasks: Sequence[ReadTask], beats: Mapping[str, int]) -> list[ReadTask]:
    """Return `tasks`, or one that reads nothing, of which the first carries heartbeats of sources. No source ends."""
    some = list(tasks) or [ReadTask("", 0, None)]
    first = replace(some[0], beats=tuple(sorted(beats.items())))
    return [first, *(replace(task, beats=()) for task in some[1:])]


def numbered(tasks: Sequence[ReadTask], round_: int) -> list[ReadTask]:
    """Return `tasks` as those of one round."""
    return [replace(task, round=round_name(round_), task=i, ended=()) for i, task in enumerate(tasks)]
