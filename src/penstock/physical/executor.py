"""One stage of a plan in one shard: state + batches + heartbeat in, batches out.

The executor runs the stage's operators in topological order: each gets everything its inputs gave in this round, then
is told how far time is known. What leaves the stage is either the answer of a query or bound for a later stage. The
same executor runs in Spark's workers and in the local runtime.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from penstock.errors import PenstockError
from penstock.physical.elements import Elements
from penstock.physical.fingerprints import fingerprints
from penstock.physical.identity import step_keys
from penstock.physical.kernels import cut_by_shard
from penstock.physical.meter import Meter, StateGauge
from penstock.physical.operators import Moment, Operator, Rejection, Tables, make_operator
from penstock.physical.plan import Exchange, Input, OutputSpec, Plan, ScanSpec, Step
from penstock.physical.progress import Progress, SourceProgress, first_instant, query_heartbeat, timed_sources
from penstock.physical.synopses.contract import Synopsis

#: Where elements go: (step, port).
Port = tuple[int, int]


@dataclass
class Result:
    """What one round gave. answers: by query; onward: by port of a later stage, with the exchange of that edge;
    rejected: updates that their relation could not take."""

    answers: dict[str, list[Elements]] = field(default_factory=dict)
    onward: dict[Port, list[Elements]] = field(default_factory=dict)
    edges: dict[Port, Exchange] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)


class _Graph:
    """The steps of a stage and the edges out of each, looked up once."""

    def __init__(self, plan: Plan, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        chosen = {step.id for step in self.steps}
        self.edges: dict[int, list[tuple[Port, Input, bool]]] = {step.id: [] for step in self.steps}
        for consumer in plan.steps:
            for port, edge in enumerate(consumer.inputs):
                if edge.step in chosen:
                    self.edges[edge.step].append(((consumer.id, port), edge, consumer.id in chosen))

    def send(self, step: Step, made: list[Elements], inbox: dict[Port, list[Elements]], result: Result) -> None:
        if not made:
            return
        if isinstance(step.spec, OutputSpec):
            result.answers.setdefault(step.spec.query, []).extend(made)
        for port, edge, inside in self.edges[step.id]:
            if inside and edge.exchange is None:
                inbox.setdefault(port, []).extend(made)
            elif edge.exchange is not None:
                result.onward.setdefault(port, []).extend(made)
                result.edges[port] = edge.exchange


def _operators(steps: Sequence[Step], tables: Tables, shards: int, meter: Meter | None) -> dict[int, Operator]:
    made = {step.id: make_operator(step.spec, tables, shards) for step in steps}
    for step in steps:
        if step.spec.reads:
            made[step.id].attach([made[edge.step] for edge in step.inputs])
    if meter is None:
        return made
    # A scan's work is done by whoever reads.
    scans = {step.id for step in steps if isinstance(step.spec, ScanSpec)}
    return {i: operator if i in scans else meter.watch(i, operator) for i, operator in made.items()}


@contextmanager
def _told(step: Step) -> Iterator[None]:
    """An error of user-defined code, or of a value that is not one, tells which queries it stops."""
    try:
        yield
    except PenstockError as error:
        queries = ", ".join(sorted(filter(None, step.queries)))
        if error.code in ("P0612", "P0621") and queries:
            first, *rest = error.message.split("\n")
            message = "\n".join([f"query {queries}: {first}", *rest])
            raise PenstockError(error.code, message, hint=error.hint, cause=error.cause) from error.cause
        raise


class IngestExecutor:
    """Stage 0 for one source: stateless, one call a batch."""

    def __init__(self, plan: Plan, source: str, tables: Tables, meter: Meter | None = None) -> None:
        reached: set[int] = set()
        for step in plan.steps:
            starts = isinstance(step.spec, ScanSpec) and step.spec.source.name == source
            if step.stage == 0 and (starts or any(i.step in reached for i in step.inputs)):
                reached.add(step.id)
        self._graph = _Graph(plan, [s for s in plan.steps if s.id in reached])
        self._operators = _operators(self._graph.steps, tables, 1, meter)
        self.columns = needed_columns(plan, source)

    def run(self, stamped: Elements) -> Result:
        """Feed elements whose columns are the source's declared columns at `self.columns`."""
        result = Result()
        inbox: dict[Port, list[Elements]] = {}
        for step in self._graph.steps:
            operator = self._operators[step.id]
            made: list[Elements] = []
            if isinstance(step.spec, ScanSpec):
                places = [self.columns.index(c) for c in step.spec.columns]
                made = [stamped.with_columns([stamped.columns[p] for p in places])] if len(stamped) else []
            with _told(step):
                for port in range(len(step.inputs)):
                    for elements in inbox.pop((step.id, port), ()):
                        made += operator.process(port, elements)
            self._graph.send(step, made, inbox, result)
        return result


def needed_columns(plan: Plan, source: str) -> tuple[int, ...]:
    """The declared columns of `source` that some query of the plan reads."""
    scans = (s.spec for s in plan.steps if isinstance(s.spec, ScanSpec) and s.spec.source.name == source)
    return tuple(sorted({c for spec in scans for c in spec.columns}))


