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
from penstock.physical.execution.progress import timed_sources
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
from penstock.physical.planning.planned_part import PlannedPart
from penstock.physical.planning.source_predicate import source_predicates


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
) -> tuple[Plan, Mapping[int, Algebra]]:
    """Return the plan, and for every step the relation or stream that it computes."""
    part = plan_part(Generation(0, queries, statistics or Statistics()), strategy)
    return part.plan, part.nodes


def plan_generations(generations: Sequence[Generation], strategy: Strategy = Strategy.PATTERN) -> Plan:
    """Return the plan of a job whose queries began at different times; only those of one generation share steps."""
    return joined([part.plan for part in plan_parts(generations, strategy)])


def plan_parts(generations: Sequence[Generation], strategy: Strategy = Strategy.PATTERN) -> list[PlannedPart]:
    """Return the plan of each generation by itself; no two steps have one number."""
    parts: list[PlannedPart] = []
    for generation in generations:
        parts.append(plan_part(generation, strategy, sum(len(part.plan.steps) for part in parts)))
    return parts


def plan_part(
    generation: Generation, strategy: Strategy, first: int = 0, static: Callable[[Algebra], Plan] | None = None
) -> PlannedPart:
    """Return the plan of one generation.

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
        grains=grains,
    )
    return PlannedPart(plan, dict(zip(plan.by_id, nodes, strict=True)))


def choices_of(plan: Plan) -> Iterable[Mapping[str, int]]:
    """Return what the queries of each part of `plan` were planned to share (`Generation.grains`)."""
    return [piece.grains for piece in plan.pieces]


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
