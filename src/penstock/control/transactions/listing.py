"""The queries of a control as they are listed: those that the engine runs, and those that are still to begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.algebra.nodes.query import Query
from penstock.algebra.properties.need import missing_rows
from penstock.control.engine import EngineVersion
from penstock.control.registry import Registry
from penstock.control.stored_catalog import StoredObject, StoredQuery
from penstock.control.transactions.backlog import AcceptedItem
from penstock.control.transactions.past_reading import PastReading
from penstock.language.catalog import QueryStatus


@dataclass(frozen=True)
class ListedQuery:
    """A query and what it does.

    Args:
        bound: None for one that this program cannot bind.
        status: PENDING and HYDRATING for one that has been accepted, until the engine runs it.
        share: of one that is HYDRATING, which part of its past has been read; None where that is not known.
        has_result: whether the engine has a place for its answers; one that is still to begin gets a new one.
        reads: it is to change, and what is to take its place reads its past.
        missing: by stream, how many rows it waits for before it begins, or what is to take its place does; empty where
            nothing waits.
    """

    stored: StoredObject
    query: StoredQuery
    bound: Query | None
    status: QueryStatus
    share: float | None = None
    has_result: bool = True
    reads: bool = False
    missing: Mapping[str, int] = field(default_factory=dict)


def listed_queries(items: Iterable[AcceptedItem], ahead: Registry, current: Registry) -> list[ListedQuery]:
    """Return the queries of a control, by their names at present; a query that answers while another one that is to
    take its place reads its past is RUNNING.

    Args:
        items: what has been accepted and not been applied.
        ahead: the declarations after all of these.
        current: the declarations that the engine runs, read after `items`.
    """
    readings = _readings(items)
    listed: list[ListedQuery] = []
    for one, query in current.stored.queries:
        later = ahead.stored.objects.get(one.id)
        begins = query.status is not QueryStatus.RUNNING and one.id in readings
        found = ListedQuery(one, query, current.bound.queries.get(one.name.lower()), query.status)
        if begins and later is not None and later.query is not None and later.query.track != query.track:
            found = _unfinished(found, readings[one.id], not later.query.reset)
        if readings.get(one.id) is not None and later is not None and later.query is not None and later.query.edit:
            found = replace(found, reads=query.edit is None or query.edit.awaits)
        listed.append(found)
    for number, reading in readings.items():
        later = ahead.stored.objects.get(number)
        if number not in current.stored.objects and later is not None and later.query is not None:
            bound = ahead.bound.queries.get(later.name.lower())
            listed.append(_unfinished(ListedQuery(later, later.query, bound, later.query.status), reading, False))
    return listed


def declared_queries(registry: Registry) -> list[ListedQuery]:
    """Return the declared queries as they are where a command is bound."""
    return [
        ListedQuery(one, query, registry.bound.queries.get(one.name.lower()), query.status)
        for one, query in registry.stored.queries
    ]


def shown_state(one: ListedQuery, version: EngineVersion) -> str:
    """Return the state of a query; WAITING for one that begins at an instant that its sources have not reached, or with
    rows that have not come."""
    is_waiting = one.query.awaits and one.status is QueryStatus.RUNNING
    return QueryStatus.WAITING.value if is_waiting or awaited_instant(one, version) is not None else one.status.value


def awaited_instant(one: ListedQuery, version: EngineVersion) -> str | None:
    """Return the first instant that a query answers which is to begin there; None for one that has begun."""
    start, tick = one.query.start, version.ahead.get(one.query.place)
    waits = one.status is QueryStatus.RUNNING and (start.at is not None or start.wait)
    return one.bound.domain.show(tick) if waits and tick is not None and one.bound is not None else None


def shown_change(one: ListedQuery, version: EngineVersion) -> str | None:
    """Return what is said of a query that changes while it runs: what takes its place, and when; of one that waits for
    rows, how many are missing."""
    edit = one.query.edit
    if one.query.awaits and one.missing:
        return f"it begins with {missing_rows(one.missing)}"
    if edit is None or one.reads:
        return "what takes over reads its past" if one.reads else None
    name, other = one.stored.name, "plan" if edit.other is None else "query"
    if edit.awaits:
        rows = missing_rows(one.missing) if one.missing else "the rows that it waited for"
        return f"another {other} takes over from {name} with {rows}"
    if edit.until is not None:
        return f"the new {other} has taken over, and the former one ends when time goes on"
    first, domain = version.ahead.get(edit.place), None if one.bound is None else one.bound.domain
    if first is not None and domain is not None:
        # It answers what comes after that.
        return f"another {other} takes over when {name} has answered up to {domain.show(first - 1)}"
    return f"another {other} takes over when {name} has answered what that one has read"


def _readings(items: Iterable[AcceptedItem]) -> dict[int, PastReading | None]:
    """Return, by number of a query, the reading of the first transaction that waits and concerns it."""
    found: dict[int, PastReading | None] = {}
    for item in items:
        for one in item.change.change.objects:
            if one.query is not None:
                found.setdefault(one.id, item.reading)
    return found


def _unfinished(one: ListedQuery, reading: PastReading | None, has_result: bool) -> ListedQuery:
    if reading is None:
        return ListedQuery(one.stored, one.query, one.bound, QueryStatus.PENDING, None, has_result)
    return ListedQuery(one.stored, one.query, one.bound, QueryStatus.HYDRATING, reading.share, has_result)
