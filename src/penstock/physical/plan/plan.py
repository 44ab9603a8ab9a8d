"""The physical plan: plain serializable data that describes which operator runs where.

A plan is a list of `Step`s in topological order, shared by all queries of a job. Stage 0 is the ingest: it runs next to
the readers, holds no state and reads one source's batch at a time. Stages 1, 2, ... are keyed: an `Exchange` partitions
rows over shards on the way in. A step is described by its spec, one small class per operator; the operator registry
(`operators/__init__.py`) turns specs into operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.periods import Period
from penstock.expressions.nodes import Expression
from penstock.physical.plan.spec import Spec


@dataclass(frozen=True)
class Exchange:
    """How the rows of an edge are partitioned over the shards of the receiving stage.

    key: columns hashed; () sends all to shard 0; None leaves rows where the sender's task number puts them. everywhere:
    a copy goes to every shard, which only a join with a relation of one row needs.
    """

    key: tuple[int, ...] | None
    everywhere: bool = False


@dataclass(frozen=True)
class Edge:
    """An edge into a step: from which step, and over which exchange (None: within the stage)."""

    step: int
    exchange: Exchange | None = None


@dataclass(frozen=True)
class Step:
    """One operator of the plan. types: of its output columns; sources: the timed sources below, by name; queries: those
    that use it, all begun in the same epoch of a run; pattern and names: for EXPLAIN."""

    id: int
    spec: Spec
    inputs: tuple[Edge, ...]
    stage: int
    types: tuple[pa.DataType, ...]
    sources: frozenset[str]
    pattern: str = ""
    names: tuple[str, ...] = ()
    queries: frozenset[str] = frozenset()
    birth: int = 0


@dataclass(frozen=True)
class Plan:
    """Steps of a whole job, inputs before consumers. statics: the static relations to compute first, as plans of their
    own (name -> plan); sources: the timed ones by name; queries by name; periods: how often each is evaluated;
    source_predicates: by source the condition of the rows that some query reads, over the declared columns
    (`planning/source_predicate.py`); of a source without one all rows are read; step_keys: what
    `identity.step_keys` has computed for the plan."""

    steps: tuple[Step, ...]
    queries: dict[str, Query]
    sources: dict[str, Source]
    statics: dict[str, Plan] = field(default_factory=dict)
    periods: dict[str, tuple[Period, ...]] = field(default_factory=dict)
    source_predicates: dict[str, Expression] = field(default_factory=dict)
    step_keys: dict[bool, dict[int, str]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def waits(self, query: str) -> bool:
        """Return whether some step of `query` emits results of an instant only when all elements of it have arrived;
        else each result is emitted with its latest element."""
        return any(step.spec.waits for step in self.steps if query in step.queries)

    def output(self, query: str) -> Step:
        """Return the step whose rows are the answer of `query`."""
        return next(step for step in self.steps if step.spec.answered == query)

    @property
    def stages(self) -> int:
        """Return the number of keyed stages (at least 1: answers are put in order there)."""
        return max([1, *(s.stage for s in self.steps)])


def scanned_sources(steps: Iterable[Step]) -> dict[str, Source]:
    """Return the sources that `steps` scan, by name."""
    sources = (step.spec.scanned for step in steps)
    return {source.name: source for source in sources if source is not None}


def scans_of(steps: Iterable[Step], source: str) -> list[Step]:
    """Return the steps that scan the source with this name."""
    return [step for step in steps if step.spec.scanned is not None and step.spec.scanned.name == source]
