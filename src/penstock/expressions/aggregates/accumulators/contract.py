"""An accumulator: additive numbers of a column of values, so that panes and expirations are sums.

Integer lanes wrap. A sum of doubles has four float lanes, an expansion that is added without error (`expansions.py`);
those beside the limbs of products have two, a pair that holds fewer bits (`double_pairs.py`). What is not finite is
counted in integer lanes, since it could never be subtracted again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]


class Accumulator(ABC):
    """Lanes that stand behind the count of an argument's values. Equal accumulators of one argument are kept once."""

    #: The position among the accumulators of one argument, different from those of all others: it orders their lanes.
    rank: ClassVar[int]

    @abstractmethod
    def integers(self, type_: pa.DataType) -> int:
        """Return how many integer lanes values of `type_` need."""

    @abstractmethod
    def floats(self, type_: pa.DataType) -> int:
        """Return how many float lanes values of `type_` need, an even number."""

    def widths(self, type_: pa.DataType) -> tuple[int, ...]:
        """Return how many float lanes each sum has: 2 for a pair, 4 for an expansion (`expansions.py`)."""
        return (2,) * (self.floats(type_) // 2)

    @abstractmethod
    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        """Return the lanes of each value of `column`, taken counts[i] times: 0 where it is NULL."""

    def is_plain(self, type_: pa.DataType) -> bool:
        """Return whether a result costs little more to finalize than to copy."""
        return False
