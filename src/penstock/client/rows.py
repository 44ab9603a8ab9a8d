"""Rows that are posted: tables of any kind as Arrow streams of bounded size."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError

#: Bytes of rows that one request posts.
PART_BYTES = 8 * 2**20
_LABELS = re.compile(r"__index_level_\d+__")


def arrow_table(rows: Any) -> pa.Table:
    """Return rows of any kind as an Arrow table of plain columns. Raises PenstockError P0203."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    elif callable(getattr(rows, "collect", None)) and not hasattr(rows, "__arrow_c_stream__"):
        message = f"{type(rows).__name__} is a plan, its rows have not been computed"
        raise PenstockError("P0203", message, hint="hand over rows.collect()")
    elif isinstance(rows, Sequence | Iterator) or (isinstance(rows, Iterable) and not hasattr(rows, "columns")):
        dictionaries = [_dictionary(row) for row in rows]
        try:
            rows = _of_dictionaries(dictionaries)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise _no_rows("these values", error) from None
    elif not isinstance(rows, pa.Table):
        try:
            rows = pa.table(rows)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise _no_rows(type(rows).__name__, error) from None
        # The labels of a pandas DataFrame whose rows were chosen from another one; an index with a name is a column.
        rows = rows.drop_columns([name for name in rows.column_names if _LABELS.fullmatch(name)])
    return pa.table([_plain(column) for column in rows.columns], names=rows.column_names)


def _dictionary(row: Any) -> dict[str, Any]:
    try:
        return dict(row)
    except (TypeError, ValueError):
        message = f"these values cannot be posted as rows: one of them is of the type {type(row).__name__}"
        raise PenstockError("P0203", message, hint="a row is a dictionary: [{'column': value, ...}, ...]") from None


def _of_dictionaries(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows as a table with all keys that some row has; where a row lacks one it is NULL."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _no_rows(what: str, error: Exception) -> PenstockError:
    return PenstockError("P0203", f"{what} cannot be posted as rows: {error}", cause=error)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary or views, which a server does not accept."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        values = [_plain(pa.chunked_array([one.dictionary])).combine_chunks() for one in column.chunks]
        decoded = [each.take(one.indices) for each, one in zip(values, column.chunks, strict=True)]
        return pa.chunked_array(decoded, _plain(pa.chunked_array([], type_.value_type)).type)
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
