"""What each round of a job reads: splits of all sources, chosen by timestamp and bytes, deterministic from the offset.

The offset of a round names, per source, how many splits are done and the largest timestamp seen before the round, what
the wall clock said when it was planned (SYSTEM TIME, IDLE TIMEOUT) and what sources knew of their own time, so a replay
after a crash reads the same splits with the same knowledge. Of a log it holds the split itself and the positions to go
on from, which the tasks of the round tell. With `again`, which an epoch begins with, it has the largest timestamps of
the round too, and a round is due though there may be nothing to read. The source that is behind in event time is read
first, so that nothing piles up waiting for it (DESIGN 3).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.algebra.scans import Source
from penstock.connectors.contract import LogConnector, SourceConnector, Split, Stretch
from penstock.connectors.sources import open_source
from penstock.physical.progress import SourceProgress
from penstock.physical.wallclock import WallClock, advance, begin, uses_wall_clock, wall_clock
from penstock.runtime.spark.epochs import source_file
from penstock.runtime.spark.folder import Folder, Intake, Seen, chunks_of, round_name
from penstock.types import BEGIN

Offset = dict[str, Any]

#: Seconds between two looks for new files of a watched source.
_LOOK_EVERY = 0.25

#: Splits of a watched source that wait to be read, at about which no further files are opened.
MOST_WAITING = 10_000
#: Rounds after whose delivery what was read may go: Spark may ask for the last ones again.
_KEPT = 4

#: Microseconds between two rounds that only tell the time of SYSTEM TIME streams.
_BEAT_EVERY = 500_000


@dataclass(frozen=True)
class Piece:
    """Work of one ingest task. source: None for a task that only tells progress; splits: to read in order; high: the
    largest timestamp of the source before them; now: the stamp of a SYSTEM TIME source; beat: what the clock has
    told of the source; ended: sources that end with this round; beats: what the clock has told of every source."""

    round: str
    task: int
    source: str | None
    splits: tuple[Split, ...] = ()
    high: int | None = None
    ended: tuple[str, ...] = ()
    now: int | None = None
    beat: int | None = None
    beats: tuple[tuple[str, int], ...] = ()


@dataclass
class _Known:
    source: Source
    connector: SourceConnector
    splits: list[Split] = field(default_factory=list)

    @property
    def statistics(self) -> bool:
        """Whether every split tells its timestamps, so that tasks can read them side by side."""
        return not self.source.loses_rows and all(s.high is not None or s.rows == 0 for s in self.splits)

    @property
    def log(self) -> LogConnector | None:
        return self.connector if isinstance(self.connector, LogConnector) else None


class Feed:
    """Plans the rounds of one job; lives on the driver's side."""

    def __init__(self, folder: Folder, intake: Intake, clock: Callable[[], int] = wall_clock) -> None:
        self._folder = folder
        self._intake = intake
        self._known = {source.name: _Known(source, open_source(source)) for source in intake.sources}
        self._clock = clock
        self._look_again = 0.0
        #: Of each log, how many records waited when it was last looked at, and are in no round yet.
        self.waiting: dict[str, int] = {}
        self._delivered: deque[Offset] = deque()
        self._forgotten: dict[str, int] = {}
        for name, known in self._known.items():
            known.splits = folder.read_splits(self._file(name))
            known.connector.keep_in(folder.root / "kept" / self._file(name))

    def _file(self, name: str) -> str:
        return source_file(name, self._intake.births)

    def start(self) -> Offset:
        """The offset before the first round."""
        return {"round": 0, "done": dict.fromkeys(self._known, 0), "high": dict.fromkeys(self._known), "ended": []}

    def limit(self, offset: Offset) -> int:
        """Bytes that the round of `offset` was planned to read at the most."""
        return int(offset.get("limit", self._intake.pace.first))

    def backlog(self, offset: Offset) -> dict[str, tuple[int, int]]:
        """By source the splits found that no round up to that of `offset` reads, and their bytes."""
        waiting = {name: known.splits[offset["done"].get(name, 0) :] for name, known in self._known.items()}
        return {name: (len(splits), sum(s.bytes for s in splits)) for name, splits in waiting.items()}

    def next(self, start: Offset, seconds: float | None = None, answers: int | None = None) -> Offset:
        """The offset after the next round; `start` itself when there is nothing to do. seconds: what the round of
        `start` took, answers: the bytes that it told, where that is known."""
        self._forget(start)
        seen = self._folder.read_seen(round_name(start["round"]))
        limit = self._next_limit(start, seconds, answers)
        stretches = self._discover(start, seen, limit)
        high = highs_after(start, seen)
        done = self._choose(start["done"], high, limit, stretches)
        ended = self._ended(start, done, stretches)
        told = self._told(start, done)
        quiet = done == start["done"] and ended == start["ended"] and start["round"] > 0 and not start.get("again")
        quiet = quiet and told == start.get("told", {})
        wall = self._wall(start, high, ended) if self._by_clock else None
        if quiet and (wall is None or not self._worth_a_round(start, wall)):
            return start
        after: Offset = {"round": start["round"] + 1, "done": done, "high": high, "ended": ended, "limit": limit}
        taken = {n: s.split.bytes for n, s in stretches.items() if s.split and done[n] > start["done"].get(n, 0)}
        after["read"] = sum(taken.values())
        after["read"] += sum(self._bytes(name, start["done"].get(name, 0), done[name]) for name in self._known)
        if logs := self._logs(start, done, stretches):
            after["logs"] = logs
        if told:
            after["told"] = told
        if wall is not None:
            spoken = [name for name in self._known if done[name] > start["done"].get(name, 0)]
            after["wall"] = wall.spoken(spoken).as_json()
        return after

    def _told(self, start: Offset, done: Mapping[str, int]) -> dict[str, int]:
        """How far sources know their own time, of those that are read as far as they are known."""
        told = dict(start.get("told", {}))
        for name, known in self._known.items():
            reached = known.connector.reached()
            if reached is not None and done[name] == len(known.splits):
                told[name] = max(reached, told.get(name, BEGIN))
        return told

    def _next_limit(self, start: Offset, seconds: float | None, answers: int | None) -> int:
        if start["round"] == 0:
            return self._intake.pace.first
        return self._intake.pace.next_limit(self.limit(start), int(start.get("read", 0)), seconds, answers)

    def _bytes(self, name: str, first: int, last: int) -> int:
        return sum(split.bytes for split in self._known[name].splits[first:last])

    @property
    def _by_clock(self) -> bool:
        return uses_wall_clock(k.source for k in self._known.values())

    def _wall(self, start: Offset, high: Mapping[str, int | None], ended: list[str]) -> WallClock:
        """What the wall clock says of the round after `start`."""
        now = self._clock()
        sources = {**self._intake.frames, **{name: known.source for name, known in self._known.items()}}
        seen = {n: SourceProgress(None, high.get(n), n in start["ended"]) for n in self._known}
        seen |= self._frames_seen()
        before = WallClock(**start["wall"]) if "wall" in start else begin(sources.values(), now)
        return advance(before, now, sources, self._intake.peers, seen, ended)

    def _worth_a_round(self, start: Offset, wall: WallClock) -> bool:
        """Whether a round without rows tells anything: an idle stream lets go, or the time of a SYSTEM TIME stream went
        on for long enough."""
        before = WallClock(**start["wall"])
        if wall.now - before.now >= _BEAT_EVERY:
            return wall.beats != before.beats
        told = (name for name, known in self._known.items() if not known.source.system_time)
        return any(wall.beats.get(name) != before.beats.get(name) for name in told)

    def _frames_seen(self) -> dict[str, SourceProgress]:
        """What was seen of the DataFrame sources, which Spark reads."""
        found: dict[str, SourceProgress] = {}
        for round_ in (r for r in self._folder.rounds() if r.startswith("b")):
            for name, seen in self._folder.read_seen(round_).items():
                found[name] = found.get(name, SourceProgress()).merge(SourceProgress(None, seen.high))
        return found

    def pieces(self, start: Offset, end: Offset) -> list[Piece]:
        """The tasks of the round that leads from `start` to `end`."""
        found: list[Piece] = []
        number = round_name(end["round"])
        wall = WallClock(**end["wall"]) if "wall" in end else WallClock(0)
        before = start.get("told", {})
        told = end.get("told", {})
        beats = tuple(sorted((told | {n: max(b, told.get(n, BEGIN)) for n, b in wall.beats.items()}).items()))
        for name, known in self._known.items():
            first = start["done"].get(name, 0)
            todo = known.splits[first : end["done"][name]]
            if known.log is not None:
                todo = [Split(**end["logs"][name]["split"])] if end["done"][name] > first else []
            high = end["high"][name]
            for run in chunks_of(todo, self._intake.parallelism if known.statistics else 1) if todo else ():
                now = wall.now if known.source.system_time else None
                # What a source has told before holds for the rows of this round; what it tells now comes after them.
                beat = max((b for b in (wall.beats.get(name), before.get(name)) if b is not None), default=None)
                found.append(Piece(number, len(found), name, tuple(run), high, (), now, beat))
                highs = [s.high for s in run if s.high is not None]
                high = max([h for h in (high, *highs) if h is not None], default=None)
        ended = tuple(end["ended"])
        if not found:
            return [Piece(number, 0, None, ended=ended, beats=beats)]
        # The first task tells what has ended and what the clock says; a task of its own would wait for a free core.
        return [replace(found[0], ended=ended, beats=beats), *found[1:]]

    def _discover(self, start: Offset, seen: Mapping[str, Seen], limit: int) -> dict[str, Stretch]:
        """Look for what is new: splits of files are noted, what logs have to read is given."""
        looking = time.monotonic() >= self._look_again
        if looking:
            self._look_again = time.monotonic() + _LOOK_EVERY
            self._discover_files(start)
        return self._stretches(start, seen, limit, looking)

    def _stretches(self, start: Offset, seen: Mapping[str, Seen], limit: int, looking: bool) -> dict[str, Stretch]:
        found: dict[str, Stretch] = {}
        for name, known in self._known.items():
            before = start.get("logs", {}).get(name, {"state": None, "split": None})
            if known.log is None or not (looking or before["split"]) or name in start["ended"]:
                continue
            read = seen.get(name, Seen()).positions if before["split"] else None
            found[name] = known.log.plan(before["state"], read, limit)
            self.waiting[name] = found[name].lag
        return found

    def _logs(self, start: Offset, done: Mapping[str, int], stretches: Mapping[str, Stretch]) -> dict[str, Any]:
        """Of each log where it stands, and its split of the round."""
        found: dict[str, Any] = dict(start.get("logs", {}))
        for name, stretch in stretches.items():
            taken = stretch.split if done[name] > start["done"].get(name, 0) else None
            if taken is not None:
                self.waiting[name] = max(0, stretch.lag - (taken.rows or 0))
            found[name] = {"state": stretch.state, "split": asdict(taken) if taken is not None else None}
        return found

    def _discover_files(self, start: Offset) -> None:
        """Of a watched source no further files are opened while many wait already: what is not known yet is found at a
        later look."""
        for name, known in self._known.items():
            if known.log is not None or (known.connector.bounded and self._folder.has_splits(self._file(name))):
                continue
            waiting = len(known.splits) - start["done"].get(name, 0)
            if waiting >= MOST_WAITING:
                continue
            fresh: list[Split] = []
            for path in known.connector.discover(frozenset(s.path for s in known.splits)):
                if not known.connector.bounded and waiting + len(fresh) >= MOST_WAITING:
                    break
                fresh += known.connector.splits(path)
            if fresh or known.connector.bounded:
                known.splits += fresh
                self._folder.write_splits(self._file(name), known.splits)

    def _forget(self, start: Offset) -> None:
        """Tell the connectors what rounds long delivered have read: `start` comes after all that is."""
        if not self._delivered or self._delivered[-1]["round"] < start["round"]:
            self._delivered.append(start)
        while len(self._delivered) > _KEPT:
            done = self._delivered.popleft()["done"]
            for name, known in self._known.items():
                read = {s.path for s in known.splits[self._forgotten.get(name, 0) : done.get(name, 0)]}
                known.connector.forget(sorted(read - {s.path for s in known.splits[done.get(name, 0) :]}))
                self._forgotten[name] = done.get(name, 0)

    def _choose(
        self, done: Mapping[str, int], high: Mapping[str, int | None], limit: int, stretches: Mapping[str, Stretch]
    ) -> dict[str, int]:
        """How many splits of each source are done after the round: the one behind in time is read first. `limit` bytes
        are read at the most, and max_batch_rows as far as splits tell their rows; one split always is."""
        chosen = {name: done.get(name, 0) for name in self._known}
        todo = {name: known.splits[chosen[name] :] for name, known in self._known.items()}
        todo |= {name: [s.split] for name, s in stretches.items() if s.split is not None}
        # What is stamped as it comes is read as it comes, whatever time it is elsewhere.
        frontier = {
            name: BEGIN if high.get(name) is None or known.source.system_time else int(high[name] or 0)
            for name, known in self._known.items()
        }
        budget, rows = limit, self._intake.pace.max_rows or math.inf
        while True:
            open_ = [n for n, splits in todo.items() if chosen[n] - done.get(n, 0) < len(splits)]
            if not open_:
                return chosen
            name = min(open_, key=lambda n: (frontier[n], n))
            split = todo[name][chosen[name] - done.get(name, 0)]
            # A split that does not tell its rows may have as many as are allowed.
            counted = split.rows if split.rows is not None else self._intake.pace.max_rows
            if budget < limit and (split.bytes > budget or counted > rows):
                return chosen
            chosen[name] += 1
            budget -= max(1, split.bytes)
            rows -= counted
            # A split that does not tell its timestamps lets every other source go first.
            frontier[name] = split.high if split.high is not None else max(frontier.values()) + 1
            if budget <= 0 or rows <= 0:
                return chosen

    def _ended(self, start: Offset, done: Mapping[str, int], stretches: Mapping[str, Stretch]) -> list[str]:
        files = {n: k for n, k in self._known.items() if k.log is None}
        own = {n for n, k in files.items() if k.connector.bounded and done[n] >= len(k.splits)}
        own |= {n for n, s in stretches.items() if s.ended} | (set(start["ended"]) - files.keys())
        # DataFrame sources end when the driver says that it has read all there is.
        return sorted(own | (self._intake.spark_sources if self._folder.read_mark("end") else frozenset()))


def highs_after(offset: Offset, seen: Mapping[str, Seen]) -> dict[str, int | None]:
    """The largest timestamps of the sources up to and with the round of `offset`, whose tasks have `seen` so much."""
    highs = dict(offset["high"])
    if offset.get("again"):
        return highs
    for name, found in seen.items():
        if name in highs and found.high is not None:
            highs[name] = max(found.high, highs[name] if highs[name] is not None else BEGIN)
    return highs
