"""What each round of a job reads: splits of all sources, chosen by timestamp and bytes, deterministic from the offset.

The offset of a round names, per source, how many splits are done and the largest timestamp seen before the round, so a
replay after a crash reads the same splits with the same knowledge. The source that is behind in event time is read
first, so that nothing piles up waiting for it (DESIGN 3).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.algebra.scans import Source
from penstock.connectors.contract import SourceConnector, Split
from penstock.connectors.sources import open_source
from penstock.runtime.spark.folder import Folder, Intake, chunks_of, round_name
from penstock.types import BEGIN

Offset = dict[str, Any]

#: Seconds between two looks for new files of a watched source.
_LOOK_EVERY = 0.25


@dataclass(frozen=True)
class Piece:
    """Work of one ingest task. source: None for a task that only tells progress; splits: to read in order; high: the
    largest timestamp of the source before them; ended: sources that end with this round."""

    round: str
    task: int
    source: str | None
    splits: tuple[Split, ...] = ()
    high: int | None = None
    ended: tuple[str, ...] = ()


@dataclass
class _Known:
    source: Source
    connector: SourceConnector
    splits: list[Split] = field(default_factory=list)

    @property
    def statistics(self) -> bool:
        """Whether every split tells its timestamps, so that tasks can read them side by side."""
        return not self.source.loses_rows and all(s.high is not None or s.rows == 0 for s in self.splits)


class Feed:
    """Plans the rounds of one job; lives on the driver's side."""

    def __init__(self, folder: Folder, intake: Intake) -> None:
        self._folder = folder
        self._intake = intake
        self._known = {source.name: _Known(source, open_source(source)) for source in intake.sources}
        self._look_again = 0.0
        for name, known in self._known.items():
            known.splits = folder.read_splits(name)

    def start(self) -> Offset:
        """The offset before the first round."""
        return {"round": 0, "done": dict.fromkeys(self._known, 0), "high": dict.fromkeys(self._known), "ended": []}

    def next(self, start: Offset) -> Offset:
        """The offset after the next round; `start` itself when there is nothing to do."""
        self._discover(first=start["round"] == 0)
        high = self._highs(start)
        done = self._choose(start["done"], high)
        ended = self._ended(done)
        if done == start["done"] and ended == start["ended"] and start["round"] > 0:
            return start
        return {"round": start["round"] + 1, "done": done, "high": high, "ended": ended}

    def pieces(self, start: Offset, end: Offset) -> list[Piece]:
        """The tasks of the round that leads from `start` to `end`."""
        found: list[Piece] = []
        number = round_name(end["round"])
        for name, known in self._known.items():
            todo = known.splits[start["done"].get(name, 0) : end["done"][name]]
            high = end["high"][name]
            for run in chunks_of(todo, self._intake.parallelism if known.statistics else 1) if todo else ():
                found.append(Piece(number, len(found), name, tuple(run), high))
                highs = [s.high for s in run if s.high is not None]
                high = max([h for h in (high, *highs) if h is not None], default=None)
        ended = tuple(end["ended"])
        if not found:
            return [Piece(number, 0, None, ended=ended)]
        # The first task tells what has ended; a task of its own for that would wait for a free core.
        return [replace(found[0], ended=ended), *found[1:]]

    def _discover(self, first: bool) -> None:
        if not first and time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + _LOOK_EVERY
        for name, known in self._known.items():
            if known.connector.bounded and not (first and not known.splits):
                continue
            paths = known.connector.discover(frozenset(s.path for s in known.splits))
            fresh = [split for path in paths for split in known.connector.splits(path)]
            if fresh:
                known.splits += fresh
                self._folder.write_splits(name, known.splits)

    def _highs(self, start: Offset) -> dict[str, int | None]:
        """The largest timestamps seen up to and with the round of `start`."""
        seen = self._folder.read_seen(round_name(start["round"]))
        highs = dict(start["high"])
        for name, found in seen.items():
            if name in highs and found.high is not None:
                highs[name] = max(found.high, highs[name] if highs[name] is not None else BEGIN)
        return highs

    def _choose(self, done: Mapping[str, int], high: Mapping[str, int | None]) -> dict[str, int]:
        """How many splits of each source are done after the round: the one behind in time is read first."""
        chosen = {name: done.get(name, 0) for name in self._known}
        frontier = {name: BEGIN if high.get(name) is None else int(high[name] or 0) for name in self._known}
        budget = self._intake.max_batch_bytes
        while True:
            open_ = [n for n, k in self._known.items() if chosen[n] < len(k.splits)]
            if not open_:
                return chosen
            name = min(open_, key=lambda n: (frontier[n], n))
            split = self._known[name].splits[chosen[name]]
            if budget < self._intake.max_batch_bytes and split.bytes > budget:
                return chosen
            chosen[name] += 1
            budget -= max(1, split.bytes)
            # A split that does not tell its timestamps lets every other source go first.
            frontier[name] = split.high if split.high is not None else max(frontier.values()) + 1
            if budget <= 0:
                return chosen

    def _ended(self, done: Mapping[str, int]) -> list[str]:
        own = {n for n, k in self._known.items() if k.connector.bounded and done[n] >= len(k.splits)}
        # DataFrame sources end when the driver says that it has read all there is.
        return sorted(own | (self._intake.spark_sources if self._folder.read_mark("end") else frozenset()))
