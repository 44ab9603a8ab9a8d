"""A query as it is listed: what it does, and how that is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.algebra.nodes.query import Query
from penstock.algebra.properties.need import missing_rows
from penstock.control.engine import EngineVersion
from penstock.control.phases import Phase
from penstock.control.registry import Registry
from penstock.control.stored_catalog import StoredObject, StoredQuery
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


def declared_queries(registry: Registry) -> list[ListedQuery]:
    """Return the declared queries as they are where a command is bound."""
    return [
        ListedQuery(one, query, registry.bound.queries.get(one.name.lower()), query.status)
        for one, query in registry.stored.queries
    ]


def shown_state(one: ListedQuery, version: EngineVersion) -> str:
    """Return the state of a query; WAITING for one that begins at an instant that its sources have not reached, or with
    rows that have not come."""
    is_waiting = one.query.answer.waits and one.status is QueryStatus.RUNNING
    return QueryStatus.WAITING.value if is_waiting or awaited_instant(one, version) is not None else one.status.value


def awaited_instant(one: ListedQuery, version: EngineVersion) -> str | None:
    """Return the first instant that a query answers which is to begin there; None for one that has begun."""
    start, tick = one.query.answer.start, version.ahead.get(one.query.place)
    waits = one.status is QueryStatus.RUNNING and (start.at is not None or start.wait)
    return one.bound.domain.show(tick) if waits and tick is not None and one.bound is not None else None


def shown_change(one: ListedQuery, version: EngineVersion) -> str | None:
    """Return the text on a query that changes while it runs: what takes its place, and when; of one that waits for
    rows, how many are missing."""
    beside = one.query.beside
    if one.query.answer.waits and one.missing:
        return f"it begins with {missing_rows(one.missing)}"
    if beside is None or one.reads:
        return "what takes over reads its past" if one.reads else None
    name, other = one.stored.name, "plan" if beside.definition is None else "query"
    if beside.waits:
        rows = missing_rows(one.missing) if one.missing else "the rows that it waited for"
        return f"another {other} takes over from {name} with {rows}"
    if beside.phase is Phase.ENDING:
        return f"the new {other} has taken over, and the former one ends when time goes on"
    first, domain = version.ahead.get(beside.place), None if one.bound is None else one.bound.domain
    if first is not None and domain is not None:
        # It answers what comes after that.
        return f"another {other} takes over when {name} has answered up to {domain.show(first - 1)}"
    return f"another {other} takes over when {name} has answered what that one has read"
