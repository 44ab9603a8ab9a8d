"""`cals_i`: the least part of an exact tuple lost, CALS-I of [tls III-C]. Inner tuples are candidates too."""

from __future__ import annotations

from penstock.shedding.contract import DropUnit, Policy, TieOrder

POLICY = Policy(
    "cals_i",
    "the tuple whose drop takes the least part of its stretch",
    DropUnit.STRETCH,
    TieOrder.HASHED,
    rho=True,
    spares_arriving=True,
    scans=True,
)
