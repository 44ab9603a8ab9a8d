"""What planning has found out about the queries of a run, kept for its next changes.

All of it follows from its keys alone, so that a change plans only the queries that it adds: the others keep the parts
of the plan in which they are (`plan_parts.py`), as the same objects. Several threads may use it.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.query import PlanChoice, Query
from penstock.algebra.nodes.scans import Source, declared_sources
from penstock.algebra.optimizer.optimizer import Planning, optimize
from penstock.connectors.sinks import without_bounds
from penstock.physical.execution.progress import timed_names
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planned_part import PlannedPart
from penstock.physical.planning.planner import Generation, plan_part, plan_static
from penstock.physical.planning.shared_parts import SharedParts
from penstock.physical.planning.state_size.summary import JobState, job_state
from penstock.redaction import redacted, redacted_text

#: One query that has gone may be known still for so many that stand: to forget them, each of those is looked at.
_STANDING_FOR_ONE = 64


@dataclass(frozen=True)
class PlanningChoice:
    """How a query was planned when it began. statistics: as an epoch records them, with the shared panes; strategy: of
    the state.
    """

    statistics: dict[str, Any]
    strategy: str

    def is_like(self, other: PlanningChoice) -> bool:
        """Return whether both are the same. The statistics of a standing query stay one object."""
        same = self.statistics is other.statistics or self.statistics == other.statistics
        return same and self.strategy == other.strategy


@dataclass(frozen=True)
class QueryTexts:
    """The texts of a query in its record. sink: a fingerprint of its sink and its columns; text: without
    secrets.
    """

    sink: str
    text: str


@dataclass(eq=False)
class RecordedPart:
    """The plan of the queries that began in one epoch, with what epochs record of it.

    Args:
        queries: as in the script, before optimization.
        part: their plan.
        generation: the queries as they were planned.
        known_operators, known_state, known_reads: where they are known of a part with more queries.
    """

    queries: tuple[Query, ...]
    choice: PlanningChoice
    part: PlannedPart
    generation: Generation
    known_operators: Mapping[str, list[dict[str, object]]] | None = None
    known_state: JobState | None = None
    known_reads: frozenset[frozenset[str]] | None = None

    @property
    def plan(self) -> Plan:
        """Return the plan, which shares nothing with others."""
        return self.part.plan

    def without(self, queries: Sequence[Query]) -> RecordedPart | None:
        """Return the plan of some of its queries; None where there are others among `queries`, or it has to be planned
        again to know."""
        known = {query.name: query for query in self.queries}
        others = [query for query in queries if known.get(query.name) is not query]
        if not queries or any(known.get(query.name) != query for query in others):
            return None
        names = [query.name for query in queries]
        part = self.part.without(names)
        if part is None:
            return None
        optimized = {query.name: query for query in self.generation.queries}
        generation = replace(self.generation, queries=[optimized[name] for name in names])
        standing = part.plan.queries
        read = {timed_names(self.plan.queries[name].root) for name in known.keys() - standing.keys()}
        unread = {some for some in read if not any(timed_names(one.root) == some for one in standing.values())}
        operators = self.operators
        return RecordedPart(
            tuple(queries),
            self.choice,
            part,
            generation,
            # In the records of the queries that stay: their steps are the same.
            known_operators={name: operators[name] for name in names},
            # It may cover others.
            known_state=self.known_state,
            known_reads=self.read_together - unread,
        )

    @property
    def read_together(self) -> frozenset[frozenset[str]]:
        """Return the timed sources that its queries read, those of one query together."""
        if self.known_reads is None:
            self.known_reads = frozenset(timed_names(query.root) for query in self.plan.queries.values())
        return self.known_reads

    @property
    def state(self) -> JobState:
        """Return the state that it will keep."""
        if self.known_state is None:
            self.known_state = job_state(self.plan, self.part.nodes, self.generation.statistics)
        return self.known_state

    @property
    def operators(self) -> Mapping[str, list[dict[str, object]]]:
        """Return, by query, its steps as the record of an epoch has them."""
        if self.known_operators is None:
            keys = step_keys(self.plan)
            operators: dict[str, list[dict[str, object]]] = {name: [] for name in self.plan.queries}
            for step in self.plan.steps:
                operator = {
                    "key": keys[step.id],
                    "stage": step.stage,
                    "operator": step.spec.title,
                    "inputs": [i.step for i in step.inputs],
                }
                for name in sorted(step.queries):
                    operators[name].append({"step": step.id, **operator})
            self.known_operators = operators
        return self.known_operators


class PlanningCache:
    """Optimized queries and fingerprints of what queries compute, by the fingerprints of their roots; the parts of the
    plan by the epochs in which their queries began.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._optimized: dict[str, list[tuple[Planning, Algebra]]] = {}
        self._fingerprints: dict[str, list[tuple[PlanningChoice, tuple[PlanChoice, ...], str]]] = {}
        self._texts: dict[str, tuple[Query, QueryTexts]] = {}
        #: By name, a query and what it was found to agree with: a record, and the statistics of its birth.
        self._agreed: dict[str, tuple[Query, object, object]] = {}
        self._parts: dict[int, RecordedPart] = {}
        self._statics: dict[str, Plan] = {}
        self._sources: tuple[tuple[Query, ...], Mapping[str, Source]] = (), {}
        #: Number of the next step: those of a part that stays never change, and no number is used twice.
        self._next_step = 0
        #: The parts of the last version, and what they share.
        self.shared_parts = SharedParts()
        #: The largest number of an epoch that is not to be used, since queries read their past under it.
        self.reserved = 0

    def reserve(self, number: int) -> None:
        """Let no epoch have a number, nor one before it, that does not have it yet."""
        with self._lock:
            self.reserved = max(self.reserved, number)

    def optimized(self, query: Query, planning: Planning) -> Query:
        """Return `query` optimized."""
        with self._lock:
            results = self._optimized.setdefault(query.root.fingerprint, [])
            root = next((root for cached, root in results if cached == planning), None)
            if root is None:
                root = optimize(query.root, planning=planning)
                results.append((planning, root))
            return replace(query, root=root)

    def fingerprint(self, query: Query, choice: PlanningChoice, compute: Callable[[], str]) -> str:
        """Return the fingerprint of what `query` computes if it is planned as in `choice`. compute: finds it out."""
        with self._lock:
            known = self._fingerprints.setdefault(query.root.fingerprint, [])
            same = (found for one, choices, found in known if choices == query.choices and one.is_like(choice))
            found = next(same, None)
            if found is None:
                found = compute()
                known.append((choice, query.choices, found))
            return found

    def agrees(self, query: Query, record: object, statistics: object, compare: Callable[[], bool]) -> bool:
        """Return whether a query computes what its record describes, planned with some statistics. For the same three
        objects as before, as in each change for a query that stands, it is a look-up.

        Args:
            compare: finds it out.
        """
        known = self._agreed.get(query.name)
        if known is not None and known[0] is query and known[1] is record and known[2] is statistics:
            return True
        if not compare():
            return False
        self._agreed[query.name] = query, record, statistics
        return True

    def texts(self, query: Query) -> QueryTexts:
        """Return the texts of a query for its record."""
        with self._lock:
            known = self._texts.get(query.name)
            if known is None or (known[0] is not query and known[0] != query):
                texts = QueryTexts(sink_identity(query), redacted_text(query.text))
                self._texts[query.name] = known = query, texts
            return known[1]

    def standing_part(self, birth: int, queries: Sequence[Query], statistics: object) -> RecordedPart | None:
        """Return the plan of the queries of `birth` where it is that of the same ones; None where it is not known.

        statistics: the object that their epoch has of this birth.
        """
        known = self._parts.get(birth)
        is_same = known is not None and known.choice.statistics is statistics and known.queries == tuple(queries)
        return known if is_same else None

    def part(
        self, birth: int, queries: Sequence[Query], choice: PlanningChoice, generation: Callable[[], Generation]
    ) -> RecordedPart:
        """Return the plan of `queries`, which began in epoch `birth`; the same object while they are the same.

        Args:
            generation: returns the queries as they are to be planned.
        """
        with self._lock:
            known = self._parts.get(birth)
            if known is not None and known.queries == tuple(queries) and known.choice.is_like(choice):
                return known
            if known is not None and known.choice.is_like(choice):
                part = known.without(queries)
                if part is not None:
                    self._parts[birth] = part
                    return part
            made, first = generation(), self._next_step
            planned = plan_part(made, Strategy(choice.strategy), first, self._static)
            self._next_step += len(planned.plan.steps)
            self._parts[birth] = part = RecordedPart(tuple(queries), choice, planned, made)
            return part

    def plan_of_one(self, query: Query, birth: int, choice: PlanningChoice) -> Plan | None:
        """Return the plan of the queries of `birth` where `query` is the only one, as it is; None where it is not."""
        part = self._parts.get(birth)
        is_alone = part is not None and part.queries == (query,) and part.choice.is_like(choice)
        return part.plan if is_alone and part is not None else None

    def parts_of(self, births: Iterable[int]) -> list[RecordedPart]:
        """Return the plans of the queries that began in these epochs."""
        with self._lock:
            return [self._parts[birth] for birth in sorted(births) if birth in self._parts]

    def parts_without_state(self, births: Iterable[int]) -> list[RecordedPart]:
        """Return those of these plans whose `state` has not been computed yet."""
        return [part for part in self.parts_of(births) if part.known_state is None]

    def _static(self, node: Algebra) -> Plan:
        """Return the plan of a static relation, which many queries may read."""
        if node.fingerprint not in self._statics:
            self._statics[node.fingerprint] = plan_static(node)
        return self._statics[node.fingerprint]

    def sources_of(self, queries: tuple[Query, ...]) -> Mapping[str, Source]:
        """Return the declared streams and relations that queries read; those of the last call are cached, also if other
        queries come behind them."""
        with self._lock:
            before, known = self._sources
            if queries is not before:
                # Equal ones may have been declared with another RETAIN.
                if len(before) <= len(queries) and all(map(operator.is_, before, queries)):
                    known = {**known, **declared_sources(*(query.root for query in queries[len(before) :]))}
                else:
                    known = declared_sources(*(query.root for query in queries))
                self._sources = queries, known
            return known

    def keep_parts(self, parts: Mapping[int, RecordedPart]) -> None:
        """Forget the parts of other epochs than those of `parts`, by birth."""
        with self._lock:
            self._parts = dict(parts)
            if self._statics:
                used = {name for part in self._parts.values() for name in part.plan.statics}
                self._statics = {name: plan for name, plan in self._statics.items() if name in used}

    def keep_only(self, queries: Collection[Query]) -> None:
        """Forget other queries, but for a few; not in a change that adds some, where only these can be known."""
        kept = max(len(self._optimized), len(self._fingerprints), len(self._texts), len(self._agreed))
        if kept <= len(queries) + len(queries) // _STANDING_FOR_ONE:
            return
        with self._lock:
            roots, names = {query.root.fingerprint for query in queries}, {query.name for query in queries}
            self._optimized = {root: results for root, results in self._optimized.items() if root in roots}
            self._fingerprints = {root: known for root, known in self._fingerprints.items() if root in roots}
            self._texts = {name: known for name, known in self._texts.items() if name in names}
            self._agreed = {name: known for name, known in self._agreed.items() if name in names}


def sink_identity(query: Query) -> str:
    """Return a digest of where the answer is written and of its columns; it reveals neither."""
    columns = [*query.output_names, *map(str, query.root.schema.types), str(query.domain)]
    sink = without_bounds(query.sink)
    sink = replace(sink, options=redacted(sink.options))
    return hashlib.sha256(repr((sink, columns)).encode()).hexdigest()[:24]
