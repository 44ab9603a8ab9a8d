"""`value`: drop whole values, so that what is kept is exact.

The threshold of the hash only falls, so a value that was dropped stays out, and no stretch that is emitted was cut.
"""

from __future__ import annotations

from penstock.shedding.contract import DropUnit, Policy, TieOrder

POLICY = Policy(
    "value", "all tuples of the values with the largest hash; what is kept is exact", DropUnit.VALUE, TieOrder.HASHED
)
