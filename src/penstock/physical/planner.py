"""From algebra to a physical plan: one lowering per operator, sharing by fingerprint, and the cutting into stages.

Every keyed operator says by which columns equal rows must meet. If its input lies that way already, it joins its
input's stage; else an exchange opens the next one. Subplans that stand in several queries become one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch

import pyarrow as pa

from penstock.algebra import (
    Aggregate,
    Algebra,
    Distinct,
    Join,
    Pattern,
    Project,
    RelationScan,
    RelationToStream,
    Select,
    StreamKind,
    StreamScan,
    UnionAll,
    Window,
    evaluation_period,
    is_static,
    own_windows,
)
from penstock.algebra.instantaneous import is_instantaneous
from penstock.algebra.nodes import leaves
from penstock.algebra.query import Query
from penstock.algebra.scans import Scan
from penstock.expressions.nodes import Column
from penstock.physical.lanes import LanePlan, plan_lanes
from penstock.physical.plan import (
    AggregateSpec,
    ChangesSpec,
    DistinctSpec,
    Exchange,
    FilterSpec,
    Input,
    JoinSpec,
    LanesSpec,
    LookupSpec,
    OutputSpec,
    Plan,
    ProjectSpec,
    RStreamSpec,
    ScanSpec,
    Spec,
    StaticSpec,
    Step,
    StreamMode,
    UnionSpec,
    UpdatesSpec,
    WindowSpec,
)
from penstock.physical.progress import timed_sources

Partitions = frozenset[tuple[int, ...]] | None


@dataclass(frozen=True)
class Lowered:
    """A step's place. partitions: the column tuples by which its rows are cut over shards (any of them; the empty tuple
    means all in one shard), None when they lie anyhow."""

    step: int
    stage: int
    partitions: Partitions = None

    def meets(self, key: Iterable[int]) -> bool:
        """Whether rows that agree on `key` are in one shard already."""
        wanted = set(key)
        return self.stage > 0 and self.partitions is not None and any(set(p) <= wanted for p in self.partitions)


@dataclass
class Builder:
    """What a plan is built up in. inputs_static: static relations are inputs of this plan (it computes one)."""

    inputs_static: bool = False
    steps: list[Step] = field(default_factory=list)
    known: dict[str, Lowered] = field(default_factory=dict)
    statics: dict[str, Plan] = field(default_factory=dict)

    def lower(self, node: Algebra) -> Lowered:
        found = self.known.get(node.fingerprint)
        if found is None:
            if is_static(node) and not self.inputs_static:
                found = self.static(node)
            else:
                found = lower(node, self)
            self.known[node.fingerprint] = found
        return found

    def add(
        self, spec: Spec, inputs: Sequence[Input], stage: int, node: Algebra,
        types: Sequence[pa.DataType] | None = None, names: Sequence[str] | None = None,
    ) -> int:  # fmt: skip
        step = Step(
            len(self.steps), spec, tuple(inputs), stage,
            tuple(node.schema.types if types is None else types),
            frozenset(timed_sources(node)),
            node.pattern.short,
            tuple(node.schema.names if names is None else names),
        )  # fmt: skip
        self.steps.append(step)
        return step.id

    def table(self, node: Algebra) -> str:
        """The name of the table that holds the static relation `node`; its plan is added when it is new."""
        name = node.fingerprint
        if name not in self.statics:
            self.statics[name] = plan_static(node)
        return name

    def static(self, node: Algebra) -> Lowered:
        step = self.add(StaticSpec(self.table(node), ()), (), 1, node)
        return Lowered(step, 1, frozenset({()}))

    def keyed(self, child: Lowered, key: tuple[int, ...]) -> tuple[Input, int, Partitions]:
        """The edge into an operator that needs equal `key`s together: (edge, stage, how its rows then lie)."""
        if child.meets(key):
            return Input(child.step), child.stage, child.partitions
        return Input(child.step, Exchange(key)), child.stage + 1, frozenset({key})

    def ordered(self, child: Lowered) -> tuple[Input, int, Partitions]:
        """The edge into an operator that needs state but no particular rows together."""
        if child.stage > 0:
            return Input(child.step), child.stage, child.partitions
        return Input(child.step, Exchange(None)), 1, None


def plan_queries(queries: Sequence[Query]) -> Plan:
    """The physical plan of a job that answers all `queries`. Their roots should be optimised already."""
    builder = Builder()
    for query in queries:
        _lower_query(builder, query)
    steps = _with_queries(builder.steps)
    sources = {n: s for q in queries for n, s in timed_sources(q.root).items()}
    return Plan(steps, {q.name: q for q in queries}, sources, builder.statics)


def plan_static(node: Algebra) -> Plan:
    """A plan whose inputs are static relations and whose only answer, query "", is the relation `node`."""
    from penstock.algebra.query import SinkSpec

    builder = Builder(inputs_static=True)
    query = Query("", node, SinkSpec("MEMORY"))
    _lower_query(builder, query)
    sources = {leaf.source.name: leaf.source for leaf in leaves(node) if isinstance(leaf, Scan)}
    return Plan(_with_queries(builder.steps), {"": query}, sources)


def _lower_query(builder: Builder, query: Query) -> None:
    root = query.root
    if root.is_stream:
        answer = builder.lower(root)
    else:
        answer = _changes(builder, root, root, None)
    builder.add(OutputSpec(query.name), [Input(answer.step)], answer.stage, root)


def _with_queries(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Every step told which queries need it."""
    users: dict[int, set[str]] = {step.id: set() for step in steps}
    for step in reversed(steps):
        if isinstance(step.spec, OutputSpec):
            users[step.id].add(step.spec.query)
        for edge in step.inputs:
            users[edge.step] |= users[step.id]
    return tuple(replace(step, queries=frozenset(users[step.id])) for step in steps)


