"""Smaller record batches for transport: ticks and counts with long runs are run-length encoded.

Contract: `run_length_decoded(run_length_encoded(batch))` is equal to `batch`. Each column is
encoded if its values make that worthwhile.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Int32s
from penstock.compilation import loop
from penstock.physical.elements import Int64s, int64s

#: Minimum average length of the runs of an encoded column.
_LONG = 4
#: Rows of a column from which on run ends do not fit their type.
_MOST = np.iinfo(np.int32).max


def run_length_encoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` with 64-bit integers that have long runs as run ends and values."""
    columns = [encode_runs(column, _LONG) if column.type == pa.int64() else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def run_length_decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` with every column decoded that is in runs; shares the memory of all other columns."""
    columns = [_decoded(column) if pa.types.is_run_end_encoded(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def encode_runs(column: pa.Array, least: int) -> pa.Array:
    """Return a column of 64-bit integers as run ends and values, where runs have `least` rows or more on average; else
    the column itself."""
    if column.null_count or not least <= len(column) <= _MOST:
        return column
    values = int64s(column)
    ends = np.empty(len(values) // least, np.int32)
    runs = int(_run_ends(values, ends))
    if runs < 0:
        return column
    ends = ends[:runs]
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends), pa.array(values[ends - 1]))


def encode_constant(column: pa.Array, least: int) -> pa.Array:
    """Return a column of numbers as one run, where all are equal and there are `least` or more; else the column."""
    numbers = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if not numbers or column.null_count or not least <= len(column) <= _MOST:
        return column
    # Compared as bits, so that every NaN and either zero is preserved.
    bits = column.to_numpy(zero_copy_only=True).view(f"u{column.type.bit_width // 8}")
    if bits[0] != bits[-1] or bool((bits != bits[0]).any()):
        return column
    return pa.RunEndEncodedArray.from_arrays(pa.array([len(column)], pa.int32()), column[:1])


def _decoded(column: pa.Array) -> pa.Array:
    if column.type.value_type != pa.int64():
        return pc.run_end_decode(column)
    ends: Int64s = column.run_ends.to_numpy().astype(np.int64)
    return pa.array(np.repeat(int64s(column.values), np.diff(ends, prepend=0)))


@loop
def _run_ends(values: Int64s, ends: Int32s) -> int:
    """Fill `ends` with the ends of runs of equal values; return their number, -1 where there is no room."""
    runs = 0
    for i in range(values.shape[0]):
        if i + 1 == values.shape[0] or values[i + 1] != values[i]:
            if runs == ends.shape[0]:
                return -1
            ends[runs] = i + 1
            runs += 1
    return runs
