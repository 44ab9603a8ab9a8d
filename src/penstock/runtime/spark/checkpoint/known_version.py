"""What a process knows of the queries of an epoch that it has begun, so that a change looks at those alone that differ.

It is kept with the epoch in memory and follows from its records: a process that reads the epoch's file knows nothing of
this, and finds the same out of all queries once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Protocol

from penstock.algebra.nodes.query import Query
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.plan_parts import outlined
from penstock.physical.planning.sharing import Beginning
from penstock.runtime.spark.checkpoint.planning_cache import RecordedPart


class Born(Protocol):
    """What an epoch records of a query that matters here."""

    @property
    def birth(self) -> int:
        """Return the epoch in which it began."""


@dataclass(frozen=True)
class KnownVersion:
    """The queries of an epoch, all of which compute what its records describe.

    Args:
        queries: by name, as in the script.
        by_birth: by the epochs in which they began, in their order.
        parts: of the plan, by the same, in order.
        outline: the queries and the inputs of all parts, as a plan without steps.
    """

    queries: Mapping[str, Query] = field(default_factory=dict)
    by_birth: Mapping[int, tuple[Query, ...]] = field(default_factory=dict)
    parts: Mapping[int, RecordedPart] = field(default_factory=dict)
    outline: Plan = field(default_factory=partial(Plan, (), {}, {}))

    def outline_of(self, parts: Mapping[int, RecordedPart]) -> Plan:
        """Return the outline of the parts of the epoch that follows."""
        news = [part.plan for birth, part in parts.items() if self.parts.get(birth) is not part]
        if len(parts) - len(news) == len(self.parts):
            return outlined(news, self.outline)
        return outlined(part.plan for part in parts.values())

    def fresh(self, queries: tuple[Query, ...]) -> list[Query]:
        """Return those of `queries` that are not the same objects as here, in their order."""
        if not self.queries:
            return list(queries)
        for known, found in self._last_fresh:
            if known is queries:
                return found
        standing = set(map(id, self.queries.values()))
        found = [query for query in queries if id(query) not in standing]
        self._last_fresh[:] = [(queries, found)]
        return found

    @cached_property
    def _last_fresh(self) -> list[tuple[tuple[Query, ...], list[Query]]]:
        """Return the queries of the last call of `fresh` with its result; empty before the first."""
        return []

    def births_with(
        self,
        records: Mapping[str, Born],
        kept: AbstractSet[str],
        queries: tuple[Query, ...],
        beginning: Iterable[Query],
        births: Mapping[str, int],
    ) -> dict[int, tuple[Query, ...]]:
        """Return the queries of the epoch that follows by their births; those of a birth of which none changes are the
        same object as here.

        Args:
            records: of the queries here.
            kept: those that go on.
            queries: of the epoch that follows.
            beginning: those of them that begin, of which `births` has the births.
        """
        result = dict(self.by_birth)
        replaced = {query.name: query for query in self.fresh(queries) if query.name in kept}
        touched = dict.fromkeys(records[name].birth for name in (*(self.queries.keys() - kept), *replaced))
        for birth in touched:
            here = (query for query in self.by_birth[birth] if query.name in kept)
            result[birth] = tuple(replaced.get(query.name, query) for query in here)
            if not result[birth]:
                del result[birth]
        for query in beginning:
            birth = births[query.name]
            result[birth] = (*result.get(birth, ()), query)
        return result


class Maturity(Mapping[int, Beginning]):
    """What the maturity of queries depends on, by their births; read from the records at each look-up."""

    def __init__(self, records: Mapping[str, dict[str, dict[str, int]]]) -> None:
        self._records = records

    def __getitem__(self, birth: int) -> Beginning:
        return Beginning(**self._records[str(birth)]) if birth or "0" in self._records else Beginning()

    def __iter__(self) -> Iterator[int]:
        return iter({0, *map(int, self._records)})

    def __len__(self) -> int:
        return len({"0", *self._records})


NOTHING_KNOWN = KnownVersion()
