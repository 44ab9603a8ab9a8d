"""Arrow IPC streams of one record batch with few rows, as state, packets and results consist of when queries are many.

Contract: `small_stream(batch)` is what Arrow's stream writer makes of the batch, to the byte. A writer of its own takes
three times as long for a few rows.
"""

from __future__ import annotations

import pyarrow as pa

#: Up to this many rows a writer costs more than the rows.
_FEW = 64
_END = b"\xff\xff\xff\xff\0\0\0\0"


def small_stream(batch: pa.RecordBatch) -> bytes | None:
    """Return a batch as a stream; None where a writer is needed: for many rows, and for columns with parts or with a
    dictionary, which a stream holds apart."""
    if batch.num_rows > _FEW:
        return None
    schema = batch.schema
    if any(type_.num_fields or pa.types.is_dictionary(type_) for type_ in schema.types):
        return None
    return b"".join((schema.serialize(), batch.serialize(), _END))
