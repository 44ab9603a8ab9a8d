"""Values and rows as text, for dead letters and messages: any value, also one that no Python object can represent.

Arrow's dates and timestamps exceed Python's range (the years 1 to 9999); such a value is shown as its number of units
since 1970.
"""

from __future__ import annotations

import pyarrow as pa

_RAW = {32: pa.int32(), 64: pa.int64()}


def shown_value(value: object) -> str:
    """Return `value`, an Arrow scalar or a Python object, as text."""
    try:
        return str(value)
    except (OverflowError, ValueError):
        assert isinstance(value, pa.Scalar)
        return _raw(value)


def shown_row(rows: pa.RecordBatch | pa.Table, position: int) -> str:
    """Return one row as text, in Python's notation of a dict of its columns."""
    row = rows.slice(position, 1)
    try:
        return str(row.to_pylist()[0])
    except (OverflowError, ValueError):
        parts = (f"{name!r}: {shown_cell(row.column(i)[0])}" for i, name in enumerate(row.schema.names))
        return "{" + ", ".join(parts) + "}"


def shown_cell(value: pa.Scalar) -> str:
    """Return a value as it is shown in a row."""
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):
        return _raw(value)


def _raw(value: pa.Scalar) -> str:
    type_ = value.type
    if not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
        return f"a value of {type_} that cannot be shown"
    unit = type_.unit if pa.types.is_timestamp(type_) else {32: "days", 64: "ms"}[type_.bit_width]
    return f"{value.cast(_RAW[type_.bit_width]).as_py()} {unit} since 1970"
