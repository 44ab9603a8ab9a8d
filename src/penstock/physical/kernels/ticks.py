"""Saturating arithmetic of ticks.

A tick lies between BEGIN and END. The length of the interval from BEGIN to END is one more than an int64 holds, and the
computed end of an element near the end of time may exceed it. Whatever would lie past END is END, which time never
reaches, so no answer changes. Lengths (of windows, slides, slack) are less than 2^60 ticks, which the binder checks:
the sum of a tick and two lengths is an int64.

All functions accept one tick or an array of them.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.types import END

Ticks = TypeVar("Ticks", int, npt.NDArray[np.int64])


def later(ticks: Ticks, length: Ticks | int) -> Ticks:
    """Return `ticks` + `length`, at most END. length: of each, where it is an array."""
    return _at_most_end(ticks + length)


def round_up(ticks: Ticks, slide: int, align: int) -> Ticks:
    """Return the smallest align + k·slide that is ≥ `ticks`, at most END."""
    return _at_most_end(align + boundary_number(ticks, slide, align) * slide)


def round_down(tick: int, slide: int, align: int) -> int:
    """Return the largest align + k·slide that is ≤ `tick`."""
    return tick - (tick - align) % slide


def boundary_number(ticks: Ticks, slide: int, align: int) -> Ticks:
    """Return k of the first boundary align + k·slide that is ≥ `ticks`, which may lie past END."""
    return -((align - ticks) // slide)


def boundaries(since: int, until: int, slide: int, align: int) -> npt.NDArray[np.int64]:
    """Return all align + k·slide from `since` to `until`, both inclusive."""
    first = boundary_number(since, slide, align)
    # By number: `arange` computes their count in doubles, which is wrong for large ticks.
    return align + slide * np.arange(first, boundary_number(until + 1, slide, align))


def lengths(ts: npt.NDArray[np.int64], exp: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the length of [ts, exp), ts < exp: the largest int64 for longer intervals."""
    found: npt.NDArray[np.int64] = exp - ts
    # No interval is empty: a difference that is not positive has wrapped around.
    found[found <= 0] = np.iinfo(np.int64).max
    return found


def _at_most_end(ticks: Ticks) -> Ticks:
    found: Any = np.minimum(ticks, END)
    limited: Ticks = found if isinstance(ticks, np.ndarray) else int(found)
    return limited
