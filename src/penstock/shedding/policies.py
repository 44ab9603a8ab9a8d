"""The policies of load shedding: which of the tuples that are held goes first. A new one is a row here.

A policy is data, from which the compiled machine (`machine.py`) follows; its definition is in
`penstock.testing.approximation.shedding`, which shares nothing with the machine. `shed` accepts the names of this
table, in statements, settings and plans.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


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


_ALL = (
    # The baseline of [tls IV]. In one window all tuples are retained with equal probability, and a run repeats.
    Policy("random", "the tuple with the largest seeded hash of its columns", DropUnit.TUPLE, TieOrder.HASHED),
    # What is kept is a smaller window [cidr 5.1.1].
    Policy("newest", "the tuple that arrived first", DropUnit.TUPLE, TieOrder.ARRIVED_FIRST),
    # The threshold of the hash only falls, so a value that was dropped stays out, and no stretch emitted was cut.
    Policy(
        "value",
        "all tuples of the values with the largest hash; what is kept is exact",
        DropUnit.VALUE,
        TieOrder.HASHED,
    ),
    # CALS-V of [tls III-C].
    Policy(
        "cals_v",
        "the tuple whose drop adds the fewest tuples to the answer",
        DropUnit.STRETCH,
        TieOrder.HASHED,
        delta=True,
        gone=True,
        spares_arriving=True,
    ),
    # CALS-I of [tls III-C]. Inner tuples are candidates too.
    Policy(
        "cals_i",
        "the tuple whose drop takes the least part of its stretch",
        DropUnit.STRETCH,
        TieOrder.HASHED,
        rho=True,
        spares_arriving=True,
        scans=True,
    ),
    # Coalescence-aware load shedding [tls III-C]: the sum of both costs, which is the loss of accuracy to first order.
    # The cheapest tuple is redundant or an end of its stretch: inner ones cost more than 1, ends at most 1.
    Policy(
        "cals",
        "the tuple whose drop costs the least accuracy",
        DropUnit.STRETCH,
        TieOrder.LEAVES_FIRST,
        delta=True,
        rho=True,
        spares_arriving=True,
    ),
    Policy(
        "cals_q",
        "as `cals`, knowing the query's least LENGTH, what was dropped before, and which ends still grow",
        DropUnit.STRETCH,
        TieOrder.LEAVES_FIRST,
        delta=True,
        rho=True,
        knows=True,
    ),
)

POLICIES = {policy.name: policy for policy in _ALL}
DEFAULT = "cals_q"
#: The policy that drops whole values, so that what is kept is exact.
WHOLE_VALUES = "value"
