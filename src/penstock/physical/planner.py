"""From algebra to a physical plan: one lowering per operator, sharing by fingerprint, and the cutting into stages.

Every keyed operator says by which columns equal rows must meet. If its input lies that way already, it joins its
input's stage; else an exchange opens the next one. Subplans that stand in several queries become one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.algebra import Algebra
from penstock.algebra.nodes import leaves
from penstock.algebra.query import Query, SinkSpec
from penstock.algebra.scans import Scan
from penstock.algebra.statistics import Statistics
from penstock.physical.lowering import Builder, lower, lower_changes
from penstock.physical.lowering.panes import shared_grains
from penstock.physical.plan import Input, OutputSpec, Plan, Step
from penstock.physical.progress import timed_sources
from penstock.physical.strategies import Strategy


def plan_queries(
    queries: Sequence[Query], statistics: Statistics | None = None, strategy: Strategy = Strategy.PATTERN
) -> Plan:
    """The physical plan of a job that answers all `queries`. Their roots should be optimised already. statistics: what
    is known of their sources; plans of different statistics and strategies answer alike."""
    return planned(queries, statistics, strategy)[0]


def planned(
    queries: Sequence[Query], statistics: Statistics | None = None, strategy: Strategy = Strategy.PATTERN
) -> tuple[Plan, list[Algebra]]:
    """The plan, and of every step the relation or stream that it makes."""
    statistics = statistics or Statistics()
    queries = [strategy.prepared(query) for query in queries]
    grains = shared_grains((q.root for q in queries), statistics) if strategy is Strategy.PATTERN else {}
    builder = Builder(plan_static, statistics=statistics, strategy=strategy, grains=grains)
    for query in queries:
        _lower_query(builder, query)
    steps = _with_queries(builder.steps)
    sources = {n: s for q in queries for n, s in timed_sources(q.root).items()}
    return Plan(steps, {q.name: q for q in queries}, sources, builder.statics), builder.nodes


def plan_static(node: Algebra) -> Plan:
    """A plan whose inputs are static relations and whose only answer, query "", is the relation `node`."""
    builder = Builder(plan_static, inputs_static=True)
    query = Query("", node, SinkSpec("MEMORY"))
    _lower_query(builder, query)
    sources = {leaf.source.name: leaf.source for leaf in leaves(node) if isinstance(leaf, Scan)}
    return Plan(_with_queries(builder.steps), {"": query}, sources)


def _lower_query(builder: Builder, query: Query) -> None:
    root = query.root
    if root.is_stream:
        answer = builder.lower(root)
    else:
        answer = lower_changes(builder, root, root, None)
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


def lowered_types() -> set[type]:
    """The algebra nodes that have a lowering, for the test that walks them all."""
    return {t for t in lower.registry if t is not Algebra and t is not object}
