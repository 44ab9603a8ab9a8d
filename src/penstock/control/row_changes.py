"""INSERT, UPDATE and DELETE of rows that are posted.

An UPDATE or DELETE is evaluated against the content of the relation at the moment it is applied, and becomes updates at
one instant: the rows go with `-`, and come with `+` as they are then. A relation without operations gets the rows as
they are, which replace those of their keys.

A row without a timestamp is malformed whatever comes before it, and is refused before it is added. Whether one is late
depends on the rows before it, of which some may not have been read: the late rows that are counted are a part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import Heartbeat
from penstock.control.command_log import Transaction
from penstock.control.posted_rows import PostedRows, PrimaryKey, primary_keys
from penstock.control.registry import Registry
from penstock.control.stored_catalog import RowStatement
from penstock.errors import Notice, PenstockError, counted
from penstock.expressions.evaluation.evaluate import evaluate, mask
from penstock.language.commands import AdvanceStream, DeleteRows, InsertRows, PunctuateStream, UpdateRows
from penstock.physical.elements import Elements, concat, empty
from penstock.physical.execution.ingest import PUNCTUATED, TOO_MANY, StampedRows, stamp, unit_warning
from penstock.physical.execution.progress import SourceProgress
from penstock.runtime.live.history import folded
from penstock.types import END


def post_rows(
    posted: PostedRows,
    source: Source,
    number: int,
    command: InsertRows | AdvanceStream | PunctuateStream | UpdateRows | DeleteRows,
    key: str,
    known: Callable[[Source], Sequence[Elements] | None],
) -> int | None:
    """Carry out a statement once. Return how many rows it has inserted, changed or deleted; None where it was carried
    out before, and for a heartbeat or a punctuation.

    Args:
        source: the declaration of what it changes.
        number: of the declaration.
        key: by which the statement is recognized where it is carried out again.
        known: returns the updates of the relation that an engine knows (`Engine.updates`).

    Raises:
        PenstockError: P0601, P0203, P0210; nothing has been changed then.
    """
    if posted.has(number, key):
        return None
    if isinstance(command, AdvanceStream):
        posted.post(source, number, no_rows(source), key, same=True, record=Heartbeat(command.tick))
        return None
    if isinstance(command, PunctuateStream):
        posted.post(source, number, no_rows(source), key, same=True, record=command.punctuation)
        return None
    if isinstance(command, InsertRows):
        if source.is_static and source.primary_key:
            check_keys(source, command, posted.primary_keys(source, number))
        rows = inserted_table(source, command)
        count: int = rows.num_rows
    else:
        rows, count = _changed(posted, source, number, command, known)
    posted.post(source, number, rows, key, same=True)
    return count


def check_update(
    posted: PostedRows,
    source: Source,
    number: int,
    command: UpdateRows | DeleteRows,
    known: Callable[[Source], Sequence[Elements] | None],
) -> None:
    """Check a statement that changes rows before it is carried out; the arguments are those of `post_rows`. Raise
    PenstockError where the rows cannot be read, or P0414 where one would have no timestamp."""
    if isinstance(command, UpdateRows) and {*source.time_columns} & {place for place, _ in command.assignments}:
        check_rows(source, _changed(posted, source, number, command, known)[0], "UPDATE")
    else:
        known(posted.source(source, number))


def _changed(
    posted: PostedRows,
    source: Source,
    number: int,
    command: UpdateRows | DeleteRows,
    known: Callable[[Source], Sequence[Elements] | None],
) -> tuple[pa.Table, int]:
    updates = known(posted.source(source, number))
    if updates is None:
        present = content(source, posted.table(source, number))
    else:
        present = folded(source, concat([*updates] or [empty(source.columns.types)]), END)
    return _updates(source, present, command)


def check_insert(source: Source, command: InsertRows) -> None:
    """Raise PenstockError P0210 or P0414 for an INSERT whose rows would not be taken."""
    if source.primary_key:
        check_keys(source, command)
    check_rows(source, inserted_table(source, command), "INSERT")


def check_keys(source: Source, command: InsertRows, present: Set[PrimaryKey] = frozenset()) -> None:
    """Raise PenstockError P0210 for an INSERT whose rows would not be taken: with NULL in a primary key, or with a
    key twice where the relation never changes. Updates may have the same key. present: the keys of the rows before."""
    known: set[PrimaryKey] = set()
    for number, key in enumerate(primary_keys(source, inserted_table(source, command)), 1):
        if None in key:
            names = ", ".join(source.columns[i].name for i in source.primary_key)
            message = f"row {number} of the INSERT has NULL in the primary key of {source.name} ({names})"
            raise PenstockError("P0210", message, hint="nothing has been inserted")
        if source.is_static and (key in known or key in present):
            message = f"row {number} of the INSERT repeats the primary key of a row of {source.name}: "
            hint = f"nothing has been inserted; {_REPLACING}"
            raise PenstockError("P0210", message + _shown_key(source, key), hint=hint)
        known.add(key)


def repeated_keys(source: Source, rows: pa.Table, present: Set[PrimaryKey]) -> tuple[Notice, ...]:
    """Return the notice for rows of a relation without timestamps that are left out, since their primary key is that of
    an earlier row. present: the keys of the rows before."""
    known: set[PrimaryKey] = set()
    repeated: list[PrimaryKey] = []
    for key in primary_keys(source, rows):
        if key in known or key in present:
            repeated.append(key)
        known.add(key)
    if not repeated:
        return ()
    verb = "is" if len(repeated) == 1 else "are"
    message = f"{counted(len(repeated), 'row')} of {source.name} {verb} left out: an earlier one has the primary key "
    return (Notice(message + _shown_key(source, repeated[0]), _REPLACING),)


_REPLACING = "in a relation with TIMESTAMP BY the row would be replaced"


def _shown_key(source: Source, key: PrimaryKey) -> str:
    names = ", ".join(source.columns[i].name for i in source.primary_key)
    return f"{names} = {', '.join((part or b'').decode() for part in key)}"


def no_rows(source: Source) -> pa.Table:
    """Return a table of the declared columns without rows."""
    return pa.schema([pa.field(one.name, one.type) for one in source.columns]).empty_table()


def inserted_table(source: Source, command: InsertRows) -> pa.Table:
    """Return the rows of an INSERT."""
    return pa.Table.from_arrays(
        [pa.array([row[i] for row in command.rows], one.type) for i, one in enumerate(source.columns)],
        names=list(source.columns.names),
    )


def check_changeable(source: Source) -> None:
    """Raise PenstockError P0701 for a relation whose rows UPDATE and DELETE cannot change."""
    if source.non_retroactive:
        message = f"{source.name} is NON RETROACTIVE: a row that has gone does not come again"
        raise PenstockError("P0701", message, hint="INSERT the updates")


def content(source: Source, posted: pa.Table) -> Elements:
    """Return the rows that a relation consists of after everything that was posted, with all declared columns."""
    columns = tuple(range(len(source.columns)))
    seen = SourceProgress()
    parts: list[Elements] = []
    for batch in posted.to_batches():
        now = 0 if source.system_time else None
        taken = stamp(source, batch, columns, columns, seen, now)
        parts.append(taken.elements)
        seen = seen.merge(taken.progress)
    return folded(source, concat(parts or [empty(source.columns.types)]), END)


def _updates(source: Source, rows: Elements, command: UpdateRows | DeleteRows) -> tuple[pa.Table, int]:
    """Return the updates that a statement makes of the content `rows`, and how many of these it concerns."""
    chosen = rows if command.condition is None else rows.filter(mask(command.condition, rows.columns, len(rows)))
    former, count = list(chosen.columns), len(chosen)
    changed = list(former)
    if isinstance(command, UpdateRows):
        for position, value in command.assignments:
            changed[position] = evaluate(value, former, count)
        for position in source.time_columns:
            former[position] = changed[position]
    names = list(source.columns.names)
    parts: list[pa.Table] = []
    if source.operation is not None:
        former[source.operation] = pa.array(["-"] * count, pa.string())
        changed[source.operation] = pa.array(["+"] * count, pa.string())
        parts.append(pa.Table.from_arrays(former, names=names))
    if isinstance(command, UpdateRows):
        parts.append(pa.Table.from_arrays(changed, names=names))
    return pa.concat_tables(parts), int(chosen.signs.sum())


# --- what is wrong with rows before they are read


def row_faults(source: Source, rows: pa.Table) -> dict[int, str]:
    """Return why rows are malformed, whatever comes before them, by position. rows: with all declared columns."""
    # How far ahead a row is depends on the rows before it.
    found = _stamped(replace(source, ahead=None), rows, SourceProgress())
    reasons = zip(found.unusable.tolist(), found.reasons, strict=True)
    # What punctuations do depends on those before them.
    return {position: reason for position, reason in reasons if reason not in (PUNCTUATED, TOO_MANY)}


def late_rows(source: Source, rows: pa.Table, heartbeat: int | None) -> int:
    """Return how many rows are late for sure: behind the heartbeat of their source, or behind rows before them. What
    has not been read of the source may make more of them late.

    Args:
        heartbeat: up to which tick the elements of the source are complete; None where it has none yet.
    """
    if heartbeat is None or source.system_time:
        seen = SourceProgress()
    else:
        seen = SourceProgress(high=heartbeat, beat=heartbeat)
    return len(_stamped(source, rows, seen).late)


def replaced_rows(source: Source, rows: pa.Table) -> int:
    """Return how many rows have the primary key and the instant of a later one, which replaces them before any query
    reads them. An update that removes a row in between makes it two changes."""
    if not source.primary_key or rows.num_rows < 2:
        return 0
    timestamps = _timestamps(source, rows)
    if timestamps is None:
        return 0
    names = [*(f"c{i}" for i in source.primary_key), "timestamp"]
    keyed = pa.table([*(rows.column(i) for i in source.primary_key), timestamps], names=names)
    removes = pa.array([0] * rows.num_rows)
    if source.operation is not None:
        removes = pc.cast(pc.equal(rows.column(source.operation), "-"), pa.int64())
    groups = keyed.append_column("removes", removes).group_by(names)
    counts = groups.aggregate([([], "count_all"), ("removes", "sum")])
    kept = counts.filter(pc.equal(pc.fill_null(counts["removes_sum"], 0), 0))
    return int(pc.sum(kept["count_all"]).as_py() or 0) - int(kept.num_rows)


def row_notices(source: Source, rows: pa.Table) -> tuple[Notice, ...]:
    """Return what is to be known of rows that are added, whatever comes before them. rows: with all columns."""
    if not source.has_timestamps:
        return ()
    notices = []
    tick = pc.max(_timestamps(source, rows)).as_py() if source.domain and not source.domain.calendar else None
    if warning := unit_warning(source, tick):
        notices.append(Notice(warning))
    if replaced := replaced_rows(source, rows):
        keys = ", ".join(source.columns[i].name for i in source.primary_key)
        verb = "is" if replaced == 1 else "are"
        message = f"{counted(replaced, 'row')} of {source.name} {verb} replaced by a later one of the same instant"
        notices.append(Notice(message, f"at an instant there is one row of a {keys}, the last: the primary key"))
    return tuple(notices)


def check_rows(source: Source, rows: pa.Table, statement: str) -> None:
    """Raises PenstockError P0414 for rows that would become dead letters. statement: such as `INSERT`."""
    faults = row_faults(source, rows)
    if not faults:
        return
    row = min(faults)
    message = f"row {row + 1} of the {statement} cannot be a row of {source.name}: {faults[row]}"
    names = [source.columns[i].name for i in (*source.time_columns, source.operation) if i is not None]
    hint = f"no row was changed; each needs {' and '.join(names)}" if names else "no row was changed"
    raise PenstockError("P0414", message, hint=hint)


def without_faults(rows: pa.Table, faults: dict[int, str]) -> pa.Table:
    """Return the rows that are not malformed."""
    kept = np.ones(rows.num_rows, dtype=bool)
    kept[list(faults)] = False
    return rows.filter(pa.array(kept))


def _stamped(source: Source, rows: pa.Table, seen: SourceProgress) -> StampedRows:
    columns = tuple(range(len(source.columns)))
    batches = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    return stamp(source, batches[0], columns, columns, seen, None if source.has_timestamps else 0)


def _timestamps(source: Source, rows: pa.Table) -> pa.Array | None:
    """Return the timestamps of rows with all declared columns; None where they have none."""
    return source.timestamps(lambda position: rows.column(position).combine_chunks(), rows.num_rows)


def rows_of(transaction: Transaction, registry: Registry, static: bool) -> Iterator[tuple[RowStatement, Source]]:
    """Yield the statements of a transaction that change rows, with their sources. static: those of relations that never
    change."""
    for row in transaction.change.rows:
        one = registry.stored.objects.get(row.source)
        source = None if one is None else registry.bound.sources.get(one.name.lower())
        if source is not None and source.is_static == static:
            yield row, source


def key_of_row(row: RowStatement) -> str:
    """Return the key of the post that a statement leads to."""
    return f"command {row.number}"
