"""What planning has found out about the queries of a run, kept for its next changes.

Both results are functions of their keys alone, so that a change needs only to plan the queries that it adds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import Planning, optimize


@dataclass(frozen=True)
class PlanningChoice:
    """How a query was planned when it began. text: of the statistics and the shared panes; strategy: of the state."""

    text: str
    strategy: str


class PlanningCache:
    """Optimized queries, and the fingerprints of what queries compute, by the fingerprints of their roots."""

    def __init__(self) -> None:
        self._optimized: dict[str, list[tuple[Planning, Algebra]]] = {}
        self._fingerprints: dict[str, dict[PlanningChoice, str]] = {}
        #: By the identity of a record of statistics, the record and its text: queries that began together share it.
        self._texts: dict[int, tuple[dict[str, Any], str]] = {}

    def optimized(self, query: Query, planning: Planning) -> Query:
        """Return `query` optimized."""
        results = self._optimized.setdefault(query.root.fingerprint, [])
        root = next((root for cached, root in results if cached == planning), None)
        if root is None:
            root = optimize(query.root, planning=planning)
            results.append((planning, root))
        return replace(query, root=root)

    def choice(self, statistics: dict[str, Any], strategy: str) -> PlanningChoice:
        """Return the choice of the queries that began with `statistics`, as an epoch records them."""
        if id(statistics) not in self._texts:
            self._texts[id(statistics)] = statistics, json.dumps(statistics, sort_keys=True)
        return PlanningChoice(self._texts[id(statistics)][1], strategy)

    def fingerprint(self, query: Query, choice: PlanningChoice, compute: Callable[[], str]) -> str:
        """Return the fingerprint of what `query` computes if it is planned as in `choice`. compute: finds it out."""
        known = self._fingerprints.setdefault(query.root.fingerprint, {})
        if choice not in known:
            known[choice] = compute()
        return known[choice]

    def keep_only(self, queries: Collection[Query]) -> None:
        """Forget other queries."""
        self._texts = {}
        roots = {query.root.fingerprint for query in queries}
        self._optimized = {root: results for root, results in self._optimized.items() if root in roots}
        self._fingerprints = {root: known for root, known in self._fingerprints.items() if root in roots}
