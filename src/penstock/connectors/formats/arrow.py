"""Arrow IPC files, in the file format (splits of record batches) and in the stream format (one split).

Contract: a file in the file format whose end is missing is read as the stream it contains, as far as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.connectors.contract import SkippedRecords, Split
from penstock.connectors.formats.base import DAMAGE, BrokenOff, Chunk, FileFormat, one_line, whole_file
from penstock.connectors.formats.columnar import (
    Columns,
    check_buffers,
    columns_of,
    fitted,
    pieces,
    placed_values,
    sure,
)
from penstock.expressions.evaluation.value_ranges import UNKNOWN, may_pass

_MAGIC = b"ARROW1"
_HEAD = 8
_SPLIT_BYTES = 64 * 2**20


@dataclass
class ArrowFormat(FileFormat):
    name: ClassVar[str] = "arrow"
    extensions: ClassVar[tuple[str, ...]] = (".arrow", ".arrows", ".ipc", ".feather")

    def fit(self, path: str) -> None:
        with pa.memory_map(path) as mapped:
            reader = _file(mapped) or _stream(mapped)
            columns_of(self, path, reader.schema)

    def ranges(self, path: str) -> list[Split]:
        size = Path(path).stat().st_size
        with pa.memory_map(path) as mapped:
            reader = _file(mapped)
            if reader is None:
                return [whole_file(path)]
            columns_of(self, path, reader.schema)
            count = reader.num_record_batches
        step = max(1, count // max(1, size // _SPLIT_BYTES))
        starts = range(0, count, step)
        return [Split(path, s, min(s + step, count), size * (min(s + step, count) - s) // count) for s in starts] or [
            Split(path, 0, 0, size, 0)
        ]

    def sifted(self, split: Split, columns: tuple[int, ...]) -> Iterator[Split | SkippedRecords]:
        """Select by folder names only: Arrow files have no statistics."""
        assert self.predicate is not None
        with pa.memory_map(split.path) as mapped:
            schema = (_file(mapped) or _stream(mapped)).schema
        columns_in_file = columns_of(self, split.path, schema)
        values = placed_values(self, split.path, columns_in_file)
        passes = may_pass(self.predicate, lambda c: values.get(c, UNKNOWN))
        yield split if passes or not sure(self, schema, columns_in_file, columns) else self.skipped(split)

    def chunks(self, split: Split, needed: frozenset[int]) -> Iterator[Chunk]:
        with pa.memory_map(split.path) as mapped:
            reader = _file(mapped)
            if reader is None:
                yield from self._streamed(split.path, mapped, needed)
                return
            columns = columns_of(self, split.path, reader.schema, needed)
            stop = reader.num_record_batches if split.stop < 0 else split.stop
            reader = _with_columns(mapped, columns, reader)
            for index in range(split.start, stop):
                try:
                    batch = reader.get_batch(index)
                    check_buffers(batch)
                except DAMAGE as error:
                    raise BrokenOff(f"record batch {index} cannot be read: {one_line(error)}") from None
                yield from self._chunks(split.path, batch, columns)

    def _streamed(self, path: str, mapped: pa.MemoryMappedFile, needed: frozenset[int]) -> Iterator[Chunk]:
        reader = _stream(mapped)
        columns = columns_of(self, path, reader.schema, needed)
        rows = 0
        while True:
            try:
                batch = reader.read_next_batch()
                check_buffers(batch)
            except StopIteration:
                break
            except DAMAGE as error:
                raise BrokenOff(f"the file ends after row {rows}: {one_line(error)}") from None
            yield from self._chunks(path, batch, columns)
            rows += batch.num_rows
        if _is_file(mapped):
            raise BrokenOff(f"the file ends after row {rows}: its footer is missing")

    def _chunks(self, path: str, batch: pa.RecordBatch, columns: Columns) -> Iterator[Chunk]:
        for piece in pieces(batch):
            yield fitted(self, path, piece, columns)


def _is_file(mapped: pa.MemoryMappedFile) -> bool:
    mapped.seek(0)
    return bool(mapped.read(len(_MAGIC)) == _MAGIC)


def _file(mapped: pa.MemoryMappedFile) -> pa.RecordBatchFileReader | None:
    """Return a reader of the file format; None when the file is a stream, or a file whose end is missing."""
    if not _is_file(mapped):
        return None
    try:
        return pa.ipc.open_file(mapped)
    except DAMAGE:
        return None


def _with_columns(
    mapped: pa.MemoryMappedFile, columns: Columns, reader: pa.RecordBatchFileReader
) -> pa.RecordBatchFileReader:
    """Return a reader that decompresses only `columns`, or, without columns, one that counts rows."""
    fields = sorted(columns.places.values()) or list(range(len(reader.schema)))[:1]
    mapped.seek(0)
    return pa.ipc.open_file(mapped, options=pa.ipc.IpcReadOptions(included_fields=fields)) if fields else reader


def _stream(mapped: pa.MemoryMappedFile) -> pa.RecordBatchStreamReader:
    """Return a reader of the stream format, also of the stream inside the file format. Raises one of DAMAGE."""
    mapped.seek(_HEAD if _is_file(mapped) else 0)
    return pa.ipc.open_stream(mapped)
