"""`newest`: keep the newest tuples, which is a smaller window [cidr 5.1.1]."""

from __future__ import annotations

from penstock.shedding.contract import DropUnit, Policy, TieOrder

POLICY = Policy("newest", "the tuple that arrived first", DropUnit.TUPLE, TieOrder.ARRIVED_FIRST)
