"""The priorities of entries when they are made, by which they count as promising."""

from __future__ import annotations

import math

import numba as nb
import numpy as np

from penstock.physical.synopses.preferences.layout import (
    AGE_OF_X,
    BASE,
    BASES,
    BY_AGE,
    DEPTHS,
    EVERY,
    MADE,
    ORDER,
    RACE,
    RATES,
    REST,
    SORT,
    WEIGHTED,
    WHOLE,
    Float64s,
    Int64s,
)
from penstock.physical.synopses.preferences.machine import fade_of, granularity, key_of


@nb.njit(cache=True)
def _priority(sort, base, race, faded):  # type: ignore[no-untyped-def]
    """Return a priority, the most preferred the largest."""
    found = base * faded if sort == WEIGHTED else -key_of(sort, base, race, faded)
    return -np.inf if math.isnan(found) else found


@nb.njit(cache=True)
def priorities(fresh, ranks, numbers, parameters, fade, side0, side1, spans):  # type: ignore[no-untyped-def]
    """Return the priorities of new entries when they enter."""
    found = np.empty(fresh.shape[0], np.float64)
    for k in range(fresh.shape[0]):
        side = fresh[k, ORDER] & 1
        own, others = (side1, side0) if side == 1 else (side0, side1)
        faded = fade_of(
            fresh, k, fresh[k, MADE], parameters, fade, own, numbers[BASES + side], others, numbers[BASES + 1 - side],
            spans,
        )  # fmt: skip
        found[k] = _priority(parameters[SORT], ranks[k, BASE], ranks[k, RACE], faded)
    return found


def priorities_at_once(
    bases: Float64s, probed: int, made: Int64s, newest: Int64s, stretch: Int64s, parameters: Int64s, fade: float
) -> Float64s:  # fmt: skip
    """Return the priorities of entries that look up side `probed` and are worked on when they are made.

    Args:
        bases: products of their preferences.
        made: the instants at which they are made.
        newest: timestamps of their newest partners, of x where there is none; read where keys fade by age.
        stretch: of their zones, as in `layout.py`.
    """
    found: Float64s = _priorities_at_once(bases, probed, made, newest, stretch, parameters, fade)
    return found


@nb.njit(cache=True, error_model="numpy")
def _priorities_at_once(bases, probed, made, newest, stretch, parameters, fade):  # type: ignore[no-untyped-def]
    found = np.empty(bases.shape[0], np.float64)
    every, depth = parameters[EVERY + probed], parameters[DEPTHS + probed]
    for k in range(bases.shape[0]):
        faded = 1.0
        if every and parameters[BY_AGE]:
            since = made[k] if parameters[AGE_OF_X] else newest[k]
            faded = math.pow(fade, float((made[k] - since) // every))
        elif every and stretch[k] == REST:
            faded = math.pow(fade, float(depth))
        elif every and stretch[k] != WHOLE:
            level = granularity(stretch[k], made[k] // every, parameters[RATES + probed], depth)
            faded = math.pow(fade, float(level - 1))
        found[k] = _priority(parameters[SORT], bases[k], 0.0, faded)
    return found
