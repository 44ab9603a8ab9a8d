"""`cals`: coalescence-aware load shedding [tls III-C]: the sum of both costs, which is the loss of accuracy to first
order. The cheapest tuple is redundant or an end of its stretch: inner ones cost more than 1, ends at most 1."""

from __future__ import annotations

from penstock.shedding.contract import DropUnit, Policy, TieOrder

POLICY = Policy(
    "cals",
    "the tuple whose drop costs the least accuracy",
    DropUnit.STRETCH,
    TieOrder.LEAVES_FIRST,
    delta=True,
    rho=True,
    spares_arriving=True,
)
