"""Shared by parquet and arrow files: matching the declared columns with a typed schema, and casting batches to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.connectors.contract import Rejected
from penstock.connectors.formats import casts, cells
from penstock.connectors.formats.base import BATCH_ROWS, Chunk, FileFormat, Unfit, rejection, without
from penstock.expressions.evaluation.value_ranges import ValueRange, only
from penstock.expressions.values.shown import shown_row
from penstock.types import type_name


@dataclass(frozen=True)
class Columns:
    """Matched columns. `places`: declared position -> position in the file's schema; `names`: their names in the file,
    in that order.
    """

    places: dict[int, int]
    names: list[str]

    def empty(self, format_: FileFormat) -> dict[int, pa.Array]:
        return {p: pa.array([], format_.source.columns[p].type) for p in self.places}


def columns_of(format_: FileFormat, path: str, schema: pa.Schema, needed: frozenset[int] | None = None) -> Columns:
    """Return the positions in `schema` of the declared columns, only of those in `needed`, if any. Raises Unfit when a
    declared column is missing or its type does not fit.
    """
    indices = format_.match(schema.names, format_.placed(path))
    for position, index in indices.items():
        column, stored_type = format_.source.columns[position], schema.field(index).type
        if casts.misfit(stored_type, column.type):
            value_type = stored_type.value_type if pa.types.is_dictionary(stored_type) else stored_type
            hint = "declare the type of the file, and CAST in the query"
            if pa.types.is_nested(value_type):
                hint = "no column has this type: leave it out, or have its values written as JSON text or as columns"
            raise Unfit(
                f"column {column.name} is {type_name(value_type)} in the file and declared {type_name(column.type)}",
                hint,
            )
    if needed is not None:
        indices = {position: index for position, index in indices.items() if position in needed}
    return Columns(indices, [schema.names[index] for index in indices.values()])


def sure(format_: FileFormat, schema: pa.Schema, columns: Columns, positions: Iterable[int]) -> bool:
    """Return whether every record of a file with `schema` is well formed in the columns at `positions`."""
    return all(
        casts.sure(schema.field(columns.places[c]).type, format_.source.columns[c].type)
        for c in positions
        if c in columns.places
    )


def placed_values(format_: FileFormat, path: str, columns: Columns) -> dict[int, ValueRange]:
    """Return the value ranges of columns that are not in the file but in its folder names."""
    folder_values = (
        (position, value) for position, value in format_.placed(path).items() if position not in columns.places
    )
    return {position: only(value.as_py(), value.type) for position, value in folder_values}


def fitted(format_: FileFormat, path: str, batch: pa.RecordBatch, columns: Columns) -> Chunk:
    """Cast `batch`, which has `columns.names`, to the declared types; rows that do not fit are rejected."""
    arrays: dict[int, pa.Array] = {}
    failed = np.zeros(batch.num_rows, dtype=bool)
    rejected: list[Rejected] = []
    for position, name in zip(columns.places, columns.names, strict=True):
        column = format_.source.columns[position]
        values = batch.column(batch.schema.get_field_index(name))
        converted = casts.fit(values, column.type)
        arrays[position] = converted.values
        for row in np.flatnonzero(converted.failed & ~failed):
            reason = cells.complaint(values[int(row)], column.type, column.name)
            rejected.append(rejection(path, None, shown_row(batch, int(row)), reason))
        failed |= converted.failed
    if failed.any():
        arrays = without(arrays, failed)
    return Chunk(arrays, batch.num_rows - int(failed.sum()), tuple(rejected))


def check_buffers(batch: pa.RecordBatch) -> None:
    """Check that no value of `batch` lies outside of its buffers.

    Arrow validates files only as far as that is cheap, and code that follows a damaged offset crashes the process.
    Texts may contain any bytes: these are checked row by row later. Raises pa.ArrowInvalid.
    """
    for column in batch.columns:
        _as_bytes(column).validate(full=True)


def _as_bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.view(pa.large_binary())
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, _as_bytes(column.dictionary))
    return column


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield `batch` in slices of at most `BATCH_ROWS` rows."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)
