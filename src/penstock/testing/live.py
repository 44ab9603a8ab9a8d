"""The law of a live system: what a result contains whose queries are registered, changed and paused while streams run.

A result is written by one query at a time, in *episodes*: each from one round boundary to another. The law says what is
emitted of each, from the oracle's answer alone. With h the heartbeat of an episode's query at its end:

- over which input: `Start`. A relation's past happens at τ0 where streams are cut off before, or where its updates had
  been folded up to, if a source of the query is behind that;
- from which instant on, its *first*: of a relation τ0 (AT: that tick), of a stream the one after it, or τ0 where
  streams are cut off and the result begins with the episode: elements that follow from the content of relations alone.
  WARM WAIT has in place of τ0 the first instant from τ0 on that no lost element has a bearing on; as far as the last
  rows of a stream are needed, the one by which so many behind the lost ones have come, whenever they come: no round
  between has a bearing on it. It is never before the instant after the last one that was answered: an instant is
  answered once. A query over static relations alone has one instant;
- of a stream without the rows that its checks reject, which are held against all that came since the promise was
  declared, and without those that fulfil a punctuation which came before them, wherever the episode begins. They count
  for when values are closed;
- of a relation without timestamps it has the rows that were there when its computation began (`contents`);
- at its first instant the answer of a relation is the net difference of R to the content that was emitted before. When
  h has not reached that instant, nothing is emitted.

So what is emitted depends on the input and on the boundaries, not on the other rounds. One boundary is the system's
own: that at which a query takes the place of another one that answers until nothing is missing (`takes_over`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algebra import Algebra, Source
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import StreamScan, declared_sources
from penstock.algebra.properties.need import Held, Ticks, first_full_instant
from penstock.algebra.properties.punctuations import Punctuation
from penstock.deep_trees import deep
from penstock.testing.arrivals import AcceptedRows, ArrivedSource
from penstock.testing.definitions import World
from penstock.testing.oracle import events_in, timely_source
from penstock.testing.promises.closings import checked
from penstock.testing.scalars.values import Event, Row, event_order, key_of
from penstock.types import BEGIN, END

#: The heartbeat of a source that had no element yet.
NOTHING = BEGIN - 1
#: An element with its tick.
_Timed = tuple[int, Row]


@dataclass(frozen=True)
class Episode:
    """A query that answers between two round boundaries.

    begun, ended: how many rows of each source had been read at the boundary; ended None: it has not ended; shown: the
    same of the boundary from which this result shows the query, where it has run before that: for another result, or
    paused with its state; contents: how many rows of relations without timestamps there were when its computation
    began, of others all count; folded: the last tick up to which the updates of one of its relations had been folded
    then; declared: by name of a promise that is CHECKED, how many rows of its stream had been accepted when it was
    declared, 0 where it came with the stream.
    """

    query: Query
    start: Start
    begun: Mapping[str, int]
    ended: Mapping[str, int] | None = None
    shown: Mapping[str, int] | None = None
    lost: Mapping[str, int] = field(default_factory=dict)
    folded: int = NOTHING
    contents: Mapping[str, int] = field(default_factory=dict)
    declared: Mapping[str, int] = field(default_factory=dict)


@dataclass
class _Result:
    """What has been emitted. began: it has had an episode; reached: every instant up to it has been answered; content:
    that of a relation."""

    events: list[Event] = field(default_factory=list)
    began: bool = False
    reached: int = NOTHING
    content: Counter[Row] = field(default_factory=Counter)
    rows: dict[Row, Row] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        self.events.append(event)
        _, op, row = event
        if op is not None:
            self.rows[key_of(row)] = row
            self.content[key_of(row)] += 1 if op == "+" else -1

    def change_to(self, tick: int, content: Counter[Row], rows: Mapping[Row, Row]) -> None:
        """Emit the net difference of `content` to what has been emitted."""
        self.rows.update(rows)
        gone, new = self.content - content, content - self.content
        for op, keys in (("-", gone), ("+", new)):
            for key in list(keys.elements()):
                self.emit((tick, op, self.rows[key]))


@deep
def run_live(episodes: Sequence[Episode], inputs: Mapping[str, pa.Table]) -> list[Event]:
    """Return the events of a result over its life, in canonical order.

    Args:
        episodes: one after the other.
        inputs: for each source the rows that were read so far, in arrival order.
    """
    result = _Result()
    for episode in episodes:
        _add(result, episode, inputs)
    return sorted(result.events, key=event_order)


@deep
def takes_over(episodes: Sequence[Episode], coming: Episode, inputs: Mapping[str, pa.Table]) -> bool:
    """Return whether a query takes the place of one beside which it began, at the boundary up to which `inputs` were
    read: with h the heartbeat of the former one, it is not ahead of that, and its first instant is h + 1 or earlier, or
    the first one of the former one. At the boundary before it was not so.

    Args:
        episodes: of the result, the last one that of the former query.
        coming: the query, as it would answer if it had begun in a result of its own.
    """
    result = _Result()
    for episode in episodes[:-1]:
        _add(result, episode, inputs)
    former = _Beginning.of(episodes[-1], inputs, result.began)
    new = _Beginning.of(coming, inputs, True)
    reached, beat = (heartbeat(each.sources, each.rows) for each in (former, new))
    if NOTHING in (reached, beat) or beat > reached:
        return False
    return new.first <= max(reached + 1, former.first, result.reached + 1)


@dataclass(frozen=True)
class _Beginning:
    """How an episode begins. rows: the elements that were read up to its end; rejected: by stream, the places of those
    that checks or punctuations reject; punctuations: as of `World`; begin: τ0; first: its first instant, whatever was
    answered before."""

    sources: Mapping[str, Source]
    rows: Mapping[str, list[_Timed]]
    rejected: Mapping[str, frozenset[int]]
    punctuations: Mapping[str, Sequence[tuple[int, Sequence[Punctuation]]]]
    begin: int
    first: int

    @staticmethod
    def of(episode: Episode, inputs: Mapping[str, pa.Table], goes_on: bool) -> _Beginning:
        sources = declared_sources(episode.query.root)
        read = {n: inputs[n] if episode.ended is None else inputs[n].slice(0, episode.ended[n]) for n in sources}
        read |= {n: inputs[n].slice(0, count) for n, count in episode.contents.items() if n in sources}
        found = {name: timely_source(source, read[name]) for name, source in sources.items()}
        rows = {name: _accepted(one) for name, one in found.items()}
        begin = heartbeat(sources, _rows_before(sources, inputs, episode.begun))
        rejected = {name: frozenset(one.punctuated) for name, one in found.items() if one.punctuated}
        for name, places in _rejected(episode, rows).items():
            rejected[name] = rejected.get(name, frozenset()) | places
        left = {name: _left(sources[name], rows[name], rejected.get(name, frozenset())) for name in rows}
        first = _first(episode, sources, inputs, left, begin, goes_on)
        spoken = {name: one.spoken for name, one in found.items() if one.spoken}
        return _Beginning(sources, rows, rejected, spoken, begin, first)


def _add(result: _Result, episode: Episode, inputs: Mapping[str, pa.Table]) -> None:
    query, beginning = episode.query, _Beginning.of(episode, inputs, result.began)
    sources, rows, begin = beginning.sources, beginning.rows, beginning.begin
    first = max(beginning.first, result.reached + 1)
    result.began = True
    end = heartbeat(sources, rows)
    left = {n: [r for i, r in enumerate(rows[n]) if i not in beginning.rejected.get(n, ())] for n in rows}
    accepted = {name: rows[name] for name in beginning.rejected}
    if episode.start.mode is StartMode.NOW:
        before = _rows_before(sources, inputs, episode.begun)
        past = max(begin, episode.folded)
        gone = {name: sum(place < len(before[name]) for place in found) for name, found in beginning.rejected.items()}
        accepted = {name: found[len(before[name]) :] for name, found in accepted.items()}
        left = {n: _cut(source, left[n], len(before[n]) - gone.get(n, 0), past) for n, source in sources.items()}
    events = _events(query.root, left, end, accepted, beginning.punctuations)
    if end < first:
        return
    content: Counter[Row] = Counter()
    known: dict[Row, Row] = {}
    for ts, op, row in events:
        if ts <= first and op is not None:
            known[key_of(row)] = row
            content[key_of(row)] += 1 if op == "+" else -1
    if not query.root.is_stream:
        result.change_to(first, content, known)
    for event in events:
        if event[0] > first or (event[1] is None and event[0] == first):
            result.emit(event)
    result.reached = end


def _rejected(episode: Episode, rows: Mapping[str, list[_Timed]]) -> dict[str, frozenset[int]]:
    """Return by stream the places of the rows that the checks of a query reject, where it has checks."""
    found: dict[str, frozenset[int]] = {}
    for scan in operators(episode.query.root):
        if isinstance(scan, StreamScan) and scan.checks:
            gone = set[int]()
            for check in scan.checks:
                # Counted in rows that were not late, as the others are.
                since = episode.declared.get(check.name, 0)
                places = checked([check], rows[scan.source.name][since:])[check.name]
                gone.update(since + place for place in places)
            found[scan.source.name] = frozenset(gone)
    return found


def _accepted(found: ArrivedSource) -> AcceptedRows:
    """Return the rows of a source that were not late, those that a punctuation rejects among them."""
    if not found.punctuated:
        return found.rows
    rows = AcceptedRows(found.accepted)
    rows.beat = found.beat
    return rows


def _left(source: Source, rows: list[_Timed], rejected: frozenset[int]) -> list[_Timed]:
    """Return the rows that are left of a stream, with its heartbeat."""
    if not rejected:
        return rows
    left = AcceptedRows(row for place, row in enumerate(rows) if place not in rejected)
    left.beat = heartbeat({source.name: source}, {source.name: rows})
    return left


def _first(
    episode: Episode,
    sources: Mapping[str, Source],
    inputs: Mapping[str, pa.Table],
    rows: Mapping[str, list[_Timed]],
    begin: int,
    goes_on: bool,
) -> int:
    """Return the first instant that the episode answers, whatever was answered before.

    Args:
        rows: the elements that were read up to its end.
        begin: τ0 of its query.
        goes_on: its result has had another episode.
    """
    start, after = episode.start, int(episode.query.root.is_stream)
    if start.mode is StartMode.BEGINNING:
        first = BEGIN
    elif start.mode is StartMode.NOW:
        # Of a stream, elements of relations that begin there; a result that goes on has had its relations' contents.
        first = begin + after if goes_on else begin
    else:
        tick = start.at if start.mode is StartMode.AT else begin
        if start.wait:
            lost = {name: tick for name, tick in episode.lost.items() if name in sources}
            tick = first_full_instant(episode.query.root.needs, lost, begin, held_of(sources, rows, lost))
            if tick is None:
                return END  # so many of the last rows as it needs have not come yet
        assert tick is not None, "START AT has a tick"
        first = tick + after
    if episode.shown is None:
        return first
    return max(first, heartbeat(sources, _rows_before(sources, inputs, episode.shown)) + after)


def held_of(sources: Mapping[str, Source], rows: Mapping[str, list[tuple[int, Row]]], lost: Mapping[str, int]) -> Held:
    """Return what is there of sources, of which elements up to the ticks `lost` are gone, and final."""

    def held(name: str) -> Ticks:
        beat = heartbeat({name: sources[name]}, {name: rows[name]})
        return np.array([ts for ts, _ in rows[name] if lost[name] < ts <= beat], np.int64)

    return held


def _rows_before(
    sources: Mapping[str, Source], inputs: Mapping[str, pa.Table], read: Mapping[str, int]
) -> dict[str, list[tuple[int, Row]]]:
    """Return the elements among the first `read` rows of each source."""
    return {
        name: _accepted(timely_source(source, inputs[name].slice(0, read[name]))) for name, source in sources.items()
    }


def _events(
    root: Algebra,
    rows: Mapping[str, list[_Timed]],
    final: int,
    accepted: Mapping[str, list[_Timed]],
    punctuations: Mapping[str, Sequence[tuple[int, Sequence[Punctuation]]]],
) -> list[Event]:
    """Return what a query emits up to an instant. accepted: of streams some of whose rows are rejected, all of them."""
    sources = declared_sources(root)
    timed = [name for name, source in sources.items() if not source.is_static]
    if timed and not any(rows[name] or accepted.get(name) for name in timed):
        return []  # time has not begun
    firsts = {name: min(ts for ts, _ in found) for name, found in accepted.items() if found}
    return events_in(root, World(rows, final, accepted=dict(accepted), firsts=firsts, punctuations=punctuations))


def heartbeat(sources: Mapping[str, Source], rows: Mapping[str, list[tuple[int, Row]]]) -> int:
    """Return the instant up to which an answer over `sources` is final after these `rows`; 0 where all are static.
    Rows that are an `AcceptedRows` have the heartbeats beside them."""
    beats = [
        max(
            max((ts for ts, _ in rows[name]), default=NOTHING + source.slack + 1) - source.slack - 1,
            getattr(rows[name], "beat", NOTHING),
        )
        for name, source in sources.items()
        if not source.is_static
    ]
    return min(beats, default=0)


def _cut(source: Source, rows: list[tuple[int, Row]], before: int, tick: int) -> list[tuple[int, Row]]:
    """Return the rows of a source without its past: a stream's elements that were not read `before`; of a relation all,
    those up to `tick` as one change at `tick`."""
    if source.is_static:
        return rows
    if source.is_stream:
        return rows[before:]
    # The order of (timestamp, arrival) in which they apply stays that of their own timestamps.
    past = sorted((row for row in rows if row[0] <= tick), key=lambda row: row[0])
    return [(tick, row) for _, row in past] + [row for row in rows if row[0] > tick]
