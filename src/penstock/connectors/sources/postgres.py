"""POSTGRES: a table or query of a PostgreSQL database, read once, or polled for rows of a higher version.

Contract: a relation without TIMESTAMP BY is the result of one statement, without rows that no query reads where the
server can decide that (`postgres_where.py`). With a timestamp the rows are in its order; with `poll`, rows whose
`version` is above the highest seen are read repeatedly, as rows of a stream or as updates by primary key, and with
`deleted` a flag marks deletions: it becomes the column of OPERATION BY. The server's answer is stored in a file before
any of it is used (`keep_in`), so a replay reads the same rows. Where the version is the timestamp, a poll also advances
time: to the highest version, or for a TIMESTAMP to the server's clock minus `settle`, the longest time from the stamp
of a change to its commit. Rows are read by COPY as csv, so the readers of csv files convert and reject them; only the
driver connects to the server.
"""

from __future__ import annotations

import json
import re
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import ParsedRecords, SourceConnector, Split
from penstock.connectors.formats import casts
from penstock.connectors.formats.base import TextOptions
from penstock.connectors.formats.csv import CsvFormat
from penstock.connectors.options import DURATION, TEXT, Applies, Option, Options, OptionTable
from penstock.connectors.postgres import (
    ARROW,
    BYTEA,
    NUMERIC,
    SERVER_OPTIONS,
    TIMESTAMPTZ,
    Gone,
    Server,
    identifier,
    only_row,
    sql,
)
from penstock.connectors.postgres_where import ServerColumn, where_of
from penstock.errors import PenstockError, nearest
from penstock.storage import NewFile, storage
from penstock.storage.seals import checksum, damaged, sealed, unsealed
from penstock.temporary import discard, temporary_folder
from penstock.types import type_name

if TYPE_CHECKING:
    from psycopg import Column, Cursor

_TABLE = Option("table", TEXT, "the table to read, with or without its schema")
_QUERY = Option("query", TEXT, "the query to read, in the server's SQL")
_VERSION = Option("version", TEXT, "the column that grows with every change of a row", applies=Applies.TIMED)
_POLL = Option("poll", DURATION, "time between two polls; without it all is read once", applies=Applies.TIMED)
_SETTLE = Option(
    "settle", DURATION, "time that a change may take from its stamp to its commit", "1 second", applies=Applies.TIMED
)
_DELETED = Option("deleted", TEXT, "the boolean column that marks a deletion", applies=Applies.TIMED)
_NOTE_FILE = re.compile(r"^poll-(\d{8})\.json$")
_DATA_FILE = re.compile(r"/poll-(\d{8})\.csv$")
#: A csv line of one NULL is an empty line, which is not a record; another cell makes it one.
_FILLER = "penstock_row"


@dataclass(frozen=True)
class Stored:
    """A column as the server stores it. `oid`: its type's number; `kind`: as Arrow, None for a number of any size."""

    name: str
    oid: int
    kind: pa.DataType | None
    shown: str


