"""Plans over a past that checks of promises have judged already: their verdicts are recorded, and not found again.

A check that reads a part of the past only, or rows of before its declaration, would reject other rows than the one that
has judged them. What its step is does not change, so the state behind it is that of the plan that goes on.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.physical.plan.plan import Plan
from penstock.physical.plan.spec import Verdicts


def with_recorded_checks(plan: Plan, verdicts: Verdicts) -> Plan:
    """Return a plan in one piece whose checks emit the rows that were rejected before."""
    return replace(plan, steps=tuple(replace(step, spec=step.spec.judged(verdicts)) for step in plan.steps))
