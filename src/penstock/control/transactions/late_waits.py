"""Queries that begin WARM WAIT for which nothing was missing when they were accepted, and is when their past is to be
read: what came meanwhile was not kept. From then on they wait for rows, as those do for which it is missing at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def late_waits(item: AcceptedItem, current: Registry, engine: Engine, posted: PostedRows) -> dict[int, int]:
    """Return the numbers of the queries of a transaction that have to wait for rows, with their computations.

    current: the declarations that the engine runs.
    """
    after = with_changes(current, [item.change])
    found: dict[int, int] = {}
    for one in item.change.change.objects:
        kept, before = one.query, current.stored.objects.get(one.id)
        if kept is None or not _may_wait(kept) or one.name.lower() not in after.bound.queries:
            continue
        if before is not None and before.query is not None and kept.track in before.query.tracks:
            continue  # it runs, or waits
        missing = engine.awaited(queried(one, kept, after, posted))
        if missing is not None and missing.rows:
            found[one.id] = kept.track
    return found


def have_wait(items: Sequence[AcceptedItem], waits: Mapping[int, int], log: CommandLog) -> None:
    """Have queries wait for rows in what was accepted, of the log too.

    Args:
        items: what was accepted. Other transactions may declare the queries as they begin, by another name.
        waits: their computations, by number.

    Raises:
        PenstockError: P0601 where the log cannot be written.
    """
    for item in items:
        if item.transaction is None or not any(_begins(one, waits) for one in item.change.change.objects):
            continue
        change = replace(item.change.change, objects=tuple(_waiting(one, waits) for one in item.change.change.objects))
        item.transaction = log.amend(item.transaction, change)
        item.change = replace(item.change, change=change)


def _may_wait(query: StoredQuery) -> bool:
    start = query.start
    return query.status is QueryStatus.RUNNING and start.wait and start.at is None and not query.holds


def _begins(one: StoredObject, waits: Mapping[int, int]) -> bool:
    return one.query is not None and one.query.start.wait and waits.get(one.id) == one.query.track


def _waiting(one: StoredObject, waits: Mapping[int, int]) -> StoredObject:
    return one if one.query is None or not _begins(one, waits) else replace(one, query=replace(one.query, holds=True))
