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
from penstock.runtime.spark.catching_up.start_options import heartbeat_at
from penstock.runtime.spark.checkpoint.epochs import Epoch, PausedRecord
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.output.emitted_content import ContentReader, EmittedContent
from penstock.runtime.spark.output.undelivered import UndeliveredAnswers
from penstock.runtime.spark.output.withheld import Withheld, WithheldAnswers, typed

#: No query has this name.
_NO_SINK = ""
#: A sink that has received nothing of the instant after the heartbeat.
_NO_ROUND = -1


class Continued(Protocol):
    """What a start says about results that continue."""

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return the queries."""

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
    """

    starts: Mapping[str, Start] = field(default_factory=dict)
    seeds: Mapping[str, Withheld] = field(default_factory=dict)
    answered: Mapping[str, int] = field(default_factory=dict)
    routes: Mapping[str, list[list[Any]]] = field(default_factory=dict)


def continuations(
    request: Continued, folder: Folder, before: Epoch, kept: Collection[str], resumed: Collection[str],
    reading: Collection[str], offset: Offset,
) -> Continuations:  # fmt: skip
    """Return how results continue in the epoch after `before`.

    Args:
        kept: the queries that go on computing.
        resumed: those that begin again in their results.
        reading: those that begin with their past.
        offset: up to which sources have been read.

    Raises:
        PenstockError: P0703 where a result cannot continue.
    """
    by_name = {query.name: query for query in request.queries}
    starts: dict[str, Start] = {}
    seeds: dict[str, Withheld] = {}
    answered: dict[str, int] = {}
    for name in sorted(resumed):
        query, start = by_name[name], request.starts.get(name, Start())
        if query.root.is_stream:
            answered[name], reached = _answered(request, folder, before, query, offset)
            starts[name], first = _first(query, start, reached, offset)
            # It has had what follows from the contents of relations alone.
            seeds[name] = replace(Withheld.nothing(query), first=first)
            continue
        if query.sink.connector == "RESULTS" and UndeliveredAnswers(folder).of(name):
            raise _refused(name, "an answer could not be added to it")
        content = _content(request, before, name)
        starts[name], first = _first(query, start, content.reached, offset)
        seeds[name] = Withheld(typed(query, _taken_back(content)), first)
    for name, former in request.moved.items():
        waiting = _waiting(folder, before, former)
        if not by_name[name].root.is_stream:
            seeds[name] = _exchanged(request, before, by_name[name], former, offset, waiting)
        elif waiting is not None:
            seeds[name] = waiting
    for name in request.starts.keys() & by_name.keys() - set(kept) - set(resumed):
        query, tick = by_name[name], request.starts[name].at
        if tick is not None and tick > heartbeat_at(query, offset):
            seeds[name] = replace(Withheld.nothing(query), first=tick + int(query.root.is_stream))
    waits = {name: seeds[name].first for name in request.moved if name in seeds}
    answered = {name: last for name, last in answered.items() if name in reading and last != _NO_ROUND}
    return Continuations(starts, seeds, answered, _routes(request, before, kept, by_name, offset, waits))


def _first(query: Query, start: Start, reached: int, offset: Offset) -> tuple[Start, int]:
    """Return where an answer begins whose sink was answered up to `reached`, and its first instant."""
    after = int(query.root.is_stream)
    begin = heartbeat_at(query, offset) if start.at is None else start.at
    if start.mode in (StartMode.NOW, StartMode.WARM):
        return start, max(begin + after, reached + 1)
    # The answer up to the first instant is folded; what came later than that is emitted at its own instants.
    first = max(start.at + after if start.at is not None else NOTHING, reached + 1)
    return Start(StartMode.AT, first - after), first


def _answered(request: Continued, folder: Folder, before: Epoch, query: Query, offset: Offset) -> tuple[int, int]:
    """Return up to which round the result of a stream has been answered, and up to which instant.

    What has been emitted beyond that instant follows from these rounds, and is not emitted again.
    """
    record = before.paused.get(query.name)
    if record is not None and record.round is not None:
        return record.round, NOTHING if record.reached is None else record.reached
    former = request.former.get(query.name, query)
    return _answered_round(folder, before, query.name), heartbeat_at(former, offset)


