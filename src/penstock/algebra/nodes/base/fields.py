"""What the fields of operators hold, where their Python type does not say it. Plans as data are read and written by it
(`language/plans/fields.py`)."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from penstock.expressions.nodes import Expression
from penstock.quantities import LARGEST_BIGINT
from penstock.types import LONGEST_TICKS


@dataclass(frozen=True)
class Between:
    """A whole number between two, both included."""

    least: int
    most: int


@dataclass(frozen=True)
class OneOf:
    """One of some words."""

    words: Collection[str]


class Holds(enum.Enum):
    """What a field holds."""

    #: Positions of columns of the input.
    COLUMNS = "columns"
    #: Pairs of positions: of a column of the left input, and of one of the right one.
    PAIRS = "pairs"
    #: The tick that the boundaries of the field `slide` are counted from, from 0 on and below it.
    ALIGN = "align"
    #: A BOOLEAN expression over the columns of all inputs.
    CONDITION = "condition"


#: A length of time, from 1 on; one that may be 0; how many rows a window counts; how many a relation has, and has at
#: least one.
Ticks = Annotated[int, Between(1, LONGEST_TICKS - 1)]
TicksOrNone = Annotated[int, Between(0, LONGEST_TICKS - 1)]
Counted = Annotated[int, Between(1, 2**62)]
RowCount = Annotated[int, Between(0, 2**31 - 1)]
SomeRows = Annotated[int, Between(1, 2**31 - 1)]
Align = Annotated[int, Holds.ALIGN]
Seed = Annotated[int, Between(-LARGEST_BIGINT - 1, LARGEST_BIGINT)]
Columns = Annotated[tuple[int, ...], Holds.COLUMNS]
#: Columns that must be equal: (position in the left input, position in the right one).
Pairs = Annotated[tuple[tuple[int, int], ...], Holds.PAIRS]
Condition = Annotated[Expression, Holds.CONDITION]


def in_data(name: str) -> dict[str, object]:
    """Return the metadata of a field that has another name in plans as data."""
    return {"data": name}


#: The metadata of a field that follows from the others, or that only rules set: plans as data do not have it.
NOT_IN_DATA: dict[str, object] = {"data": None}
