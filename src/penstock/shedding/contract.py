"""What the machine of one budget is made with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Records
from penstock.shedding.layout import PARAMETERS
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

    def parameters(self) -> Records:
        """Return the parameters of the compiled machine."""
        policy = self.policy
        found = np.zeros(1, PARAMETERS)
        found[0] = (
            policy.unit,
            policy.ties,
            policy.delta,
            policy.rho,
            policy.gone,
            policy.knows,
            policy.spares_arriving,
            policy.scans,
            self.least_length,
            self.ordered,
            self.compact,
            self.seed,
            int(self.sample * 2.0**62) * 2,
        )
        return found
