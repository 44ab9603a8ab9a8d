"""The counting order of elements: by arrival, or, in a stream derived from a relation, by values at one instant.

NULL precedes all else; numbers, dates and timestamps are ordered by size, -0.0 before 0.0 and NaN last; strings and
bytes by their bytes; FALSE before TRUE; arrays element by element. Columns count from left to right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.physical.elements import Elements, Int64s
from penstock.physical.kernels.compiled import argsort_time, in_time


def counted(elements: Elements, arrival: bool) -> Elements:
    """Return `elements` one by one, ordered by (timestamp, arrival) if they are in arrival order, else by (timestamp,
    values, end).

    In the input, equal elements of one instant may be one element with a multiplicity as its sign.
    """
    if elements.sign is not None:
        elements = elements.take(np.repeat(np.arange(len(elements)), elements.sign))
        elements = Elements(elements.columns, elements.ts, elements.exp)
    if arrival and in_time(elements.ts):
        return elements
    return elements.take(argsort_time(elements.ts) if arrival else argsort_values(elements))


def argsort_values(elements: Elements) -> Int64s:
    """Return a stable argsort by (ts, values, exp)."""
    names = ["ts", *(f"c{i}" for i in range(len(elements.columns))), "exp"]
    keys = [pa.array(elements.ts), *(_sortable(c) for c in elements.columns), pa.array(elements.exp)]
    table = pa.Table.from_arrays(keys, names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending", "at_start") for name in names])
    return np.asarray(order.to_numpy(), np.int64)


def _sortable(column: pa.Array) -> pa.Array:
    """Return an array whose order in Arrow is the order of the values."""
    if pa.types.is_floating(column.type):
        values = np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), np.float64)
        bits = np.where(np.isnan(values), np.float64("nan"), values).view(np.int64)
        # The bits of a negative number decrease with its value.
        ordered = np.where(bits < 0, np.iinfo(np.int64).min - bits - 1, bits)
        return pa.array(ordered, mask=column.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_nested(column.type):
        keys = [_key(value) for value in column.to_pylist()]
        rank = {key: number for number, key in enumerate(sorted(set(keys)))}
        return pa.array([rank[key] for key in keys], pa.int64())
    return column


def _key(value: Any) -> Any:
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, tuple(_key(v) for v in value.values()))
    if isinstance(value, list):
        return (1, tuple(_key(v) for v in value))
    if isinstance(value, float):
        bits = int(np.float64("nan" if np.isnan(value) else value).view(np.int64))
        return (1, -(2**63) - bits - 1 if bits < 0 else bits)
    return (1, value)
