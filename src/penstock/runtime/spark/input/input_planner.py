"""Plan what each round of a job reads: splits of all sources, chosen by timestamp and bytes, determined by the offset.

The offset of a round (`checkpoint/offset.py`) holds, per source, the number of splits done, the largest timestamp and
the heartbeat seen before the round, the heartbeats that were posted beside its rows, the wall-clock time when it was
planned (SYSTEM TIME, IDLE TIMEOUT) and the times that sources reported of themselves, so that a replay after a crash
reads the same splits with the same knowledge. Of a log it holds the split itself and the positions from which to
continue, which the tasks of the round report. With `again`, with which an epoch begins, it includes the largest
timestamps of the round too, and a round is due even if there is nothing to read. The source that is furthest behind in
event time is read first, so that no rows accumulate waiting for it.
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
from penstock.physical.decisions import Decide, Decisions
from penstock.physical.execution.portions import with_portions
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.execution.wall_clock import WallClock, advance, begin, uses_wall_clock, wall_clock
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Seen, chunks_of, round_name
from penstock.runtime.spark.checkpoint.kept_punctuations import KeptPlace, forget_files, with_files
from penstock.runtime.spark.checkpoint.offset import LogOffset, Offset
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.runtime.spark.input.known_splits import KnownSplits
from penstock.runtime.spark.input.look_schedule import SELDOM, Gathering, Looks
from penstock.runtime.spark.input.posted_heartbeats import PostedHeartbeats
from penstock.runtime.spark.input.split_files import SplitFiles
from penstock.storage.documents import Document
from penstock.storage.seals import damaged
from penstock.types import BEGIN, MOST_TICKS

# --- What the planner of the rounds knows of one source: its connector and its splits.


@dataclass
class SourceState:
    """The source and what is known of it."""

    source: Source
    connector: SourceConnector
    splits: KnownSplits = field(default_factory=KnownSplits)
    #: The paths of the splits, and whether each of them has statistics: kept, since there may be very many.
    paths: set[str] = field(default_factory=set)
    all_have_statistics: bool = True

    def know(self, splits: KnownSplits, new: Sequence[Split] | None = None) -> None:
        """Take `splits` for those that are known. new: those at their end that were not known; None for all."""
        if new is None:
            self.paths, self.all_have_statistics, new = set(), True, splits.kept
        self.splits = splits
        self.paths.update(split.path for split in new)
        self.all_have_statistics = self.all_have_statistics and all(s.high is not None or s.rows == 0 for s in new)

    def forget(self, first: int, last: int) -> None:
        """Notify the connector that the splits from place `first` up to `last` are not read again."""
        paths = {split.path for split in self.splits[first:last]}
        self.connector.forget(sorted(paths - {split.path for split in self.splits[last:]}))
        if self.connector.removes_read:
            self.know(self.splits.without(last))

    def in_parallel(self, splits: Sequence[Split], high: int | None) -> bool:
        """Return whether tasks can read `splits` in parallel, since the largest timestamp before each is known: all
        splits of the source have statistics. high: the largest timestamp before them."""
        known = self.all_have_statistics and not self.source.loses_rows and self.source.punctuated is None
        known = known and all(split.record is None for split in splits)
        return known and _in_range(splits) and _keep_up(splits, high, self.source.ahead)

    @property
    def log(self) -> LogConnector | None:
        return self.connector if isinstance(self.connector, LogConnector) else None


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
        beat: the heartbeat of the source from the clock, its own report or records before them, in ticks.
        recorded: that from records alone.
        beats: heartbeats of every source from the clock or its own report.
        decided: what was decided before the round, as JSON; in its first task.
        punctuations: of the source, those that it kept before the round.
    """

    round: str
    task: int
    source: str | None
    splits: tuple[Split, ...] = ()
    high: int | None = None
    ended: tuple[str, ...] = ()
    now: int | None = None
    beat: int | None = None
    recorded: int | None = None
    beats: tuple[tuple[str, int], ...] = ()
    decided: Document = field(default_factory=dict)
    punctuations: KeptPlace = field(default_factory=KeptPlace)

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> ReadTask:
        """Return the task whose fields are those of a JSON object."""
        splits = tuple(Split(**split) for split in fields["splits"])
        beats = tuple((name, beat) for name, beat in fields["beats"])
        kept = KeptPlace.from_json(fields["punctuations"])
        changed = {"splits": splits, "ended": tuple(fields["ended"]), "beats": beats, "punctuations": kept}
        return ReadTask(**{**fields, **changed})


