"""How the results of a run go on in an epoch: silent, shown again, after a pause, or with another query.

A relation whose result continues emits the net difference to the content that its sink has, at an instant that the sink
has not been answered before. Here that instant is decided, and what is withheld until then (`output/withheld.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.errors import PenstockError
from penstock.physical.elements import Elements, concat
from penstock.physical.execution.progress import NOTHING
from penstock.runtime.spark.changes.received import ReceivedAnswers
from penstock.runtime.spark.checkpoint.epochs import Epoch, PausedRecord, Received
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.hydration.start_options import heartbeat_at
from penstock.runtime.spark.output.emitted_content import ContentReader, EmittedContent
from penstock.runtime.spark.output.undelivered import UndeliveredAnswers
from penstock.runtime.spark.output.withheld import Withheld, WithheldAnswers, typed

#: No query has this name.
_NO_SINK = ""


class Continued(Protocol):
    """What a start decides about results that continue."""

    @property
    def by_name(self) -> Mapping[str, Query]:
        """Return the queries by name."""

    @property
    def starts(self) -> Mapping[str, Start]:
        """Return where answers begin that begin now, by query."""

    @property
    def moved(self) -> Mapping[str, str]:
        """Return the queries that take over the computation of another one, by query."""

    @property
    def paused(self) -> frozenset[str]:
        """Return the queries that are left out and whose results stay."""

    @property
    def silent(self) -> frozenset[str]:
        """Return the queries whose sinks receive nothing."""

    @property
    def contents(self) -> ContentReader | None:
        """Return what reads the contents of results, None where they are not kept."""

    @property
    def former(self) -> Mapping[str, Query]:
        """Return the queries that ran before, where they are known."""


@dataclass(frozen=True)
class Continuations:
    """Results that continue with an epoch.

    Args:
        starts: where those answers begin that read a past.
        seeds: by query, what is withheld when it begins.
        answered, routes: see `Epoch`.
        received: what the sinks of streams have received that go on with other answers.
    """

    starts: Mapping[str, Start] = field(default_factory=dict)
    seeds: Mapping[str, Withheld] = field(default_factory=dict)
    answered: Mapping[str, list[list[int]]] = field(default_factory=dict)
    routes: Mapping[str, list[list[Any]]] = field(default_factory=dict)
    received: Mapping[str, Received] = field(default_factory=dict)


def continuations(
    request: Continued,
    folder: Folder,
    before: Epoch,
    kept: Collection[str],
    resumed: Collection[str],
    reading: Collection[str],
    offset: Offset,
    failed: Collection[str] = (),
) -> Continuations:
    """Return how results continue in the epoch after `before`.

    Args:
        kept: the queries that go on computing.
        resumed: those that begin again in their results.
        reading: those that begin with their past.
        offset: up to which sources have been read.
        failed: queries that failed in the last round of `before`.

    Raises:
        PenstockError: P0703 where a result cannot continue.
    """
    by_name = request.by_name
    starts: dict[str, Start] = {}
    seeds: dict[str, Withheld] = {}
    answered: dict[str, list[list[int]]] = {}
    received: dict[str, Received] = {}
    begun: dict[str, Withheld] = {}
    sinks = ReceivedAnswers(request, folder, before, offset, failed)
    for name in sorted(resumed):
        query, start = by_name[name], request.starts.get(name, Start())
        if query.root.is_stream:
            received[name] = sinks.by(name, request.former.get(name, query))
            if name in reading and received[name].rounds:
                answered[name] = [list(pair) for pair in received[name].rounds]
            starts[name], first = _first(query, start, received[name].reached, offset)
            # It has had what follows from the contents of relations alone.
            seeds[name] = replace(Withheld.nothing(query), first=first)
            continue
        if query.sink.connector == "RESULTS" and UndeliveredAnswers(folder).of(name):
            raise _refused(name, "an answer could not be added to it")
        content = _content(request, before, name)
        starts[name], first = _first(query, start, content.reached, offset)
        seeds[name] = Withheld(typed(query, _taken_back(content)), first)
    for name in sorted({n for n in before.silent if n in kept} - request.silent - request.moved.keys()):
        if by_name[name].root.is_stream:
            seeds[name] = _shown_again(folder, before, by_name[name], offset)
    for name, former in request.moved.items():
        waiting = sinks.waiting(former)
        if not by_name[name].root.is_stream:
            seeds[name] = _exchanged(request, before, by_name[name], former, offset, waiting)
        elif waiting is not None:
            frontier = _frontier(by_name, name, former, offset)
            seeds[name] = _of_ticks(by_name[name], waiting, after=frontier)
            if waiting.first <= frontier:
                begun[former] = _of_ticks(by_name[former], waiting, up_to=frontier)
    for name in [n for n in request.starts if n in by_name and n not in kept and n not in resumed]:
        query, tick = by_name[name], request.starts[name].at
        if tick is not None and tick > heartbeat_at(query, offset):
            seeds[name] = replace(Withheld.nothing(query), first=tick + int(query.root.is_stream))
    waits = {name: seeds[name].first for name in request.moved if name in seeds}
    for name, part in begun.items():
        # The rest of the instant after the heartbeat goes to the sink that has the other part of it.
        seed = seeds.get(name, part)
        both = part.changes if seed is part else concat([part.changes, seed.changes])
        seeds[name] = Withheld(both, max(part.first, seed.first))
    routes = _routes(request, before, kept, by_name, offset, waits)
    return Continuations(starts, seeds, answered, routes, received)


def _first(query: Query, start: Start, reached: int, offset: Offset) -> tuple[Start, int]:
    """Return where an answer begins whose sink was answered up to `reached`, and its first instant."""
    after = int(query.root.is_stream)
    begin = heartbeat_at(query, offset) if start.at is None else start.at
    if start.mode in (StartMode.NOW, StartMode.WARM):
        return start, max(begin + after, reached + 1)
    # The answer up to the first instant is folded; what came later than that is emitted at its own instants.
    first = max(start.at + after if start.at is not None else NOTHING, reached + 1)
    return Start(StartMode.AT, first - after), first


def _shown_again(folder: Folder, before: Epoch, query: Query, offset: Offset) -> Withheld:
    """Return what the sink of a stream has to receive that was silent. It begins when the heartbeat moves: until then
    nothing has been answered since the pause."""
    heartbeat = heartbeat_at(query, offset)
    batch = folder.delivered().batch + 1
    found = WithheldAnswers(folder).read(query.name, before.silent[query.name], batch) or Withheld.nothing(query)
    return replace(found.netted(query, heartbeat), first=max(found.first, heartbeat + 1))


def _content(request: Continued, before: Epoch, name: str) -> EmittedContent:
    """Return what the sink of `name` has received. Raises PenstockError P0703."""
    record = before.queries.get(name) or before.paused[name]
    if request.contents is None:
        raise _refused(name, "its result is the content of a relation, which is not kept")
    try:
        return request.contents(record.id)
    except PenstockError as error:
        raise _refused(name, error.message) from error


def _taken_back(content: EmittedContent) -> Elements:
    """Return the changes that undo a content."""
    whole = concat([content.settled, content.early])
    return replace(whole, sign=-whole.signs)


def _exchanged(
    request: Continued, before: Epoch, query: Query, former: str, offset: Offset, waiting: Withheld | None
) -> Withheld:
    """Return what the sink of a relation query has to receive that takes over the computation of `former`.

    Args:
        waiting: what the sink of that has not received yet.
    """
    own, other = _content(request, before, query.name), _content(request, before, former)
    parts = [_taken_back(own), other.settled, other.early]
    first = max(heartbeat_at(query, offset), own.reached + 1)
    if waiting is not None:
        parts.append(waiting.changes)
        first = max(first, waiting.first)
    return Withheld(concat([typed(query, part) for part in parts]), first)


def _routes(
    request: Continued,
    before: Epoch,
    kept: Collection[str],
    queries: Mapping[str, Query],
    offset: Offset,
    waits: Mapping[str, int],
) -> dict[str, list[list[Any]]]:
    """Return which instants of streams that were exchanged still go to the sinks that they had before.

    Args:
        waits: by query that was exchanged, the first instant that it answers; no sink receives those before.
    """
    routes: dict[str, list[list[Any]]] = {}
    concerned = {name for name in kept if request.moved.get(name, name) in before.routes} if before.routes else set()
    for name in sorted(concerned.union(name for name in request.moved if name in kept)):
        query = queries[name]
        former = request.moved.get(name, name)
        route = [pair for pair in before.routes.get(former, []) if pair[0] > heartbeat_at(query, offset)]
        if former != name and query.root.is_stream:
            last, first = _frontier(queries, name, former, offset), waits.get(name, NOTHING)
            if first > heartbeat_at(query, offset):
                route.append([first - 1, _NO_SINK])
            if last >= first:
                route.append([last, former])
        if route:
            routes[name] = route
    return routes


def _frontier(queries: Mapping[str, Query], name: str, former: str, offset: Offset) -> int:
    """Return the last instant of which anything can have been emitted to the sinks of two queries, after the sources
    were read up to `offset`: no answer leaves an executor that lies beyond the frontier."""
    return max(heartbeat_at(queries[each], offset) for each in (name, former)) + 1


def _of_ticks(query: Query, waiting: Withheld, after: int = NOTHING, up_to: int | None = None) -> Withheld:
    """Return what is withheld of the instants after the tick `after`, and up to `up_to`, as the answer of `query`."""
    changes = typed(query, waiting.changes)
    changes = changes.filter(changes.ts > after)
    return Withheld(changes if up_to is None else changes.filter(changes.ts <= up_to), waiting.first)


def with_silences(
    epoch: Epoch,
    request: Continued,
    folder: Folder,
    before: Epoch,
    kept: Collection[str],
    how: Continuations,
    offset: Offset,
) -> Epoch:
    """Return `epoch`, which follows `before`, with what its sinks do not receive at once.

    Args:
        kept: queries that go on in their results.
        how: results that continue with other answers.
        offset: up to which sources have been read.
    """
    pending = WithheldAnswers(folder)
    shown = {n: since for n, since in before.shown.items() if pending.is_pending(n, since, epoch.base)}
    known = {n: since for n, since in (shown | before.silent).items() if n in kept and n not in request.moved}
    known |= dict.fromkeys(how.seeds, epoch.base)
    silent = {name: known.get(name, epoch.base) for name in sorted(request.silent) if name in epoch.queries}
    later = {name: since for name, since in known.items() if name in epoch.queries and name not in silent}
    epoch = replace(epoch, silent=silent, shown=later, routes=dict(how.routes))
    sinks = ReceivedAnswers(request, folder, before, offset)
    return sinks.kept_with(epoch, request.by_name, kept, how.received, how.seeds)


def paused_records(
    request: Continued, folder: Folder, before: Epoch, failed: Mapping[str, QueryFailure], offset: Offset
) -> dict[str, PausedRecord]:
    """Return the records of the queries that the epoch after `before` leaves out and whose results stay.

    Args:
        failed: those that failed in the last round of `before`.
        offset: up to which sources have been read.
    """
    names = request.by_name
    sinks = ReceivedAnswers(request, folder, before, offset, failed)
    left = [name for name in sorted(request.paused) if name in before.queries and name not in names]
    records = {n: record for n, record in before.paused.items() if n in request.paused and n not in names}
    for name in left:
        record, received = before.queries[name], sinks.by(name, request.former.get(name))
        records[name] = PausedRecord(record.sink, received, failed.get(name), record.id, record.whole)
    return records


def _refused(name: str, reason: str) -> PenstockError:
    return PenstockError(
        "P0703", f"query {name} cannot continue its result: {reason}", hint="RESET begins the result again"
    )
