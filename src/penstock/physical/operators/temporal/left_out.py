"""Counts of the rows that operators over periods leave out, and of the sessions that have not ended.

Rows without a period are those whose begin or end is NULL, whose period is empty, or whose gap is NULL or not positive.
"""

from __future__ import annotations

import numpy as np

from penstock.figures import ENDED_ON_ARRIVAL, OPEN_PERIODS, WITHOUT_PERIOD
from penstock.figures.figure import FigureValues
from penstock.physical.elements import Bools, Elements
from penstock.physical.operators.base.contract import Operator
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.storage.documents import Document, integers


class LeftOut:
    """Counts since the beginning, of rows that come; what takes a row back does not count."""

    def __init__(self) -> None:
        self._without_period = 0
        self._ended = 0

    def without_period(self, arrived: Elements, kept: Elements) -> Elements:
        """Count the rows of `arrived` that are not in `kept`, and return `kept`."""
        if len(kept) != len(arrived):
            self._without_period += _come(arrived) - _come(kept)
        return kept

    def ended_on_arrival(self, rows: Elements, ended: Bools) -> None:
        self._ended += int(np.count_nonzero(ended & (rows.signs > 0)))

    def figures(self) -> FigureValues:
        return {WITHOUT_PERIOD: self._without_period, ENDED_ON_ARRIVAL: self._ended}

    def marks(self) -> Document:
        return {"left out": [self._without_period, self._ended]}

    def restore_marks(self, marks: Document) -> None:
        self._without_period, self._ended = integers(marks, "left out")


class CountsLeftOut(Operator):
    """An operator over periods that counts what it leaves out, also over a restart."""

    _left_out: LeftOut

    def figures(self) -> FigureValues:
        return self._left_out.figures()

    def marks(self) -> Document:
        return self._left_out.marks()

    def restore_marks(self, marks: Document) -> None:
        self._left_out.restore_marks(marks)


def _come(elements: Elements) -> int:
    return len(elements) if elements.sign is None else int(np.count_nonzero(elements.sign > 0))


def open_periods(table: KeyedTable, alive: int) -> FigureValues:
    """Return the figure of the slots whose session or stretch goes on; alive: the lane that is 1 where it does."""
    return {OPEN_PERIODS: int(np.count_nonzero(table.integers[alive, : table.count]))}
