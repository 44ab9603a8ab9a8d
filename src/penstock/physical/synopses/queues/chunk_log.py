"""A log of chunks that only grows at its end: it stores the last rows of row windows and of jumping windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, concat_arrays, unnamed

#: Maximum number of rows of a chunk.
LARGEST = 1 << 18
#: Number of chunks of similar size that are merged.
_MERGE_AT = 8


def append(chunks: dict[int, pa.RecordBatch], batch: pa.RecordBatch, last_id: int) -> int:
    """Append `batch` to `chunks` under the number after `last_id`. Chunks of similar size at the end are merged, so
    that their number stays small and a row is copied only a few times. Return the last number used."""
    last_id += 1
    chunks[last_id] = batch
    while len(chunks) >= _MERGE_AT:
        tail = list(chunks)[-_MERGE_AT:]
        sizes = [chunks[i].num_rows for i in tail]
        if sum(sizes) > LARGEST or sizes[0] > sum(sizes[1:]):
            break
        merged = [chunks.pop(i) for i in tail]
        last_id += 1
        chunks[last_id] = unnamed([concat_arrays([b.column(i) for b in merged]) for i in range(merged[0].num_columns)])
    return last_id


def take(
    chunks: Mapping[int, pa.RecordBatch], rows: Int64s, types: Sequence[pa.DataType], first: int
) -> tuple[pa.Array, ...]:
    """Return columns of some rows of the log.

    Args:
        rows: places in the log, ascending
        types: of the columns to return
        first: the first of these columns in the chunks
    """
    parts: list[list[pa.Array]] = [[] for _ in types]
    low = begin = 0
    for batch in chunks.values() if len(rows) else ():
        end = int(np.searchsorted(rows, low + batch.num_rows))
        if end > begin:
            chosen = pa.array(rows[begin:end] - low)
            for i, part in enumerate(parts):
                part.append(batch.column(first + i).take(chosen))
        begin, low = end, low + batch.num_rows
    return tuple(concat_arrays(p) if p else pa.array([], t) for p, t in zip(parts, types, strict=True))
