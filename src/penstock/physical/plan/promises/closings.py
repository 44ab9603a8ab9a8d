"""How an operator learns the closings of values that streams promise: from *thin rows* of the declared streams.

A thin row is an element of a declared stream with the columns of a promise alone, whatever a query selects of the
stream. Rows without columns are enough where they are only counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.properties.promises import Promise


@dataclass(frozen=True)
class ClosingBase:
    """How the promise of one declared stream is followed.

    Args:
        promise: CLUSTERED BY, ORDERED BY, or a reference.
        types: of the values of its columns, as they arrive; of a reference none.
        values: the port of the thin rows that have these columns: of CLUSTERED BY those whose values are of this shard,
            of ORDERED BY all of the stream; None for a reference.
        counts: the port of all elements of the stream that is counted (of a reference the parent), of which no column
            is read; None where k is a time, and for a reference WITHIN 0 ROWS, which is settled at its own instant.
    """

    promise: Promise
    types: tuple[pa.DataType, ...]
    values: int | None
    counts: int | None


@dataclass(frozen=True)
class ClosingSpec:
    """How a promise is followed.

    Args:
        bases: one, or one of every branch of a UNION ALL: then a value is closed when it is in every branch.
    """

    bases: tuple[ClosingBase, ...]
