"""What the sinks of streams have received, which is less than what was computed while something was withheld of them.

A stream whose result goes on with another query, or after a pause, begins behind what its sink has received. A query
that is silent, or has not reached its first instant, computes instants that no sink has received. So what a sink had
when that began is kept with the epoch (`Epoch.received`), until the query's heartbeat has moved and more was emitted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.physical.execution.progress import NOTHING, timed_sources
from penstock.runtime.spark.checkpoint.epochs import Epoch, Received, last_offset
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.hydration.start_options import heartbeat_at
from penstock.runtime.spark.output.undelivered import UndeliveredAnswers
from penstock.runtime.spark.output.withheld import Withheld, WithheldAnswers


class Exchanging(Protocol):
    """What a start decides about the queries of results."""

    @property
    def moved(self) -> Mapping[str, str]:
        """Return the queries that take over the computation of another one, by query."""

    @property
    def former(self) -> Mapping[str, Query]:
        """Return the queries that ran before, where they are known."""


class ReceivedAnswers:
    """What sinks have received when a run goes on with another epoch.

    Args:
        before: the epoch that ends.
        offset: up to which sources have been read.
        failed: queries that failed in the last round of `before`. Their sinks have nothing of it, but for what a sink
            did not take, which it receives before anything else.
    """

    def __init__(
        self, request: Exchanging, folder: Folder, before: Epoch, offset: Offset, failed: Collection[str] = ()
    ) -> None:
        self._request, self._folder, self._before, self._offset = request, folder, before, offset
        self._failed = failed

    def by(self, name: str, query: Query | None) -> Received:
        """Return what the sink of the query `name` has received. query: the one that ran, where it is known."""
        if (paused := self._before.paused.get(name)) is not None:
            return paused.received
        has_failed = name in self._failed and not UndeliveredAnswers(self._folder).of(name)
        offset = self._before_last_round() if has_failed else self._offset
        heartbeat = NOTHING if query is None else heartbeat_at(query, offset)
        waits = self.waiting(name) is not None
        earlier = self._before.received.get(name)
        holds = earlier is not None and (waits or earlier.until is None or heartbeat <= earlier.until)
        since = earlier.since if earlier is not None and holds else 0
        last = max(since, self._folder.delivered().round - int(has_failed))
        # An empty interval too: a reader of the past keeps what was known by then, and more may be received meanwhile.
        now = () if waits or name in self._before.silent else ((since, last),)
        if earlier is None or not holds:
            return Received(heartbeat, now)
        # What has been received up to a round includes what has been up to an earlier one.
        longer = {after for after, _ in now}
        return replace(earlier, rounds=(*(pair for pair in earlier.rounds if pair[0] not in longer), *now))

    def _before_last_round(self) -> Offset:
        """Return the offset without what the tasks of the last round that was delivered observed."""
        offset = last_offset(self._folder, self._before)
        if offset is None:
            return self._offset
        last = self._folder.delivered().round
        if offset.round > last and offset.before is not None:
            offset = offset.before
        earlier = offset.before or offset
        highs = {name: None if high is None else offset.high.get(name) for name, high in self._offset.high.items()}
        beats = {name: tick for name, tick in offset.beats.items() if name in self._offset.high}
        places = {name: place for name, place in offset.punctuations.items() if name in self._offset.high}
        kept = replace(self._offset, punctuations=places)
        return replace(kept, high=highs, beats=beats, reported=earlier.reported, wall=earlier.wall)

    def waiting(self, name: str) -> Withheld | None:
        """Return what the sink of `name` has not received yet although it is shown; None for nothing."""
        since = self._before.shown.get(name)
        batch = self._folder.delivered().batch + 1
        found = None if since is None else WithheldAnswers(self._folder).read(name, since, batch)
        return None if found is None or found.done else found

    def kept_with(
        self,
        epoch: Epoch,
        queries: Mapping[str, Query],
        kept: Collection[str],
        continued: Mapping[str, Received],
        seeds: Mapping[str, Withheld],
    ) -> Epoch:
        """Return `epoch`, the next one, with what sinks have received of which something is withheld, or was.

        Args:
            queries: those of the epoch.
            kept: those whose results go on with the same answer, or with that of another query that ran.
            continued: what the sinks of other results have received that go on.
            seeds: what is withheld of queries that begin.
        """
        received = {}
        withheld = {*epoch.silent, *seeds, *self._moved, *self._before.received} & queries.keys()
        for name in sorted(withheld):
            if not queries[name].root.is_stream:
                continue
            until = self._until(epoch, queries[name], name in kept, seeds.get(name))
            if until is None and name not in epoch.silent:
                continue
            earlier = self._before.received.get(name)
            changing = (epoch.silent, seeds, self._moved, self._before.silent, self._before.shown)
            if name in kept and earlier is not None and not any(name in names for names in changing):
                # What it has by now follows from this when it ends, so that the record stays the same.
                received[name] = earlier
                continue
            has = continued.get(name) or (self._by_kept(queries[name]) if name in kept else Received(NOTHING))
            received[name] = replace(has, until=until, since=has.since if name in kept else 0)
        for name in sorted(queries.keys() - withheld.union(kept, continued)):
            if (begun := self._begun(queries[name], epoch.started.get(name, Start()))) is not None:
                received[name] = begun
        return replace(epoch, received=received)

    def _begun(self, query: Query, start: Start) -> Received | None:
        """Return what the sink of a stream has received when its query has begun; None where it is all up to the
        heartbeat."""
        if not query.root.is_stream or not timed_sources(query.root):
            return None
        heartbeat = heartbeat_at(query, self._offset)
        if heartbeat == NOTHING:
            return None
        if start.mode is StartMode.NOW:
            # Elements at the heartbeat that follow from relations. What had been read of streams is not seen.
            return Received(heartbeat, until=heartbeat, since=self._folder.delivered().round)
        if start.mode is StartMode.WARM or (start.mode is StartMode.AT and start.at == heartbeat):
            return Received(NOTHING, until=heartbeat)
        return None

    def _by_kept(self, query: Query) -> Received:
        return self.by(query.name, self._request.former.get(query.name, query))

    @property
    def _moved(self) -> Collection[str]:
        return self._request.moved.keys()

    def _until(self, epoch: Epoch, query: Query, kept: bool, seed: Withheld | None) -> int | None:
        """Return the heartbeat up to which a sink receives nothing more; None where it receives all, or nothing."""
        name, heartbeat = query.name, heartbeat_at(query, self._offset)
        if name in epoch.silent:
            return None
        if name in self._moved:
            return heartbeat if seed is None else max(heartbeat, seed.first - 1)
        if seed is not None:
            return seed.first - 1
        earlier = self._before.received.get(name)
        if not kept or earlier is None:
            return None
        until = heartbeat if earlier.until is None else earlier.until
        return until if heartbeat <= until or self.waiting(name) is not None else None
