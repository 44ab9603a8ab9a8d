"""`cals_q`, the default: CALS that knows the predicate, what it has dropped, and which ends still grow."""

from __future__ import annotations

from penstock.shedding.contract import DropUnit, Policy, TieOrder

POLICY = Policy(
    "cals_q",
    "as `cals`, knowing the query's least LENGTH, what was dropped before, and which ends still grow",
    DropUnit.STRETCH,
    TieOrder.LEAVES_FIRST,
    delta=True,
    rho=True,
    knows=True,
)
