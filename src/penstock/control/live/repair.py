"""Pause queries of a server that does not run, because it does not come up with them.

A repair accepts the command PAUSE into the log, as a running server would, and writes nothing else. The next start
treats a query that is paused or dropped at the end of the log as paused from the beginning: it does not run while the
commands before are carried out, which may be those that created it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.control.command_log import CommandLog, Transaction, digest
from penstock.control.life.changes import PauseQuery, query_of
from penstock.control.phases import Phase
from penstock.control.registry import quoted
from penstock.control.sealed_files import SealedFiles
from penstock.control.stored_catalog import CatalogChange, StoredCatalog, StoredObject, StoredQuery
from penstock.errors import PenstockError, nearest
from penstock.storage import storage

#: The name in the log for the one that has paused a query.
_WHO = "penstock repair"
#: The state that `pause_queries` returns for a query whose DROP was accepted.
DROPPED = "DROPPED"
#: States in which a start would run a query.


def pause_queries(checkpoint: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """Pause queries of a server's checkpoint, all or none; return the name and the former state of each. One whose DROP
    was accepted, `DROPPED`, needs no pause: the next start does not run it either.

    Raises:
        PenstockError: P0608 for a folder that holds no queries of a server, P0609 while a server uses it, P0201 for an
            unknown query, P0601 where it cannot be written, P0605 where it is damaged.
    """
    folder = checkpoint / "control"
    files = SealedFiles(folder)
    if not storage().exists(folder) or not files.names():
        hint = "it is the folder that `penstock serve --checkpoint` was given; of `penstock run` change the script"
        raise PenstockError("P0608", f"{checkpoint} holds no queries of a server", hint=hint)
    lock = files.lock()
    try:
        log, base = CommandLog.opened(files, retention=0.0)
        stored = accepted(log, base)
        gone = {one.name.lower(): one.name for one in dropped(log, base)}
        lower = list(dict.fromkeys(name.lower() for name in names))
        found = {name: _query(stored, name) for name in lower if name not in gone or stored.named(name) is not None}
        running = [(one, query) for one, query in found.values() if _runs(query)]
        if running:
            pause(log, stored, running)
        states = {name: (one.name, query.status.value) for name, (one, query) in found.items()}
        return [states.get(name) or (gone[name], DROPPED) for name in lower]
    finally:
        lock.release()


def pause(log: CommandLog, stored: StoredCatalog, queries: Sequence[tuple[StoredObject, StoredQuery]]) -> Transaction:
    """Accept into the log that queries are paused. stored: the declarations then. Raises PenstockError P0601."""
    texts = [f"ALTER QUERY {quoted(one.name)} PAUSE" for one, _ in queries]
    change = CatalogChange(
        objects=tuple(_paused(one) for one, query in queries),
        next_id=stored.next_id,
        concerns={log.next_number + place: query.place for place, (_, query) in enumerate(queries)},
    )
    return log.accept(texts, _WHO, None, digest(";\n".join(texts), {}), {}, change)


def _query(stored: StoredCatalog, name: str) -> tuple[StoredObject, StoredQuery]:
    one = stored.named(name)
    if one is None or one.query is None:
        known = [each.name for each, _ in stored.queries]
        raise PenstockError("P0201", f"unknown query {name}", hint=nearest(name, known))
    return one, one.query


def accepted(log: CommandLog, stored: StoredCatalog) -> StoredCatalog:
    """Return the declarations after everything that has been accepted and has not failed. stored: the latest catalog of
    the log."""
    for transaction in log.since_catalog():
        if not log.has_failed(transaction):
            stored = stored.changed(transaction.change)
    return stored


def dropped(log: CommandLog, stored: StoredCatalog) -> list[StoredObject]:
    """Return the queries whose DROP has been accepted, and not executed as far as the log shows. stored: the
    latest catalog of the log."""
    left = {one.id for one, _ in accepted(log, stored).queries}
    waiting: list[StoredObject] = []
    for transaction in log.since_catalog():
        if log.outcomes.get(transaction.last) is None:
            waiting += transaction.change.objects
        elif not log.has_failed(transaction):
            stored = stored.changed(transaction.change)
    known = {one.id: one for one in (*(one for one, _ in stored.queries), *waiting) if one.query is not None}
    return [one for number, one in known.items() if number not in left]


def held_numbers(log: CommandLog, stored: StoredCatalog) -> frozenset[int]:
    """Return the numbers of the queries that do not run during a recovery, since they do not at its end: those that are
    paused and keep no state, and those that are dropped. stored: the latest catalog of the log."""
    return paused_numbers(accepted(log, stored)) | {one.id for one in dropped(log, stored)}


def paused_numbers(stored: StoredCatalog) -> frozenset[int]:
    """Return the numbers of the queries that are paused and keep no state."""
    return frozenset(one.id for one, query in stored.queries if query.phase is Phase.PAUSED)


def with_paused(stored: StoredCatalog, numbers: Collection[int]) -> StoredCatalog:
    """Return declarations in which these queries do not run."""
    changed = tuple(_paused(one) for one, query in stored.queries if one.id in numbers and _runs(query))
    return stored.changed(CatalogChange(objects=changed)) if changed else stored


def change_with_paused(change: CatalogChange, numbers: Collection[int]) -> CatalogChange:
    """Return what a transaction changes, where these queries do not run."""
    objects = (
        _paused(one) if one.id in numbers and one.query is not None and _runs(one.query) else one
        for one in change.objects
    )
    return replace(change, objects=tuple(objects))


def _runs(query: StoredQuery) -> bool:
    return query.phase.runs


def _paused(one: StoredObject) -> StoredObject:
    return PauseQuery().made(one, query_of(one))
