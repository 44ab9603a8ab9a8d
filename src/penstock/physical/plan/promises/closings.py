"""How an operator learns the closings of values that streams promise: from *thin rows* of the declared streams.

A thin row is an element of a declared stream with the columns of a promise alone, whatever a query selects of the
stream. Where elements are only counted, it is enough to know how many there are at each instant.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algebra.properties.promises import Promise


@dataclass(frozen=True)
class ClosingBase:
    """How the promise of one declared stream is followed.

    Args:
        promise: CLUSTERED BY, ORDERED BY, or a reference.
        types: of the values of its columns, as they arrive; of a reference none.
        values: the port of rows that have these columns: of CLUSTERED BY those whose values are of this shard, of
            ORDERED BY all of the stream; None for a reference. They are thin rows, or all elements of the stream that
            were accepted, where these are an input of the operator anyway.
        counts: the port of the counts by instant of the stream that is counted (of a reference the parent); `values`
            where its rows are all of the stream, each of which counts. None where k is a time, and for a reference
            WITHIN 0 ROWS, which is settled at its own instant.
        places: the columns of the values in the rows of `values`.
    """

    promise: Promise
    types: tuple[pa.DataType, ...]
    values: int | None
    counts: int | None
    places: tuple[int, ...] = ()


@dataclass(frozen=True)
class ClosingSpec:
    """How a promise is followed.

    Args:
        bases: one, or one of every branch of a UNION ALL: then a value is closed when it is in every branch.
        text: the promise as users read it.
    """

    bases: tuple[ClosingBase, ...]
    text: str = field(default="", compare=False)
