"""Value ranges from the statistics of the row groups of a parquet file.

Contract: bounds may be wide, never narrow, and what the file does not state is unknown. They are compared as Penstock
compares values of the declared type; where the stored type has another order they are not used.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.algebra.nodes.scans import Source
from penstock.connectors.formats import casts
from penstock.connectors.formats.columnar import Columns
from penstock.connectors.formats.footer import Footer
from penstock.expressions.evaluation.value_ranges import UNKNOWN, ValueRange

_T = pa.types
Ticks = tuple[int | None, int | None]


@dataclass(frozen=True)
class RowGroups:
    """The row groups of an open file. `footer`: the columns that Arrow can safely read; `columns`: positions of
    declared columns in the file; `given`: values of others.
    """

    file: pq.ParquetFile
    footer: Footer
    source: Source
    columns: Columns
    given: Mapping[int, ValueRange]

    def of(self, group: int, position: int) -> ValueRange:
        """Return the values of a declared column in a row group."""
        if position not in self.columns.places:
            return self.given.get(position, UNKNOWN)
        statistics = self._statistics(group, position)
        if statistics is None:
            return UNKNOWN
        nulls = statistics.null_count if statistics.has_null_count else None
        if nulls is not None and nulls == self.file.metadata.row_group(group).num_rows:
            return ValueRange(some=False)
        low, high = self._bounds(statistics, position)
        return ValueRange(low, high, nulls=nulls != 0)

    def ticks(self, group: int) -> Ticks:
        """Return the smallest and largest timestamp in ticks, if the file states them; of those that are not NULL."""
        position = self.source.timestamp
        statistics = None if position is None else self._statistics(group, position)
        return (None, None) if statistics is None or position is None else self._ticks(statistics, position)

    def all_ticks(self, group: int) -> Ticks:
        """Return the same if none is known to be NULL."""
        statistics = None if self.source.timestamp is None else self._statistics(group, self.source.timestamp)
        has_no_nulls = statistics is not None and statistics.has_null_count and statistics.null_count == 0
        return self.ticks(group) if has_no_nulls else (None, None)

    def well_formed(self, group: int) -> bool:
        """Whether no record of a row group can be rejected: by the types, or as no timestamp is beyond what fits."""
        return all(self._fits(group, position) for position in self.columns.places)

    def _fits(self, group: int, position: int) -> bool:
        declared = self.source.columns[position].type
        if casts.sure(self._field(position).type, declared):
            return True
        statistics = self._statistics(group, position) if _T.is_timestamp(declared) else None
        return statistics is not None and self._ticks(statistics, position) != (None, None)

    def _statistics(self, group: int, position: int) -> pq.Statistics | None:
        if position not in self.columns.places:
            return None
        index = self.footer.place(group, self._field(position).name)
        if index is None:
            return None
        column = self.file.metadata.row_group(group).column(index)
        return column.statistics if column.is_stats_set else None

    def _bounds(self, statistics: pq.Statistics, position: int) -> tuple[object, object]:
        declared, stored_type = self.source.columns[position].type, self._field(position).type
        if _T.is_timestamp(declared):
            return self._ticks(statistics, position)
        kind = _python_type(stored_type.value_type if _T.is_dictionary(stored_type) else stored_type, declared)
        if kind is None or not statistics.has_min_max:
            return None, None
        try:
            low, high = statistics.min, statistics.max
        except (pa.ArrowException, ValueError, OverflowError):  # a cut letter, a date beyond Python's range
            return None, None
        return (low, high) if type(low) is kind and type(high) is kind else (None, None)

    def _ticks(self, statistics: pq.Statistics, position: int) -> Ticks:
        if not statistics.has_min_max:
            return None, None
        low, high = statistics.min_raw, statistics.max_raw
        scale = casts.ticks_per_unit(_stored_type(self._field(position).type))
        if scale is None or not isinstance(low, (int, np.integer)):
            return None, None
        bounds = int(low) * scale[0] // scale[1], int(high) * scale[0] // scale[1]
        # A value that is not a tick is a rejected record: then the bounds are those of no rows.
        return bounds if bounds[0] >= -(2**63) and bounds[1] < 2**63 else (None, None)

    def _field(self, position: int) -> pa.Field:
        return self.file.schema_arrow.field(self.columns.places[position])


def _python_type(stored: pa.DataType, declared: pa.DataType) -> type | None:
    """Return the Python type of a stored column's bounds, if they have the order of the declared column."""
    if _T.is_signed_integer(stored) and _T.is_integer(declared):
        return int
    if _T.is_boolean(stored) and _T.is_boolean(declared):
        return bool
    if stored == pa.date32() and declared == stored:
        return dt.date
    if _T.is_decimal(stored) and declared == stored:
        return Decimal
    return str if (_T.is_string(stored) or _T.is_large_string(stored)) and _T.is_string(declared) else None


def _stored_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the raw integers in the statistics: parquet itself has no timestamp in seconds."""
    if _T.is_timestamp(type_) and type_.unit == "s":
        return pa.timestamp("ms")
    return type_
