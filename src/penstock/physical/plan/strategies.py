"""How operators store state and learn of expirations: by update pattern, or as a baseline of `[golab 3.5, 3.6]`.

PATTERN: structures follow the update pattern: FIFO for WKS, calendar queues for WK, δ*, negative tuples only where
strict; and operators have the place where their patterns make the plan cheapest. DIRECT: expirations are detected by
timestamps too, but state is stored in order of arrival and scanned from end to end for expired tuples; duplicate
elimination stores all its input. NEGATIVE: every window stores its tuples and retracts each with a negative tuple, and
every operator finds by hash the state that such a tuple removes. The answers are the same.
"""

from __future__ import annotations

import enum
from dataclasses import fields, replace

from penstock.algebra.nodes.negative_tuples import announced
from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import Planning
from penstock.algebra.properties.statistics import Statistics
from penstock.physical.plan.spec import Spec
from penstock.settings import Settings


class Strategy(enum.Enum):
    PATTERN = "pattern"
    DIRECT = "direct"
    NEGATIVE = "negative"

    @staticmethod
    def of(settings: Settings) -> Strategy:
        return Strategy(settings["state_strategy"])

    def planning(self, statistics: Statistics | None) -> Planning:
        """Return the basis of choices by cost under this strategy. The baselines leave operators where they were
        written: the thesis compares them so, each with the plan that it writes down `[golab 3.6.5]`."""
        return Planning(statistics or Statistics(), self is Strategy.PATTERN)

    def prepared(self, query: Query) -> Query:
        """Return `query` in the form that is lowered."""
        return replace(query, root=announced(query.root)) if self is Strategy.NEGATIVE else query

    def spec(self, spec: Spec) -> Spec:
        """Return `spec` with the state structures of this strategy."""
        if self is not Strategy.DIRECT or not any(field.name == "listed" for field in fields(spec)):
            return spec
        listed: dict[str, bool] = {"listed": True}
        return replace(spec, **listed)
