"""The inclusion records of sampled rows, as a last column (`expressions/sampling/inclusion.py`).

Contract: `Algebra.with_inclusion()` returns the relation with one more column, or None where nothing below is sampled.
A node that drops elements with a known probability appends the column; row by row operators and joins pass it on;
everything else refuses, since the probability of its rows is not known.
"""

from __future__ import annotations

from penstock.expressions.nodes import Column
from penstock.expressions.sampling.inclusion import INCLUSION
from penstock.types import Field

#: The hidden column.
RECORD = Field("inclusion", INCLUSION)


def inclusion_column(position: int) -> Column:
    """Return a reference to the records at `position`."""
    return Column(INCLUSION, position, RECORD.name)
