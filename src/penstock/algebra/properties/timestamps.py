"""Which columns hold the instant at which a row enters.

Contract: `Algebra.timestamps` maps a column to an offset in ticks: in every row its value, in ticks, is the instant at
which the row enters plus that offset. So rows that agree in such a column enter together, and none of them later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import pyarrow as pa

from penstock.expressions.nodes import Call, Column, Expression, Literal

#: By column the offset of its value from the instant at which the row enters, in ticks.
Timestamps = Mapping[int, int]
NO_TIMESTAMPS: Timestamps = {}


def offset_of(expression: Expression, below: Timestamps) -> int | None:
    """Return the offset of what is computed of columns whose timestamps are `below`; None where it holds no instant at
    which rows enter."""
    if isinstance(expression, Column):
        return below.get(expression.index)
    if not isinstance(expression, Call):
        return None
    if expression.function == "TIMESTAMP_MICROS":
        return offset_of(expression.arguments[0], below)
    if expression.function in ("ADD", "SUB"):
        moved, by = expression.arguments
        offset, ticks = offset_of(moved, below), _ticks(by, moved.type)
        if offset is not None and ticks is not None:
            return offset + ticks if expression.function == "ADD" else offset - ticks
    return None


def _ticks(by: Expression, type_: pa.DataType) -> int | None:
    """Return by how many ticks a constant moves a value of `type_`; None where that is not known, or might overflow."""
    if not isinstance(by, Literal) or by.value is None:
        return None
    if pa.types.is_duration(by.type) and pa.types.is_timestamp(type_):
        return int(by.value // timedelta(microseconds=1)) if isinstance(by.value, timedelta) else None
    return by.value if pa.types.is_int64(type_) and isinstance(by.value, int) else None


def shifted(found: Timestamps, width: int) -> Timestamps:
    """Return `found` of columns that stand behind `width` others."""
    return {width + column: offset for column, offset in found.items()}


def common_timestamps(branches: Sequence[Timestamps]) -> Timestamps:
    """Return what holds of the rows of every branch of a UNION ALL."""
    first, *others = branches
    return {column: offset for column, offset in first.items() if all(one.get(column) == offset for one in others)}


def equates_timestamps(left: Timestamps, right: Timestamps, pairs: Iterable[tuple[int, int]]) -> bool:
    """Return whether rows of two relations that agree in the `pairs` of columns enter at one instant."""
    return any(a in left and left[a] == right.get(b) for a, b in pairs)
