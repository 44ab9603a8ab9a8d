"""Arrays and structs parsed from the JSON in csv and json results (`text.py` writes them).

Contract: `from_json` is the inverse of `text.py` for a value of a nested type. For people who look at a result; no
stream passes through it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.expressions.values.calendar import day_of, moment_of
from penstock.expressions.values.intervals import from_text


def from_json(texts: Iterable[str | None], type_: pa.DataType) -> pa.Array:
    """Parse JSON texts as values of `type_`; None is NULL."""
    values = (None if text is None else json.loads(text, parse_float=str) for text in texts)
    return pa.array([_value(value, type_) for value in values], type_)


def column_of_lines(part: Path, name: str, type_: pa.DataType) -> pa.Array:
    """Return the values of the key `name` in a file of json lines."""
    lines = part.read_text(encoding="utf-8").split("\n")
    rows = (json.loads(line, parse_float=str) for line in lines if line)
    return pa.array([_value(row[name], type_) for row in rows], type_)


def _value(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(type_):
        return [_value(member, type_.value_type) for member in value]
    if pa.types.is_struct(type_):
        return {field.name: _value(value[field.name], field.type) for field in type_}
    if pa.types.is_decimal(type_):
        return Decimal(value)
    if pa.types.is_floating(type_):
        return float(value)
    if pa.types.is_binary(type_):
        return base64.b64decode(value)
    if pa.types.is_duration(type_):
        return from_text(pa.array([value], pa.string()))[0].as_py()
    if pa.types.is_date(type_):
        return day_of(value)
    return moment_of(value) if pa.types.is_timestamp(type_) else value
