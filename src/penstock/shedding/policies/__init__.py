"""The registry of policies: a new one is one file and one line here."""

from __future__ import annotations

from penstock.shedding.contract import Policy
from penstock.shedding.policies import cals, cals_i, cals_q, cals_v, newest, random, value

POLICIES: dict[str, Policy] = {
    module.POLICY.name: module.POLICY for module in (random, newest, value, cals_v, cals_i, cals, cals_q)
}
DEFAULT = cals_q.POLICY
