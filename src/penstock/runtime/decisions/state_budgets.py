"""Dividing `state_limit` over the queries that shed, where `state_limit_action` is `shed`.

What a query would hold without shedding is its state and what it has shed and would still hold, as a budget counts it;
while all of that fits the limit, nothing is shed. Otherwise every query has a part by its weight, so that weighted
errors are alike [bulletin]. State grows with what is held: a part in bytes of state becomes a budget by how much state
a byte held has taken when most was held, since memory that was taken is not given back at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.algebra.nodes.shed import NO_BUDGET
from penstock.figures import SHED_HELD, SHED_WEIGHT
from penstock.figures.figure import number
from penstock.physical.decisions import Decided, Decisions, divided
from penstock.physical.plan.plan import Plan
from penstock.runtime.decisions.deciders import DecidingOptions, RoundMeasures


@dataclass
class _Sharer:
    """A query that has a part of the limit.

    Args:
        steps: numbers of its steps that shed.
        most: bytes held when most was held; factor: bytes of state for each of them then.
    """

    steps: list[int] = field(default_factory=list)
    most: float = 0.0
    factor: float = 1.0


@dataclass
class StateBudgets:
    """Decides `Decided.STATE_BUDGET`, the bytes that a query may hold, as `Shed` counts them."""

    options: DecidingOptions
    sharers: dict[str, _Sharer]

    @staticmethod
    def of(plan: Plan, options: DecidingOptions) -> StateBudgets | None:
        """Return the decider, None where there is no limit or no query that sheds for it."""
        if not options.state_limit:
            return None
        sharers: dict[str, _Sharer] = {}
        for step in plan.steps:
            if step.spec.shares_state_limit:
                for name in step.queries:
                    sharers.setdefault(name, _Sharer()).steps.append(step.id)
        return StateBudgets(options, sharers) if sharers else None

    def decide(self, before: Decisions, measured: RoundMeasures) -> Decisions:
        """Return the budgets of the next round."""
        needed: dict[str, int] = {}
        for name, one in self.sharers.items():
            held, shed = (
                sum(number(measured.figures.get(step, {}), figure) for step in one.steps)
                for figure in (SHED_HELD, SHED_WEIGHT)
            )
            # State is measured now and then: that of what has been held for some rounds may be known only now.
            if held and held >= one.most:
                one.most, one.factor = held, max(1.0, measured.state.get(name, 0) / held)
            needed[name] = int(one.factor * (held + shed))
        others = sum(size for name, size in measured.state.items() if name not in self.sharers)
        limit = max(0, self.options.state_limit - others)
        if sum(needed.values()) <= limit:
            limited = before.every(Decided.STATE_BUDGET)
            budgets = {name: NO_BUDGET for name in self.sharers if limited.get(name, NO_BUDGET) != NO_BUDGET}
        else:
            parts = divided(limit, needed, self.options.policies.weights)
            budgets = {name: max(1, int(part / self.sharers[name].factor)) for name, part in parts.items()}
        return before.with_all(Decided.STATE_BUDGET, budgets) if budgets else before
