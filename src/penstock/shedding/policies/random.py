"""`random`: the baseline of [tls IV]. In one window all tuples are retained with equal probability, and a run
repeats."""

from __future__ import annotations

from penstock.shedding.contract import DropUnit, Policy, TieOrder

POLICY = Policy("random", "the tuple with the largest seeded hash of its columns", DropUnit.TUPLE, TieOrder.HASHED)
