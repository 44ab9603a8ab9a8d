"""Declared periods: a record without a begin, or whose period is empty, is malformed [semantics 4.5]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.physical.elements import Bools, Int64s
from penstock.types import END

NO_BEGIN = "the period has no begin"
EMPTY_PERIOD = "the period is empty"
_DAY = 86_400_000_000


def malformed_periods(source: Source, batch: pa.RecordBatch | pa.Table, columns: Sequence[int]) -> dict[int, str]:
    """Return the reasons why rows of a source with VALID FROM are malformed, by position; columns: the positions of the
    columns of `batch` in the declaration."""
    period = source.period
    if period is None or not batch.num_rows:
        return {}
    begin, absent = _bounds(batch.column(columns.index(period.begin)))
    end, endless = _bounds(batch.column(columns.index(period.end)))
    before_end = begin <= end if period.through else begin < end
    empty = ~absent & ((begin >= END) | ~(endless | before_end))
    reasons = dict.fromkeys(np.flatnonzero(absent).tolist(), NO_BEGIN)
    return reasons | dict.fromkeys(np.flatnonzero(empty).tolist(), EMPTY_PERIOD)


def _bounds(column: pa.Array | pa.ChunkedArray) -> tuple[Int64s, Bools]:
    """Return the bounds in ticks, none beyond END, and which of them are NULL."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    absent: Bools = array.is_null().to_numpy(zero_copy_only=False)
    days = pa.types.is_date32(array.type)
    whole = array.cast(pa.int32()) if days else array
    ticks: Int64s = whole.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if days:
        return np.clip(ticks, -(END // _DAY), END // _DAY + 1) * _DAY, absent
    return ticks, absent
