"""FILES: one part file per batch in a folder, each complete or absent; a marker describes the folder.

Contract: `part-<batch>.<format>` is written under a hidden name in the same folder, flushed to disk, then renamed, so a
reader never sees half a batch, and a repeated batch replaces itself. The user's umask decides who may read it.
`_penstock.json` has the query's name, the columns and their types, and the id of the run. Nothing that a Penstock
result could not have written is ever removed.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Sink, Target
from penstock.connectors.local_paths import blocking_file, local_path, parts_of
from penstock.connectors.options import TEXT, Option, Options, OptionTable, one_of
from penstock.connectors.sinks.tables import stored_schema
from penstock.connectors.sources.files import FilesSource
from penstock.connectors.text import csv_text, json_text
from penstock.errors import PenstockError
from penstock.expressions.values.calendar import day_of, moment_of
from penstock.expressions.values.intervals import from_text
from penstock.storage import NewFile, storage
from penstock.types import Field, Schema, parse_result_type, type_name

# --- Arrays and structs parsed from the JSON in csv and json results (`text.py` writes them).
#
# Contract: `from_json` is the inverse of `text.py` for a value of a nested type. For people who look at a result; no
# stream passes through it.


def from_json(texts: Iterable[str | None], type_: pa.DataType) -> pa.Array:
    """Parse JSON texts as values of `type_`; None is NULL."""
    values = (None if text is None else json.loads(text, parse_float=str) for text in texts)
    return pa.array([_value(value, type_) for value in values], type_)


def column_of_lines(part: Path, name: str, type_: pa.DataType) -> pa.Array:
    """Return the values of the key `name` in a file of json lines."""
    lines = part.read_text(encoding="utf-8").split("\n")
    rows = (json.loads(line, parse_float=str) for line in lines if line)
    return pa.array([_value(row[name], type_) for row in rows], type_)


def _value(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(type_):
        return [_value(member, type_.value_type) for member in value]
    if pa.types.is_struct(type_):
        return {field.name: _value(value[field.name], field.type) for field in type_}
    if pa.types.is_decimal(type_):
        return Decimal(value)
    if pa.types.is_floating(type_):
        return float(value)
    if pa.types.is_binary(type_):
        return base64.b64decode(value)
    if pa.types.is_duration(type_):
        return from_text(pa.array([value], pa.string()))[0].as_py()
    if pa.types.is_date(type_):
        return day_of(value)
    return moment_of(value) if pa.types.is_timestamp(type_) else value


_PATH = Option("path", TEXT, "the folder of the result", required=True)
_FORMAT = Option(
    "format", one_of("csv", "json", "parquet"), "the format; without it the suffix of the path decides", "csv"
)
#: Rows of a sample that decides whether a column's values repeat.
_SAMPLE = 1024
MARKER = "_penstock.json"
_VERSION = 1
_OWN = re.compile(
    r"^part-\d{8,}\.(csv|json|parquet)$|^\.(part-\d{8,}\.(csv|json|parquet)|_penstock\.json)(\.[0-9a-f]{12})?\.tmp$"
)


@dataclass(frozen=True)
class Marker:
    """The description of a result folder in its marker."""

    query: str
    format: str
    columns: list[str]
    types: list[str]
    run: str
    version: int = _VERSION

    @staticmethod
    def read(folder: Path) -> Marker | None:
        """Return the marker of `folder`; None when it has none that can be parsed."""
        try:
            return Marker(**json.loads(storage().read(folder / MARKER)))
        except (OSError, ValueError, TypeError):
            return None


class FilesSink(Sink):
    OPTIONS = OptionTable((_PATH, _FORMAT))
    beside = True
    leaves_parts = True

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        options = Options(f"INTO FILES of {query.name}", query.sink.options)
        options.only(self.OPTIONS)
        self._folder = local_path(options.needed(_PATH))
        self._format = options.value(_FORMAT)

    @property
    def place(self) -> str:
        return str(self._folder)

    @classmethod
    def target(cls, query: Query) -> Target | None:
        path = local_path(Options(f"INTO FILES of {query.name}", query.sink.options).needed(_PATH))
        return Target("files", parts_of(path), str(path), blocked=str(blocking_file(path) or ""))

    def open(self, resume: bool, overwrite: bool) -> None:
        blocking = blocking_file(self._folder)
        if blocking is not None:
            message = f"query {self.query.name}: {self._folder} cannot be created, {blocking} is not a folder"
            raise PenstockError("P0502", message, hint="choose a path whose parents are folders, or do not exist yet")
        marker = Marker.read(self._folder)
        try:
            names = storage().list(self._folder)
            unfinished = [name for name in names if _OWN.match(name) and name.endswith(".tmp")]
            if resume and marker is not None:
                self._check_marker(marker)
                self._remove(unfinished)
                return
            if resume and all(_OWN.match(name) for name in names):
                # The loss of the result has been accepted, including its marker.
                self._remove(unfinished)
            elif len(names) > len(unfinished) + (MARKER in names):
                self._remove_result(names, marker, overwrite)
            else:
                # A run that was killed before its first batch left no result, at most a marker.
                self._remove(unfinished)
            text = json.dumps(asdict(self._marker()), indent=1) + "\n"
            storage().write(self._folder / MARKER, text.encode(), private=False)
        except OSError as error:
            raise self._failed(self._folder, error) from error

    def withdraw(self) -> None:
        self.open(resume=False, overwrite=True)

    def missing(self, batches: Sequence[int]) -> Mapping[str, int]:
        present = set(storage().list(self._folder))
        # Without the marker the parts cannot be read.
        missing = {MARKER: -1} if batches and MARKER not in present else {}
        return missing | {name: batch for batch in batches if (name := self._part(batch)) not in present}

    def _part(self, batch: int) -> str:
        return f"part-{batch:08d}.{self._format}"

    def write(self, batch: int, table: pa.Table) -> None:
        self.write_pieces(batch, iter([table]))

    def write_pieces(self, batch: int, pieces: Iterator[pa.Table]) -> None:
        name = self._part(batch)
        try:
            first_piece = next(pieces)
            if not first_piece.num_rows:
                storage().remove(self._folder / name)
                return
            typed_pieces = (self._typed(table) for table in chain([first_piece], pieces))
            write = _WRITERS[self._format]
            storage().write(self._folder / name, lambda file: write(typed_pieces, file), private=False)
        except (OSError, pa.ArrowException) as error:
            raise self._failed(self._folder / name, error) from error

    def _typed(self, table: pa.Table) -> pa.Table:
        """Return `table` with the types of the marker: a column that is always NULL is text."""
        schema = pa.schema(
            [pa.field(n, parse_result_type(t)) for n, t in zip(table.column_names, self._types(), strict=True)]
        )
        return table.cast(schema)

    def _types(self) -> list[str]:
        return [type_name(t) for t in stored_schema(self.query).types]

    def _marker(self) -> Marker:
        return Marker(self.query.name, self._format, list(self.query.output_names), self._types(), uuid.uuid4().hex)

    def _check_marker(self, marker: Marker) -> None:
        expected = self._marker()
        if (marker.format, marker.columns, marker.types) != (expected.format, expected.columns, expected.types):
            message = (
                f"query {self.query.name}: {self._folder} holds a result of another form: {_change(marker, expected)}"
            )
            raise PenstockError("P0501", message, hint="choose another folder, or start again with --overwrite")

    def _remove_result(self, names: list[str], marker: Marker | None, overwrite: bool) -> None:
        """Remove an earlier result, or refuse to."""
        own = [name for name in names if _OWN.match(name)]
        if not overwrite:
            hint = (
                "--overwrite replaces it, --checkpoint DIR continues a run where it stopped; or choose another folder"
            )
            message = f"query {self.query.name}: {self._folder} is not empty"
            raise PenstockError("P0501", message, hint=hint)
        foreign = [name for name in names if name not in own and name != MARKER]
        if foreign and marker is None:
            message = f"query {self.query.name}: {self._folder} has foreign files, such as {foreign[0]}"
            raise PenstockError("P0501", message, hint="they are not overwritten: choose another folder")
        # The marker is removed last: a half-removed folder is still recognised as a result.
        self._remove([*own, *(name for name in names if name == MARKER)])

    def _remove(self, names: list[str]) -> None:
        for name in names:
            storage().remove(self._folder / name)

    def _failed(self, path: Path, error: Exception) -> PenstockError:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "free space on that disk, or allow writing there; nothing of this batch is visible"
        return PenstockError(
            "P0502", f"query {self.query.name}: {path} cannot be written: {reason}", hint=hint, cause=error
        )


def read_result(path: str) -> pa.Table:
    """Return the result in the folder `path`, batch after batch.

    Raises:
        PenstockError: P0401, there is none.
    """
    folder = Path(path)
    marker = Marker.read(folder)
    if marker is None:
        raise PenstockError("P0401", f"{path} holds no result", hint=f"a result folder has a file {MARKER}")
    types = [parse_result_type(text) for text in marker.types]
    schema = pa.schema(list(zip(marker.columns, types, strict=True)))
    # Sources have no array type: csv gives them as text, json omits them, and they are read after the other columns.
    nested = [f for f in schema if pa.types.is_nested(f.type)]
    lengths = [f for f in schema if pa.types.is_duration(f.type) and marker.format != "parquet"]
    fields = [
        Field(f.name, pa.string() if (f in nested and marker.format == "csv") or f in lengths else f.type)
        for f in schema
        if f not in nested or marker.format != "json"
    ]
    columns = Schema(tuple(fields))
    parts = sorted(folder.glob(f"part-*.{marker.format}"), key=lambda p: (len(p.name), p.name))
    options = (("path", str(folder.absolute())), ("format", marker.format))
    source = FilesSource(Source(marker.query, True, columns, "FILES", options))
    tables = [schema.empty_table()]
    for part in parts:
        batches = []
        for split in source.splits(str(part.absolute())):
            for records in source.read(split, tuple(range(len(columns)))):
                if records.rejected:
                    raise PenstockError("P0401", f"{part} is damaged: {records.rejected[0].reason}")
                batches.append(records.batch)
        table = pa.Table.from_batches(batches, schema=pa.schema([(f.name, f.type) for f in fields]))
        columns_by_name = {name: table[name] for name in table.column_names}
        columns_by_name |= {f.name: from_text(table[f.name].combine_chunks()) for f in lengths}
        for f in nested if marker.format != "parquet" else ():
            texts = columns_by_name[f.name].to_pylist() if f.name in columns_by_name else None
            columns_by_name[f.name] = (
                from_json(texts, f.type) if texts is not None else column_of_lines(part, f.name, f.type)
            )
        tables.append(pa.table([columns_by_name[name] for name in schema.names], schema=schema))
    return pa.concat_tables(tables)


def _write_text(text: Callable[[pa.Table, bool], pa.Buffer]) -> Callable[[Iterator[pa.Table], NewFile], None]:
    """Return a writer of pieces by `text`, whose arguments are a piece and whether it is the first."""

    def write(pieces: Iterator[pa.Table], file: NewFile) -> None:
        for number, piece in enumerate(pieces):
            file.write(memoryview(text(piece, number == 0)))

    return write


def _write_parquet(pieces: Iterator[pa.Table], file: NewFile) -> None:
    """Write a row group for each piece."""
    first_piece = next(pieces)
    with pq.ParquetWriter(
        file, first_piece.schema, compression="zstd", use_dictionary=_repetitive(first_piece)
    ) as writer:
        for piece in chain([first_piece], pieces):
            writer.write_table(piece)


def _repetitive(table: pa.Table) -> list[str]:
    """Return the columns whose values repeat, by a sample of rows: for these, parquet writes a dictionary.

    For other columns parquet would build a dictionary too, and discard it when it has grown large, which takes longer
    than everything else.
    """
    positions = np.linspace(0, table.num_rows - 1, min(table.num_rows, _SAMPLE)).astype(np.int64)
    sample = table.take(pa.array(positions))
    return [name for name in table.column_names if _is_repetitive(sample.column(name))]


def _is_repetitive(values: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(values.type):
        return True
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_temporal(values.type)):
        return True  # texts and decimals are long: the possible saving is worth building a dictionary
    return 2 * len(values.unique()) <= len(values)


#: Number of differences that a message names.
_CHANGES = 3
_WRITERS: dict[str, Callable[[Iterator[pa.Table], NewFile], None]] = {
    "csv": _write_text(csv_text),
    "json": _write_text(json_text),
    "parquet": _write_parquet,
}


def _change(before: Marker, now: Marker) -> str:
    """Return how the form of a result differs from that of an earlier one, the most telling differences first."""
    there, here = dict(zip(before.columns, before.types, strict=True)), dict(zip(now.columns, now.types, strict=True))
    changes = [f"its format was {before.format} and is {now.format}"] if before.format != now.format else []
    changes += [f"{name} is a new column" for name in here if name not in there]
    changes += [f"{name} is no column any more" for name in there if name not in here]
    changes += [
        f"{name} was {there[name]} and is {here[name]}" for name in here if name in there and there[name] != here[name]
    ]
    if not changes:
        changes = [f"its columns were in the order {', '.join(before.columns)}"]
    return "; ".join(changes[:_CHANGES]) + (f"; and {len(changes) - _CHANGES} more" if len(changes) > _CHANGES else "")
