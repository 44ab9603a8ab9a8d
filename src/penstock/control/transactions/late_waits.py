"""Queries and changes of queries that begin WARM WAIT, for which nothing was missing when they were accepted, and is
when their past is to be read: what came meanwhile was not kept. From then on they wait for rows, as those do for which
it is missing at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.control.command_log import CommandLog
from penstock.control.drafting.versions import queried
from penstock.control.engine import Engine
from penstock.control.life.changes import with_waiting
from penstock.control.posted_rows import PostedRows
from penstock.control.registry import Registry
from penstock.control.stored_catalog import StoredObject
from penstock.control.transactions.backlog import AcceptedItem
from penstock.control.transactions.merging import with_changes


def late_waits(item: AcceptedItem, current: Registry, engine: Engine, posted: PostedRows) -> frozenset[int]:
    """Return the computations of a transaction that have to wait for rows.

    current: the declarations that the engine runs.
    """
    after = with_changes(current, [item.change])
    found: set[int] = set()
    for one in item.change.change.objects:
        before = current.stored.objects.get(one.id)
        # These run, or wait.
        known = set() if before is None or before.query is None else {each.id for each in before.query.computations}
        for each in [] if one.query is None else one.query.computations:
            query = queried(one, each, after, posted) if each.may_wait and each.id not in known else None
            missing = None if query is None else engine.awaited(query)
            if missing is not None and missing.rows:
                found.add(each.id)
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


def _waiting(one: StoredObject, waits: Collection[int]) -> StoredObject:
    if one.query is None or not any(each.id in waits and each.may_wait for each in one.query.computations):
        return one
    return with_waiting(one, waits)
