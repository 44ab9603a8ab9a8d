"""A log of chunks that only grows at its end: what the last rows of row windows and of jumping windows lie in."""

from __future__ import annotations

import pyarrow as pa

from penstock.physical.elements import concat_arrays, unnamed

#: Rows of a chunk at the most.
LARGEST = 1 << 18
#: Chunks of similar size that become one.
_MERGE_AT = 8


def append(chunks: dict[int, pa.RecordBatch], batch: pa.RecordBatch, last_id: int) -> int:
    """Put `batch` behind the other `chunks`, under the number after `last_id`; chunks of similar size at the end become
    one, so that their number stays small and a row is copied a few times at most. Returns the last number used."""
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
