"""MEMORY and DATAFRAME: rows that the runtime has spooled to files, from INSERT or from a table passed in Python.

Contract: the option `spool` names an Arrow IPC file or a folder of parquet or Arrow files; without it there are no
rows. `spool` writes such a file with the declared types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import (
    PlacedHeartbeat,
    StreamRecord,
    cut_at_heartbeats,
    heartbeats_of,
    placed,
    with_heartbeats,
)
from penstock.connectors.contract import ParsedRecords, SourceConnector, Split
from penstock.connectors.formats import FORMATS, FileFormat, casts, cells, format_of
from penstock.connectors.formats.base import DAMAGE, one_line
from penstock.connectors.options import TEXT, Option, Options, OptionTable
from penstock.errors import PenstockError, counted
from penstock.storage import NewFile, storage
from penstock.types import type_name

SPOOL = Option("spool", TEXT, "the file or folder of the rows", internal=True)


class SpooledSource(SourceConnector):
    OPTIONS = OptionTable((SPOOL,))

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"{source.connector} of {source.name}", source.options)
        options.only(self.OPTIONS)
        self._spool = options.text(SPOOL)

    @property
    def bounded(self) -> bool:
        return True

    def check(self) -> None:
        paths = self.discover(frozenset())
        if self._spool and not Path(self._spool).exists():
            raise PenstockError("P0404", f"source {self.source.name}: its spooled rows are gone: {self._spool}")
        for path in paths[:1]:
            try:
                self._format(path).check(path)
            except DAMAGE as error:
                message = f"source {self.source.name}: {path} cannot be read: {one_line(error)}"
                raise PenstockError("P0401", message) from None

    def discover(self, known: Set[str]) -> list[str]:
        path = Path(self._spool)
        if not self._spool:
            return []
        paths = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        return [str(p) for p in paths if str(p) not in known and not p.name.startswith(("_", "."))]

    def splits(self, path: str) -> list[Split]:
        if not Path(path).exists():
            raise PenstockError("P0401", f"source {self.source.name}: its spooled rows are gone: {path}")
        return splits_of_arrow(path) or self._format(path).splits(path)

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        return self._format(split.path).read(split, columns)

    def _format(self, path: str) -> FileFormat:
        return self._formats[format_of(path) or "arrow"]

    @cached_property
    def _formats(self) -> dict[str, FileFormat]:
        return {name: format_(self.source, predicate=self.predicate) for name, format_ in FORMATS.items()}


def splits_of_arrow(path: str) -> list[Split]:
    """Return the splits of a file that `write_table` has written with heartbeats among its rows; none of any other."""
    if not path.endswith(".arrow"):
        return []
    try:
        with pa.memory_map(path) as mapped, pa.ipc.open_file(mapped) as reader:
            if not heartbeats_of(reader.schema):
                return []
            rows = sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
            return _splits_at_heartbeats(reader.schema, path, rows, Path(path).stat().st_size)
    except DAMAGE:
        return []  # who reads it reports that


def _splits_at_heartbeats(schema: pa.Schema, path: str, rows: int, size: int) -> list[Split]:
    """Return the splits of an Arrow file with heartbeats among its rows, which is cut at these. rows, size: of the
    file."""
    splits = [
        Split(path, batch, batch + 1, size * (stop - start) // rows, stop - start)
        for batch, (start, stop) in enumerate(cut_at_heartbeats(schema, rows))
    ]
    found: list[Split] = []
    before = 0
    for beat in heartbeats_of(schema):
        while before < beat.rows:
            found.append(splits.pop(0))
            before += found[-1].rows or 0
        if beat.punctuation:
            found.append(Split(path, punctuation=beat.punctuation, rows=0))
        else:
            found.append(Split(path, heartbeat=beat.tick, rows=0))
    return [*found, *splits]


def spool(source: Source, rows: Sequence[tuple[object, ...] | StreamRecord] | pa.Table, path: str) -> None:
    """Write `rows` to the Arrow file `path` with the declared types; see `typed_table` and `inserted_rows`."""
    table = typed_table(source, rows) if isinstance(rows, pa.Table) else inserted_rows(source, rows)
    write_table(table, Path(path))


def inserted_rows(source: Source, rows: Sequence[tuple[object, ...] | StreamRecord]) -> pa.Table:
    """Return what a script has written into a MEMORY source as a table of the declared columns. Raises PenstockError
    P0203 and P0305, as `typed_table`."""
    values: list[tuple[object, ...]] = []
    records: list[PlacedHeartbeat] = []
    for row in rows:
        if isinstance(row, tuple):
            values.append(row)
        else:
            records.append(placed(len(values), row))
    return with_heartbeats(typed_table(source, values), records)


def typed_table(source: Source, rows: Sequence[tuple[object, ...]] | pa.Table) -> pa.Table:
    """Return `rows` as a table of the declared columns.

    Texts are accepted for values of any type, as in CAST.

    Args:
        source: the declaration.
        rows: one value per declared column, or a table with the columns in their order.

    Raises:
        PenstockError: P0203, a value does not fit; P0305, a row has another length.
    """
    width = len(source.columns)
    if isinstance(rows, pa.Table):
        if rows.num_columns != width:
            raise _wrong_width(source, rows.num_columns)
        columns = [column.combine_chunks() for column in rows.columns]
    else:
        misfitting_row = next((row for row in rows if len(row) != width), None)
        if misfitting_row is not None:
            raise _wrong_width(source, len(misfitting_row))
        columns = [_array(source, i, [row[i] for row in rows]) for i in range(width)]
    typed_columns = [_typed(source, i, values) for i, values in enumerate(columns)]
    schema = pa.schema([pa.field(f.name, f.type) for f in source.columns])
    return pa.Table.from_arrays(typed_columns, schema=schema)


def write_table(table: pa.Table, path: Path) -> None:
    """Write the Arrow file `path` whole and durably."""
    storage().write(path, lambda file: _write_arrow(file, table))


def _write_arrow(file: NewFile, table: pa.Table) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        # A reader takes the heartbeats between record batches.
        for start, stop in cut_at_heartbeats(table.schema, table.num_rows) or [(0, table.num_rows)]:
            writer.write_table(table.slice(start, stop - start))


def _array(source: Source, index: int, values: Sequence[object]) -> pa.Array:
    column = source.columns[index]
    if any(isinstance(value, str) for value in values):
        return pa.array([None if value is None else _as_text(value) for value in values], pa.string())
    try:
        return pa.array(values, column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        misfitting_value = next((v for v in values if not _fits(v, column.type)), values[0] if values else None)
        raise _misfit(source, index, misfitting_value) from None


def _as_text(value: object) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _fits(value: object, type_: pa.DataType) -> bool:
    try:
        pa.array([value], type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _typed(source: Source, index: int, values: pa.Array) -> pa.Array:
    declared = source.columns[index].type
    if values.type == declared:
        return values
    if pa.types.is_string(values.type) and not pa.types.is_binary(declared):
        converted = cells.convert(values, declared, cells.Spelling(()))
    elif casts.misfit(values.type, declared):
        raise _misfit(source, index, type_name(values.type))
    else:
        converted = casts.fit(values, declared)
    if converted.failed.any():
        first = values.slice(int(np.flatnonzero(converted.failed)[0]), 1)
        # Python has no instants before the year 1 and behind 9999.
        is_instant = pa.types.is_temporal(values.type)
        raise _misfit(source, index, (first.cast(pa.string()) if is_instant else first)[0].as_py())
    return converted.values


def _misfit(source: Source, index: int, value: object) -> PenstockError:
    column = source.columns[index]
    return PenstockError("P0203", f"{source.name}.{column.name} is {type_name(column.type)}, {value!r} does not fit")


def _wrong_width(source: Source, width: int) -> PenstockError:
    names = ", ".join(source.columns.names)
    return PenstockError(
        "P0305", f"{source.name} has {counted(len(source.columns), 'column')}, a row has {width}", hint=names
    )
