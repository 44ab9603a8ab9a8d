"""BUDGET AUTO: the units of work that each round grants to queries with a preference, to keep `target_latency`.

A round takes the time of the phases that are not theirs, and that of their units. Both are weighted means over the
rounds, the last one counting most. What is left of the target is shared equally by the queries `[pt 4.2]`; one with a
shorter `latency_target` of its own has its part of that. Units are counted as they are charged: what a round does at
once, without the queue, takes a part of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.figures import UNITS_CHARGED
from penstock.figures.figure import number
from penstock.physical.decisions import Decided, Decisions
from penstock.physical.plan.plan import Plan
from penstock.runtime.decisions.deciders import Decider, DecidingOptions, RoundMeasures

#: Units that a query is granted before anything was measured.
FIRST = 10_000
#: What a sum of earlier rounds counts beside the last one.
_EARLIER = 0.5
#: At least this part of the target is granted: a round that waited for input has measured phases that do not count.
_LEAST = 0.25
#: From one round to the next a grant grows by at most this factor: the first units of a run cost more than later ones.
_MOST_GROWTH = 8


@dataclass
class WeightedSum:
    """A sum in which the present counts most."""

    value: float = 0.0
    weight: float = 0.0

    def add(self, value: float, weight: float) -> None:
        self.value = self.value * _EARLIER + value
        self.weight = self.weight * _EARLIER + weight

    @property
    def mean(self) -> float | None:
        """Return the weighted mean, None where nothing was added."""
        return self.value / self.weight if self.weight else None


class GrantedUnits:
    """Decides the grants.

    Args:
        steps: by query, the steps that count its units.
        target: seconds that a round may take.
        own: such seconds of single queries.
    """

    def __init__(
        self, steps: Mapping[str, Sequence[int]], target: float, own: Mapping[str, float] | None = None
    ) -> None:
        self._steps = steps
        self._targets = {query: min(target, (own or {}).get(query, target)) for query in steps}
        self._done: dict[str, float] = {}
        #: Units a second, by query.
        self._pace = {query: WeightedSum() for query in steps}
        self._other_phases = WeightedSum()

    def decide(self, before: Decisions, measured: RoundMeasures) -> Decisions:
        # Where the round is not measured by itself, the time since the last decision may have been spent waiting.
        seconds = measured.seconds if measured.busy is None else measured.busy
        if measured.seconds is not None and seconds is not None:
            self._learn(measured, seconds)
        granted: dict[str, int] = {}
        for query, pace in self._pace.items():
            target, last = self._targets[query], before.of(Decided.UNITS, query)
            left = max(_LEAST * target, target - (self._other_phases.mean or 0.0)) / len(self._steps)
            per_second = pace.mean
            if per_second is None:
                granted[query] = FIRST if last is None else last
            else:
                most = _MOST_GROWTH * max(FIRST, last or 0)
                granted[query] = max(1, min(most, int(per_second * left)))
        return before.with_all(Decided.UNITS, granted)

    def _learn(self, measured: RoundMeasures, seconds: float) -> None:
        own = 0.0
        for query, steps in self._steps.items():
            done = sum(float(number(measured.figures.get(step, {}), UNITS_CHARGED)) for step in steps)
            spent = measured.elapsed.get(query, 0.0)
            own += spent
            units = done - self._done.get(query, done)
            self._done[query] = done
            if units > 0 and spent > 0:
                self._pace[query].add(units, spent)
        self._other_phases.add(max(0.0, seconds - own), 1.0)

    @staticmethod
    def of(plan: Plan, options: DecidingOptions) -> Decider | None:
        """Return the decider of a plan, None without a target or without a preference AUTO."""
        if not options.target_latency:
            return None
        steps: dict[str, list[int]] = {}
        for step in plan.steps:
            for query in filter(None, step.queries if step.spec.is_granted_units else ()):
                steps.setdefault(query, []).append(step.id)
        return GrantedUnits(steps, options.target_latency, options.policies.latency_targets) if steps else None
