"""Shedding by CPU: which values a query keeps, so that it uses no more cores than it may.

rate <- rate * allowed / used, smoothed (`next_keep_below`). The threshold only falls. A process that starts compiles
and fills its caches, so what it measures first is left out; and no decision is made of less than a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.physical.decisions import WHOLE, Decided, Decisions, next_keep_below
from penstock.physical.plan.plan import Plan
from penstock.runtime.decisions.deciders import DecidingOptions, RoundMeasures

#: Seconds that a decision is made of at least.
LEAST_SECONDS = 1.0


@dataclass
class KeepRates:
    """Decides `Decided.KEEP_BELOW`.

    Args:
        allowed: by query, the cores that it may use.
    """

    allowed: Mapping[str, float]
    _seconds: float = 0.0
    _used: dict[str, float] = field(default_factory=dict)
    _is_warm: bool = False

    @staticmethod
    def of(plan: Plan, options: DecidingOptions) -> KeepRates | None:
        """Return the decider for the queries of a plan that are limited, None for no such query."""
        allowed: dict[str, float] = {}
        for limited in (step for piece in plan.pieces for step in piece.limited_steps):
            cores = limited.spec.cores
            assert cores is not None, "only such steps are limited"
            for name in plan.shared.get(limited.id, limited).queries:
                allowed[name] = min(cores, allowed.get(name, float("inf")))
        return KeepRates(allowed) if allowed else None

    def decide(self, before: Decisions, measured: RoundMeasures) -> Decisions:
        """Return the thresholds of the next round."""
        if measured.seconds is None:
            return before
        if not self._is_warm:
            self._is_warm = any(measured.cpu.get(name) for name in self.allowed)
            return before
        self._seconds += measured.seconds
        for name in self.allowed:
            self._used[name] = self._used.get(name, 0.0) + measured.cpu.get(name, 0.0)
        if self._seconds < LEAST_SECONDS:
            return before
        fallen: dict[str, int] = {}
        for name, allowed in self.allowed.items():
            threshold = before.of(Decided.KEEP_BELOW, name)
            following = next_keep_below(threshold, self._used[name] / self._seconds, allowed)
            if following < (WHOLE if threshold is None else threshold):
                fallen[name] = following
        self._seconds, self._used = 0.0, {}
        return before.with_all(Decided.KEEP_BELOW, fallen) if fallen else before
