"""A plan put together of parts: the plans of the queries that began in one epoch each.

Queries of different epochs share no steps, so a change of a job replaces, adds and removes parts, and everything else
of its plan stays as it is. A worker puts the same plan together of the parts that it has and those that are new.
Nothing here is more than one look at each part: a job may have thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.expressions.nodes import Expression, Literal
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.source_predicate import either, may_skip


def joined(parts: Sequence[Plan]) -> Plan:
    """Return the plan of all `parts`, which have no step numbers and no queries in common."""
    plan = Plan((), {}, {}, parts=tuple(parts))
    for part in parts:
        plan.queries.update(part.queries)
        plan.sources.update(part.sources)
        plan.statics.update(part.statics)
        plan.periods.update(part.periods)
    steps = tuple(chain.from_iterable(part.steps for part in parts))
    return replace(plan, steps=steps, source_predicates=_predicates(parts))


def _predicates(parts: Sequence[Plan]) -> dict[str, Expression]:
    """Return, by source, the condition of the rows that some part reads; of sources without one all rows are read."""
    conditions: dict[str, list[Expression] | None] = {}
    for part in parts:
        for source in part.sources:
            condition = part.source_predicates.get(source)
            of_source = conditions.setdefault(source, [])
            if condition is None:
                conditions[source] = None
            elif of_source is not None:
                of_source.append(condition)
    either_of = {source: either(of_source) for source, of_source in conditions.items() if of_source}
    return {source: condition for source, condition in either_of.items() if condition is not None}


def with_standing(plan: Plan, sources: Iterable[Source]) -> Plan:
    """Return `plan` with `sources` among its inputs, also those that no query reads: of these a reader skips all rows,
    and the plan knows their progress.
    """
    unread = {source.name: source for source in sources if source.name not in plan.sources}
    nothing = {name: Literal(pa.bool_(), False) for name, source in unread.items() if may_skip(source)}
    return replace(plan, sources=plan.sources | unread, source_predicates=plan.source_predicates | nothing)
