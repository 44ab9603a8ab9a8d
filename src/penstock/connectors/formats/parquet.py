"""parquet files: splits of whole row groups, only the columns that are read, the timestamp's range from the footer.

Contract: a row group that is damaged is rejected alone; the others of the file are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.contract import SkippedRecords, Split
from penstock.connectors.formats.base import BATCH_ROWS, DAMAGE, Chunk, FileFormat, one_line, rejection
from penstock.connectors.formats.columnar import Columns, columns_of, fitted, placed_values, sure
from penstock.connectors.formats.footer import Footer
from penstock.connectors.formats.row_groups import RowGroups
from penstock.expressions.evaluation.value_ranges import may_pass

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
            timestamp = self.source.timestamp
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
        if not groups.well_formed(group):
            # The largest timestamp may be that of a record that is rejected, which advances no time.
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
