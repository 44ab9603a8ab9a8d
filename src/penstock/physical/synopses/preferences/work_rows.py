"""The rows that the compiled loop returns: results, and with inclusion records what was the threshold of an instant."""

from __future__ import annotations

import numpy as np

from penstock.compilation import loop
from penstock.physical.kernels.compiling import compiled
from penstock.physical.synopses.preferences.layout import (
    BEST,
    KEY,
    R_AT,
    R_SIDE,
    RECORDS,
    THRESHOLD,
    V_KEY,
    WAITING,
)


@compiled()
def grown(out, out_ranks, count):  # type: ignore[no-untyped-def]
    """Return arrays with room for one row more."""
    if count < out.shape[0]:
        return out, out_ranks
    more = np.empty((2 * count, out.shape[1]), np.int64)
    more_ranks = np.empty((2 * count, out_ranks.shape[1]), np.float64)
    for i in range(count):
        for k in range(out.shape[1]):
            more[i, k] = out[i, k]
        for k in range(out_ranks.shape[1]):
            more_ranks[i, k] = out_ranks[i, k]
    return more, more_ranks


@loop
def append_row(what, at, key, out, out_ranks, count):  # type: ignore[no-untyped-def]
    """Add a row that is no result, such as THRESHOLD, for which there is room; return the number of rows."""
    out[count] = 0
    out[count, R_SIDE], out[count, R_AT] = what, at
    out_ranks[count] = 0.0
    out_ranks[count, V_KEY] = key
    return count + 1


@loop
def append_threshold(at, items, ranks, numbers, parameters, out, out_ranks, count):  # type: ignore[no-untyped-def]
    """Add the threshold after work at an instant; of several for an instant the last one is that at its end."""
    if parameters[RECORDS]:
        out, out_ranks = grown(out, out_ranks, count)
        key = ranks[items[BEST, 0], KEY] if numbers[WAITING] else np.nan
        count = append_row(THRESHOLD, at, key, out, out_ranks, count)
    return out, out_ranks, count
