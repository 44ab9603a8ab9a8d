"""The accumulator rows of cells: a value of a sketch falls into any number of cells, and each is a row of its own.

Such a row has the group and the validity of the row that it comes from, the cell, and in the lane of its argument how
often it counts; all other lanes are 0 and all other values NULL. So rows of one cell become one in a pane, whatever
else the query computes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.planning.aggregate_layout import AggregateLayout


def with_cells(plan: AggregateLayout, rows: Elements, sketched: Mapping[int, pa.Array], signs: Int64s) -> Elements:
    """Return `rows`, then the rows of the cells into which the values `sketched`, by argument, fall. signs: how often
    each row counts."""
    parts = [rows]
    for argument, column in sketched.items():
        encoder = plan.arguments[argument].encoder
        assert encoder is not None
        sources, cells = encoder.encode(column)
        if len(sources):
            parts.append(cell_rows(plan, rows, argument, sources, cells, signs[sources]))
    return concat(parts) if len(parts) > 1 else rows


def cell_rows(
    plan: AggregateLayout, rows: Elements, argument: int, sources: Int64s, cells: pa.Array, weights: Int64s
) -> Elements:
    """Return one row for each of `cells`, with the group and validity of rows[sources[i]], that counts weights[i]
    times."""
    size = len(sources)
    chosen = pa.array(sources)
    columns = [column.take(chosen) for column in rows.columns[: len(plan.group)]]
    integers, floats = plan.carried
    none = pa.array(np.zeros(size, np.int64))
    own = plan.arguments[argument].integers
    columns += [pa.array(weights) if lane == own else none for lane in integers]
    columns += [pa.array(np.zeros(size))] * len(floats)
    columns += [cells if i == argument else pa.nulls(size, plan.arguments[i].type) for i in plan.valued]
    return Elements(tuple(columns), rows.ts[sources], rows.exp[sources])
