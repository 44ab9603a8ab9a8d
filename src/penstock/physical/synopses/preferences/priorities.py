"""The priorities of entries when they are made, by which they count as promising."""

from __future__ import annotations

import math

import numpy as np

from penstock.compilation import loop
from penstock.physical.synopses.preferences.layout import (
    BASE,
    BASES,
    MADE,
    ORDER,
    RACE,
    SORT,
    WEIGHTED,
)
from penstock.physical.synopses.preferences.machine import fade_of, key_of


@loop
def _priority(sort, base, race, faded):  # type: ignore[no-untyped-def]
    """Return a priority, the most preferred the largest."""
    found = base * faded if sort == WEIGHTED else -key_of(sort, base, race, faded)
    return -np.inf if math.isnan(found) else found


@loop
def priorities(fresh, ranks, numbers, parameters, fade, side0, side1, spans):  # type: ignore[no-untyped-def]
    """Return the priorities of new entries when they enter."""
    found = np.empty(fresh.shape[0], np.float64)
    for k in range(fresh.shape[0]):
        side = fresh[k, ORDER] & 1
        own, others = (side1, side0) if side == 1 else (side0, side1)
        faded = fade_of(
            fresh,
            k,
            fresh[k, MADE],
            parameters,
            fade,
            own,
            numbers[BASES + side],
            others,
            numbers[BASES + 1 - side],
            spans,
        )
        found[k] = _priority(parameters[SORT], ranks[k, BASE], ranks[k, RACE], faded)
    return found
