"""What the wall clock says of time: SYSTEM TIME and IDLE TIMEOUT [semantics 1].

Whoever plans the rounds of a job reads the clock once a round and calls `advance`. What follows from it is in the
`WallClock` that results, which is kept with the round: a replay reads no clock and tells the same.

- A stream of SYSTEM TIME has the heartbeat `now`: its elements of this round carry it, those of later ones more.
- A stream that was silent for longer than its IDLE TIMEOUT stops holding back the queries that read it: its heartbeat
  becomes the least of those of the streams that it meets in a query, or their largest timestamp when none of them is
  live; of several queries the furthest counts, so that none waits for a stream that only another reads. It never falls
  again, so what the stream says below it later is late.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.scans import Source
from penstock.physical.execution.progress import NOTHING, Progress, SourceProgress, timed_sources

#: source -> by query that reads it, the sources of that query, itself among them.
Peers = Mapping[str, frozenset[frozenset[str]]]


@dataclass(frozen=True)
class WallClock:
    """now: the clock of the round, in microseconds since 1970, never twice the same; heard: when each source with an
    IDLE TIMEOUT spoke last (or the job began); beats: heartbeats told by the clock."""

    now: int
    heard: dict[str, int] = field(default_factory=dict)
    beats: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def spoken(self, names: Iterable[str]) -> WallClock:
        """After a round in which the sources `names` gave rows."""
        heard = self.heard | {name: self.now for name in names if name in self.heard}
        return WallClock(self.now, heard, self.beats)

    def on(self, seen: Mapping[str, SourceProgress]) -> dict[str, SourceProgress]:
        """What has been seen of each source, with what the clock says of it."""
        return {name: p.merge(SourceProgress(beat=self.beats.get(name, NOTHING))) for name, p in seen.items()}


def wall_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def uses_wall_clock(sources: Iterable[Source]) -> bool:
    return any(source.system_time or source.idle is not None for source in sources)


def peers_of(roots: Iterable[Algebra]) -> dict[str, frozenset[frozenset[str]]]:
    """Return which timed sources meet which in which query."""
    groups = {frozenset(timed_sources(root)) for root in roots}
    return {name: frozenset(group for group in groups if name in group) for every in groups for name in every}


def begin(sources: Iterable[Source], now: int) -> WallClock:
    """Return the clock of a job's first round."""
    return WallClock(now, {source.name: now for source in sources if source.idle is not None})


def advance(
    before: WallClock, now: int, sources: Mapping[str, Source], peers: Peers, seen: Progress, ending: Collection[str]
) -> WallClock:
    """Return the clock of the next round, before its rows are known. seen: of every source, up to the round before;
    ending: the sources that end with the round, whose time ends with their last element."""
    now = max(now, before.now + 1)
    clock = WallClock(now, before.heard, before.beats)
    known = clock.on({name: seen.get(name, SourceProgress()) for name in sources})
    idle = {n for n, s in sources.items() if s.idle is not None and now - before.heard[n] > s.idle}
    beats = dict(before.beats)
    for name, source in sources.items():
        if known[name].ended:
            continue
        if source.system_time and name not in ending:
            beats[name] = now
        elif name in idle:
            reached = (_reach(group, idle, sources, known) for group in peers[name])
            beats[name] = max(known[name].beat, *reached)
    return WallClock(now, before.heard, {name: beat for name, beat in beats.items() if beat > NOTHING})


def _reach(group: frozenset[str], idle: set[str], sources: Mapping[str, Source], known: Progress) -> int:
    """How far time is known among `group` without the idle ones."""
    live = [n for n in group & set(sources) if n not in idle and not known[n].ended]
    if live:
        return min(known[n].heartbeat(sources[n].slack) for n in live)
    highs = [known[n].high for n in group & set(sources)]
    return max((high for high in highs if high is not None), default=NOTHING)
