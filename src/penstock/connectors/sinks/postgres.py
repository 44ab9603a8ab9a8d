"""POSTGRES: the result of a query in a table of a PostgreSQL database, one transaction per batch.

Contract: the transaction that writes a batch also records it in `penstock_batches` beside the table (query, target, the
run's number, batches done), so a repeated batch is found there and skipped, even if the connection was lost. Each run
takes a new number, so a run that was replaced cannot write any more. With `key` the table holds the rows of the
relation as they are after the batch; without it the changes, or the stream. A missing table is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.query import Query
from penstock.connectors.contract import Sink, Target
from penstock.connectors.options import TEXT, Option, Options, OptionTable
from penstock.connectors.postgres import SERVER_OPTIONS, Server, database_of, identifier, sql
from penstock.connectors.sinks.tables import check_rows, no_column, not_ours, other_type
from penstock.connectors.sinks.text import csv_text
from penstock.connectors.sinks.upserts import KEY, MODE, Net, key_option, net, only_adds, violation
from penstock.errors import PenstockError

_TABLE = Option("table", TEXT, "the table of the result, with or without its schema", required=True)
_NOTES = "penstock_batches"
_STAYS, _FRESH = "penstock_stays", "penstock_fresh"

#: Types of a result -> their type in a new table, and the column types of an existing table that accept them.
_TYPES: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (pa.types.is_boolean, "boolean", ("bool",)),
    (pa.types.is_int8, "smallint", ("int2", "int4", "int8", "numeric")),
    (pa.types.is_int16, "smallint", ("int2", "int4", "int8", "numeric")),
    (pa.types.is_int32, "integer", ("int4", "int8", "numeric")),
    (pa.types.is_int64, "bigint", ("int8", "numeric")),
    (pa.types.is_float32, "real", ("float4", "float8")),
    (pa.types.is_float64, "double precision", ("float8",)),
    (pa.types.is_decimal, "numeric", ("numeric",)),
    (pa.types.is_date, "date", ("date",)),
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

    def write(self, batch: int, table: pa.Table) -> None:
        if not table.num_rows:
            return
        changes = net(self.query, self._key, table) if self._key else None
        if changes is not None:
            self._no_null(changes.rows)
        self._server.do(lambda cursor: self._write(cursor, batch, table, changes))

    # -- the beginning -----------------------------------------------------------------------------------------

    def _open(self, cursor: Any, resume: bool, overwrite: bool) -> int:
        """Prepare for writing; return the number of this run."""
        if not self._exists(cursor, self._notes):
            columns = (
                "(query text, target text, run bigint NOT NULL, batch bigint NOT NULL, PRIMARY KEY (query, target))"
            )
            cursor.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ").format(self._notes) + sql.SQL(columns))
        noted = self._noted(cursor)
        if resume:
            if noted is None or not self._exists(cursor, self._target):
                raise not_ours(self._where)
            return noted[0]
        if not self._exists(cursor, self._target):
            self._create(cursor)
        else:
            self._make_room(cursor, overwrite, noted is not None)
            self._same_columns(cursor)
        run = 0 if noted is None else noted[0] + 1
        cursor.execute(
            sql.SQL(
                "INSERT INTO {} VALUES (%s, %s, %s, -1) "
                "ON CONFLICT (query, target) DO UPDATE SET run = EXCLUDED.run, batch = EXCLUDED.batch"
            ).format(self._notes),
            (self.query.name, self._table, run),
        )
        return run

    @property
    def _notes(self) -> Any:
        """Return the table of notes, in the schema of the target."""
        return identifier(".".join([*self._table.split(".")[:-1], _NOTES]))

    def _noted(self, cursor: Any) -> tuple[int, int] | None:
        """Return the run and the batch recorded last; other writers wait until this transaction has ended."""
        statement = sql.SQL("SELECT run, batch FROM {} WHERE query = %s AND target = %s FOR UPDATE").format(self._notes)
        cursor.execute(statement, (self.query.name, self._table))
        found: tuple[int, int] | None = cursor.fetchone()
        return found

    def _exists(self, cursor: Any, table: Any) -> bool:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (table.as_string(cursor),))
        return bool(cursor.fetchone()[0])

    def _create(self, cursor: Any) -> None:
        columns = [sql.Identifier(f.name) + sql.SQL(f" {_made(f.type)}") for f in self._schema()]
        if self._key:
            columns.append(sql.SQL("PRIMARY KEY ({})").format(_names(self._key)))
        cursor.execute(sql.SQL("CREATE TABLE {} (").format(self._target) + sql.SQL(", ").join(columns) + sql.SQL(")"))

    def _make_room(self, cursor: Any, overwrite: bool, ours: bool) -> None:
        cursor.execute(sql.SQL("SELECT EXISTS (SELECT 1 FROM {})").format(self._target))
        if self._appends or not cursor.fetchone()[0]:
            return
        check_rows(self._where, overwrite, ours)
        cursor.execute(sql.SQL("DELETE FROM {}").format(self._target))

    def _same_columns(self, cursor: Any) -> None:
        cursor.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(self._target))
        there = {c.name: cursor.adapters.types.get(c.type_code) for c in cursor.description}
        for field in self._schema():
            if field.name not in there:
                raise no_column(self._where, field.name, there)
            found = there[field.name].name if there[field.name] else "of another type"
            if found not in _taken(field.type):
                raise other_type(self._where, field.name, found, _made(field.type))
        if self._key:
            self._same_key(cursor)

    def _same_key(self, cursor: Any) -> None:
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
            shown = ", ".join(self._key)
            message = f"{self._where} has no primary key or unique index on ({shown})"
            raise PenstockError("P0502", message, hint=f"ALTER TABLE {self._table} ADD UNIQUE ({shown})")

    @property
    def _target(self) -> Any:
        return identifier(self._table)

    def _schema(self) -> pa.Schema:
        columns = self.query.output_schema
        return pa.schema(list(columns)[2:]) if self._key else columns

    # -- batches -----------------------------------------------------------------------------------------------

    def _write(self, cursor: Any, batch: int, table: pa.Table, changes: Net | None) -> None:
        noted = self._noted(cursor)
        if noted is None or noted[0] != self._run:
            raise not_ours(self._where)
        if noted[1] >= batch:
            return
        if changes is None:
            self._copy(cursor, self._target, table.select(self._schema().names))
        else:
            self._upsert(cursor, changes)
        note = sql.SQL("UPDATE {} SET batch = %s WHERE query = %s AND target = %s").format(self._notes)
        cursor.execute(note, (batch, self.query.name, self._table))

    def _upsert(self, cursor: Any, changes: Net) -> None:
        names = changes.rows.column_names
        staged, all_ = sql.Identifier("penstock_changes"), _names(names)
        make = sql.SQL(
            "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {}, true AS {}, true AS {} FROM {} WITH NO DATA"
        )
        cursor.execute(make.format(staged, all_, sql.Identifier(_STAYS), sql.Identifier(_FRESH), self._target))
        rows = changes.rows.append_column(_STAYS, pa.array(changes.stays))
        self._copy(cursor, staged, rows.append_column(_FRESH, pa.array(changes.fresh)))
        same = sql.SQL(" AND ").join(sql.SQL("t.{0} = c.{0}").format(sql.Identifier(k)) for k in self._key)
        if not self._appends:
            self._no_key_twice(cursor, staged, same)
        gone = sql.SQL("DELETE FROM {} t USING {} c WHERE NOT c.{} AND ")
        cursor.execute(gone.format(self._target, staged, sql.Identifier(_STAYS)) + same)
        others = [name for name in names if name not in self._key]
        sets = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        put = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} ON CONFLICT ({}) DO ").format(
            self._target, all_, all_, staged, sql.Identifier(_STAYS), _names(self._key)
        )
        cursor.execute(put + (sql.SQL("UPDATE SET ") + sets if others else sql.SQL("NOTHING")))

    def _no_key_twice(self, cursor: Any, staged: Any, same: Any) -> None:
        """Check that a new key is not in the table yet, where only this query writes."""
        keys = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(k)) for k in self._key)
        ask = sql.SQL("SELECT {} FROM {} t, {} c WHERE c.{} AND ").format(
            keys, self._target, staged, sql.Identifier(_FRESH)
        )
        cursor.execute(ask + same + sql.SQL(" LIMIT 1"))
        found = cursor.fetchone()
        if found is not None:
            columns = {name: [value] for name, value in zip(self._key, found, strict=True)}
            raise violation(self.query, self._key, pa.table(columns), 0)

    def _no_null(self, rows: pa.Table) -> None:
        for name in self._key:
            if rows[name].null_count:
                message = f"query {self.query.name}: a row of the result has NULL in its key, column {name}"
                raise PenstockError("P0502", message, hint="leave such rows out, or COALESCE(..) in the query")

    def _copy(self, cursor: Any, target: Any, table: pa.Table) -> None:
        columns = [_readable(column) for column in table.columns]
        text = csv_text(pa.table(columns, names=table.column_names))
        into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, HEADER true)").format(target, _names(table.column_names))
        with cursor.copy(into) as copy:
            copy.write(memoryview(text))


def _names(names: Sequence[str]) -> Any:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _made(type_: pa.DataType) -> str:
    """Return the column type of a new table for this type."""
    name = next(made for fits, made, _ in _TYPES if fits(type_))
    return f"numeric({type_.precision},{type_.scale})" if pa.types.is_decimal(type_) else name


def _taken(type_: pa.DataType) -> tuple[str, ...]:
    """Return the column types that accept values of this type."""
    return next(taken for fits, _, taken in _TYPES if fits(type_))


def _readable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column in the form that PostgreSQL reads, where that differs from Penstock's csv."""
    if pa.types.is_duration(column.type):
        return pc.binary_join_element_wise(column.cast(pa.int64()).cast(pa.string()), "microseconds", " ")
    return _hexed(column) if pa.types.is_binary(column.type) else column


def _hexed(column: pa.ChunkedArray) -> pa.Array:
    """Return bytes as PostgreSQL reads them, `\\x...`, in one vectorised pass."""
    values = column.combine_chunks().cast(pa.binary())
    values = pa.concat_arrays([values]) if values.offset else values
    size = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[: size + 1] if size else np.zeros(1, np.int32)
    data = values.buffers()[2]
    text = data.to_pybytes()[offsets[0] : offsets[-1]].hex().encode() if data is not None else b""
    starts = pa.py_buffer((2 * (offsets - offsets[0])).astype(np.int32))
    digits = pa.Array.from_buffers(pa.string(), size, [None, starts, pa.py_buffer(text)])
    return pc.if_else(values.is_valid(), pc.binary_join_element_wise("\\x", digits, ""), None)
