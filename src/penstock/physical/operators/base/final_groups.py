"""Groups that are final: no later row can be in them, so that their state is dropped.

Each of their columns that decides this never decreases with the instant at which rows enter. After a heartbeat τ all
rows up to τ have been added, so a group whose value is less than that of τ + 1 is final.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.properties.timestamps import Rising
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.physical.elements import Bools, Int64s
from penstock.physical.plan.state.time_endings import TimeEnding
from penstock.physical.synopses.tables.keyed_table import KeyedTable


class FinalValues:
    """Which values of the columns of groups are final; after a restore all groups are looked at once."""

    def __init__(self, endings: Sequence[TimeEnding]) -> None:
        self._endings = endings
        self._least: list[pa.Scalar | None] = []

    def advance(self, heartbeat: int) -> bool:
        """Take into account that all rows up to `heartbeat` have been added; return whether more values are final."""
        least = [_least_value(one.rising, heartbeat) for one in self._endings]
        changed, self._least = least != self._least, least
        return changed

    def among(self, columns: Sequence[pa.Array]) -> Bools:
        """Return which of some groups are final. columns: of the groups."""
        over = np.zeros(len(columns[0]), np.bool_)
        for one, value in zip(self._endings, self._least, strict=True):
            if value is not None:
                # NULL is final never.
                below = pc.fill_null(pc.less(columns[one.column], value), False)
                over |= below.to_numpy(zero_copy_only=False)
        return over


class FinalSlots:
    """The live slots of a table whose groups are final.

    Args:
        endings: columns are places among the key columns of `table`.
    """

    def __init__(self, endings: Sequence[TimeEnding], table: KeyedTable) -> None:
        self._values, self._table = FinalValues(endings), table

    def until(self, heartbeat: int) -> Int64s:
        """Return those that are when all rows up to `heartbeat` have been added; the caller ends them."""
        if not self._values.advance(heartbeat):
            return np.empty(0, np.int64)
        slots = self._table.live()
        final: Int64s = slots[self._values.among(self._table.key_columns(slots))]
        return final

    def drop(self, heartbeat: int) -> None:
        """End those that are when all rows up to `heartbeat` have been added, where a slot is all of their state."""
        slots = self.until(heartbeat)
        if len(slots):
            self._table.integers[0, slots] = 0
            self._table.touch(slots)


def _least_value(rising: Rising, heartbeat: int) -> pa.Scalar | None:
    """Return the value of a column in rows that enter at the first instant after `heartbeat`; None where there is none,
    or it is NULL."""
    try:
        held = pa.scalar(heartbeat + 1 + rising.offset, pa.int64()).cast(rising.type)
    except (OverflowError, pa.ArrowInvalid):
        return None
    if rising.computed is None:
        return held
    found = evaluate(rising.computed, [pa.array([held], rising.type)], 1)[0]
    return found if found.is_valid else None