@singledispatch
def lower(node: Algebra, builder: Builder) -> Lowered:
    raise AssertionError(f"{type(node).__name__} has no lowering")


@lower.register(StreamScan)
@lower.register(RelationScan)
def _scan(node: Scan, builder: Builder) -> Lowered:
    scan = Lowered(builder.add(ScanSpec(node.source, node.columns), (), 0, node), 0)
    if node.source.operation is None:
        return scan
    apart = (node.source.timestamp, node.source.operation)
    key = tuple(i for i, column in enumerate(node.columns) if column not in apart)
    edge, stage, partitions = builder.keyed(scan, key)
    return Lowered(builder.add(UpdatesSpec(key, node.schema.types), [edge], stage, node), stage, partitions)


@lower.register
def _select(node: Select, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    step = builder.add(FilterSpec(node.predicate), [Input(child.step)], child.stage, node)
    return replace(child, step=step)


@lower.register
def _project(node: Project, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    step = builder.add(ProjectSpec(node.expressions), [Input(child.step)], child.stage, node)
    places = {e.index: i for i, e in reversed(list(enumerate(node.expressions))) if isinstance(e, Column)}
    return Lowered(step, child.stage, _moved(child.partitions, places))


def _moved(partitions: Partitions, places: dict[int, int]) -> Partitions:
    """Partitions after columns moved to `places`; None when no partition survives."""
    if partitions is None:
        return None
    kept = frozenset(tuple(places[c] for c in p) for p in partitions if all(c in places for c in p))
    return kept or None


@lower.register
def _window(node: Window, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    step = builder.add(WindowSpec(node.lifetime, node.slide, node.align), [Input(child.step)], child.stage, node)
    return replace(child, step=step)


@lower.register
def _union(node: UnionAll, builder: Builder) -> Lowered:
    members = [builder.lower(member) for member in node.members]
    stage = max(m.stage for m in members)
    edges = [Input(m.step, None if m.stage == stage else Exchange(None)) for m in members]
    partitions: Partitions = None
    if all(m.stage == stage and m.partitions is not None for m in members):
        common = frozenset.intersection(*(m.partitions for m in members if m.partitions is not None))
        partitions = common or None
    return Lowered(builder.add(UnionSpec(), edges, stage, node), stage, partitions)


@lower.register
def _distinct(node: Distinct, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    edge, stage, partitions = builder.keyed(child, tuple(range(len(node.schema))))
    strict = node.input.pattern is Pattern.STRICT
    step = builder.add(DistinctSpec(node.schema.types, strict), [edge], stage, node)
    return Lowered(step, stage, partitions)


@lower.register
def _aggregate(node: Aggregate, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    plan = plan_lanes(node.group, node.aggregates)
    panes = node.input.pattern is not Pattern.STRICT and any(w.slide is not None for w in own_windows(node))
    types = _lane_types(node, plan)
    names = [
        *(node.input.schema[i].name for i in node.group),
        *(f"lane{i}" for i in range(len(types) - len(node.group))),
    ]
    lanes = builder.add(LanesSpec(plan, panes), [Input(child.step)], child.stage, node.input, types, names)
    places = {column: i for i, column in reversed(list(enumerate(node.group)))}
    made = Lowered(lanes, child.stage, _moved(child.partitions, places))
    edge, stage, partitions = builder.keyed(made, tuple(range(len(node.group))))
    fifo = node.input.pattern <= Pattern.WEAKEST
    step = builder.add(AggregateSpec(plan, fifo, types), [edge], stage, node)
    return Lowered(step, stage, partitions)


def _lane_types(node: Aggregate, plan: LanePlan) -> tuple[pa.DataType, ...]:
    keys = [node.input.schema[i].type for i in node.group]
    values = [plan.arguments[i].type for i in (*plan.extremes, *plan.distincts)]
    return (*keys, *[pa.int64()] * plan.integers, *[pa.float64()] * plan.floats, *values)


@lower.register
def _join(node: Join, builder: Builder) -> Lowered:
    width = len(node.left.schema)
    if not builder.inputs_static:
        if is_static(node.right):
            return _lookup(node, builder, node.left, node.right)
        if is_static(node.left):
            return _lookup(node, builder, node.right, node.left)
    left, right = builder.lower(node.left), builder.lower(node.right)
    left_key, right_key = tuple(pair[0] for pair in node.equal), tuple(pair[1] for pair in node.equal)
    stage, edges, parts = _meet(left, right, left_key, right_key)
    spec = JoinSpec(
        left_key, right_key, node.left.schema.types, node.right.schema.types, node.residual,
        (node.left.pattern is Pattern.STRICT, node.right.pattern is Pattern.STRICT),
    )  # fmt: skip
    step = builder.add(spec, edges, stage, node)
    both = frozenset({parts[0], tuple(width + c for c in parts[1])})
    return Lowered(step, stage, both)


def _meet(
    left: Lowered, right: Lowered, left_key: tuple[int, ...], right_key: tuple[int, ...]
) -> tuple[int, list[Input], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Where two inputs of a join meet: (stage, edges, the columns of either side that rows then lie by)."""
    to_right = dict(reversed(list(zip(left_key, right_key, strict=True))))
    to_left = dict(reversed(list(zip(right_key, left_key, strict=True))))
    if left.meets(left_key) and left.stage >= right.stage:
        for part in sorted(p for p in left.partitions or () if set(p) <= set(left_key)):
            other = tuple(to_right[c] for c in part)
            if left.stage == right.stage and other in (right.partitions or ()):
                return left.stage, [Input(left.step), Input(right.step)], (part, other)
            if left.stage > right.stage:
                return left.stage, [Input(left.step), Input(right.step, Exchange(other))], (part, other)
    if right.meets(right_key) and right.stage > left.stage:
        part = min(p for p in right.partitions or () if set(p) <= set(right_key))
        other = tuple(to_left[c] for c in part)
        return right.stage, [Input(left.step, Exchange(other)), Input(right.step)], (other, part)
    stage = max(left.stage, right.stage) + 1
    edges = [Input(left.step, Exchange(left_key)), Input(right.step, Exchange(right_key))]
    return stage, edges, (left_key, right_key)


def _lookup(node: Join, builder: Builder, moving: Algebra, fixed: Algebra) -> Lowered:
    child = builder.lower(moving)
    static_left = fixed is node.left
    key = tuple(pair[1 if static_left else 0] for pair in node.equal)
    table_key = tuple(pair[0 if static_left else 1] for pair in node.equal)
    spec = LookupSpec(builder.table(fixed), key, table_key, node.residual, static_left)
    step = builder.add(spec, [Input(child.step)], child.stage, node)
    shift = len(fixed.schema) if static_left else 0
    places = {i: i + shift for i in range(len(moving.schema))}
    return Lowered(step, child.stage, _moved(child.partitions, places))


@lower.register
def _relation_to_stream(node: RelationToStream, builder: Builder) -> Lowered:
    if node.kind is StreamKind.RSTREAM:
        return _rstream(node, builder)
    return _changes(builder, node, node.input, node.kind)


def _changes(builder: Builder, node: Algebra, relation: Algebra, kind: StreamKind | None) -> Lowered:
    child = builder.lower(relation)
    netted = never_cancels(relation)
    every = tuple(range(len(relation.schema)))
    edge, stage, partitions = builder.ordered(child) if netted else builder.keyed(child, every)
    fifo = relation.pattern <= Pattern.WEAKEST
    step = builder.add(ChangesSpec(kind, relation.schema.types, netted, fifo), [edge], stage, node)
    return Lowered(step, stage, partitions)


def never_cancels(node: Algebra) -> bool:
    """Whether equal tuples can never come and go at one instant: true where nothing goes, and where every change
    gives a key a different row."""
    if node.pattern is Pattern.MONOTONIC or isinstance(node, Aggregate):
        return True
    if isinstance(node, Distinct):
        return node.input.pattern is Pattern.STRICT
    if isinstance(node, Select):
        return never_cancels(node.input)
    if isinstance(node, Project):
        kept = {e.index for e in node.expressions if isinstance(e, Column)}
        return len(kept) == len(node.input.schema) and never_cancels(node.input)
    return False


def _rstream(node: RelationToStream, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    strict = node.input.pattern is Pattern.STRICT
    types = node.schema.types
    every = tuple(range(len(types)))
    period = evaluation_period(node)
    if period is None and not is_instantaneous(node.input):
        return _rstream_at_instants(node, builder, child, strict)
    edge, stage, partitions = builder.keyed(child, every) if strict else builder.ordered(child)
    if period is not None:
        spec = RStreamSpec(types, StreamMode.BOUNDARIES, period[0], period[1], strict)
    else:
        spec = RStreamSpec(types, StreamMode.TICKS, strict=strict)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


def _rstream_at_instants(node: RelationToStream, builder: Builder, child: Lowered, strict: bool) -> Lowered:
    """Every change anywhere makes the whole relation speak, so it lives in one shard; the streams' arrivals are told
    to it beside."""
    streams = {w.input.fingerprint: w.input for w in own_windows(node)}
    clocks: list[Lowered] = []
    for stream in streams.values():
        lowered = builder.lower(stream)
        step = builder.add(ProjectSpec(()), [Input(lowered.step)], lowered.stage, stream, (), ())
        clocks.append(replace(lowered, step=step, partitions=None))
    one_shard = frozenset({()})
    stage = child.stage if child.partitions == one_shard and child.stage > 0 else child.stage + 1
    stage = max([stage, *(c.stage + 1 for c in clocks)])
    edges = [Input(c.step, None if c.stage == stage else Exchange(())) for c in (child, *clocks)]
    spec = RStreamSpec(node.schema.types, StreamMode.INSTANTS, strict=strict)
    return Lowered(builder.add(spec, edges, stage, node), stage, one_shard)


def lowered_types() -> set[type]:
    """The algebra nodes that have a lowering, for the test that walks them all."""
    return {t for t in lower.registry if t is not Algebra and t is not object}
