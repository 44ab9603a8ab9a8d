"""parquet files: splits of whole row groups, only the columns that are read, the timestamp's range from the footer.

Contract: a row group that is damaged is rejected alone; the others of the file are read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import SkippedRecords, Split
from penstock.connectors.formats import casts
from penstock.connectors.formats.base import BATCH_ROWS, DAMAGE, Chunk, FileFormat, one_line, rejection
from penstock.connectors.formats.columnar import Columns, columns_of, fitted, placed_values, sure
from penstock.connectors.formats.footer import Footer
from penstock.expressions.evaluation.value_ranges import UNKNOWN, ValueRange, may_pass

# --- Value ranges from the statistics of the row groups of a parquet file.
#
# Contract: bounds may be wide, never narrow, and what the file does not state is unknown. They are compared as
# Penstock compares values of the declared type; where the stored type has another order they are not used.

_T = pa.types
Ticks = tuple[int | None, int | None]


@dataclass(frozen=True)
class RowGroups:
    """The row groups of an open file. `footer`: the columns that Arrow can safely read; `columns`: positions of
    declared columns in the file; `given`: values of others.
    """

    file: pq.ParquetFile
    footer: Footer
    source: Source
    columns: Columns
    given: Mapping[int, ValueRange]

    def of(self, group: int, position: int) -> ValueRange:
        """Return the values of a declared column in a row group."""
        if position not in self.columns.places:
            return self.given.get(position, UNKNOWN)
        statistics = self._statistics(group, position)
        if statistics is None:
            return UNKNOWN
        nulls = statistics.null_count if statistics.has_null_count else None
        if nulls is not None and nulls == self.file.metadata.row_group(group).num_rows:
            return ValueRange(some=False)
        low, high = self._bounds(statistics, position)
        return ValueRange(low, high, nulls=nulls != 0)

    def ticks(self, group: int) -> Ticks:
        """Return the smallest and largest timestamp in ticks, if the file states them; of those that are not NULL."""
        position = self.source.rising_column
        statistics = None if position is None else self._statistics(group, position)
        if statistics is None or position is None:
            return None, None
        if self.source.timestamp is not None:
            return self._ticks(statistics, position)
        return self._computed_ticks(*self._bounds(statistics, position), self.source.columns[position].type)

    def _computed_ticks(self, low: object, high: object, type_: pa.DataType) -> Ticks:
        """Return the timestamps that are computed from the bounds of the column with which they rise."""
        bounds = pa.array([low, high], type_)
        timestamps = self.source.timestamps(lambda position: bounds, 2)
        if low is None or high is None or timestamps is None or timestamps.null_count:
            return None, None
        least, largest = timestamps.cast(pa.int64()).to_pylist()
        return (least, largest) if least <= largest else (None, None)

    def all_ticks(self, group: int) -> Ticks:
        """Return the same if none is known to be NULL."""
        position = self.source.rising_column
        statistics = None if position is None else self._statistics(group, position)
        has_no_nulls = statistics is not None and statistics.has_null_count and statistics.null_count == 0
        return self.ticks(group) if has_no_nulls else (None, None)

    def well_formed(self, group: int) -> bool:
        """Whether no record of a row group can be rejected: by the types, or as no timestamp is beyond what fits."""
        return all(self._fits(group, position) for position in self.columns.places)

    def _fits(self, group: int, position: int) -> bool:
        declared = self.source.columns[position].type
        if casts.sure(self._field(position).type, declared):
            return True
        statistics = self._statistics(group, position) if _T.is_timestamp(declared) else None
        return statistics is not None and self._ticks(statistics, position) != (None, None)

    def _statistics(self, group: int, position: int) -> pq.Statistics | None:
        if position not in self.columns.places:
            return None
        index = self.footer.place(group, self._field(position).name)
        if index is None:
            return None
        column = self.file.metadata.row_group(group).column(index)
        return column.statistics if column.is_stats_set else None

    def _bounds(self, statistics: pq.Statistics, position: int) -> tuple[object, object]:
        declared, stored_type = self.source.columns[position].type, self._field(position).type
        if _T.is_timestamp(declared):
            return self._ticks(statistics, position)
        kind = _python_type(stored_type.value_type if _T.is_dictionary(stored_type) else stored_type, declared)
        if kind is None or not statistics.has_min_max:
            return None, None
        try:
            low, high = statistics.min, statistics.max
        except (pa.ArrowException, ValueError, OverflowError):  # a cut letter, a date beyond Python's range
            return None, None
        return (low, high) if type(low) is kind and type(high) is kind else (None, None)

    def _ticks(self, statistics: pq.Statistics, position: int) -> Ticks:
        if not statistics.has_min_max:
            return None, None
        low, high = statistics.min_raw, statistics.max_raw
        scale = casts.ticks_per_unit(_stored_type(self._field(position).type))
        if scale is None or not isinstance(low, (int, np.integer)):
            return None, None
        bounds = int(low) * scale[0] // scale[1], int(high) * scale[0] // scale[1]
        # A value that is not a tick is a rejected record: then the bounds are those of no rows.
        return bounds if bounds[0] >= -(2**63) and bounds[1] < 2**63 else (None, None)

    def _field(self, position: int) -> pa.Field:
        return self.file.schema_arrow.field(self.columns.places[position])


def _python_type(stored: pa.DataType, declared: pa.DataType) -> type | None:
    """Return the Python type of a stored column's bounds, if they have the order of the declared column."""
    if _T.is_signed_integer(stored) and _T.is_integer(declared):
        return int
    if _T.is_boolean(stored) and _T.is_boolean(declared):
        return bool
    if stored == pa.date32() and declared == stored:
        return dt.date
    if _T.is_decimal(stored) and declared == stored:
        return Decimal
    return str if (_T.is_string(stored) or _T.is_large_string(stored)) and _T.is_string(declared) else None


