"""The accumulator rows of cells: a value of a sketch falls into any number of cells, and each is a row of its own.

Such a row has the group and the validity of the row that it comes from, the cell, and in the lane of its argument how
often it counts; all other lanes are 0 and all other values NULL. So rows of one cell become one in a pane, whatever
else the query computes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s
from penstock.physical.plan.state.aggregate_layout import AggregateLayout


def encoded_rows(
    plan: AggregateLayout, rows: Elements, argument: int, values: pa.Array, signs: Int64s
) -> Iterator[Elements]:
    """Yield the rows of the cells into which the `values` of an argument fall, if any. signs: how often each row
    counts."""
    encoder = plan.arguments[argument].encoder
    assert encoder is not None
    sources, cells = encoder.encode(values)
    if len(sources):
        yield cell_rows(plan, rows, argument, sources, cells, signs[sources])


def cell_rows(
    plan: AggregateLayout, rows: Elements, argument: int, sources: Int64s, cells: pa.Array, weights: Int64s
) -> Elements:
    """Return one row for each of `cells`, with the group and validity of rows[sources[i]], that counts weights[i]
    times."""
    size = len(sources)
    every = size == len(rows) and bool(np.all(sources[1:] > sources[:-1]))
    keys = Elements(rows.columns[: len(plan.group)], rows.ts, rows.exp)
    origin = keys if every else keys.take(sources)
    columns = list(origin.columns)
    integers, floats = plan.carried
    none = pa.array(np.zeros(size, np.int64))
    own = plan.arguments[argument].integers
    columns += [pa.array(weights) if lane == own else none for lane in integers]
    columns += [pa.array(np.zeros(size))] * len(floats)
    columns += [cells if i == argument else pa.nulls(size, plan.arguments[i].type) for i in plan.valued]
    return Elements(tuple(columns), origin.ts, origin.exp)
