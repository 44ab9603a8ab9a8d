"""The frequency operator and queries in the sequence model [semantics 6].

Both need their input in order of arrival and emit their answer in order, so they run in one shard; a frequency operator
that is the answer itself need not emit its substreams in one order, and is partitioned over the shards by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.algebra import (
    Algebra,
    Arrivals,
    ArrivalTime,
    AtInstants,
    Frequency,
    FrequencyWindow,
    Pattern,
    Project,
    RelationToStream,
    Select,
    Sequenced,
    StreamKind,
    Window,
)
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.frequency import own_frequency_windows, own_updated_relations
from penstock.algebra.nodes.internal import own_operators
from penstock.algebra.nodes.panes import needs_panes, refuse_cut
from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import Source
from penstock.algebra.nodes.windows import WindowKind
from penstock.expressions.nodes import Column, Expression, columns_of, conjunction, remap
from penstock.physical.plan.inputs import OutputSpec, ScanSpec
from penstock.physical.plan.joins.specs import NRRJoinSpec
from penstock.physical.plan.plan import Edge, Exchange, Plan, scanned_sources
from penstock.physical.plan.rowwise import ProjectSpec
from penstock.physical.plan.sequence import (
    ARRIVALS,
    EVALUATED,
    INSTANTS,
    WAITING,
    CountTimeSpec,
    FrequencySpec,
    SequenceModelSpec,
    SequenceWindow,
    WindowShape,
)
from penstock.physical.plan.strategies import Strategy
from penstock.physical.plan.streams import RStreamSpec, StreamMode
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower, with_queries
from penstock.physical.planning.lowering.rowwise import projected
from penstock.types import Schema

# --- Sequence-model queries whose windows count the elements of one stream: numbers are their time [semantics 6].


@dataclass(frozen=True)
class ByNumber:
    """A body in the time of numbers. columns: those of the stream that it reads; rows: the maximal number of rows of a
    window, None for no limit; every: the number of elements between two evaluations."""

    body: Algebra
    columns: tuple[int, ...]
    rows: int | None
    every: int


def by_number(node: Sequenced) -> ByNumber | None:
    """Return `node` in the time that the numbers of its elements are, None where it has no such form.

    Law: over one stream and without boundaries in time, instant number i is the i-th element. RANGE n TUPLES FREQUENCY
    m TUPLES is then RANGE n SLIDE m in that time, and all of R at every instant of evaluation is RSTREAM(R). So the
    expiration of an element is known on arrival, and the laws of windows in time hold: elements between two windows are
    dropped at once, and overlapping windows share panes.
    Unsound for several streams (their elements take turns), a WHERE of one window alone, partitions that are counted or
    evaluated by themselves, a RANGE in time, windows of different frequencies, and relations with updates, which have a
    time of their own.
    """
    if not isinstance(node.body, AtInstants) or len(node.streams) != 1 or node.relations:
        return None
    windows = node.windows
    every = windows[0].every
    plain = all(
        w.length is None and not (w.partition or w.by) and w.slide is None and isinstance(w.input, Arrivals)
        for w in windows
    )
    if every is None or not plain or any(w.every != every for w in windows):
        return None
    columns = tuple(sorted(_read(node.body.input))) or (0,)
    body = RelationToStream(_in_numbers(node.body.input, columns), StreamKind.RSTREAM)
    sizes = [w.rows for w in windows if w.rows is not None]
    return ByNumber(body, columns, max(sizes) if len(sizes) == len(windows) else None, every)


def _read(relation: Algebra) -> frozenset[int]:
    """Return the columns of the windows that are read: all, or those of a projection just above."""
    if isinstance(relation, FrequencyWindow):
        return frozenset(range(len(relation.schema)))
    if relation.is_stream:
        return frozenset()
    if isinstance(relation, Project) and isinstance(relation.input, FrequencyWindow):
        return frozenset().union(*map(columns_of, relation.expressions))
    return frozenset().union(*map(_read, relation.inputs))


def _in_numbers(relation: Algebra, columns: tuple[int, ...]) -> Algebra:
    if isinstance(relation, FrequencyWindow):
        arrivals = relation.input
        assert isinstance(arrivals, Arrivals)
        kept = replace(arrivals, columns=Schema(tuple(arrivals.schema[i] for i in columns)))
        kind = WindowKind.UNBOUNDED if relation.rows is None else WindowKind.RANGE
        return Window(kept, kind, relation.rows, relation.every)
    if relation.is_stream:
        return relation
    if isinstance(relation, Project) and isinstance(relation.input, FrequencyWindow):
        moved = tuple(remap(e, columns.index) for e in relation.expressions)
        return replace(relation, input=_in_numbers(relation.input, columns), expressions=moved)
    children = tuple(_in_numbers(c, columns) if isinstance(c, Algebra) else c for c in relation.children)
    return relation.with_children(children)


ONE_SHARD = frozenset({()})


def lower_answer(builder: Builder, root: Algebra) -> Lowered:
    """Return the steps of a stream that is the answer of a query: the order of the elements of one instant is free."""
    if isinstance(root, Project):
        return projected(root, lower_answer(builder, root.input), builder)
    if isinstance(root, Frequency):
        return _picked(root, builder, root.partition)
    return builder.lower(root)


@lower.register
def _pick(node: Frequency, builder: Builder) -> Lowered:
    return _picked(node, builder, ())


def _picked(node: Frequency, builder: Builder, key: tuple[int, ...]) -> Lowered:
    plain = in_arrival_order(node.input)
    edge, stage, partitions = builder.keyed(builder.lower(node.input if plain is None else plain), key)
    spec = FrequencySpec(node.schema.types, node.rows, node.slot, node.partition, plain is not None)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


@lower.register
def _sequenced(node: Sequenced, builder: Builder) -> Lowered:
    paned = any(needs_panes(operator) for operator in own_operators(node.body))
    if (numbered := by_number(node)) is not None and (paned or builder.strategy is Strategy.PATTERN):
        return _numbered(node, numbered, builder)
    refuse_cut(node.body)
    plain = [in_arrival_order(stream) for stream in node.streams]
    streams = [
        builder.lower(stream if known is None else known) for stream, known in zip(node.streams, plain, strict=True)
    ]
    inputs = [*streams, *(builder.lower(relation) for relation in node.relations)]
    stage = max(s.stage if s.stage and s.partitions == ONE_SHARD else s.stage + 1 for s in inputs)
    edges = [Edge(s.step, None if s.stage == stage else Exchange(())) for s in inputs]
    inner, windows = _inner(node, builder)
    spec = SequenceModelSpec(
        tuple(stream.schema.types for stream in node.streams),
        tuple(known is not None for known in plain),
        windows,
        node.periods,
        node.reports_all,
        inner,
        window_frequencies(node.windows),
        tuple(relation.fingerprint for relation in node.relations),
    )
    return Lowered(builder.add(spec, edges, stage, node), stage, ONE_SHARD)


def _numbered(node: Sequenced, numbers: ByNumber, builder: Builder) -> Lowered:
    (stream,) = node.streams
    plain = in_arrival_order(stream)
    edge, stage, _ = builder.keyed(builder.lower(stream if plain is None else plain), ())
    spec = CountTimeSpec(
        numbers.columns,
        plain is not None,
        ARRIVALS,
        numbers.rows,
        numbers.every,
        plan_inside(numbers.body, builder),
        window_frequencies(node.windows),
    )
    return Lowered(builder.add(spec, [edge], stage, node), stage, ONE_SHARD)


def window_frequencies(windows: Sequence[FrequencyWindow]) -> tuple[tuple[int, int, int], ...]:
    """Return how often the windows are evaluated: (tuples, ticks, align) of each frequency, 0 for none."""
    frequencies = {(w.every or 0, w.slide or 0, w.align) for w in windows if w.every is not None or w.slide is not None}
    return tuple(sorted(frequencies))


def _inner(node: Sequenced, builder: Builder) -> tuple[Plan, tuple[SequenceWindow, ...]]:
    """Return the plan of the body. Its sources are the windows, whose elements arrive with their validity, and the
    instants."""
    plan = plan_inside(node.body, builder)
    used = scanned_sources(plan.steps)
    windows = tuple(
        SequenceWindow(
            source.fingerprint,
            *_arriving(window.input),
            WindowShape.of(window),
            isinstance(source, ArrivalTime),
            evaluated if (evaluated := EVALUATED + source.fingerprint) in used else None,
        )
        for window in node.windows
        for source in (window, ArrivalTime(window))
        if source.fingerprint in used
    )
    return plan, windows


def plan_inside(body: Algebra, builder: Builder) -> Plan:
    """Return a plan of its own for `body`, whose sources an operator feeds."""
    inside = Builder(
        builder.plan_static,
        statistics=builder.statistics,
        strategy=builder.strategy,
        notes=builder.notes,
        statics=builder.statics,
        applied=frozenset(r.fingerprint for r in own_updated_relations(body)),
    )
    answer = inside.lower(body)
    inside.add(OutputSpec(""), [Edge(answer.step)], answer.stage, body)
    return Plan(with_queries(inside.steps), {"": Query("", body, SinkSpec("MEMORY"))}, {})


def _arriving(below: Algebra) -> tuple[int, Expression | None]:
    """Return the stream whose elements arrive at a window, and the condition of those that enter it."""
    if isinstance(below, Select):
        number, others = _arriving(below.input)
        return number, below.predicate if others is None else conjunction((others, below.predicate))
    assert isinstance(below, Arrivals)
    return below.place, None


def _evaluated_rows(node: AtInstants, builder: Builder) -> Lowered:
    """Return what each evaluation emits of its substream alone: it looks R up, as it is at that instant."""
    (window,) = dict.fromkeys(own_frequency_windows(node))
    child = builder.lower(node.input)
    used = scanned_sources(builder.steps)
    source = window if window.fingerprint in used else ArrivalTime(window)
    values = Schema(tuple(window.schema[i] for i in window.by))
    columns = tuple(range(len(values)))
    scan = ScanSpec(Source(EVALUATED + source.fingerprint, True, values, ""), columns)
    evaluations = builder.add(scan, (), 0, window, values.types, values.names)
    alone = child.stage > 0 and child.partitions == ONE_SHARD
    stage = child.stage if alone else child.stage + 1
    edges = [Edge(evaluations, Exchange(())), Edge(child.step, None if alone else Exchange(()))]
    types, names = (*values.types, *node.schema.types), (*values.names, *node.schema.names)
    found = builder.add(NRRJoinSpec(columns, node.groups, None, null_safe=True), edges, stage, node, types, names)
    shown = tuple(Column(f.type, len(columns) + i, f.name) for i, f in enumerate(node.schema))
    return Lowered(builder.add(ProjectSpec(shown), [Edge(found)], stage, node), stage, ONE_SHARD)


@lower.register
def _window(node: FrequencyWindow, builder: Builder) -> Lowered:
    return _scan(node.fingerprint, node, builder)


def arrived(node: ArrivalTime, builder: Builder) -> Lowered:
    """Return a window of the sequence model, its elements with the instants at which they arrived."""
    return _scan(node.fingerprint, node, builder)


def waiting(node: Algebra, builder: Builder) -> Lowered:
    """Return the step that emits up to which instant nothing more can enter the windows of `node`."""
    return _scan(WAITING, node, builder)


@lower.register
def _arrivals(node: Arrivals, builder: Builder) -> Lowered:
    return _scan(ARRIVALS, node, builder)


def _scan(name: str, node: Algebra, builder: Builder) -> Lowered:
    schema = node.schema if name not in (INSTANTS, WAITING) else Schema(())
    columns = tuple(range(len(schema)))
    spec = ScanSpec(Source(name, True, schema, ""), columns)
    return Lowered(builder.add(spec, (), 0, node, schema.types, schema.names), 0)


@lower.register
def _at_instants(node: AtInstants, builder: Builder) -> Lowered:
    if node.groups:
        return _evaluated_rows(node, builder)
    child, instants = builder.lower(node.input), _scan(INSTANTS, node.input, builder)
    alone = child.stage > 0 and child.partitions == ONE_SHARD
    stage = child.stage if alone else child.stage + 1
    edges = [Edge(child.step, None if alone else Exchange(())), Edge(instants.step, Exchange(()))]
    strict = node.input.pattern is Pattern.STRICT
    spec = RStreamSpec(node.schema.types, StreamMode.INSTANTS, strict=strict, begins=False, changes=node.emits_changes)
    return Lowered(builder.add(spec, edges, stage, node), stage, ONE_SHARD)
