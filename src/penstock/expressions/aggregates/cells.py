"""Cells: which cells of a sketch a value falls into.

A sketch of a group is a table of cells. The rows of a pane that fall into the same cell are one lane row, so a pane has
at most as many as the sketch has cells. What is known of a cell is either how often something fell into it, which adds
up and can be taken away again, or for cells (register, rank) the greatest rank of every register.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Int64s
from penstock.expressions.sketches import draws


class CellEncoder(ABC):
    """Frozen dataclasses: the parameters of a sketch decide which calls share its state."""

    #: How many of the low bits of a cell are its rank in a register; 0 where cells are counted.
    rank_bits: ClassVar[int] = 0
    #: Whether the cells of a pane are put together once it is complete (`accuracy` determines how many remain).
    cut: ClassVar[bool] = False

    def type(self, values: pa.DataType) -> pa.DataType:
        """Return the type of a cell of `values`."""
        return pa.int64()

    @abstractmethod
    def encode(self, column: pa.Array) -> tuple[Int64s, pa.Array]:
        """Return (rows, cells): rows[i] falls into cells[i]. NULLs fall into none."""

    @abstractmethod
    def expected(self, values: float) -> float:
        """Return how many different cells so many different values are expected to fall into; registers where only the
        greatest rank of each is kept."""

    def expected_counted(self, values: float) -> float:
        """Return the same where every cell is counted."""
        return self.expected(values)

    def different(self, rows: float, values: float) -> float:
        """Return how many different values so many rows are expected to have of `values`."""
        return max(1.0, draws.of_names(rows, values))
