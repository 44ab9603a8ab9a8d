"""POSTGRES: the result of a query in a table of a PostgreSQL database, one transaction per batch.

Contract: the transaction that writes a batch also records it in `penstock_batches` beside the table (query, target, the
run's number, batches done), so a repeated batch is found there and skipped, even if the connection was lost. Each run
takes a new number, so a run that was replaced cannot write any more. With `key` the table holds the rows of the
relation as they are after the batch; without it the changes, or the stream. A missing table is created. A
row that the table cannot hold is refused, and stored before the transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.query import Query
from penstock.connectors.contract import Rejected, Sink, Target
from penstock.connectors.options import TEXT, Option, Options, OptionTable
from penstock.connectors.postgres import SERVER_OPTIONS, Server, database_of, identifier, only_row, sql
from penstock.connectors.sinks.postgres_values import Positions, Reasons, put, readable, unholdable
from penstock.connectors.sinks.tables import check_rows, no_column, not_ours, other_type
from penstock.connectors.sinks.upserts import KEY, MODE, Net, key_option, net, only_adds, violation
from penstock.connectors.text import csv_text
from penstock.errors import PenstockError
from penstock.expressions.values.shown import shown_row
from penstock.types import WALL_CLOCK

if TYPE_CHECKING:
    from psycopg import Cursor

_TABLE = Option("table", TEXT, "the table of the result, with or without its schema", required=True)
_PROGRESS = "penstock_batches"
_STAYS, _FRESH, _ROW = "penstock_stays", "penstock_fresh", "penstock_row"

#: Types of a result -> their type in a new table, and the column types of an existing table that accept them.
_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str, tuple[str, ...]], ...] = (
    (pa.types.is_boolean, "boolean", ("bool",)),
    (pa.types.is_int8, "smallint", ("int2", "int4", "int8", "numeric")),
    (pa.types.is_int16, "smallint", ("int2", "int4", "int8", "numeric")),
    (pa.types.is_int32, "integer", ("int4", "int8", "numeric")),
    (pa.types.is_int64, "bigint", ("int8", "numeric")),
    (pa.types.is_float32, "real", ("float4", "float8")),
    (pa.types.is_float64, "double precision", ("float8",)),
    (pa.types.is_decimal, "numeric", ("numeric",)),
    (pa.types.is_date, "date", ("date",)),
    (lambda kind: kind == WALL_CLOCK, "timestamp", ("timestamp",)),
    (pa.types.is_timestamp, "timestamptz", ("timestamptz", "timestamp")),
    (pa.types.is_duration, "interval", ("interval",)),
    (pa.types.is_binary, "bytea", ("bytea",)),
    (pa.types.is_nested, "jsonb", ("jsonb", "json", "text")),
    (lambda _: True, "text", ("text", "varchar", "bpchar", "name", "citext", "uuid", "json", "jsonb")),
)


class PostgresSink(Sink):
    OPTIONS = OptionTable((*SERVER_OPTIONS, _TABLE, MODE, KEY))

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        options = Options(f"INTO POSTGRES of {query.name}", query.sink.options)
        options.only(self.OPTIONS)
        self._table = options.needed(_TABLE).strip()
        self._appends = options.value(MODE) == "append"
        self._key = key_option(options, query)
        self._server = Server(options, f"query {query.name}", "P0502")
        self._run: int | None = None
        self._where = f"query {query.name}: table {self._table}"

    @property
    def place(self) -> str:
        return f"PostgreSQL, table {self._table}"

    @classmethod
    def target(cls, query: Query) -> Target | None:
        options = Options(f"INTO POSTGRES of {query.name}", query.sink.options)
        table = options.needed(_TABLE).strip()
        names = table.split(".")
        return Target(
            "postgres",
            (*database_of(options), *(names if len(names) > 1 else ("public", *names))),
            table,
            only_adds(options),
        )

    def open(self, resume: bool, overwrite: bool) -> None:
        self._run = self._server.do(lambda cursor: self._open(cursor, resume, overwrite))

    def withdraw(self) -> None:
        if not self._appends:
            self.open(resume=False, overwrite=True)

    def write(self, batch: int, table: pa.Table) -> None:
        if not table.num_rows:
            return
        changes = net(self.query, self._key, table) if self._key else None
        self._server.do(lambda cursor: self._write(cursor, batch, table, changes))

    # -- the beginning -----------------------------------------------------------------------------------------

    def _open(self, cursor: Cursor, resume: bool, overwrite: bool) -> int:
        """Prepare for writing; return the number of this run."""
        if not self._exists(cursor, self._progress_table):
            columns = (
                "(query text, target text, run bigint NOT NULL, batch bigint NOT NULL, PRIMARY KEY (query, target))"
            )
            cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ").format(self._progress_table) + sql.SQL(columns))
        progress = self._progress(cursor)
        if resume:
            if progress is None or not self._exists(cursor, self._target):
                raise not_ours(self._where)
            return progress[0]
        if not self._exists(cursor, self._target):
            self._create(cursor)
        else:
            self._remove_rows(cursor, overwrite, progress is not None)
            self._check_columns(cursor)
        run = 0 if progress is None else progress[0] + 1
        cursor.execute(
            sql.SQL(
                "INSERT INTO {} VALUES (%s, %s, %s, -1) "
                "ON CONFLICT (query, target) DO UPDATE SET run = EXCLUDED.run, batch = EXCLUDED.batch"
            ).format(self._progress_table),
            (self.query.name, self._table, run),
        )
        return run

    @property
    def _progress_table(self) -> sql.Composable:
        """Return the table of notes, in the schema of the target."""
        return identifier(".".join([*self._table.split(".")[:-1], _PROGRESS]))

    def _progress(self, cursor: Cursor) -> tuple[int, int] | None:
        """Return the run and the batch recorded last; other writers wait until this transaction has ended."""
        statement = sql.SQL("SELECT run, batch FROM {} WHERE query = %s AND target = %s FOR UPDATE").format(
            self._progress_table
        )
        cursor.execute(statement, (self.query.name, self._table))
        progress: tuple[int, int] | None = cursor.fetchone()
        return progress

    def _exists(self, cursor: Cursor, table: sql.Composable) -> bool:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (table.as_string(cursor),))
        return bool(only_row(cursor)[0])

    def _create(self, cursor: Cursor) -> None:
        columns = [sql.Identifier(f.name) + sql.SQL(f" {_column_type(f.type)}") for f in self._schema()]
        if self._key:
            columns.append(sql.SQL("PRIMARY KEY ({})").format(_names(self._key)))
        cursor.execute(sql.SQL("CREATE TABLE {} (").format(self._target) + sql.SQL(", ").join(columns) + sql.SQL(")"))

    def _remove_rows(self, cursor: Cursor, overwrite: bool, written_by_query: bool) -> None:
        cursor.execute(sql.SQL("SELECT EXISTS (SELECT 1 FROM {})").format(self._target))
        if self._appends or not only_row(cursor)[0]:
            return
        check_rows(self._where, overwrite, written_by_query)
        cursor.execute(sql.SQL("DELETE FROM {}").format(self._target))

    def _check_columns(self, cursor: Cursor) -> None:
        cursor.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(self._target))
        existing = {c.name: cursor.adapters.types.get(c.type_code) for c in cursor.description or ()}
        for field in self._schema():
            if field.name not in existing:
                raise no_column(self._where, field.name, existing)
            type_info = existing[field.name]
            type_found = type_info.name if type_info else "of another type"
            if type_found not in _accepted_types(field.type):
                raise other_type(self._where, field.name, type_found, _column_type(field.type))
        if self._key:
            self._check_key(cursor)

    def _check_key(self, cursor: Cursor) -> None:
        """Check that the server itself keeps the key unique.

        Raises:
            PenstockError: P0502, it does not.
        """
        cursor.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND "
            "a.attnum = ANY(i.indkey) WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indpred IS NULL "
            "AND i.indexprs IS NULL GROUP BY i.indexrelid",
            (self._target.as_string(cursor),),
        )
        if not any(set(names) == set(self._key) for (names,) in cursor.fetchall()):
            columns = ", ".join(self._key)
            message = f"{self._where} has no primary key or unique index on ({columns})"
            raise PenstockError("P0502", message, hint=f"ALTER TABLE {self._table} ADD UNIQUE ({columns})")

    @property
    def _target(self) -> sql.Composable:
        return identifier(self._table)

    def _schema(self) -> pa.Schema:
        columns = self.query.output_schema
        return pa.schema(list(columns)[2:]) if self._key else columns

    # -- batches -----------------------------------------------------------------------------------------------

    def _write(self, cursor: Cursor, batch: int, table: pa.Table, changes: Net | None) -> None:
        progress = self._progress(cursor)
        if progress is None or progress[0] != self._run:
            raise not_ours(self._where)
        if progress[1] >= batch:
            return
        if changes is None:
            rows = table.select(self._schema().names)
            self._refuse(batch, rows, self._append(cursor, rows))
        else:
            self._refuse(batch, changes.rows, self._upsert(cursor, changes))
        statement = sql.SQL("UPDATE {} SET batch = %s WHERE query = %s AND target = %s").format(self._progress_table)
        cursor.execute(statement, (batch, self.query.name, self._table))

    def _refuse(self, batch: int, rows: pa.Table, reasons: Reasons) -> None:
        """Keep the rows that are not written, before the batch is committed."""
        refused = [Rejected(self.place, None, shown_row(rows, p)[:1000], reasons[p]) for p in sorted(reasons)]
        if refused:
            self.refuse(batch, refused)

    def _append(self, cursor: Cursor, rows: pa.Table) -> Reasons:
        """Add the rows that can be held; return why the others cannot."""
        reasons = unholdable(rows)
        writable = np.setdiff1d(np.arange(rows.num_rows), list(reasons))
        return reasons | put(
            cursor, writable, lambda p: self._copy(cursor, self._target, _at(rows, p)), rows.column_names
        )

    def _upsert(self, cursor: Cursor, changes: Net) -> Reasons:
        """Apply the last change of every key; return why rows cannot be held. In their place their key is removed,
        for what stood there before is no longer true."""
        names = changes.rows.column_names
        staged, all_columns = sql.Identifier("penstock_changes"), _names(names)
        create = sql.SQL(
            "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS "
            "SELECT {}, true AS {}, true AS {}, 0::bigint AS {} FROM {} WITH NO DATA"
        )
        flags = [sql.Identifier(name) for name in (_STAYS, _FRESH, _ROW)]
        cursor.execute(create.format(staged, all_columns, *flags, self._target))
        same_key = sql.SQL(" AND ").join(sql.SQL("t.{0} = c.{0}").format(sql.Identifier(k)) for k in self._key)
        reasons = self._stage(cursor, staged, changes)
        if not self._appends:
            self._check_unique_keys(cursor, staged, same_key)
        delete = sql.SQL("DELETE FROM {} t USING {} c WHERE {} AND ")
        cursor.execute(delete.format(self._target, staged, sql.SQL("NOT c.{}").format(flags[0])) + same_key)
        other_columns = [name for name in names if name not in self._key]
        assignments = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in other_columns
        )
        insert = sql.SQL(
            "INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} AND {} BETWEEN %s AND %s ON CONFLICT ({}) DO "
        ).format(self._target, all_columns, all_columns, staged, flags[0], flags[2], _names(self._key))
        insert += sql.SQL("UPDATE SET ") + assignments if other_columns else sql.SQL("NOTHING")
        upserted = np.setdiff1d(np.flatnonzero(changes.stays), list(reasons))
        refused = put(cursor, upserted, lambda p: cursor.execute(insert, (int(p[0]), int(p[-1]))), names)
        if refused:
            refused_rows = sql.SQL("c.{} = ANY(%s)").format(flags[2])
            cursor.execute(delete.format(self._target, staged, refused_rows) + same_key, ([*refused],))
        return reasons | refused

    def _stage(self, cursor: Cursor, staged: sql.Composable, changes: Net) -> Reasons:
        """Copy the changes into the table `staged`, those whose row cannot be held as removals of their key."""
        rows, is_upsert = changes.rows, changes.stays
        count = rows.num_rows

        def copy(positions: Positions, upserted: Positions) -> None:
            is_upserted = np.isin(positions, upserted)
            staged_rows = _blank_values(_at(rows, positions), self._key, is_upserted)
            for name, values in ((_STAYS, is_upserted), (_FRESH, changes.fresh[positions]), (_ROW, positions)):
                staged_rows = staged_rows.append_column(name, pa.array(values))
            self._copy(cursor, staged, staged_rows)

        def stage(positions: Positions, upserted: Positions) -> Reasons:
            return put(cursor, positions, lambda p: copy(p, upserted), rows.column_names)

        reasons_of_keys = unholdable(rows.select(self._key))
        for name in self._key:
            nulls = np.flatnonzero(rows[name].is_null().to_numpy())
            reasons_of_keys |= dict.fromkeys(nulls.tolist(), f"NULL in its key, column {name}")
        rows_with_key = np.setdiff1d(np.arange(count), list(reasons_of_keys))
        reasons = {p: reason for p, reason in unholdable(rows).items() if is_upsert[p]}
        upserts = np.setdiff1d(np.flatnonzero(is_upsert), list(reasons))
        failed = stage(rows_with_key, upserts)
        # A key that the server cannot hold either is not there to be removed.
        stage(np.array(sorted(failed), np.int64), np.empty(0, np.int64))
        return {p: reason for p, reason in (reasons_of_keys | failed | reasons).items() if is_upsert[p]}

    def _check_unique_keys(self, cursor: Cursor, staged: sql.Composable, same_key: sql.Composable) -> None:
        """Check that a new key is not in the table yet, where only this query writes."""
        keys = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(k)) for k in self._key)
        statement = sql.SQL("SELECT {} FROM {} t, {} c WHERE c.{} AND ").format(
            keys, self._target, staged, sql.Identifier(_FRESH)
        )
        cursor.execute(statement + same_key + sql.SQL(" LIMIT 1"))
        duplicate = cursor.fetchone()
        if duplicate is not None:
            columns = {name: [value] for name, value in zip(self._key, duplicate, strict=True)}
            raise violation(self.query, self._key, pa.table(columns), 0)

    def _copy(self, cursor: Cursor, target: sql.Composable, table: pa.Table) -> None:
        columns = [readable(column) for column in table.columns]
        text = csv_text(pa.table(columns, names=table.column_names))
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, HEADER true)").format(
            target, _names(table.column_names)
        )
        with cursor.copy(statement) as copy:
            copy.write(memoryview(text))


def _names(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _column_type(type_: pa.DataType) -> str:
    """Return the column type of a new table for this type."""
    name = next(column_type for accepts, column_type, _ in _TYPES if accepts(type_))
    return f"numeric({type_.precision},{type_.scale})" if pa.types.is_decimal(type_) else name


def _accepted_types(type_: pa.DataType) -> tuple[str, ...]:
    """Return the column types that accept values of this type."""
    return next(accepted for accepts, _, accepted in _TYPES if accepts(type_))


def _at(rows: pa.Table, positions: Positions) -> pa.Table:
    return rows if len(positions) == rows.num_rows else rows.take(pa.array(positions))


def _blank_values(rows: pa.Table, key: Sequence[str], keep_values: npt.NDArray[np.bool_]) -> pa.Table:
    """Return `rows` with NULL outside the key where `keep_values` is false."""
    if keep_values.all():
        return rows
    mask = pa.array(keep_values)
    columns = [
        column if name in key else pc.if_else(mask, column, pa.scalar(None, column.type))
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    ]
    return pa.table(columns, names=rows.column_names)
