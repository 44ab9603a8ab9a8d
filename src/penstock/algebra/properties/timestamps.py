"""Which columns follow the instant at which a row enters.

Contract: `Algebra.timestamps` maps a column to an offset in ticks: in every row its value, in ticks, is the instant at
which the row enters plus that offset. So rows that agree in such a column enter together, and none of them later.

`Algebra.rising` has these columns too, and those that are computed of such a value and never decrease with it, as an
hour does: rows that agree in such a column enter in one stretch of time, and none of them behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import pyarrow as pa

from penstock.expressions.coercion import DATE
from penstock.expressions.evaluation.rising import rising_argument
from penstock.expressions.nodes import Call, Cast, Column, Expression, Literal

T = TypeVar("T")

#: By column the offset of its value from the instant at which the row enters, in ticks.
Timestamps = Mapping[int, int]
NO_TIMESTAMPS: Timestamps = {}


@dataclass(frozen=True)
class Rising:
    """A column whose values never decrease with the instant at which rows enter.

    Args:
        type: of the value that is that instant plus `offset`, in ticks.
        computed: what the column is, of this value as column 0; None where it is the value itself.
    """

    type: pa.DataType
    offset: int
    computed: Expression | None = None

    @property
    def stretch(self) -> str | None:
        """Return such as `one hour`: the time in which the column has one value; None where it has no name."""
        found = self.computed
        if found is None:
            return "one instant"
        if isinstance(found, Cast):
            return "one day" if found.type == DATE else None
        if not isinstance(found, Call):
            return None
        if found.function in ("DATE_TRUNC", "TRUNC"):
            unit = next((one.value for one in found.arguments if isinstance(one, Literal)), None)
            return f"one {unit.lower()}" if isinstance(unit, str) else None
        return {"YEAR": "one year", "TO_DATE": "one day"}.get(found.function)


#: By column how its values rise.
Risings = Mapping[int, Rising]
NO_RISINGS: Risings = {}


def exact(found: Risings) -> Timestamps:
    """Return the columns that hold the instant itself, moved by an offset."""
    return {column: one.offset for column, one in found.items() if one.computed is None}


def only_exact(found: Risings) -> Risings:
    return {column: one for column, one in found.items() if one.computed is None}


def rising_of(expression: Expression, below: Risings) -> Rising | None:
    """Return how what is computed of columns rises, of which those in `below` do; None where it is not known to."""
    offset = offset_of(expression, exact(below))
    if offset is not None:
        return Rising(expression.type, offset)
    if isinstance(expression, Column):
        return below.get(expression.index)
    argument = rising_argument(expression)
    one = None if argument is None else rising_of(argument, below)
    if one is None:
        return None
    value = Column(one.type, 0, "") if one.computed is None else one.computed
    computed = expression.with_children(tuple(value if part is argument else part for part in expression.children))
    return Rising(one.type, one.offset, computed)


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


def shifted(found: Mapping[int, T], width: int) -> Mapping[int, T]:
    """Return `found` of columns that stand behind `width` others."""
    return {width + column: one for column, one in found.items()}


def common_columns(branches: Sequence[Mapping[int, T]]) -> Mapping[int, T]:
    """Return what holds of the rows of every branch of a UNION ALL."""
    first, *others = branches
    return {column: found for column, found in first.items() if all(one.get(column) == found for one in others)}


def equates_timestamps(left: Timestamps, right: Timestamps, pairs: Iterable[tuple[int, int]]) -> bool:
    """Return whether rows of two relations that agree in the `pairs` of columns enter at one instant."""
    return any(a in left and left[a] == right.get(b) for a, b in pairs)
