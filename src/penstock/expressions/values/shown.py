"""Values and rows as text, for dead letters and messages: any value, also one that no Python object can represent.

Arrow's dates and timestamps exceed Python's range (the years 1 to 9999); such a value is shown as its ISO-8601 text, as
the formats of results write it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable

import pyarrow as pa

from penstock.expressions.values.calendar import far_day, far_moment
from penstock.expressions.values.intervals import to_text

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
    """Return one row as a JSON object, its values as the JSON of results has them."""
    row = rows.slice(position, 1)
    return _json_object((name, row.column(i)[0]) for i, name in enumerate(row.schema.names))


def _json_object(items: Iterable[tuple[str, pa.Scalar]]) -> str:
    return "{" + ", ".join(f"{_json_text(name)}: {_json(value)}" for name, value in items) + "}"


def _json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _json(value: pa.Scalar) -> str:
    type_ = value.type
    if not value.is_valid:
        return "null"
    if isinstance(value, pa.StructScalar):
        return _json_object(value.items())
    if isinstance(value, pa.ListScalar | pa.LargeListScalar):
        return f"[{', '.join(map(_json, value.values))}]"
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_):
        return json.dumps(value.as_py())
    if pa.types.is_decimal(type_):
        return f"{value.as_py():f}"
    if pa.types.is_floating(type_):
        number = float(value.as_py())
        return json.dumps(number) if math.isfinite(number) else _json_text(json.dumps(number))
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return _json_text(base64.b64encode(value.as_py()).decode())
    if pa.types.is_date(type_) or (pa.types.is_timestamp(type_) and type_.unit in _MICROSECONDS):
        return _json_text(_beyond_python(value))
    if pa.types.is_duration(type_):
        return _json_text(str(to_text(pa.array([value.cast(pa.duration("us"))]))[0]))
    return _json_text(shown_value(value))


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
