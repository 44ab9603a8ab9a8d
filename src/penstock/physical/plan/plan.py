"""The physical plan: plain serializable data that describes which operator runs where.

A plan is a list of `Step`s in topological order, shared by all queries of a job. Stage 0 is the ingest: it runs next to
the readers, holds no state and reads one source's batch at a time. Stages 1, 2, ... are keyed: an `Exchange` partitions
rows over shards on the way in. A step is described by its spec, one small class per operator; the operator registry
(`operators/__init__.py`) turns specs into operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Any

import pyarrow as pa

from penstock.algebra.analysis.periods import Period
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.expressions.nodes import Expression
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.step_choices import StepChoices
from penstock.tree import Deriving


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
class Channel:
    """The rows of a step on their way over an exchange. All inputs of later stages that read the step over an equal
    exchange read one channel: a row is partitioned, sent and decoded once, however many they are [cidr 3.2]."""

    step: int
    exchange: Exchange


@dataclass(frozen=True)
class Step:
    """One operator of the plan. types: of its output columns; sources: the timed sources below, by name; queries: those
    that use it, all begun in the same epoch of a run; pattern and names: for EXPLAIN; choices: what can be chosen of
    it, and what is."""

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
    choices: StepChoices = field(default=StepChoices(), compare=False, repr=False)


@dataclass(frozen=True)
class Plan(Deriving):
    """Steps of a whole job, inputs before consumers. statics: the static relations to compute first, as plans of their
    own (name -> plan); sources: the timed ones by name; queries by name; periods: how often each is evaluated;
    source_predicates: by source the condition of the rows that some query reads, over the declared columns
    (`planning/source_predicate.py`); of a source without one all rows are read; parts: plans that share no steps, of
    which it is put together (`planning/plan_parts.py`), None for a plan in one piece. What stays from one version of a
    plan to the next are the same objects among its parts.

    A part that shares steps with others (`planning/sharing.py`) has borrowed: by the number of a step that it reads in
    another part, its own queries that need the step; keys: of the state of its own steps, which do not follow from
    these any more; alone: the same part with all its steps, None where it borrows none. Of a plan of such parts, shared
    are the steps that several of them need, with the queries of all, and keys has the states whose keys differ from
    those in its parts.

    grains: what the queries of a part were planned to share (`planning/planner.py`); known_steps: the steps by their
    numbers, where they are known."""

    steps: tuple[Step, ...]
    queries: dict[str, Query]
    sources: dict[str, Source]
    statics: dict[str, Plan] = field(default_factory=dict)
    periods: dict[str, tuple[Period, ...]] = field(default_factory=dict)
    source_predicates: dict[str, Expression] = field(default_factory=dict)
    parts: tuple[Plan, ...] | None = field(default=None, compare=False, repr=False)
    keys: Mapping[int, str] | None = field(default=None, compare=False, repr=False)
    borrowed: Mapping[int, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)
    alone: Plan | None = field(default=None, compare=False, repr=False)
    shared: Mapping[int, Step] = field(default_factory=dict, compare=False, repr=False)
    grains: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    known_steps: InitVar[Mapping[int, Step] | None] = None

    def __post_init__(self, known_steps: Mapping[int, Step] | None) -> None:
        if known_steps is not None:
            object.__setattr__(self, "by_id", known_steps)

    def __getstate__(self) -> dict[str, Any]:
        # What has been derived from the fields is not pickled, nor what only planning needs.
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"alone": None, "grains": {}}

    @property
    def pieces(self) -> tuple[Plan, ...]:
        """Return the parts of the plan; a plan in one piece is its own."""
        return (self,) if self.parts is None else self.parts

    def pieces_reading(self, source: str) -> tuple[Plan, ...]:
        """Return the parts of the plan that read a source."""
        return self.pieces if self.parts is None else tuple(part for part in self.parts if source in part.sources)

    @cached_property
    def read_columns(self) -> Mapping[str, frozenset[int]]:
        """Return the declared columns that the plan, which is in one piece, reads, by source."""
        found: dict[str, frozenset[int]] = {}
        for step in self.steps:
            if (source := step.spec.scanned) is not None:
                found[source.name] = found.get(source.name, frozenset()) | frozenset(step.spec.scanned_columns)
        return found

    def needed_columns(self, source: str) -> tuple[int, ...]:
        """Return the declared columns of `source` that some query of the plan reads."""
        pieces = self.pieces_reading(source)
        return tuple(sorted(frozenset().union(*(piece.read_columns.get(source, ()) for piece in pieces))))

    @cached_property
    def by_id(self) -> Mapping[int, Step]:
        """Return the steps by their numbers."""
        return {step.id: step for step in self.steps}

    def step(self, number: int) -> Step:
        """Return the step with this number. Steps are not numbered by their places: those of other parts may go."""
        return self.by_id[number]

    @cached_property
    def limited_steps(self) -> tuple[Step, ...]:
        """Return the steps of a plan in one piece that may use no more than some cores."""
        return tuple(step for step in self.steps if step.spec.cores is not None)

    @cached_property
    def births(self) -> frozenset[int]:
        """Return the epochs in which the queries of its steps began."""
        if self.parts is not None:
            return frozenset().union(*(part.births for part in self.parts))
        return frozenset(map(attrgetter("birth"), self.steps))

    def waits(self, query: str) -> bool:
        """Return whether some step of `query` emits results of an instant only when all elements of it have arrived;
        else each result is emitted with its latest element."""
        return any(step.spec.waits for step in self.steps_of(query))

    def steps_of(self, query: str) -> list[Step]:
        """Return the steps that `query` needs, inputs before consumers."""
        piece = self.piece_of(query)
        borrowed = [self.step(number) for number, queries in piece.borrowed.items() if query in queries]
        return borrowed + [step for step in piece.steps if query in step.queries]

    @cached_property
    def _piece_by_query(self) -> dict[str, Plan]:
        return {query: piece for piece in self.pieces for query in piece.queries}

    def piece_of(self, query: str) -> Plan:
        """Return the part that answers `query`."""
        return self._piece_by_query[query]

    def output(self, query: str) -> Step:
        """Return the step whose rows are the answer of `query`."""
        return next(step for step in self.piece_of(query).steps if step.spec.answered == query)

    @cached_property
    def receivers(self) -> Mapping[Channel, frozenset[int]]:
        """Return the stages that read each channel."""
        found: dict[Channel, frozenset[int]] = {}
        if self.parts is not None:
            for part in self.parts:
                for channel, stages in part.receivers.items():
                    found[channel] = found.get(channel, frozenset()) | stages
            return found
        for step in self.steps:
            for channel in channels_into(step):
                found[channel] = found.get(channel, frozenset()) | {step.stage}
        return found

    @cached_property
    def stages(self) -> int:
        """Return the number of keyed stages (at least 1: answers are put in order there)."""
        if self.parts is not None:
            return max([1, *(part.stages for part in self.parts)])
        return max([1, *[step.stage for step in self.steps]])


def channels_into(step: Step) -> list[Channel]:
    """Return the channels that a step reads."""
    return [Channel(edge.step, edge.exchange) for edge in step.inputs if edge.exchange is not None]


def scanned_sources(steps: Iterable[Step]) -> dict[str, Source]:
    """Return the sources that `steps` scan, by name."""
    sources = (step.spec.scanned for step in steps)
    return {source.name: source for source in sources if source is not None}


def scans_of(steps: Iterable[Step], source: str) -> list[Step]:
    """Return the steps that scan the source with this name."""
    return [step for step in steps if step.spec.scanned is not None and step.spec.scanned.name == source]