class InputPlanner:
    """Plans the rounds of one job; lives in the driver.

    Args:
        clock: returns the time of SYSTEM TIME.
        timer: returns seconds, by which looks and the delay of rounds are measured.
        before: the planner of the plan that this one takes over from; sources that stay go on as they are.
        decide: decides what stands in the offset of a round beside its input; None for what stood in the last one.
    """

    def __init__(
        self,
        folder: Folder,
        intake: Intake,
        clock: Callable[[], int] = wall_clock,
        timer: Callable[[], float] = time.monotonic,
        before: InputPlanner | None = None,
        decide: Decide | None = None,
    ) -> None:
        self._folder = folder
        self._intake = intake
        self._sources = {source.name: SourceState(source, open_source(source)) for source in intake.sources}
        self._clock = clock
        self._looks = {name: Looks(state.connector.look_every, timer) for name, state in self._sources.items()}
        self._heartbeats = PostedHeartbeats(intake.heartbeats, timer)
        self._gathering = Gathering(timer)
        #: Decides what stands in the offset of the next round beside its input (`physical/decisions.py`).
        self.decide: Decide = decide or _as_before
        #: By log, the number of records that waited at the last look and are in no round yet.
        self.waiting: dict[str, int] = {}
        #: Bounded sources whose locations have been looked at.
        self._looked_at: set[str] = set()
        self._delivered_offsets: deque[Offset] = deque()
        self._forgotten_splits: dict[str, int] = {}
        staying = set() if before is None else self._take_over(before)
        for name, state in self._sources.items():
            if name not in staying:
                state.know(self._split_files(name).read())
                state.connector.keep_in(folder.root / "kept" / self._file(name))

    def _take_over(self, before: InputPlanner) -> set[str]:
        """Take over what `before` knows of the sources that stay, and return their names."""
        staying = {
            name
            for name, state in self._sources.items()
            if name in before._sources
            and before._sources[name].source == state.source
            and before._file(name) == self._file(name)
        }
        for name in staying:
            self._sources[name], self._looks[name] = before._sources[name], before._looks[name]
        self.waiting = {name: count for name, count in before.waiting.items() if name in staying}
        self._looked_at = before._looked_at & staying
        self._forgotten_splits = {name: done for name, done in before._forgotten_splits.items() if name in staying}
        self._clock, self._gathering, self.decide = before._clock, before._gathering, before.decide
        self._delivered_offsets = deque(offset.only(staying, self._sources, ()) for offset in before._delivered_offsets)
        return staying

    def _file(self, name: str) -> str:
        return source_file(name, self._intake.births)

    def _split_files(self, name: str) -> SplitFiles:
        return SplitFiles(self._folder, self._file(name))

    def splits_of(self, file: str) -> KnownSplits | None:
        """Return the splits that have been found of a source, by the name of their file (`source_file`)."""
        return next((state.splits for name, state in self._sources.items() if self._file(name) == file), None)

    def check(self, offset: Offset) -> None:
        """Check that the splits that `offset` counts are known. Raises PenstockError P0605."""
        for name, state in self._sources.items():
            if state.log is None and len(state.splits) < offset.splits_done(name):
                missing = ValueError("it does not contain all that has been read")
                raise damaged(self._split_files(name).place, missing)

    def start(self) -> Offset:
        """Return the offset before the first round."""
        return Offset(0, dict.fromkeys(self._sources, 0), dict.fromkeys(self._sources))

    @property
    def parallelism(self) -> int:
        """Return how many tasks read at once."""
        return self._intake.parallelism

    @property
    def logs(self) -> set[str]:
        """Return the sources that are logs, of whose records the size is not known."""
        return {name for name, state in self._sources.items() if state.log is not None}

    def steer(self, pace: RateControl) -> None:
        """Set the limits of the rounds from now on; that of a round is part of its offset."""
        self._intake = replace(self._intake, pace=pace)

    def limit(self, offset: Offset) -> int:
        """Return the maximum bytes that the round of `offset` was planned to read."""
        return self._intake.pace.first if offset.limit is None else offset.limit

    def backlog(self, offset: Offset) -> dict[str, tuple[int, int]]:
        """Return by source the discovered splits that no round up to that of `offset` reads, and their bytes."""
        waiting = {name: state.splits[offset.splits_done(name) :] for name, state in self._sources.items()}
        return {name: (len(splits), sum(s.bytes for s in splits)) for name, splits in waiting.items()}

    def next(
        self,
        start: Offset,
        seconds: float | None = None,
        answers: int | None = None,
        behind: bool = False,
        at_once: bool = False,
    ) -> Offset:
        """Return the offset after the next round; `start` itself when there is nothing to do.

        Args:
            seconds: duration of the round of `start`, None if unknown.
            answers: bytes that it emitted, None if unknown.
            behind: whether answers are due that the round of `start` has not emitted.
            at_once: do not wait for input that is expected beside what has been discovered.
        """
        self._forget(start)
        seen = self._folder.seen_in(round_name(start.round))
        limit = self._next_limit(start, seconds, answers)
        self.discover(start)
        if not at_once and self._gathers(start, seconds):
            return start
        stretches = self._log_stretches(start, seen, limit)
        after = start.after(seen)
        high = after.high
        advanced = self._heartbeats.next(start.advanced)
        done = self._choose(start, high, limit, stretches)
        ended = self._ended(start, done, stretches)
        reported = self._reported(start, done)
        unchanged = done == start.done and ended == start.ended and start.round > 0 and not start.again
        unchanged = unchanged and reported == start.reported and advanced == start.advanced and not behind
        chosen = [name for name in self._sources if done[name] > start.splits_done(name)]
        heard = {*chosen, *(name for name, last in advanced.items() if last != start.advanced.get(name))}
        wall = self._next_wall_clock(start, after, ended, heard) if self._uses_wall_clock else None
        if unchanged and (wall is None or not self._worth_a_round(start, wall, high)):
            return start
        read = sum(s.split.bytes for name, s in stretches.items() if s.split and name in chosen)
        read += sum(self._split_bytes(name, start.splits_done(name), done[name]) for name in chosen)
        logs = self._logs(start, chosen, stretches)
        wall = wall.spoken(heard) if wall is not None else None
        pace = self._intake.pace
        decided = with_portions(self.decide(start.decided), pace.queries, pace.max_answer_bytes)
        beats = after.beats
        return Offset(
            start.round + 1,
            done,
            high,
            ended,
            limit,
            read,
            logs,
            reported,
            wall,
            decided=decided,
            beats=beats,
            advanced=advanced,
            punctuations=self._kept(after, start.round + 1),
        )

    def _reported(self, start: Offset, done: Mapping[str, int]) -> dict[str, int]:
        """Return the heartbeats that sources report of their own time, for those whose known splits are all read."""
        reported = dict(start.reported)
        for name, state in self._sources.items():
            heartbeat = state.connector.reached()
            if heartbeat is not None and done[name] == len(state.splits):
                reported[name] = max(heartbeat, reported.get(name, BEGIN))
        return reported

    def _next_limit(self, start: Offset, seconds: float | None, answers: int | None) -> int:
        if start.round == 0:
            return self._intake.pace.first
        return self._intake.pace.next_limit(self.limit(start), start.read, seconds, answers)

    def _split_bytes(self, name: str, first: int, last: int) -> int:
        return sum(split.bytes for split in self._sources[name].splits[first:last])

    @property
    def _uses_wall_clock(self) -> bool:
        return uses_wall_clock(state.source for state in self._sources.values())

    def _next_wall_clock(self, start: Offset, after: Offset, ended: Sequence[str], heard: Collection[str]) -> WallClock:
        """Return the wall clock for the round after `start`.

        Args:
            after: `start` with the progress of its round.
            ended: sources that have ended.
            heard: those of which the round reads records.
        """
        now = self._clock()
        sources = {**self._intake.frames, **{name: state.source for name, state in self._sources.items()}}
        progress = {
            name: SourceProgress(None, after.high.get(name), name in start.ended, beat, beat)
            for name in self._sources
            for beat in (after.beats.get(name, NOTHING),)
        }
        progress |= self._frame_progress()
        before = begin(sources.values(), now) if start.wall is None else start.wall
        return advance(before, now, sources, self._intake.peers, progress, ended, heard)

    def _worth_a_round(self, start: Offset, wall: WallClock, high: Mapping[str, int | None]) -> bool:
        """Return whether a round without rows has an effect: a source became or ceased to be idle, or the time of a
        SYSTEM TIME stream, or of a silent one that goes on by the clock, advanced far enough. Of a source that no query
        reads it has one where its last element is not final yet: one-time queries read what is.

        Args:
            high: the largest timestamps up to `start`.
        """
        before = WallClock(0) if start.wall is None else start.wall
        if wall.now - before.now >= _BEAT_EVERY:
            return any(
                beat != (earlier := before.beats.get(name))
                and (name not in self._intake.unread or _is_final(high.get(name), beat, earlier))
                for name, beat in wall.beats.items()
            )
        unread = self._intake.unread
        if any(state.source.idle_advances and _moved(n, before, wall) for n, state in self._sources.items()):
            return False  # with it go the sources that are idle beside it
        event_time_sources = (
            n for n, state in self._sources.items() if not state.source.system_time and n not in unread
        )
        return any(_moved(name, before, wall) for name in event_time_sources)

    def _frame_progress(self) -> dict[str, SourceProgress]:
        """Return the progress of the DataFrame sources, which Spark reads."""
        progress: dict[str, SourceProgress] = {}
        for round_ in (r for r in self._folder.rounds() if r.startswith("b")):
            for name, seen in self._folder.read_seen(round_).items():
                progress[name] = progress.get(name, SourceProgress()).merge(
                    SourceProgress(None, seen.high, False, *(() if seen.beat is None else (seen.beat, seen.beat)))
                )
        return progress

    def pieces(self, start: Offset, end: Offset) -> list[ReadTask]:
        """Return the tasks of the round that leads from `start` to `end`."""
        tasks: list[ReadTask] = []
        number = round_name(end.round)
        wall = WallClock(0) if end.wall is None else end.wall
        before, reported = start.reported, dict(end.reported)
        beats = tuple(sorted((reported | {n: max(b, reported.get(n, BEGIN)) for n, b in wall.beats.items()}).items()))
        decided = end.decided.as_json()
        for name, state in self._sources.items():
            first = start.splits_done(name)
            unread = state.splits[first : end.done[name]]
            if state.log is not None:
                split = end.logs[name].split if end.done[name] > first else None
                unread = [] if split is None else [split]
            high = end.high[name]
            heartbeats = self._heartbeats.splits(name, start.advanced, end.advanced)
            parallel = not heartbeats and state.in_parallel(unread, high)
            unread = [*heartbeats, *unread]
            for task_splits in chunks_of(unread, self._intake.parallelism if parallel else 1) if unread else ():
                now = wall.now if state.source.system_time else None
                # A heartbeat reported before applies to the rows of this round; one reported now follows them.
                known = (wall.beats.get(name), before.get(name), end.beats.get(name))
                beat = max((b for b in known if b is not None), default=None)
                task = ReadTask(number, len(tasks), name, tuple(task_splits), high, (), now, beat, end.beats.get(name))
                tasks.append(replace(task, punctuations=end.punctuations.get(name, KeptPlace())))
                highs = [s.high for s in task_splits if s.high is not None]
                high = max([h for h in (high, *highs) if h is not None], default=None)
        if not tasks:
            return [ReadTask(number, 0, None, ended=end.ended, beats=beats, decided=decided)]
        # The first task carries the messages to all shards; a separate task would wait for a free core.
        return [replace(tasks[0], ended=end.ended, beats=beats, decided=decided), *tasks[1:]]

    def _kept(self, after: Offset, round_: int) -> dict[str, KeptPlace]:
        """Return the punctuations of the sources, many of them in files. round_: that is planned."""
        places = after.punctuations.items()
        return {name: with_files(self._folder, self._file(name), place, round_) for name, place in places}

    @property
    def wait(self) -> float:
        """Seconds until the next look at a source."""
        return min(self._gathering.wait, min((looks.wait for looks in self._looks.values()), default=SELDOM))

    def _gathers(self, start: Offset, seconds: float | None) -> bool:
        """Return whether the round after `start` waits for input that is expected beside what has been discovered.

        Args:
            seconds: duration of the round of `start`.
        """
        with_input = {name for name, state in self._sources.items() if len(state.splits) > start.splits_done(name)}
        groups = (group for name in with_input for group in self._intake.peers.get(name, ()))
        expected: set[str] = set().union(*groups) - with_input
        expected = {name for name in expected if self._may_appear(name)}
        for name in sorted(expected):
            self._discover_in(name, start)
        expected = {name for name in expected if len(self._sources[name].splits) <= start.splits_done(name)}
        return bool(with_input) and self._gathering.holds(bool(expected), seconds)

    def _may_appear(self, name: str) -> bool:
        state = self._sources.get(name)
        if state is None or state.log is not None or state.connector.bounded:
            return False
        return self._looks[name].frequent

    def _log_stretches(self, start: Offset, seen: Mapping[str, Seen], limit: int) -> dict[str, Stretch]:
        """Look for new records of logs, and return by log what to read."""
        stretches: dict[str, Stretch] = {}
        for name, state in self._sources.items():
            before = start.logs.get(name, LogOffset())
            if state.log is not None and name in start.ended:
                self._looks[name].over()
            if state.log is None or (self._looks[name].wait and not before.split) or name in start.ended:
                continue
            positions = seen.get(name, Seen()).positions if before.split else None
            with self._looks[name].look():
                stretches[name] = state.log.plan(before.state, positions, limit)
            self.waiting[name] = stretches[name].lag
        return stretches

    def _logs(self, start: Offset, chosen: Collection[str], stretches: Mapping[str, Stretch]) -> dict[str, LogOffset]:
        """Return by log its position, and its split of this round. chosen: the sources that the round reads."""
        logs = dict(start.logs)
        for name, stretch in stretches.items():
            split = stretch.split if name in chosen else None
            if split is not None:
                self.waiting[name] = max(0, stretch.lag - (split.rows or 0))
            logs[name] = LogOffset(stretch.state, split)
        return logs

    def discover(self, start: Offset) -> None:
        """Look for new files where a look is due. start: the offset before the round that may read them."""
        for name, state in self._sources.items():
            if state.log is not None or self._looks[name].wait:
                continue
            if state.connector.bounded and self._split_files(name).exists:
                self._warn_of_ignored(name, state)
                self._looks[name].over()
                continue
            self._looked_at.add(name)
            self._discover_in(name, start)

    def _discover_in(self, name: str, start: Offset) -> None:
        """Record newly discovered splits of a source of files. While many splits of a watched source wait, no further
        files are opened; what is unknown then is found at a later look.
        """
        state = self._sources[name]
        if (waiting := len(state.splits) - start.splits_done(name)) >= MOST_WAITING:
            return
        with self._looks[name].look():
            paths = state.connector.discover(state.paths)
        new_splits = self._splits(state, paths, waiting)
        if new_splits or state.connector.bounded:
            self._looks[name].found()
            known = state.splits.and_more(new_splits)
            self._split_files(name).write(known, len(new_splits))
            state.know(known, new_splits)

    def _warn_of_ignored(self, name: str, state: SourceState) -> None:
        """Warn, once and when a run resumes, of input of a source that is not read."""
        if name not in self._looked_at:
            self._looked_at.add(name)
            ignored = state.connector.ignored(state.paths)
            if ignored is not None:
                log_event(LOG, logging.WARNING, "ignored", ignored, source=name)

    @staticmethod
    def _splits(state: SourceState, paths: Sequence[str], waiting: int) -> list[Split]:
        """Return the splits of new `paths`, up to the maximum that may wait. waiting: number that wait already."""
        new_splits: list[Split] = []
        for path in paths:
            if not state.connector.bounded and waiting + len(new_splits) >= MOST_WAITING:
                break
            new_splits += state.connector.splits(path)
        return new_splits

    def _forget(self, start: Offset) -> None:
        """Notify the connectors of the input consumed by rounds long delivered: `start` follows all of them."""
        if not self._delivered_offsets or self._delivered_offsets[-1].round < start.round:
            self._delivered_offsets.append(start)
        while len(self._delivered_offsets) > _KEPT:
            oldest = self._delivered_offsets.popleft()
            self._heartbeats.forget(oldest.advanced)
            self._forget_punctuations(oldest)
            for name, state in self._sources.items():
                done = oldest.splits_done(name)
                first = self._forgotten_splits.get(name, 0)
                self._forgotten_splits[name] = done
                if state.source.is_stream or not state.connector.keeps_relations:
                    state.forget(first, done)

    def _forget_punctuations(self, oldest: Offset) -> None:
        """Remove files of punctuations that no later offset names."""
        for name, place in oldest.punctuations.items():
            later = [one.punctuations[name] for one in self._delivered_offsets if name in one.punctuations]
            used = {file for place in later for file in place.files}
            if name in self._sources and set(place.files) - used:
                forget_files(self._folder, self._file(name), used, self._delivered_offsets[0].round)

    def release(self, file: str, splits: int, most: int) -> int:
        """Forget the first splits of a relation that keeps its updates, as far as they are consumed by rounds long
        delivered; return up to how many are forgotten, 0 for a source that is not read any more.

        Args:
            file: the name of the source (`source_file`).
            splits: how many are not needed any more.
            most: how many are forgotten at once.
        """
        for name, state in self._sources.items():
            if self._file(name) == file:
                dropped = state.splits.dropped
                last = min(splits, self._forgotten_splits.get(name, 0), dropped + most)
                if last > dropped:
                    state.forget(dropped, last)
                return state.splits.dropped
        return 0

    def _choose(
        self, start: Offset, high: Mapping[str, int | None], limit: int, stretches: Mapping[str, Stretch]
    ) -> dict[str, int]:
        """Return how many splits of each source are done after the round: the source behind in time is read first. At
        most `limit` bytes are read, and at most max_batch_rows where splits have row counts; at least one split is
        read.
        """
        done_after = dict(done_before := {name: start.splits_done(name) for name in self._sources})
        unread = {name: state.splits[done_after[name] :] for name, state in self._sources.items()}
        unread |= {name: [s.split] for name, s in stretches.items() if s.split is not None}
        # A source stamped on arrival is read on arrival, whatever the time of the others.
        frontier = {
            name: BEGIN if high.get(name) is None or state.source.system_time else int(high[name] or 0)
            for name, state in self._sources.items()
        }
        budget, rows = limit, self._intake.pace.max_rows or math.inf
        while True:
            unfinished = [n for n, splits in unread.items() if done_after[n] - done_before[n] < len(splits)]
            if not unfinished:
                return done_after
            name = min(unfinished, key=lambda n: (frontier[n], n))
            split = unread[name][done_after[name] - done_before[name]]
            # A split without a row count may have the maximum.
            row_count = split.rows if split.rows is not None else self._intake.pace.max_rows
            if budget < limit and (split.bytes > budget or row_count > rows):
                return done_after
            done_after[name] += 1
            budget -= max(1, split.bytes)
            rows -= row_count
            # After a split without timestamps, every other source is read first.
            frontier[name] = split.high if split.high is not None else max(frontier.values()) + 1
            if budget <= 0 or rows <= 0:
                return done_after

    def _ended(self, start: Offset, done: Mapping[str, int], stretches: Mapping[str, Stretch]) -> tuple[str, ...]:
        file_sources = {n: state for n, state in self._sources.items() if state.log is None}
        ended = {n for n, state in file_sources.items() if state.connector.bounded and done[n] >= len(state.splits)}
        ended |= {n for n, s in stretches.items() if s.ended} | (set(start.ended) - file_sources.keys())
        # DataFrame sources end when the driver marks that it has read all of them.
        return tuple(sorted(ended | (self._intake.spark_sources if self._folder.read_mark("end") else frozenset())))


def _is_final(high: int | None, beat: int, earlier: int | None) -> bool:
    """Return whether the last element of a source becomes final with a heartbeat. earlier: the heartbeat before."""
    return high is not None and (earlier is None or earlier < high) and high <= beat


def _moved(name: str, before: WallClock, now: WallClock) -> bool:
    """Return whether the clock has set another heartbeat of a source."""
    return now.beats.get(name) != before.beats.get(name)


def _as_before(decided: Decisions) -> Decisions:
    return decided