def _stored_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the raw integers in the statistics: parquet itself has no timestamp in seconds."""
    if _T.is_timestamp(type_) and type_.unit == "s":
        return pa.timestamp("ms")
    return type_


#: Row groups are merged into one split up to this many rows or stored bytes.
_SPLIT_ROWS = 2_000_000
_SPLIT_BYTES = 64 * 2**20


@dataclass
class ParquetFormat(FileFormat):
    name: ClassVar[str] = "parquet"
    extensions: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def fit(self, path: str) -> None:
        with _open(path) as file:
            columns_of(self, path, file.schema_arrow)

    def ranges(self, path: str) -> list[Split]:
        with _open(path) as file:
            columns = columns_of(self, path, file.schema_arrow)
            times = [p for p in columns.places if pa.types.is_timestamp(self.source.columns[p].type)]
            timestamp = self.source.rising_column
            positions = {*times, *({timestamp} if timestamp is not None else ())} & columns.places.keys()
            names = [file.schema_arrow.names[columns.places[position]] for position in positions]
            groups = RowGroups(file, Footer(path, file, names), self.source, columns, {})
            pieces = [self._piece(path, groups, group) for group in range(file.metadata.num_row_groups)]
        return _merged(pieces) or [Split(path, 0, 0, Path(path).stat().st_size, 0)]

    def sifted(self, split: Split, columns: tuple[int, ...]) -> Iterator[Split | SkippedRecords]:
        """Select row groups by their statistics and by the folder names."""
        assert self.predicate is not None
        with _open(split.path) as file:
            columns_in_file = columns_of(self, split.path, file.schema_arrow)
            footer = Footer(split.path, file, columns_in_file.names)
            values = RowGroups(
                file, footer, self.source, columns_in_file, placed_values(self, split.path, columns_in_file)
            )
            stop = file.num_row_groups if split.stop < 0 else min(split.stop, file.num_row_groups)
            is_sure = sure(self, file.schema_arrow, columns_in_file, columns)
            parts: list[Split | SkippedRecords] = []
            for group in range(split.start, stop):
                group_split, last = replace(split, start=group, stop=group + 1), parts[-1] if parts else None
                if is_sure and not may_pass(self.predicate, partial(values.of, group)):
                    rows = file.metadata.row_group(group).num_rows
                    parts.append(self.skipped(group_split, rows, *values.all_ticks(group)))
                elif isinstance(last, Split):
                    parts[-1] = replace(last, stop=group + 1)
                else:
                    parts.append(group_split)
        yield from parts

    def chunks(self, split: Split, needed: frozenset[int]) -> Iterator[Chunk]:
        with _open(split.path) as file:
            columns = columns_of(self, split.path, file.schema_arrow, needed)
            groups = file.metadata.num_row_groups
            for group in range(split.start, groups if split.stop < 0 else min(split.stop, groups)):
                yield from self._group(split.path, file, group, columns)

    def _group(self, path: str, file: pq.ParquetFile, group: int, columns: Columns) -> Iterator[Chunk]:
        rows = file.metadata.row_group(group).num_rows
        if not columns.names:
            yield Chunk({}, rows)
            return
        rows_read = 0
        try:
            for batch in file.iter_batches(BATCH_ROWS, [group], columns.names, use_threads=False):
                yield fitted(self, path, batch, columns)
                rows_read += batch.num_rows
        except DAMAGE as error:
            reason = f"row group {group} cannot be read from its row {rows_read} of {rows} on: {one_line(error)}"
            yield Chunk(columns.empty(self), 0, (rejection(path, None, "", reason),))

    def _piece(self, path: str, groups: RowGroups, group: int) -> Split:
        metadata = groups.file.metadata.row_group(group)
        low, high = groups.ticks(group)
        if not groups.well_formed(group) or self.source.heartbeat is not None:
            # The largest timestamp may be that of a record that is rejected, which advances no time, or of a heartbeat.
            high = None
        return Split(path, group, group + 1, groups.footer.stored(group), metadata.num_rows, low, high)


def _open(path: str) -> pq.ParquetFile:
    # Spark writes times as INT96, which would be read as nanoseconds and wrap beyond the year 2262.
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _merged(pieces: list[Split]) -> list[Split]:
    """Merge adjacent pieces up to the size of a split."""
    merged: list[Split] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last is None or not _both_fit(last, piece):
            merged.append(piece)
            continue
        merged[-1] = Split(
            last.path,
            last.start,
            piece.stop,
            last.bytes + piece.bytes,
            (last.rows or 0) + (piece.rows or 0),
            None if last.low is None or piece.low is None else min(last.low, piece.low),
            None if last.high is None or piece.high is None else max(last.high, piece.high),
        )
    return merged


def _both_fit(last: Split, piece: Split) -> bool:
    return (last.rows or 0) + (piece.rows or 0) <= _SPLIT_ROWS and last.bytes + piece.bytes <= _SPLIT_BYTES
