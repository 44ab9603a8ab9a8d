"""How many elements of a batch each instant has, and the greatest value that came at it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Bools
from penstock.physical.elements import Elements, Int64s
from penstock.physical.kernels.extremes import order_keys
from penstock.physical.operators.base.contract import Operator
from penstock.physical.plan.inputs import InstantCountsSpec
from penstock.physical.synopses.promises.element_counts import ElementCounts
from penstock.types import END

#: The rank of a NULL or NaN, of which nothing is promised; those of values are not negative.
NO_RANK = -1


class InstantCounts(Operator):
    def __init__(self, spec: InstantCountsSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if not len(elements):
            return []
        spec = self._spec
        instants: Int64s
        columns: tuple[pa.Array, ...]
        if spec.greatest is None:
            every = ElementCounts()
            every.advance(elements.ts)
            instants, columns = every.instants, (pa.array(np.diff(every.totals)),)
        else:
            values = elements.columns[spec.greatest]
            found = ranks(values, spec.descending)
            order = np.lexsort((found, elements.ts))
            instants, begins, counts = np.unique(elements.ts[order], return_index=True, return_counts=True)
            last = order[begins + counts - 1]
            greatest = values.take(pa.array(last, mask=found[last] == NO_RANK))
            columns = (pa.array(counts.astype(np.int64)), greatest)
        return [Elements(columns, instants, np.full(len(instants), END, np.int64))]


def ranks(values: pa.Array, descending: bool) -> Int64s:
    """Return int64 ranks of values, comparable within this array: the greater, the later in the order. NO_RANK for
    NULL and NaN."""
    is_value = promised([values])
    found = np.full(len(values), NO_RANK, np.int64)
    # Of equal keys there is one rank; keys themselves may be negative.
    _, dense = np.unique(order_keys(values)[is_value], return_inverse=True)
    found[is_value] = dense.max(initial=0) - dense if descending else dense
    return found


def promised(columns: list[pa.Array]) -> Bools:
    """Return which rows have neither a NULL nor a NaN in some columns."""
    found = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        valid = column.is_valid()
        if pa.types.is_floating(column.type):
            valid = pc.and_(valid, pc.invert(pc.fill_null(pc.is_nan(column), True)))
        found &= valid.to_numpy(zero_copy_only=False)
    return found