class PostgresSource(SourceConnector):
    OPTIONS = OptionTable((*SERVER_OPTIONS, _TABLE, _QUERY, _VERSION, _POLL, _SETTLE, _DELETED))
    rereadable = False

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"POSTGRES of {source.name}", source.options)
        options.only(self.OPTIONS)
        self._owner = f"source {source.name}"
        self._server = Server(options, self._owner, "P0401")
        if options.has(_TABLE) == options.has(_QUERY):
            raise PenstockError("P0208", f"{options.owner} needs one of the options table and query")
        self._table = options.text(_TABLE).strip()
        self._query = options.text(_QUERY).strip().rstrip(";")
        self._version = options.text(_VERSION).strip()
        self._deleted = options.text(_DELETED).strip()
        self._every = options.optional(_POLL)
        if self._every is not None and not self._version:
            hint = "version 'column': a column that grows with every change of a row"
            raise PenstockError("P0208", f"{options.owner}: the option poll needs the option version", hint=hint)
        self._settle = options.value(_SETTLE)
        if options.has(_SETTLE) and not (self._is_version_timestamp and self._has_calendar_time):
            hint = "the option version then names the column of TIMESTAMP BY, a TIMESTAMP"
            raise PenstockError("P0208", f"{options.owner}: the option settle is for polls by time", hint=hint)
        if source.has_timestamps and source.rising_column is None:
            hint = "it is a column, or rises with one; let the option query compute the timestamp as a column"
            message = f"{options.owner}: rows cannot be ordered by the TIMESTAMP BY {source.shown_timestamp}"
            raise PenstockError("P0208", message, hint=hint)
        self._reached_tick: int | None = None
        self._folder: Path | None = None
        self._next_poll = 0.0
        self._unreachable_since: float | None = None

    @property
    def bounded(self) -> bool:
        return self._every is None

    @property
    def _label(self) -> str:
        return f"table {self._table}" if self._table else "the query"

    def keep_in(self, folder: Path) -> None:
        self._folder = folder

    def reached(self) -> int | None:
        return self._reached_tick

    def check(self) -> None:
        self._server.do(lambda cursor: self._columns(cursor), read_only=True)

    # -- polls -------------------------------------------------------------------------------------------------

    def discover(self, known: Set[str]) -> list[str]:
        polls = self._polls()
        last_known_poll = max((int(m[1]) for m in map(_DATA_FILE.search, known) if m), default=0)
        if last_known_poll > max(polls, default=0):
            raise damaged(self._note_file(last_known_poll), FileNotFoundError("it is gone"))
        unread_paths = [
            str(path) for path in map(self._data_file, polls) if str(path) not in known and storage().exists(path)
        ]
        if unread_paths or (self.bounded and polls) or time.monotonic() < self._next_poll:
            return unread_paths
        self._next_poll = time.monotonic() + (self._every or 0.0)
        try:
            outcome = self._server.do(lambda cursor: self._poll(cursor, polls), not polls, read_only=True)
        except Gone as gone:
            # Waiting loses nothing: the next poll reads what this one would have read.
            self._unreachable_since = self._unreachable_since or time.monotonic()
            if time.monotonic() - self._unreachable_since > self._server.timeout:
                raise gone.error from None
            return []
        self._unreachable_since = None
        new_file, self._reached_tick = outcome
        return [str(new_file)] if new_file is not None else []

    def forget(self, paths: Sequence[str]) -> None:
        for path in paths:
            storage().remove(Path(path))
        # The last one has the position reached.
        for number in self._polls()[:-1]:
            if not storage().exists(self._data_file(number)):
                storage().remove(self._note_file(number))

    @property
    def _is_version_timestamp(self) -> bool:
        """Return whether polls go by the timestamps themselves, so that they advance time."""
        timestamp = self.source.timestamp
        is_polled = self._every is not None and timestamp is not None
        return is_polled and self.source.columns[timestamp or 0].name.lower() == self._version.lower()

    @property
    def _has_calendar_time(self) -> bool:
        return self.source.domain is not None and self.source.domain.calendar

    def _poll(self, cursor: Cursor, polls: Sequence[int]) -> tuple[Path | None, int | None]:
        """Poll once: return the file of new rows, None if there are none, and the tick up to which all rows have been
        read.
        """
        columns = self._columns(cursor)
        last_version = _read_note(self._note_file(polls[-1]))["version"] if polls else None
        conditions: list[sql.Composable] = []
        max_version = reached = None
        if self._version:
            version = sql.Identifier(self._column(columns, self._version).name)
            if last_version is not None:
                conditions.append(sql.SQL("{} > {}").format(version, sql.Literal(last_version)))
            if self._is_version_timestamp and self._has_calendar_time:
                conditions.append(
                    sql.SQL("{} <= now() - make_interval(secs => {})").format(version, sql.Literal(self._settle))
                )
            cursor.execute(
                sql.SQL("SELECT max({0})::text, {1} FROM ").format(version, self._tick(version))
                + self._relation
                + self._where_clause(conditions)
            )
            max_version, reached = only_row(cursor)
            if max_version is None and polls:
                return None, reached or self._reached_tick
            conditions.append(sql.SQL("{} <= {}").format(version, sql.Literal(max_version)))
        if self.predicate is not None and self.source.is_static:
            source_condition = where_of(self.predicate, self._server_columns(columns))
            conditions += [] if source_condition is None else [sql.SQL("({})").format(source_condition)]
        if self._deleted and not polls:
            conditions.append(
                sql.SQL("{} IS NOT TRUE").format(sql.Identifier(self._column(columns, self._deleted).name))
            )
        number = (polls[-1] if polls else 0) + 1
        data_file = self._data_file(number)
        query = (
            sql.SQL("SELECT ")
            + self._items(columns)
            + sql.SQL(" FROM ")
            + self._relation
            + self._where_clause(conditions)
        )
        statement = sql.SQL("COPY (") + query + self._order_clause(columns)
        statement += sql.SQL(") TO STDOUT (FORMAT csv, HEADER true)")

        def copied(file: NewFile) -> None:
            with cursor.copy(statement) as copy:
                for block in copy:
                    file.write(block)

        storage().write(data_file, copied)
        note_file = self._note_file(number)
        content = json.dumps({"version": max_version, "checksum": checksum(data_file)})
        storage().write(note_file, sealed(content, _sealed_name(note_file)))
        return data_file, reached

    def _tick(self, version: sql.Composable) -> sql.Composable:
        """Return SQL for the tick up to which all rows have been read: by the clock of the server, or the highest
        version.
        """
        if not self._is_version_timestamp:
            return sql.SQL("NULL::bigint")
        if not self._has_calendar_time:
            return sql.SQL("max({})").format(version)
        settled_time = sql.SQL("now() - make_interval(secs => {})").format(sql.Literal(self._settle))
        return sql.SQL("(extract(epoch FROM {}) * 1000000)::bigint").format(settled_time)

    def _polls(self) -> list[int]:
        """Return the numbers of the polls that are stored completely, and of the last one."""
        names = map(_NOTE_FILE.match, storage().list(self._poll_folder))
        return sorted(int(match[1]) for match in names if match)

    def _data_file(self, number: int) -> Path:
        return self._poll_folder / f"poll-{number:08d}.csv"

    def _note_file(self, number: int) -> Path:
        return self._data_file(number).with_suffix(".json")

    @property
    def _poll_folder(self) -> Path:
        if self._folder is None:
            self._folder = temporary_folder()
            # It is removed with its owner; a copy of the owner in another process has none.
            weakref.finalize(self, discard, self._folder)
        return self._folder

    # -- the SELECT --------------------------------------------------------------------------------------------

    @property
    def _relation(self) -> sql.Composable:
        if self._table:
            return identifier(self._table)
        return sql.SQL("(") + sql.SQL(self._query) + sql.SQL("\n) AS penstock_query")

    def _columns(self, cursor: Cursor) -> Mapping[str, Stored]:
        """Return the columns by name.

        Raises:
            PenstockError: P0402, a declared column is missing or does not fit.
        """
        cursor.execute(sql.SQL("SELECT * FROM ") + self._relation + sql.SQL(" LIMIT 0"))
        columns = {c.name: _stored(c, cursor) for c in cursor.description or ()}
        for position, column in enumerate(self.source.columns):
            if self._deleted and position == self.source.operation:
                continue
            stored = self._column(columns, column.name)
            misfit = (
                not pa.types.is_decimal(column.type) if stored.kind is None else casts.misfit(stored.kind, column.type)
            )
            if misfit:
                mismatch = f"is {stored.shown} in the table and declared {type_name(column.type)}"
                message = f"{self._owner}: {self._label}: column {column.name} {mismatch}"
                hint = "declare a type that holds it, or cast it in the option query"
                raise PenstockError("P0402", message, hint=hint)
        if self._version:
            self._column(columns, self._version)
        if self._deleted and self._column(columns, self._deleted).oid != 16:
            message = f"{self._owner}: {self._label}: column {self._deleted} is not boolean, as option deleted requires"
            raise PenstockError("P0402", message)
        return columns

    def _server_columns(self, columns: Mapping[str, Stored]) -> list[ServerColumn]:
        """Return the declared columns, as the server has them."""
        columns_and_types = [(self._column(columns, column.name), column.type) for column in self.source.columns]
        return [ServerColumn(stored.name, stored.oid, stored.kind, declared) for stored, declared in columns_and_types]

    def _column(self, columns: Mapping[str, Stored], name: str) -> Stored:
        """Return the column that a declaration calls `name`.

        Raises:
            PenstockError: P0402.
        """
        if name in columns:
            return columns[name]
        matches = [c for c in columns.values() if c.name.lower() == name.lower()]
        if len(matches) != 1:
            problem = "is missing" if not matches else "could be several"
            message = f"{self._owner}: {self._label}: column {name} {problem}"
            raise PenstockError("P0402", message, hint=nearest(name, columns))
        return matches[0]

    def _items(self, columns: Mapping[str, Stored]) -> sql.Composable:
        items = []
        for position, column in enumerate(self.source.columns):
            if self._deleted and position == self.source.operation:
                flag = sql.Identifier(self._column(columns, self._deleted).name)
                text = sql.SQL("CASE WHEN {} THEN '-' ELSE '+' END").format(flag)
            else:
                stored = self._column(columns, column.name)
                template = {TIMESTAMPTZ: "{} AT TIME ZONE 'UTC'", BYTEA: "encode({}, 'hex')"}.get(stored.oid, "{}")
                text = sql.SQL(template).format(sql.Identifier(stored.name))
            items.append(text + sql.SQL(" AS ") + sql.Identifier(column.name))
        if len(items) == 1:
            items.append(sql.SQL("1 AS ") + sql.Identifier(_FILLER))
        return sql.SQL(", ").join(items)

    def _order_clause(self, columns: Mapping[str, Stored]) -> sql.Composable:
        if self.source.is_static:
            return sql.SQL("")
        names = [self._version] if self._version else []
        if self.source.rising_column is not None:
            names.insert(0, self.source.columns[self.source.rising_column].name)
        keys = [sql.Identifier(self._column(columns, name).name) for name in names]
        return sql.SQL(" ORDER BY ") + sql.SQL(", ").join(keys) if keys else sql.SQL("")

    def _where_clause(self, conditions: Sequence[sql.Composable]) -> sql.Composable:
        return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("")

    # -- reading what is kept ----------------------------------------------------------------------------------

    def splits(self, path: str) -> list[Split]:
        if not Path(path).exists():
            message = f"{self._owner}: the rows read from {self._label} are missing: {path}"
            raise PenstockError("P0401", message, hint="the checkpoint is damaged; start a new run")
        return [Split(path, bytes=Path(path).stat().st_size)]

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        self._check_unchanged(Path(split.path))
        binary_positions = [i for i, c in enumerate(columns) if pa.types.is_binary(self.source.columns[c].type)]
        for records in CsvFormat(self.source, TextOptions()).read(split, columns):
            batch = records.batch
            for i in binary_positions:
                batch = batch.set_column(i, batch.schema.field(i), _from_hex(batch.column(i)))
            rejected = tuple(replace(r, path=f"PostgreSQL, {self._label}", line=None) for r in records.rejected)
            yield ParsedRecords(batch, rejected)

    def _check_unchanged(self, path: Path) -> None:
        """Check that `path` holds the server's answer unchanged.

        Raises:
            PenstockError: P0605, it does not.
        """
        note = _read_note(path.with_suffix(".json"))
        try:
            if checksum(path) != note["checksum"]:
                raise ValueError("its content does not match its checksum")
        except (OSError, ValueError) as error:
            raise damaged(path, error) from error


