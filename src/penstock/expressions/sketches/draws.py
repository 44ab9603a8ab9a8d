"""How many different values some rows are expected to have, where it is known how many there are to draw from.

The frequencies of values are not known. Numbers that repeat are mostly a few small integers; names, such as those of
customers or planes, are between that and all equally frequent.
"""

from __future__ import annotations

import math

import numpy as np


def of_numbers(rows: float, values: float) -> float:
    """The frequency of the i-th is taken to be in proportion to 1/i (Zipf); ranks are taken together where there are
    many."""
    limits = np.unique(np.floor(np.geomspace(1.0, max(1.0, values) + 1.0, 400)))
    counts, ranks = np.diff(limits), np.sqrt(limits[:-1] * (limits[1:] - 1.0))
    share = 1.0 / (ranks * np.sum(counts / ranks))
    return float(np.sum(counts * -np.expm1(-rows * share)))


def of_names(rows: float, values: float) -> float:
    """Return a mean of what numbers have and of what equally frequent values have: where there are many more values
    than rows, each row is taken to have its own."""
    values = max(1.0, values)
    alike, equal = of_numbers(rows, values), -values * math.expm1(-rows / values)
    return float(alike * (equal / alike) ** (values / (values + rows)))
