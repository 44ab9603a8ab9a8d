"""The queries of a control as they are listed: those that the engine runs, and those that are still to begin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.control.life.listed_query import ListedQuery
from penstock.control.registry import Registry
from penstock.control.transactions.backlog import AcceptedItem
from penstock.control.transactions.past_reading import PastReading
from penstock.language.catalog import QueryStatus


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
        if begins and later is not None and later.query is not None and later.query.answer.id != query.answer.id:
            found = _unfinished(found, readings[one.id], not later.query.reset)
        if readings.get(one.id) is not None and later is not None and later.query is not None and later.query.beside:
            found = replace(found, reads=query.beside is None or query.beside.waits)
        listed.append(found)
    for number, reading in readings.items():
        later = ahead.stored.objects.get(number)
        if number not in current.stored.objects and later is not None and later.query is not None:
            bound = ahead.bound.queries.get(later.name.lower())
            listed.append(_unfinished(ListedQuery(later, later.query, bound, later.query.status), reading, False))
    return listed


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
