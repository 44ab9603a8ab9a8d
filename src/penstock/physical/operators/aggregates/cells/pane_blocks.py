"""Complete panes of values, cut to blocks: of every so many sorted values the middle one remains, with their number.

A pane is complete when the heartbeat has passed the instant from which it is valid, so its blocks depend on its values
alone. A kept value is off by at most half a block in rank.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.approx_percentile import PaneBlocks
from penstock.expressions.aggregates.approx_top_k import PaneLists
from penstock.physical.elements import Elements, Int64s, concat, int64s
from penstock.physical.kernels.compiled import pane_codes, sum_by_code
from penstock.physical.kernels.extremes import order_keys
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.aggregates.cells.cell_rows import cell_rows
from penstock.physical.operators.aggregates.cells.cutting import ranked
from penstock.physical.plan.state.aggregate_layout import AggregateLayout

# --- Complete panes of values, cut to lists of the most frequent ones, with their numbers `[golab 6]`.


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


def with_blocks(plan: AggregateLayout, rows: Elements) -> Elements:
    """Return the accumulator rows `rows`, all of the panes that they belong to, with blocks in place of values."""
    for argument in plan.cells:
        encoder = plan.arguments[argument].encoder
        if isinstance(encoder, PaneBlocks):
            rows = _cut(plan, rows, argument, encoder.accuracy)
        elif isinstance(encoder, PaneLists):
            rows = cut_to_lists(plan, rows, argument, encoder.capacity)
    return rows


def _cut(plan: AggregateLayout, rows: Elements, argument: int, accuracy: int) -> Elements:
    column = rows.columns[plan.values_at + plan.valued.index(argument)]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(valid)
    lane = len(plan.group) + plan.carried[0].index(plan.arguments[argument].integers)
    weights = int64s(rows.columns[lane])[chosen]
    if int(weights.sum()) < accuracy:
        return rows  # no pane has blocks of more than one value
    values = column.take(pa.array(chosen))
    first, second = fingerprints([c.take(pa.array(chosen)) for c in rows.columns[: len(plan.group)]], len(chosen))
    panes, _ = pane_codes(first, second, rows.ts[chosen], rows.exp[chosen])
    order = np.lexsort((order_keys(values), panes))
    kept, sizes = _blocks(panes[order], weights[order], accuracy)
    sources = order[kept]
    blocks = cell_rows(plan, rows, argument, chosen[sources], values.take(pa.array(sources)), sizes)
    return concat([rows.filter(~valid), blocks])


def _blocks(panes: Int64s, weights: Int64s, accuracy: int) -> tuple[Int64s, Int64s]:
    """Return (row, number of values) of the middle value of every block. Rows are in order of (pane, value); weights:
    how often each value occurs."""
    heads = np.flatnonzero(np.append(True, panes[1:] != panes[:-1]))
    ends = np.cumsum(weights)
    starts = (ends - weights)[heads]
    counts = np.append(starts[1:], ends[-1]) - starts
    length = np.maximum(1, 2 * counts // accuracy)
    blocks = -(-counts // length)
    which = np.repeat(np.arange(len(heads)), blocks)
    number = np.arange(len(which)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    low = number * length[which]
    sizes = np.minimum(length[which], counts[which] - low)
    middles = starts[which] + low + (sizes - 1) // 2
    return np.searchsorted(ends, middles, side="right"), sizes
