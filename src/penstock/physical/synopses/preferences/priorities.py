"""The priorities of entries when they are made, by which they count as promising."""

from __future__ import annotations

import math

import numpy as np

from penstock.arrays import Float64s, Records
from penstock.compilation import loop
from penstock.physical.synopses.preferences.layout import (
    WEIGHTED,
    Queue,
)
from penstock.physical.synopses.preferences.machine import fade_of, key_of


@loop
def _priority(sort: int, base: float, race: float, faded: float) -> float:
    """Return a priority, the most preferred the largest."""
    found = base * faded if sort == WEIGHTED else -key_of(sort, base, race, faded)
    return -np.inf if math.isnan(found) else found


@loop
def priorities(queue: Queue, fresh: Records) -> Float64s:
    """Return the priorities of new entries when they enter."""
    found = np.empty(fresh.shape[0], np.float64)
    for k in range(fresh.shape[0]):
        faded = fade_of(queue, fresh, k, fresh[k].made)
        found[k] = _priority(queue.parameters[0].direction, fresh[k].product, fresh[k].race, faded)
    return found