def _answered_round(folder: Folder, before: Epoch, name: str) -> int:
    """Return the last round of which the sink of a query has received what left early."""
    is_withheld = name in before.silent or _waiting(folder, before, name) is not None
    return _NO_ROUND if is_withheld else folder.delivered().round


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


def _waiting(folder: Folder, before: Epoch, name: str) -> Withheld | None:
    """Return what the sink of `name` has not received yet although it is shown; None for nothing."""
    since = before.shown.get(name)
    found = None if since is None else WithheldAnswers(folder).read(name, since, folder.delivered().batch + 1)
    return None if found is None or found.done else found


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
    request: Continued, before: Epoch, kept: Collection[str], queries: Mapping[str, Query], offset: Offset,
    waits: Mapping[str, int],
) -> dict[str, list[list[Any]]]:  # fmt: skip
    """Return which instants of streams that were exchanged still go to the sinks that they had before.

    Args:
        waits: by query that was exchanged, the first instant that it answers; no sink receives those before.
    """
    routes: dict[str, list[list[Any]]] = {}
    for name in sorted(kept):
        query = queries[name]
        former = request.moved.get(name, name)
        route = [pair for pair in before.routes.get(former, []) if pair[0] > heartbeat_at(query, offset)]
        if former != name and query.root.is_stream:
            last, first = max(_last_instant(queries[each], offset) for each in (name, former)), waits.get(name, NOTHING)
            if first > heartbeat_at(query, offset):
                route.append([first - 1, _NO_SINK])
            if last >= first:
                route.append([last, former])
        if route:
            routes[name] = route
    return routes


def _last_instant(query: Query, offset: Offset) -> int:
    """Return the last instant of which anything can have been emitted after the sources were read up to `offset`: no
    answer leaves an executor that lies beyond the frontier."""
    return heartbeat_at(query, offset) + 1


def with_silences(
    epoch: Epoch, request: Continued, folder: Folder, before: Epoch, kept: Collection[str], how: Continuations
) -> Epoch:
    """Return `epoch`, which follows `before`, with what its sinks do not receive at once.

    Args:
        kept: queries that go on in their results.
        how: results that continue with other answers.
    """
    pending = WithheldAnswers(folder)
    shown = {n: since for n, since in before.shown.items() if pending.is_pending(n, since, epoch.base)}
    known = {n: since for n, since in (shown | before.silent).items() if n in kept and n not in request.moved}
    known |= dict.fromkeys(how.seeds, epoch.base)
    silent = {name: known.get(name, epoch.base) for name in epoch.queries if name in request.silent}
    later = {name: since for name, since in known.items() if name in epoch.queries and name not in silent}
    return replace(epoch, silent=silent, shown=later, routes=dict(how.routes))


def paused_records(
    request: Continued, folder: Folder, before: Epoch, failed: Mapping[str, QueryFailure], offset: Offset
) -> dict[str, PausedRecord]:
    """Return the records of the queries that the epoch after `before` leaves out and whose results stay.

    Args:
        failed: those that failed in the last round of `before`.
        offset: up to which sources have been read.
    """
    names = {query.name for query in request.queries}
    left = [name for name in before.queries if name in request.paused and name not in names]
    records = {n: record for n, record in before.paused.items() if n in request.paused and n not in names}
    for name in left:
        record, former, last = before.queries[name], request.former.get(name), _answered_round(folder, before, name)
        if name in failed and last != _NO_ROUND:
            last -= 1  # its sink has nothing of the round in which it failed
        reached = None if former is None else heartbeat_at(former, offset)
        records[name] = PausedRecord(record.sink, failed.get(name), record.id, record.whole, last, reached)
    return records


def _refused(name: str, reason: str) -> PenstockError:
    return PenstockError(
        "P0703", f"query {name} cannot continue its result: {reason}", hint="RESET begins the result again"
    )
