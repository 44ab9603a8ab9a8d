"""From algebra to a physical plan: one lowering per operator, sharing by fingerprint, and the division into stages.

Every keyed operator declares the columns by which equal rows must be in one shard. If its input is partitioned that way
already, it joins its input's stage; else an exchange opens the next one. Subplans of several queries become one
step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra import Algebra
from penstock.algebra.analysis.periods import periods
from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.properties.statistics import Statistics
from penstock.deep_trees import deep
from penstock.physical.execution.progress import timed_names, timed_sources
from penstock.physical.plan.identity import note_keys, step_keys
from penstock.physical.plan.inputs import OutputSpec
from penstock.physical.plan.plan import Edge, Plan
from penstock.physical.plan.plan_choices import QueryChoices
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.late_windows import late_windows, windows_behind
from penstock.physical.planning.lowering import Builder, lower_answer, lower_changes
from penstock.physical.planning.lowering.builder import with_queries
from penstock.physical.planning.lowering.logs import shared_logs
from penstock.physical.planning.lowering.panes import shared_grains
from penstock.physical.planning.lowering.retracting_joins import joins_taking_back
from penstock.physical.planning.lowering.stores import shared_stores
from penstock.physical.planning.plan_parts import joined
from penstock.physical.planning.sharing import note_nodes, note_sharable
from penstock.physical.planning.source_predicate import (
    Conditions,
    conditions_of,
    conditions_without,
    predicates_of,
    source_predicates,
)


@dataclass(frozen=True)
class Generation:
    """Queries that began in the same epoch of a run, and the statistics of their sources then. grains: the panes and
    the window stores that they share, None to choose them; a query continues with those that were chosen when it
    began."""

    birth: int
    queries: Sequence[Query]
    statistics: Statistics
    grains: Mapping[str, int] | None = None


def grains_of(
    queries: Sequence[Query],
    statistics: Statistics,
    strategy: Strategy,
    live: bool = False,
    standing: Iterable[Mapping[str, int]] = (),
) -> dict[str, int]:
    """Return the panes, stores, logs and streams without windows that queries which begin together share, and which
    joins take their results back. live: others may come later; standing: the same of queries that run."""
    if strategy is not Strategy.PATTERN:
        return {}
    roots = [strategy.prepared(query).root for query in queries]
    panes, stores = shared_grains(roots, statistics, live, standing), shared_stores(roots, live)
    chosen = {**panes, **stores, **shared_logs(roots, live), **late_windows(roots, live)}
    return {**chosen, **joins_taking_back(roots, stores)}


@deep
def plan_queries(
    queries: Sequence[Query], statistics: Statistics | None = None, strategy: Strategy = Strategy.PATTERN
) -> Plan:
    """Return the physical plan of a job that answers all `queries`. Their roots should be optimized already.
    statistics: those of their sources; plans of different statistics and strategies have the same answers."""
    return planned(queries, statistics, strategy)[0]


def planned(
    queries: Sequence[Query], statistics: Statistics | None = None, strategy: Strategy = Strategy.PATTERN
) -> tuple[Plan, list[Algebra]]:
    """Return the plan, and for every step the relation or stream that it computes."""
    return plan_part(Generation(0, queries, statistics or Statistics()), strategy)


def plan_generations(generations: Sequence[Generation], strategy: Strategy = Strategy.PATTERN) -> Plan:
    """Return the plan of a job whose queries began at different times; only those of one generation share steps."""
    return joined(plan_parts(generations, strategy))


def plan_parts(generations: Sequence[Generation], strategy: Strategy = Strategy.PATTERN) -> list[Plan]:
    """Return the plan of each generation by itself; no two steps have one number."""
    parts: list[Plan] = []
    for generation in generations:
        parts.append(plan_part(generation, strategy, sum(len(part.steps) for part in parts))[0])
    return parts


def plan_part(
    generation: Generation, strategy: Strategy, first: int = 0, static: Callable[[Algebra], Plan] | None = None
) -> tuple[Plan, list[Algebra]]:
    """Return the plan of one generation, and for each of its steps the relation or stream that it computes.

    Args:
        first: number of its first step.
        static: returns the plan of a static relation; None for `plan_static`.
    """
    queries = [strategy.prepared(query) for query in generation.queries]
    grains = generation.grains
    if grains is None:
        grains = grains_of(generation.queries, generation.statistics, strategy)
    builder = Builder(
        static or plan_static,
        statistics=generation.statistics,
        strategy=strategy,
        grains=grains,
        birth=generation.birth,
        first=first,
    )
    for query in queries:
        _lower_query(builder, query)
    lowered, nodes = windows_behind(builder.steps, builder.nodes, grains.keys())
    steps = with_queries(lowered)
    plan = Plan(
        steps,
        {query.name: query for query in queries},
        {name: source for query in queries for name, source in timed_sources(query.root).items()},
        builder.statics,
        periods={query.name: periods(query.root) for query in queries},
        source_predicates=source_predicates(steps),
    )
    note_nodes(plan, nodes)
    plan.__dict__[_CHOICES] = grains
    return plan, nodes


def part_without(part: Plan, nodes: Sequence[Algebra], queries: Sequence[str]) -> tuple[Plan, list[Algebra]] | None:
    """Return a part as it is planned with some of its queries alone, and for each step the relation or stream that it
    computes. Its steps keep their numbers and keys. None where it has to be planned again to know: of steps with equal
    keys the place determines which has which state (`step_keys`).

    Only the steps of the queries that go are looked into. The others are the same objects.

    Args:
        part: that shares nothing with others.
        nodes: by its steps.
        queries: those that stay, in their order.
    """
    index = _index_of(part)
    places = [index.places[name] for name in queries]
    if index.is_numbered or places != sorted(places):
        return None
    gone = part.queries.keys() - set(queries)
    by_id, first = dict(part.by_id), dict(index.first)
    touched = dict.fromkeys(number for name in part.queries if name in gone for number in index.steps[name])
    changed: list[int] = []
    for number in touched:
        step = by_id[number]
        users = step.queries - gone
        if users:
            by_id[number] = replace(step, queries=users)
            first[number] = min(map(index.places.__getitem__, users))
            changed.append(number)
        else:
            del by_id[number], first[number]
    # As they come when the queries are lowered one after the other; an input is needed by all that need its readers.
    order = sorted(first, key=first.__getitem__)
    by_id = dict(zip(order, map(by_id.__getitem__, order), strict=True))
    of_steps = dict(zip(part.by_id, nodes, strict=True))
    conditions = conditions_without(index.conditions, by_id, [part.step(n) for n in touched if n not in by_id])
    read = {name for query in gone for name in timed_sources(part.queries[query].root)}
    unread = {name for name in read if not any(name in timed_names(part.queries[q].root) for q in queries)}
    tables = {name for step in by_id.values() for name in step.spec.static_tables} if part.statics else ()
    plan = Plan(
        tuple(by_id.values()),
        {name: part.queries[name] for name in queries},
        {name: source for name, source in part.sources.items() if name not in unread},
        {name: static for name, static in part.statics.items() if name in tables},
        periods={name: part.periods[name] for name in queries},
        source_predicates=predicates_of(conditions),
    )
    plan.__dict__["by_id"] = by_id
    steps = {name: numbers for name, numbers in index.steps.items() if name not in gone}
    first = dict(zip(order, map(first.__getitem__, order), strict=True))
    plan.__dict__[_INDEX] = _PartIndex(index.places, steps, first, conditions, False)
    kept_nodes = [*map(of_steps.__getitem__, order)]
    note_nodes(plan, kept_nodes)
    keys = step_keys(part)
    note_keys(plan, dict(zip(order, map(keys.__getitem__, order), strict=True)))
    note_sharable(plan, part, changed)
    plan.__dict__[_CHOICES] = part.__dict__[_CHOICES]
    return plan, kept_nodes


@dataclass(frozen=True)
class _PartIndex:
    """What has to be known of a part to leave out queries.

    Args:
        places: of its queries, and of those that were left out before, in their order.
        steps: by query, the numbers of the steps that it needs.
        first: by step, the place of the first query that needs it; in the order of the steps.
        conditions: of the rows that its steps read.
        is_numbered: whether it has steps with equal keys.
    """

    places: Mapping[str, int]
    steps: Mapping[str, Sequence[int]]
    first: Mapping[int, int]
    conditions: Conditions
    is_numbered: bool


#: Where the index of a part is noted. It is not pickled.
_INDEX = "_index"


def _index_of(part: Plan) -> _PartIndex:
    known: _PartIndex | None = part.__dict__.get(_INDEX)
    if known is None:
        places = {name: place for place, name in enumerate(part.queries)}
        steps: dict[str, list[int]] = {name: [] for name in places}
        for step in part.steps:
            for name in step.queries:
                steps[name].append(step.id)
        first = {step.id: min(places[name] for name in step.queries) for step in part.steps}
        is_numbered = any("-" in key for key in step_keys(part).values())
        known = _PartIndex(places, steps, first, conditions_of(part.steps), is_numbered)
        part.__dict__[_INDEX] = known
    return known


#: Where the choices are noted with which a part was planned. They are not pickled.
_CHOICES = "_choices"


def choices_of(plan: Plan) -> Iterable[Mapping[str, int]]:
    """Return the choices of sharing with which the queries of each part were planned (`Generation.grains`)."""
    parts = (piece.alone or piece for piece in plan.pieces)
    return [part.__dict__[_CHOICES] for part in parts if _CHOICES in part.__dict__]


def plan_static(node: Algebra) -> Plan:
    """Return a plan whose inputs are static relations and whose only answer, query "", is the relation `node`."""
    builder = Builder(plan_static, inputs_static=True)
    query = Query("", node, SinkSpec("MEMORY"))
    _lower_query(builder, query)
    predicates = source_predicates(builder.steps)
    return Plan(with_queries(builder.steps), {"": query}, declared_sources(node), source_predicates=predicates)


def _lower_query(builder: Builder, query: Query) -> None:
    root = query.root
    builder.choices = QueryChoices(query.name, query.choices)
    if root.is_stream:
        answer = lower_answer(builder, root)
    else:
        answer = lower_changes(builder, root, root, None)
    builder.add(OutputSpec(query.name), [Edge(answer.step)], answer.stage, root)


def part_of(plan: Plan, queries: Collection[str]) -> Plan:
    """Return the steps that some queries of a plan need, as a plan of their own; its steps have the keys that they have
    where they are not shared."""
    pieces = [piece.alone or piece for piece in plan.pieces if not piece.queries.keys().isdisjoint(queries)]
    chosen = [step for piece in pieces for step in piece.steps if step.queries & set(queries)]
    numbers = {step.id: number for number, step in enumerate(chosen)}
    steps = tuple(
        replace(
            step,
            id=numbers[step.id],
            inputs=tuple(replace(i, step=numbers[i.step]) for i in step.inputs),
            queries=step.queries & set(queries),
        )
        for step in chosen
    )
    needed = {name for step in chosen for name in step.sources}
    sources = {name: source for name, source in plan.sources.items() if name in needed}
    frequencies = {n: of_query for n, of_query in plan.periods.items() if n in queries}
    predicates = source_predicates(steps) if plan.source_predicates else {}
    kept = {n: q for n, q in plan.queries.items() if n in queries}
    return Plan(steps, kept, sources, plan.statics, periods=frequencies, source_predicates=predicates)
