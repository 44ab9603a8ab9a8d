"""Plans over a past that checks of promises have judged already: their verdicts are recorded, and not found again.

A check that reads a part of the past only, or rows of before its declaration, would reject other rows than the one that
has judged them. What its step is does not change, so the state behind it is that of the plan that goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.physical.plan.inputs import CheckSpec, RecordedRejections
from penstock.physical.plan.plan import Plan

#: Returns the verdicts of a check by the names of the stream and of the promise.
Verdicts = Callable[[str, str], RecordedRejections]


def with_recorded_checks(plan: Plan, verdicts: Verdicts) -> Plan:
    """Return a plan in one piece whose checks emit the rows that were rejected before."""
    steps = tuple(
        replace(step, spec=replace(step.spec, recorded=verdicts(step.spec.source, step.spec.check.name)))
        if isinstance(step.spec, CheckSpec)
        else step
        for step in plan.steps
    )
    return replace(plan, steps=steps)
