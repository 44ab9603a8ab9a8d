"""Complete panes of values, cut to lists of the most frequent ones, with their numbers `[golab 6]`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, concat, int64s
from penstock.physical.kernels.compiled import pane_codes, sum_by_code
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.aggregates.cells.cell_rows import cell_rows
from penstock.physical.operators.aggregates.cells.cutting import ranked
from penstock.physical.plan.state.aggregate_layout import AggregateLayout


def cut_to_lists(plan: AggregateLayout, rows: Elements, argument: int, capacity: int) -> Elements:
    """Return accumulator rows, all of the panes that they belong to, with the values of `argument` cut to lists."""
    column = rows.columns[plan.values_at + plan.valued.index(argument)]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(valid)
    if len(chosen) <= capacity:
        return rows
    lane = len(plan.group) + plan.carried[0].index(plan.arguments[argument].integers)
    values, ts, exp = column.take(pa.array(chosen)), rows.ts[chosen], rows.exp[chosen]
    keys = [c.take(pa.array(chosen)) for c in rows.columns[: len(plan.group)]]
    codes, heads = pane_codes(*fingerprints([*keys, values], len(chosen)), ts, exp)
    counts = sum_by_code(codes, int64s(rows.columns[lane])[chosen], len(heads))
    first, second = fingerprints(keys, len(chosen))
    panes, _ = pane_codes(first[heads], second[heads], ts[heads], exp[heads])
    items = values.take(pa.array(heads))
    kept, _ = ranked(panes, counts, np.zeros(len(counts), np.int64), [items], capacity)
    lists = cell_rows(plan, rows, argument, chosen[heads[kept]], items.take(pa.array(kept)), counts[kept])
    return concat([rows.filter(~valid), lists])
