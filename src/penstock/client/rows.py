"""Rows that are posted: tables of any kind as Arrow streams of bounded size."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError

#: Bytes of rows that one request posts.
PART_BYTES = 8 * 2**20


def arrow_table(rows: Any) -> pa.Table:
    """Return rows of any kind as an Arrow table of plain columns. Raises PenstockError P0203."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    elif isinstance(rows, Sequence | Iterator) or (isinstance(rows, Iterable) and not hasattr(rows, "columns")):
        try:
            rows = pa.Table.from_pylist([dict(row) for row in rows])
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise _no_rows("these values", error) from None
    elif not isinstance(rows, pa.Table):
        try:
            rows = pa.table(rows)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise _no_rows(type(rows).__name__, error) from None
    return pa.table([_plain(column) for column in rows.columns], names=rows.column_names)


def _no_rows(what: str, error: Exception) -> PenstockError:
    return PenstockError("P0203", f"{what} cannot be posted as rows: {error}", cause=error)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary or views, which a server does not accept."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return _plain(column.cast(type_.value_type))
    if pa.types.is_string_view(type_):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(type_) else column


def parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the table in pieces of bounded size; one piece where it is empty."""
    rows = max(1, int(table.num_rows * PART_BYTES / max(table.nbytes, 1)))
    for start in range(0, max(table.num_rows, 1), rows):
        yield table.slice(start, rows)


def stream_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
