"""`cals_v`: the least number of extraneous tuples, CALS-V of [tls III-C]."""

from __future__ import annotations

from penstock.shedding.contract import DropUnit, Policy, TieOrder

POLICY = Policy(
    "cals_v",
    "the tuple whose drop adds the fewest tuples to the answer",
    DropUnit.STRETCH,
    TieOrder.HASHED,
    delta=True,
    gone=True,
    spares_arriving=True,
)
