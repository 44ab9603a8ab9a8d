"""Queries and changes of queries that begin WARM WAIT, for which nothing was missing when they were accepted, and is
when their past is to be read: what came meanwhile was not kept. From then on they wait for rows, as those do for which
it is missing at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from penstock.control.command_log import CommandLog
from penstock.control.engine import Engine
from penstock.control.posted_rows import PostedRows
from penstock.control.registry import Registry
from penstock.control.stored_catalog import StoredObject, StoredQuery
from penstock.control.transactions.backlog import AcceptedItem
from penstock.control.transactions.merging import with_changes
from penstock.control.versions import queried
from penstock.language.catalog import QueryStatus


def late_waits(item: AcceptedItem, current: Registry, engine: Engine, posted: PostedRows) -> frozenset[int]:
    """Return the computations of a transaction that have to wait for rows.

    current: the declarations that the engine runs.
    """
    after = with_changes(current, [item.change])
    found: set[int] = set()
    for one in item.change.change.objects:
        before = current.stored.objects.get(one.id)
        # These run, or wait.
        known = [] if before is None or before.query is None else before.query.tracks
        for place, track in _may_wait(one.query):
            query = None if one.query is None or track in known else queried(one, one.query, place, after, posted)
            missing = None if query is None else engine.awaited(query)
            if missing is not None and missing.rows:
                found.add(track)
    return frozenset(found)


def have_wait(items: Sequence[AcceptedItem], waits: Collection[int], log: CommandLog) -> None:
    """Have computations wait for rows in what was accepted, of the log too.

    Args:
        items: what was accepted. Other transactions may declare the queries as they begin, by another name.
        waits: the computations.

    Raises:
        PenstockError: P0601 where the log cannot be written.
    """
    for item in items:
        objects = tuple(_waiting(one, waits) for one in item.change.change.objects)
        if item.transaction is None or objects == item.change.change.objects:
            continue
        change = replace(item.change.change, objects=objects)
        item.transaction = log.amend(item.transaction, change)
        item.change = replace(item.change, change=change)


def _may_wait(query: StoredQuery | None) -> Iterator[tuple[int, int]]:
    """Yield the places of a query at which something begins that may wait for rows, with the computations."""
    if query is None:
        return
    start, edit = query.start, query.edit
    if query.status is QueryStatus.RUNNING and start.wait and start.at is None and not query.holds:
        yield query.place, query.track
    if edit is not None and edit.until is None and not edit.holds:
        yield edit.place, edit.track


def _waiting(one: StoredObject, waits: Collection[int]) -> StoredObject:
    query = one.query
    if query is None:
        return one
    if query.track in waits and query.start.wait:
        query = replace(query, holds=True)
    if query.edit is not None and query.edit.track in waits and query.edit.until is None:
        query = replace(query, edit=replace(query.edit, holds=True))
    return replace(one, query=query)
