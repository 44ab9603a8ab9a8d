"""The contract of a policy: which of the tuples that are held goes first.

A policy is data: the compiled machine (`machine.py`) and the naive definition
(`penstock.testing.approximation.shedding`) both read it. So a new policy of the same family is one file and one line in
`policies/__init__.py`.
"""

from __future__ import annotations

import enum
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


class DropUnit(enum.IntEnum):
    """What a policy compares, and drops at once."""

    #: A tuple, whatever is around it.
    TUPLE = 0
    #: All tuples of a value.
    VALUE = 1
    #: A tuple, by what its stretch loses.
    STRETCH = 2


class TieOrder(enum.IntEnum):
    """Which of the candidates of one cost goes first."""

    #: Ends of stretches before inner tuples, then what leaves the window first, begins first, the value.
    LEAVES_FIRST = 0
    #: A seeded hash of the tuple.
    HASHED = 1
    #: What arrived first.
    ARRIVED_FIRST = 2


@dataclass(frozen=True)
class Policy:
    """A policy of load shedding.

    Args:
        name: as `shed` accepts it.
        help: one line, for docs.
        unit: what is dropped at once.
        ties: the order of candidates of one cost.
        delta: whether a drop costs the number of tuples that it adds to the answer.
        rho: whether a drop costs the part of the exact tuple that it takes away.
        gone: whether δ⁺ is 1 where nothing of the stretch remains.
        knows: whether costs know the predicate of the query, what was dropped before, and which ends still grow.
        spares_arriving: whether the arriving tuple is no candidate.
        scans: whether the cheapest tuple of a stretch may be any of it, not just an end or a redundant one.
    """

    name: str
    help: str
    unit: DropUnit
    ties: TieOrder
    delta: bool = False
    rho: bool = False
    gone: bool = False
    knows: bool = False
    spares_arriving: bool = False
    scans: bool = False


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