class StageExecutor:
    """A keyed stage (≥ 1) in one shard, with its state. spent: what each step has taken in the last round, in
    seconds."""

    def __init__(
        self, plan: Plan, stage: int, shard: int, shards: int, tables: Tables, drain: bool = False,
        meter: Meter | None = None,
    ) -> None:  # fmt: skip
        self._plan = plan
        self.stage = stage
        self._shard = shard
        self._drain = drain
        self._graph = _Graph(plan, [s for s in plan.steps if s.stage == stage])
        self._operators = _operators(self._graph.steps, tables, shards, meter)
        self._query_sources = {name: timed_sources(query.root) for name, query in plan.queries.items()}
        self.progress: dict[str, SourceProgress] = {}
        #: By birth: where each source began for the queries of that epoch.
        self._firsts: dict[int, dict[str, SourceProgress]] = {step.birth: {} for step in plan.steps}
        self.spent: dict[int, float] = {}
        self._gauge = StateGauge()

    @cached_property
    def _keys(self) -> dict[int, str]:
        return step_keys(self._plan)

    def run(self, inputs: Mapping[Port, Sequence[Elements]], progress: Progress) -> Result:
        """One round: the elements that came for this shard, and what the whole job has now seen of each source."""
        for name, seen in progress.items():
            self.progress[name] = self.progress.get(name, SourceProgress()).merge(seen)
            for firsts in self._firsts.values():
                firsts[name] = firsts.get(name, SourceProgress()).merge(SourceProgress(seen.first))
        heartbeats = self.heartbeats()
        result = Result()
        inbox: dict[Port, list[Elements]] = {port: list(batches) for port, batches in inputs.items()}
        for step in self._graph.steps:
            began = time.perf_counter()
            operator = self._operators[step.id]
            made: list[Elements] = []
            heartbeat = max(heartbeats[query] for query in step.queries)
            moment = Moment(heartbeat, self._start(step), self._shard)
            with _told(step):
                for port in range(len(step.inputs)):
                    for elements in inbox.pop((step.id, port), ()):
                        if len(elements):
                            made += operator.process(port, elements)
                made += operator.advance(moment)
            result.rejected += operator.rejections()
            self._graph.send(step, [e for e in made if len(e)], inbox, result)
            self.spent[step.id] = time.perf_counter() - began
        for query, answers in result.answers.items():
            result.answers[query] = self._final(answers, heartbeats[query])
        return result

    def _start(self, step: Step) -> int | None:
        """The first instant of what `step` reads."""
        return first_instant(step.sources, self._firsts[step.birth])

    def heartbeats(self) -> dict[str, int]:
        """Up to where each query's answer is final."""
        return {
            name: query_heartbeat(query.root, self._query_sources[name], self.progress, self._drain)
            for name, query in self._plan.queries.items()
        }

    def source_heartbeats(self) -> dict[str, int]:
        """Up to where each source's time is known; `END` of one that has ended."""
        return {
            n: p.heartbeat(self._plan.sources[n].slack) for n, p in self.progress.items() if n in self._plan.sources
        }

    def _final(self, answers: list[Elements], heartbeat: int) -> list[Elements]:
        # A step shared with a query that ends later has gone further than this one may.
        kept = (e.filter(e.ts <= heartbeat) for e in answers)
        return [e for e in kept if len(e)]

    # -- state -------------------------------------------------------------------------------------------------

    def state_sizes(self) -> dict[int, tuple[int, int]] | None:
        """(rows, bytes) of every step that keeps state; None when it was looked at a moment ago."""
        return self._gauge.look(self._operators)

    def synopses(self) -> dict[str, Synopsis]:
        """All synopses of the stage by a name that a changed plan keeps where what the step does has not changed."""
        return {
            f"{self._keys[step.id]}.{name}": synopsis
            for step in self._graph.steps
            for name, synopsis in self._operators[step.id].synopses().items()
        }

    def marks(self) -> dict[str, Any]:
        """Small state: operators' marks by key, and the progress seen."""
        seen = {name: p.as_list() for name, p in self.progress.items()}
        firsts = {str(b): {n: p.first for n, p in found.items()} for b, found in self._firsts.items()}
        marks = {self._keys[step.id]: m for step in self._graph.steps if (m := self._operators[step.id].marks())}
        return {"progress": seen, "firsts": firsts, "operators": marks}

    def restore_marks(self, marks: dict[str, Any], sources: Container[str] | None = None) -> None:
        """Take back what `marks` gave, also in parts and from an executor of an earlier plan. sources: those that are
        still what they were; None for all."""
        for name, values in marks["progress"].items():
            if sources is None or name in sources:
                self.progress[name] = self.progress.get(name, SourceProgress()).merge(SourceProgress(*values))
        for birth, firsts in marks["firsts"].items():
            if int(birth) in self._firsts:
                self._firsts[int(birth)] |= {n: SourceProgress(first) for n, first in firsts.items()}
        for step in self._graph.steps:
            if self._keys[step.id] in marks["operators"]:
                self._operators[step.id].restore_marks(marks["operators"][self._keys[step.id]])


def cut(elements: Elements, exchange: Exchange, shards: int, sender: int) -> list[tuple[int, Elements]]:
    """`elements` by receiving shard. Rows that lie anyhow go to a shard that the sender's number names."""
    if exchange.everywhere:
        return [(shard, elements) for shard in range(shards)]
    if exchange.key is None:
        return [(sender % shards, elements)]
    if not exchange.key or shards == 1:
        return [(0, elements)]
    first, _ = fingerprints([elements.columns[i] for i in exchange.key], len(elements))
    order, bounds = cut_by_shard(first, shards)
    ordered = elements.take(order)
    pieces = ((k, int(bounds[k]), int(bounds[k + 1])) for k in range(shards))
    return [(k, ordered.slice(start, stop)) for k, start, stop in pieces if stop > start]
