"""What the machine of one budget is made with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.shedding.layout import (
    COMPACT,
    GONE_COSTS,
    KNOWS,
    LEAST_LENGTH,
    ORDERED,
    PARAMETERS,
    SAMPLE,
    SCANS,
    SEED,
    SPARES_ARRIVING,
    TIES,
    UNIT,
    USES_DELTA,
    USES_RHO,
    Int64s,
)
from penstock.shedding.policies import Policy


@dataclass(frozen=True)
class Shedding:
    """What the machine of one budget is made with.

    Args:
        policy: which tuple goes first.
        least_length: the constant of a conjunct LENGTH >= constant in ticks, 0 without one.
        ordered: whether periods begin in the order in which they arrive.
        compact: whether equal (value, period, life) are one entry.
        seed: of all hashes.
        sample: the share of the values that is also held unshed, to estimate accuracy.
    """

    policy: Policy
    least_length: int = 0
    ordered: bool = True
    compact: bool = True
    seed: int = 0
    sample: float = 0.0

    def parameters(self) -> Int64s:
        """Return the parameters of the compiled machine, by the columns of `layout.py`."""
        found = np.zeros(PARAMETERS, np.int64)
        policy = self.policy
        found[UNIT], found[TIES] = policy.unit, policy.ties
        found[USES_DELTA], found[USES_RHO] = policy.delta, policy.rho
        found[GONE_COSTS], found[KNOWS] = policy.gone, policy.knows
        found[SPARES_ARRIVING], found[SCANS] = policy.spares_arriving, policy.scans
        found[LEAST_LENGTH], found[ORDERED], found[COMPACT] = self.least_length, self.ordered, self.compact
        found[SEED], found[SAMPLE] = self.seed, int(self.sample * 2.0**62) * 2
        return found
