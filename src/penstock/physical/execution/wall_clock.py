"""Effects of the wall clock on time: SYSTEM TIME and IDLE TIMEOUT [semantics 1].

The planner of a job's rounds reads the clock once per round and calls `advance`. All effects are in the resulting
`WallClock`, which is stored with the round: a replay reads no clock and has the same effects.

- A stream of SYSTEM TIME has the heartbeat `now`: its elements of this round have that timestamp, later ones a larger
    one.
- A stream that was silent for longer than its IDLE TIMEOUT stops holding back the queries that read it: its heartbeat
  becomes the smallest of those of the streams that it meets in a query, or their largest timestamp when none of them is
  live; of several queries the furthest counts, so that none waits for a stream that only another reads. It never
  decreases, so later elements of the stream below it are late.
- With IDLE TIMEOUT .. ADVANCE the time of a silent stream goes on by the clock instead: from the end of the timeout on
  its heartbeat is that after its last record plus the time since. That heartbeat is kept from record to record, so
  rounds without records do not add up. A round that reads records of the stream advances nothing by the clock.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.scans import Source
from penstock.physical.execution.progress import NOTHING, Progress, SourceProgress, timed_names
from penstock.storage.documents import Document
from penstock.types import MOST_TICKS

#: source -> for each query that reads it, the sources of that query, itself among them.
Peers = Mapping[str, frozenset[frozenset[str]]]


@dataclass(frozen=True)
class WallClock:
    """The clock of a round.

    `now`: in microseconds since 1970, never the same twice; `heard`: when each source with an IDLE TIMEOUT last had
    rows (or the job began); `beats`: heartbeats set by the clock; `promised`: those among them that had been set when
    a source with an IDLE TIMEOUT last had rows.
    """

    now: int
    heard: dict[str, int] = field(default_factory=dict)
    beats: dict[str, int] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> Document:
        return asdict(self)

    def spoken(self, names: Iterable[str]) -> WallClock:
        """Return the clock after a round in which the sources `names` had rows."""
        spoke = {name for name in names if name in self.heard}
        heard = self.heard | dict.fromkeys(spoke, self.now)
        promised = self.promised | {name: self.beats[name] for name in spoke if name in self.beats}
        return WallClock(self.now, heard, self.beats, promised)

    def of(self, kept: Collection[str], idle: Collection[str]) -> WallClock:
        """Return the clock of some sources. kept: those that go on; idle: those with an IDLE TIMEOUT, of which the
        others begin now."""
        heard = {name: self.heard.get(name, self.now) if name in kept else self.now for name in idle}
        beats, promised = (
            {name: beat for name, beat in ticks.items() if name in kept} for ticks in (self.beats, self.promised)
        )
        return WallClock(self.now, heard, beats, promised)

    def on(self, seen: Mapping[str, SourceProgress]) -> dict[str, SourceProgress]:
        """Return the progress of each source combined with the heartbeats of the clock."""
        return {name: p.merge(SourceProgress(beat=self.beats.get(name, NOTHING))) for name, p in seen.items()}


def wall_clock() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


def uses_wall_clock(sources: Iterable[Source]) -> bool:
    return any(source.system_time or source.idle is not None for source in sources)


def peers_of(roots: Iterable[Algebra]) -> dict[str, frozenset[frozenset[str]]]:
    """Return which timed sources are read together, by query."""
    return peers_in(set(map(timed_names, roots)))


def peers_in(groups: Iterable[frozenset[str]]) -> dict[str, frozenset[frozenset[str]]]:
    """Return by timed source the groups in which it is; each is read by some query together."""
    return {name: frozenset(group for group in groups if name in group) for every in groups for name in every}


def begin(sources: Iterable[Source], now: int) -> WallClock:
    """Return the clock of a job's first round."""
    return WallClock(now, {source.name: now for source in sources if source.idle is not None})


def advance(
    before: WallClock,
    now: int,
    sources: Mapping[str, Source],
    peers: Peers,
    seen: Progress,
    ending: Collection[str],
    reading: Collection[str] = (),
) -> WallClock:
    """Return the clock of the next round, before its rows are known.

    Args:
        before: the clock of the previous round.
        now: in microseconds since 1970.
        sources: by name.
        peers: which sources are read together.
        seen: of every source, up to the previous round.
        ending: the sources that end with the round, whose time ends with their last element.
        reading: the sources that the round reads rows of.
    """
    now = max(now, before.now + 1)
    beats = dict(before.beats)
    own = {name: seen.get(name, SourceProgress()) for name in sources}
    for name, source in sources.items():
        if source.idle is not None and source.idle_advances and name not in reading and not own[name].ended:
            by_records = replace(own[name], beat=own[name].recorded).heartbeat(source.slack)
            promised = max(by_records, before.promised.get(name, NOTHING))
            beats[name] = max(_gone_on(source, promised, now - before.heard[name]), beats.get(name, NOTHING))
    clock = WallClock(now, before.heard, beats, before.promised)
    known = clock.on(own)
    idle = {n for n, s in sources.items() if _stops_holding(s) and now - before.heard[n] > (s.idle or 0)}
    for name, source in sources.items():
        if known[name].ended:
            continue
        if source.system_time and name not in ending:
            beats[name] = now
        elif name in idle:
            reached = (_reach(group, idle, sources, known) for group in peers.get(name, ()))
            beats[name] = max([known[name].beat, *reached])
    return replace(clock, beats={name: beat for name, beat in beats.items() if beat > NOTHING})


def _stops_holding(source: Source) -> bool:
    """Return whether a source stops holding back the others after its IDLE TIMEOUT."""
    return source.idle is not None and not source.idle_advances


def _gone_on(source: Source, promised: int, silent: int) -> int:
    """Return the heartbeat of a stream with IDLE TIMEOUT .. ADVANCE.

    Args:
        promised: its heartbeat after its last record, `NOTHING` before the first.
        silent: microseconds since then.
    """
    assert source.domain is not None, "it has a time"
    if promised == NOTHING or source.idle is None or silent < source.idle:
        return NOTHING
    return min(promised + (silent - source.idle) // source.domain.unit.value, MOST_TICKS - 1)


def _reach(group: frozenset[str], idle: set[str], sources: Mapping[str, Source], known: Progress) -> int:
    """Return the tick up to which time is known among `group` without the idle streams."""
    live = [n for n in group & set(sources) if n not in idle and not known[n].ended]
    if live:
        return min(known[n].heartbeat(sources[n].slack) for n in live)
    highs = [known[n].high for n in group & set(sources)]
    return max((high for high in highs if high is not None), default=NOTHING)