def _sealed_name(note: Path) -> str:
    """Return the text that the seal of a note covers: the source's folder, and the number of the poll."""
    return f"{note.parent.name}/{note.name}"


def _read_note(note: Path) -> dict[str, Any]:
    """Return the note beside a poll.

    Raises:
        PenstockError: P0605.
    """
    try:
        content: dict[str, Any] = json.loads(unsealed(storage().read(note), _sealed_name(note)))
    except (OSError, ValueError) as error:
        raise damaged(note, error) from error
    return content


def _stored(column: Column, cursor: Cursor) -> Stored:
    oid = column.type_code
    type_info = cursor.adapters.types.get(oid)
    type_shown = (type_info.name if type_info else "a type of its own").upper()
    if oid != NUMERIC:
        return Stored(column.name, oid, ARROW.get(oid, pa.string()), type_shown)
    if column.precision is None or column.precision > 38 or (column.scale or 0) > column.precision:
        return Stored(column.name, oid, None, type_shown)
    return Stored(column.name, oid, pa.decimal128(column.precision, column.scale or 0), column.type_display)


def _from_hex(values: pa.Array) -> pa.Array:
    """Decode hexadecimal texts to bytes, in one vectorised pass."""
    size = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + size + 1]
    data = values.buffers()[2]
    text = data.to_pybytes()[offsets[0] : offsets[-1]] if data is not None and size else b""
    starts = (
        pa.py_buffer(((offsets - offsets[0]) // 2).astype(np.int32)) if size else pa.py_buffer(np.zeros(1, np.int32))
    )
    binary = pa.Array.from_buffers(pa.binary(), size, [None, starts, pa.py_buffer(bytes.fromhex(text.decode("ascii")))])
    # NULLs stay: taking at a NULL position gives NULL.
    return binary.take(pa.array(np.arange(size), mask=~np.asarray(values.is_valid()))) if values.null_count else binary
