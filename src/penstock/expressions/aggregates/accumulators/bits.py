"""How many of the values have each bit set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s


@dataclass(frozen=True)
class Bits(Accumulator):
    """A count by bit, lowest first. width: 1 for BOOLEAN, which counts what is TRUE."""

    width: int
    rank: ClassVar[int] = 1

    def integers(self, type_: pa.DataType) -> int:
        return self.width

    def floats(self, type_: pa.DataType) -> int:
        return 0

    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        values = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return [(values >> bit & 1) * counts for bit in range(self.width)], []
