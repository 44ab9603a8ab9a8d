"""Values and rows as text, for dead letters and messages: any value, also one that no Python object can represent.

Arrow's dates and timestamps exceed Python's range (the years 1 to 9999); such a value is shown as its ISO-8601 text, as
the formats of results write it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.expressions.values.calendar import far_day, far_moment

_RAW = {32: pa.int32(), 64: pa.int64()}
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY_MS = 86_400_000


def shown_value(value: object) -> str:
    """Return `value`, an Arrow scalar or a Python object, as text."""
    try:
        return str(value)
    except (OverflowError, ValueError):
        assert isinstance(value, pa.Scalar)
        return shown_cell(value)


def shown_row(rows: pa.RecordBatch | pa.Table, position: int) -> str:
    """Return one row as text, in Python's notation of a dict of its columns."""
    row = rows.slice(position, 1)
    try:
        return str(row.to_pylist()[0])
    except (OverflowError, ValueError):
        return _members((name, row.column(i)[0]) for i, name in enumerate(row.schema.names))


def shown_cell(value: pa.Scalar) -> str:
    """Return a value as it is shown in a row."""
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):
        return _beyond_python(value)


def _beyond_python(value: pa.Scalar) -> str:
    type_ = value.type
    if isinstance(value, pa.StructScalar):
        return _members(value.items())
    if isinstance(value, pa.ListScalar):
        return f"[{', '.join(map(shown_cell, value.values))}]"
    if pa.types.is_date(type_):
        count = value.cast(_RAW[type_.bit_width]).as_py()
        return far_day(count // _DAY_MS if type_.bit_width == 64 else count)
    if pa.types.is_timestamp(type_) and type_.unit in _MICROSECONDS:
        text = far_moment(value.cast(pa.int64()).as_py() * _MICROSECONDS[type_.unit])
        return text if type_.tz else text.removesuffix("Z")
    return f"a value of {type_} that cannot be shown"


def _members(items: Iterable[tuple[str, pa.Scalar]]) -> str:
    return "{" + ", ".join(f"{name!r}: {shown_cell(value)}" for name, value in items) + "}"
