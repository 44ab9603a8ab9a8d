"""Name the types of arrays that compiled loops and their callers have, and read columns as such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Float64s = npt.NDArray[np.float64]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
#: An array of records: compiled loops read `records[i].name`, everything else `records["name"][i]`. NumPy copies whole
#: records field by field: take them by `records.take(rows)` and `records.compress(mask)`, not `records[rows]`.
Records = npt.NDArray[np.void]
#: An array of any of these, the same throughout a signature.
Numbers = TypeVar("Numbers", Int64s, Float64s, Int32s)


def record_of(*names: str | tuple[str, int], floats: tuple[str, ...] = ()) -> np.dtype[np.void]:
    """Return the type of a record of 64-bit integers with these names, each with how many where it is several, and of
    64-bit floats behind them."""
    integers = [(name, np.int64) if isinstance(name, str) else (name[0], np.int64, (name[1],)) for name in names]
    # Of the class `np.record`, so that loops run without their compiler, too. What every scalar has is no field.
    assert not any(hasattr(np.record, name) for name, *_ in (*integers, *((name,) for name in floats)))
    return np.dtype((np.record, [*integers, *((name, np.float64) for name in floats)]))


def joined(parts: Sequence[Records]) -> Records:
    """Return the records of all parts, of one type and at least one."""
    whole = np.empty(sum(map(len, parts)), parts[0].dtype)
    np.concatenate([part.view(np.int64) for part in parts], out=whole.view(np.int64))
    return whole


def longer(records: Records, size: int) -> Records:
    """Return a copy with space for `size` records, which are not set behind its own."""
    made = np.empty(size, records.dtype)
    made.view(np.uint8)[: records.nbytes] = records.view(np.uint8)
    return made


def text_bytes(column: pa.Array) -> tuple[Int32s, Bytes]:
    """Return of a column of STRING or BINARY where each value begins, and the last one ends, in bytes, and these;
    arbitrary spans of NULL."""
    _, offsets, data = column.buffers()
    spans = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return spans, np.frombuffer(b"" if data is None else data, np.uint8)
