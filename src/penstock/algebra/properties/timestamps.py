"""Which columns hold the instant at which a row enters.

Contract: `Algebra.timestamps` maps a column to an offset in ticks: in every row its value, in ticks, is the instant at
which the row enters plus that offset. So rows that agree in such a column enter together, and none of them later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
        offset = offset_of(moved, below)
        ticks = by.value if isinstance(by, Literal) and pa.types.is_integer(by.type) else None
        if offset is not None and pa.types.is_integer(moved.type) and isinstance(ticks, int):
            return offset + ticks if expression.function == "ADD" else offset - ticks
    return None


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
