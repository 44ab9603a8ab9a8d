"""Plan what each round of a job reads: splits of all sources, chosen by timestamp and bytes, determined by the offset.

The offset of a round (`offset.py`) holds, per source, the number of splits done and the largest timestamp seen before
the round, the wall-clock time when it was planned (SYSTEM TIME, IDLE TIMEOUT) and the times that sources reported of
themselves, so that a replay after a crash reads the same splits with the same knowledge. Of a log it holds the split
itself and the positions from which to continue, which the tasks of the round report. With `again`, with which an epoch
begins, it includes the largest timestamps of the round too, and a round is due even if there is nothing to read. The
source that is furthest behind in event time is read first, so that no rows accumulate waiting for it.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import LogConnector, SourceConnector, Split, Stretch
from penstock.connectors.sources import open_source
from penstock.events import log_event, logger_of
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.execution.wall_clock import WallClock, advance, begin, uses_wall_clock, wall_clock
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Seen, chunks_of, round_name
from penstock.runtime.spark.input.look_schedule import SELDOM, Gathering, Looks
from penstock.runtime.spark.input.offset import LogOffset, Offset
from penstock.storage.seals import damaged
from penstock.types import BEGIN, MOST_TICKS

LOG = logger_of("runtime")

#: Number of waiting splits of a watched source from which on no further files are opened.
MOST_WAITING = 10_000
#: Rounds after whose delivery consumed input may be removed: Spark may request the last ones again.
_KEPT = 4

#: Microseconds between two rounds that only advance the time of SYSTEM TIME streams.
_BEAT_EVERY = 500_000


@dataclass(frozen=True)
class ReadTask:
    """Work of one ingest task.

    Args:
        source: None for a task that only reports progress.
        splits: to read in order.
        high: the largest timestamp of the source before them.
        ended: sources that end with this round.
        now: the stamp of a SYSTEM TIME source.
        beat: the heartbeat of the source from the clock or its own report, in ticks.
        beats: such heartbeats of every source.
    """

    round: str
    task: int
    source: str | None
    splits: tuple[Split, ...] = ()
    high: int | None = None
    ended: tuple[str, ...] = ()
    now: int | None = None
    beat: int | None = None
    beats: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> ReadTask:
        """Return the task whose fields are those of a JSON object."""
        splits = tuple(Split(**split) for split in fields["splits"])
        beats = tuple((name, beat) for name, beat in fields["beats"])
        return ReadTask(**{**fields, "splits": splits, "ended": tuple(fields["ended"]), "beats": beats})


@dataclass
class _Known:
    source: Source
    connector: SourceConnector
    splits: list[Split] = field(default_factory=list)

    @property
    def statistics(self) -> bool:
        """Return whether every split has timestamp statistics, so that tasks can read splits in parallel."""
        return not self.source.loses_rows and all(s.high is not None or s.rows == 0 for s in self.splits)

    @property
    def log(self) -> LogConnector | None:
        return self.connector if isinstance(self.connector, LogConnector) else None


class InputPlanner:
    """Plans the rounds of one job; lives in the driver.

    Args:
        clock: tells the time of SYSTEM TIME.
        timer: seconds, tells how long looks take and rounds are held back.
        before: the planner of the plan that this one takes over from; sources that stay go on as they are.
    """

    def __init__(
        self, folder: Folder, intake: Intake, clock: Callable[[], int] = wall_clock,
        timer: Callable[[], float] = time.monotonic, before: InputPlanner | None = None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._intake = intake
        self._known = {source.name: _Known(source, open_source(source)) for source in intake.sources}
        self._clock = clock
        self._looks = {name: Looks(known.connector.look_every, timer) for name, known in self._known.items()}
        self._gathering = Gathering(timer)
        #: By log, the number of records that waited at the last look and are in no round yet.
        self.waiting: dict[str, int] = {}
        #: Bounded sources whose locations have been looked at.
        self._looked: set[str] = set()
        self._delivered: deque[Offset] = deque()
        self._forgotten: dict[str, int] = {}
        staying = set() if before is None else self._take_over(before)
        for name, known in self._known.items():
            if name not in staying:
                known.splits = folder.read_splits(self._file(name))
                known.connector.keep_in(folder.root / "kept" / self._file(name))

    def _take_over(self, before: InputPlanner) -> set[str]:
        """Take over what `before` knows of the sources that stay, and return their names."""
        staying = {
            name
            for name, known in self._known.items()
            if name in before._known
            and before._known[name].source == known.source
            and before._file(name) == self._file(name)
        }
        for name in staying:
            self._known[name], self._looks[name] = before._known[name], before._looks[name]
        self.waiting = {name: count for name, count in before.waiting.items() if name in staying}
        self._looked = before._looked & staying
        self._forgotten = {name: done for name, done in before._forgotten.items() if name in staying}
        self._clock, self._gathering = before._clock, before._gathering
        self._delivered = deque(offset.only(staying, self._known, ()) for offset in before._delivered)
        return staying

    def _file(self, name: str) -> str:
        return source_file(name, self._intake.births)

    def check(self, offset: Offset) -> None:
        """Check that the splits that `offset` counts are known. Raises PenstockError P0605."""
        for name, known in self._known.items():
            if known.log is None and len(known.splits) < offset.splits_done(name):
                path = self._folder.root / "splits" / f"{self._file(name)}.json"
                raise damaged(path, ValueError("it does not tell all that has been read"))

    def start(self) -> Offset:
        """Return the offset before the first round."""
        return Offset(0, dict.fromkeys(self._known, 0), dict.fromkeys(self._known))

    def limit(self, offset: Offset) -> int:
        """Return the maximum bytes that the round of `offset` was planned to read."""
        return self._intake.pace.first if offset.limit is None else offset.limit

    def backlog(self, offset: Offset) -> dict[str, tuple[int, int]]:
        """Return by source the discovered splits that no round up to that of `offset` reads, and their bytes."""
        waiting = {name: known.splits[offset.splits_done(name) :] for name, known in self._known.items()}
        return {name: (len(splits), sum(s.bytes for s in splits)) for name, splits in waiting.items()}

    def next(self, start: Offset, seconds: float | None = None, answers: int | None = None) -> Offset:
        """Return the offset after the next round; `start` itself when there is nothing to do.

        Args:
            seconds: duration of the round of `start`, None if unknown.
            answers: bytes that it emitted, None if unknown.
        """
        self._forget(start)
        seen = self._folder.seen_in(round_name(start.round))
        limit = self._next_limit(start, seconds, answers)
        self._discover_files(start)
        if self._gathers(start, seconds):
            return start
        stretches = self._stretches(start, seen, limit)
        high = highs_after(start, seen)
        done = self._choose(start, high, limit, stretches)
        ended = self._ended(start, done, stretches)
        reported = self._reported(start, done)
        unchanged = done == start.done and ended == start.ended and start.round > 0 and not start.again
        unchanged = unchanged and reported == start.reported
        wall = self._wall(start, high, ended) if self._by_clock else None
        if unchanged and (wall is None or not self._worth_a_round(start, wall)):
            return start
        chosen = [name for name in self._known if done[name] > start.splits_done(name)]
        read = sum(s.split.bytes for name, s in stretches.items() if s.split and name in chosen)
        read += sum(self._bytes(name, start.splits_done(name), done[name]) for name in chosen)
        logs = self._logs(start, chosen, stretches)
        wall = wall.spoken(chosen) if wall is not None else None
        return Offset(start.round + 1, done, high, ended, limit, read, logs, reported, wall)

    def _reported(self, start: Offset, done: Mapping[str, int]) -> dict[str, int]:
        """Return the heartbeats that sources report of their own time, for those whose known splits are all read."""
        reported = dict(start.reported)
        for name, known in self._known.items():
            reached = known.connector.reached()
            if reached is not None and done[name] == len(known.splits):
                reported[name] = max(reached, reported.get(name, BEGIN))
        return reported

    def _next_limit(self, start: Offset, seconds: float | None, answers: int | None) -> int:
        if start.round == 0:
            return self._intake.pace.first
        return self._intake.pace.next_limit(self.limit(start), start.read, seconds, answers)

    def _bytes(self, name: str, first: int, last: int) -> int:
        return sum(split.bytes for split in self._known[name].splits[first:last])

    @property
    def _by_clock(self) -> bool:
        return uses_wall_clock(k.source for k in self._known.values())

    def _wall(self, start: Offset, high: Mapping[str, int | None], ended: Sequence[str]) -> WallClock:
        """Return the wall clock for the round after `start`."""
        now = self._clock()
        sources = {**self._intake.frames, **{name: known.source for name, known in self._known.items()}}
        seen = {n: SourceProgress(None, high.get(n), n in start.ended) for n in self._known}
        seen |= self._frames_seen()
        before = begin(sources.values(), now) if start.wall is None else start.wall
        return advance(before, now, sources, self._intake.peers, seen, ended)

    def _worth_a_round(self, start: Offset, wall: WallClock) -> bool:
        """Return whether a round without rows has an effect: a source became or ceased to be idle, or the time of a
        SYSTEM TIME stream advanced far enough.
        """
        before = WallClock(0) if start.wall is None else start.wall
        if wall.now - before.now >= _BEAT_EVERY:
            read = [name for name in wall.beats if name not in self._intake.unread]
            return any(wall.beats[name] != before.beats.get(name) for name in read)
        unread = self._intake.unread
        others = (n for n, known in self._known.items() if not known.source.system_time and n not in unread)
        return any(wall.beats.get(name) != before.beats.get(name) for name in others)

    def _frames_seen(self) -> dict[str, SourceProgress]:
        """Return the progress of the DataFrame sources, which Spark reads."""
        progress: dict[str, SourceProgress] = {}
        for round_ in (r for r in self._folder.rounds() if r.startswith("b")):
            for name, seen in self._folder.read_seen(round_).items():
                progress[name] = progress.get(name, SourceProgress()).merge(SourceProgress(None, seen.high))
        return progress

    def pieces(self, start: Offset, end: Offset) -> list[ReadTask]:
        """Return the tasks of the round that leads from `start` to `end`."""
        tasks: list[ReadTask] = []
        number = round_name(end.round)
        wall = WallClock(0) if end.wall is None else end.wall
        before, reported = start.reported, dict(end.reported)
        beats = tuple(sorted((reported | {n: max(b, reported.get(n, BEGIN)) for n, b in wall.beats.items()}).items()))
        for name, known in self._known.items():
            first = start.splits_done(name)
            todo = known.splits[first : end.done[name]]
            if known.log is not None:
                split = end.logs[name].split if end.done[name] > first else None
                todo = [] if split is None else [split]
            high = end.high[name]
            parallel = known.statistics and _in_range(todo) and _keep_up(todo, high, known.source.ahead)
            for run in chunks_of(todo, self._intake.parallelism if parallel else 1) if todo else ():
                now = wall.now if known.source.system_time else None
                # A heartbeat reported before applies to the rows of this round; one reported now follows them.
                beat = max((b for b in (wall.beats.get(name), before.get(name)) if b is not None), default=None)
                tasks.append(ReadTask(number, len(tasks), name, tuple(run), high, (), now, beat))
                highs = [s.high for s in run if s.high is not None]
                high = max([h for h in (high, *highs) if h is not None], default=None)
        if not tasks:
            return [ReadTask(number, 0, None, ended=end.ended, beats=beats)]
        # The first task carries the ended sources and the heartbeats; a separate task would wait for a free core.
        return [replace(tasks[0], ended=end.ended, beats=beats), *tasks[1:]]

    @property
    def wait(self) -> float:
        """Seconds until the next look at a source."""
        return min(self._gathering.wait, min((looks.wait for looks in self._looks.values()), default=SELDOM))

    def _gathers(self, start: Offset, seconds: float | None) -> bool:
        """Return whether the round after `start` waits for input that is expected beside what has been discovered.

        Args:
            seconds: duration of the round of `start`.
        """
        found = {name for name, known in self._known.items() if len(known.splits) > start.splits_done(name)}
        groups = (group for name in found for group in self._intake.peers.get(name, ()))
        expected: set[str] = set().union(*groups) - found
        expected = {name for name in expected if self._may_appear(name)}
        for name in sorted(expected):
            self._discover_in(name, start)
        expected = {name for name in expected if len(self._known[name].splits) <= start.splits_done(name)}
        return bool(found) and self._gathering.holds(bool(expected), seconds)

    def _may_appear(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None or known.log is not None or known.connector.bounded:
            return False
        return self._looks[name].frequent

    def _stretches(self, start: Offset, seen: Mapping[str, Seen], limit: int) -> dict[str, Stretch]:
        """Look for new records of logs, and return by log what to read."""
        stretches: dict[str, Stretch] = {}
        for name, known in self._known.items():
            before = start.logs.get(name, LogOffset())
            if known.log is not None and name in start.ended:
                self._looks[name].over()
            if known.log is None or (self._looks[name].wait and not before.split) or name in start.ended:
                continue
            read = seen.get(name, Seen()).positions if before.split else None
            with self._looks[name].look():
                stretches[name] = known.log.plan(before.state, read, limit)
            self.waiting[name] = stretches[name].lag
        return stretches

    def _logs(self, start: Offset, chosen: Collection[str], stretches: Mapping[str, Stretch]) -> dict[str, LogOffset]:
        """Return by log its position, and its split of this round. chosen: the sources that the round reads."""
        logs = dict(start.logs)
        for name, stretch in stretches.items():
            taken = stretch.split if name in chosen else None
            if taken is not None:
                self.waiting[name] = max(0, stretch.lag - (taken.rows or 0))
            logs[name] = LogOffset(stretch.state, taken)
        return logs

    def _discover_files(self, start: Offset) -> None:
        """Look for new files where a look is due."""
        for name, known in self._known.items():
            if known.log is not None or self._looks[name].wait:
                continue
            if known.connector.bounded and self._folder.has_splits(self._file(name)):
                self._tell_ignored(name, known)
                self._looks[name].over()
                continue
            self._looked.add(name)
            self._discover_in(name, start)

    def _discover_in(self, name: str, start: Offset) -> None:
        """Record newly discovered splits of a source of files. While many splits of a watched source wait, no further
        files are opened; what is unknown then is found at a later look.
        """
        known = self._known[name]
        if (waiting := len(known.splits) - start.splits_done(name)) >= MOST_WAITING:
            return
        with self._looks[name].look():
            paths = known.connector.discover(frozenset(s.path for s in known.splits))
        fresh = self._splits(known, paths, waiting)
        if fresh or known.connector.bounded:
            self._looks[name].found()
            known.splits += fresh
            self._folder.write_splits(self._file(name), known.splits)

    def _tell_ignored(self, name: str, known: _Known) -> None:
        """Warn, once and when a run resumes, of input of a source that is not read."""
        if name not in self._looked:
            self._looked.add(name)
            ignored = known.connector.ignored(frozenset(s.path for s in known.splits))
            if ignored is not None:
                log_event(LOG, logging.WARNING, "ignored", ignored, source=name)

    @staticmethod
    def _splits(known: _Known, paths: Sequence[str], waiting: int) -> list[Split]:
        """Return the splits of new `paths`, up to the maximum that may wait. waiting: number that wait already."""
        fresh: list[Split] = []
        for path in paths:
            if not known.connector.bounded and waiting + len(fresh) >= MOST_WAITING:
                break
            fresh += known.connector.splits(path)
        return fresh

    def _forget(self, start: Offset) -> None:
        """Notify the connectors of the input consumed by rounds long delivered: `start` follows all of them."""
        if not self._delivered or self._delivered[-1].round < start.round:
            self._delivered.append(start)
        while len(self._delivered) > _KEPT:
            oldest = self._delivered.popleft()
            for name, known in self._known.items():
                done = oldest.splits_done(name)
                read = {s.path for s in known.splits[self._forgotten.get(name, 0) : done]}
                known.connector.forget(sorted(read - {s.path for s in known.splits[done:]}))
                self._forgotten[name] = done

    def _choose(
        self, start: Offset, high: Mapping[str, int | None], limit: int, stretches: Mapping[str, Stretch]
    ) -> dict[str, int]:
        """Return how many splits of each source are done after the round: the source behind in time is read first. At
        most `limit` bytes are read, and at most max_batch_rows where splits have row counts; at least one split is
        read.
        """
        done = {name: start.splits_done(name) for name in self._known}
        chosen = dict(done)
        todo = {name: known.splits[chosen[name] :] for name, known in self._known.items()}
        todo |= {name: [s.split] for name, s in stretches.items() if s.split is not None}
        # A source stamped on arrival is read on arrival, whatever the time of the others.
        frontier = {
            name: BEGIN if high.get(name) is None or known.source.system_time else int(high[name] or 0)
            for name, known in self._known.items()
        }
        budget, rows = limit, self._intake.pace.max_rows or math.inf
        while True:
            open_ = [n for n, splits in todo.items() if chosen[n] - done[n] < len(splits)]
            if not open_:
                return chosen
            name = min(open_, key=lambda n: (frontier[n], n))
            split = todo[name][chosen[name] - done[name]]
            # A split without a row count may have the maximum.
            counted = split.rows if split.rows is not None else self._intake.pace.max_rows
            if budget < limit and (split.bytes > budget or counted > rows):
                return chosen
            chosen[name] += 1
            budget -= max(1, split.bytes)
            rows -= counted
            # After a split without timestamps, every other source is read first.
            frontier[name] = split.high if split.high is not None else max(frontier.values()) + 1
            if budget <= 0 or rows <= 0:
                return chosen

    def _ended(self, start: Offset, done: Mapping[str, int], stretches: Mapping[str, Stretch]) -> tuple[str, ...]:
        files = {n: k for n, k in self._known.items() if k.log is None}
        own = {n for n, k in files.items() if k.connector.bounded and done[n] >= len(k.splits)}
        own |= {n for n, s in stretches.items() if s.ended} | (set(start.ended) - files.keys())
        # DataFrame sources end when the driver marks that it has read all of them.
        return tuple(sorted(own | (self._intake.spark_sources if self._folder.read_mark("end") else frozenset())))


def _in_range(splits: Sequence[Split]) -> bool:
    """Return whether no row can have a timestamp out of range: such a row is a dead letter, and its split does not
    contain the largest timestamp of the others."""
    ticks = (tick for split in splits for tick in (split.low, split.high) if tick is not None)
    return all(-MOST_TICKS < tick < MOST_TICKS for tick in ticks)


def _keep_up(splits: Sequence[Split], high: int | None, ahead: int | None) -> bool:
    """Return whether no row can be too far ahead, whatever the order within a split; then the largest timestamp after
    each split is known before any is read.

    Args:
        high: the largest timestamp before them.
        ahead: the length of ADVANCE AT MOST, in ticks.
    """
    if ahead is None:
        return True
    for split in (split for split in splits if split.rows != 0):
        first = split.low if high is None else high
        if first is None or split.high is None or split.high > first + ahead:
            return False
        high = max(first, split.high)
    return True


def highs_after(offset: Offset, seen: Mapping[str, Seen]) -> dict[str, int | None]:
    """Return the largest timestamps of the sources up to and including the round of `offset`. seen: what its tasks
    observed.
    """
    highs = dict(offset.high)
    if offset.again:
        return highs
    for name, observed in seen.items():
        if name in highs and observed.high is not None:
            high = highs[name]
            highs[name] = observed.high if high is None else max(observed.high, high)
    return highs
