"""The cut of a pane to its list: the items with the greatest counts, equal counts by the items, least first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.first_rows import SortKey
from penstock.physical.elements import Elements, Int64s
from penstock.physical.kernels.compiled import pane_codes
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.kernels.row_order import sort_order


def codes_of_panes(rows: Elements, columns: Sequence[int]) -> tuple[Int64s, Int64s]:
    """Return a number for each (values of `columns`, ts, exp): of each row, and the first row of each."""
    first, second = fingerprints([rows.columns[i] for i in columns], len(rows))
    return pane_codes(first, second, rows.ts, rows.exp)


def ranked(codes: Int64s, high: Int64s, low: Int64s, columns: Sequence[pa.Array], keep: int) -> tuple[Int64s, Int64s]:
    """Return the `keep` first rows of each code in order of (code, count descending, columns), and the rank of each in
    its code. high, low: normal pairs (`kernels/wide.py`)."""
    order = np.lexsort((-low, -high, codes))
    rank = _ranks(codes[order])
    last = np.flatnonzero(rank == keep - 1)
    if len(last):
        # Of rows with the same count as the last that is kept, the columns decide.
        place = np.searchsorted(codes[order[last]], codes[order])
        beyond = np.zeros(len(order), np.bool_)
        cut = place < len(last)
        cut[cut] = codes[order[last[place[cut]]]] == codes[order[cut]]
        edge = order[last[place[cut]]]
        own = order[cut]
        beyond[cut] = (high[own] < high[edge]) | ((high[own] == high[edge]) & (low[own] < low[edge]))
        order = order[~beyond]
    chosen = pa.array(order)
    by_columns = sort_order([column.take(chosen) for column in columns], [SortKey(i) for i in range(len(columns))])
    order = order[by_columns]
    order = order[np.lexsort((-low[order], -high[order], codes[order]))]
    rank = _ranks(codes[order])
    kept = rank < keep
    return order[kept], rank[kept]


def _ranks(codes: Int64s) -> Int64s:
    """Return the position of each row in the run of its code, from 0."""
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))[: len(codes)]
    lengths = np.diff(np.append(starts, len(codes)))
    return np.arange(len(codes)) - np.repeat(starts, lengths)
