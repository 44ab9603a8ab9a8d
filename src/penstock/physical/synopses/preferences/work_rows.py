"""The records that the compiled loop returns: results, and with inclusion records thresholds of instants."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Records
from penstock.compilation import loop
from penstock.physical.kernels.compiling import compiled
from penstock.physical.synopses.preferences.layout import BEST, RESULT, THRESHOLD, Queue


@compiled()
def grown(out: Records, count: int) -> Records:
    """Return an array with room for one record more."""
    if count < out.shape[0]:
        return out
    more = np.empty(2 * count, RESULT)
    for i in range(count):
        more[i] = out[i]
    return more


@loop
def append_row(what: int, at: int, key: float, out: Records, count: int) -> int:
    """Add a record that is no result, such as THRESHOLD, for which there is room; return the number of records."""
    out[count].side, out[count].at, out[count].key = what, at, key
    return count + 1


@loop
def append_threshold(queue: Queue, at: int, out: Records, count: int) -> tuple[Records, int]:
    """Add the threshold after work at an instant; of several for an instant the last one is that at its end."""
    if queue.parameters[0].records:
        out = grown(out, count)
        key = queue.entries[queue.items[BEST, 0]].key if queue.numbers[0].waiting else np.nan
        count = append_row(THRESHOLD, at, key, out, count)
    return out, count
