"""The size of values, for budgets in bytes: a function of the values alone, whatever their encoding in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_OTHER = 16


def value_bytes(columns: Sequence[pa.Array], length: int) -> npt.NDArray[np.int64]:
    """Return the bytes of each row of `columns`: those of a text, of a fixed type its width, also for NULL."""
    total = np.zeros(length, np.int64)
    for column in columns:
        kind = column.type
        if pa.types.is_null(kind):
            continue
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            sizes = pc.fill_null(pc.binary_length(column), 0)
            total += sizes.to_numpy(zero_copy_only=False).astype(np.int64)
        elif pa.types.is_nested(kind):
            total += np.array([0 if v is None else len(str(v)) for v in column.to_pylist()], np.int64)
        else:
            total += max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else _OTHER
    return total
