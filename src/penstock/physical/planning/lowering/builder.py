"""The builder of lowering: the partitioning of rows, steps shared by fingerprint, edges with their exchanges.

Contract: `lower(node, builder)` adds the steps of one logical operator and returns where its rows then are. Every
family registers its own lowering in a file of this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch

import pyarrow as pa

from penstock.algebra import Algebra, is_static
from penstock.algebra.properties.statistics import Statistics
from penstock.physical.execution.progress import timed_sources
from penstock.physical.plan.inputs import StaticSpec
from penstock.physical.plan.plan import Edge, Exchange, Plan, Step
from penstock.physical.plan.plan_choices import QueryChoices, step_operator
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.step_choices import JoinOrder, KindChoice
from penstock.physical.plan.strategies import Strategy

Partitions = frozenset[tuple[int, ...]] | None


@dataclass(frozen=True)
class Lowered:
    """A step with the partitioning of its rows.

    Args:
        partitions: the column tuples by which its rows are partitioned over shards (any of them; the empty tuple means
    all in one shard), None when the partitioning is unknown.
        colocated: further column tuples: rows that agree on one of them are in one shard, but which shard is computed
    from columns that the rows no longer have.
    """

    step: int
    stage: int
    partitions: Partitions = None
    colocated: frozenset[tuple[int, ...]] = frozenset()

    def meets(self, key: Iterable[int]) -> bool:
        """Return whether rows that agree on `key` are in one shard already."""
        key_columns = set(key)
        return self.stage > 0 and self.partitions is not None and any(set(p) <= key_columns for p in self.partitions)


@dataclass
class Builder:
    """The state of building a plan. plan_static: returns the plan of a static relation; inputs_static: static relations
    are inputs of this plan (it computes one); statistics: those of the inputs; notes: by fingerprint of a node, why it
    is in the plan; strategy: how operators store state; grains: by `pane_key` of an aggregate, the panes that it shares
    (`panes.py`); nodes: by step, the relation or stream that it computes; birth: the epoch in which these queries
    began; applied: fingerprints of relations whose updates another plan has applied: sources by these names; first: the
    number of its first step; stored: by fingerprint of a stream, the window whose rows go to its stores
    (`stores.py`); choices: of the query that is lowered; orders: by fingerprint of an operator, the order of the join
    of many inputs that it is, or is a part of."""

    plan_static: Callable[[Algebra], Plan]
    inputs_static: bool = False
    statistics: Statistics = field(default_factory=Statistics)
    strategy: Strategy = Strategy.PATTERN
    notes: dict[str, str] = field(default_factory=dict)
    grains: Mapping[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    known: dict[str, Lowered] = field(default_factory=dict)
    statics: dict[str, Plan] = field(default_factory=dict)
    nodes: list[Algebra] = field(default_factory=list)
    birth: int = 0
    applied: frozenset[str] = frozenset()
    first: int = 0
    stored: dict[str, Algebra] = field(default_factory=dict)
    choices: QueryChoices = field(default_factory=QueryChoices)
    orders: dict[str, JoinOrder] = field(default_factory=dict)

    def known_as(self, node: Algebra) -> str:
        """Return what equal operators go by that become one: with the choices that differ from query to query."""
        return node.fingerprint + self.choices.variant(node)

    def lower(self, node: Algebra) -> Lowered:
        known_as = self.known_as(node)
        lowered = self.known.get(known_as)
        if lowered is None:
            if is_static(node) and not self.inputs_static:
                lowered = self.static(node)
            else:
                lowered = lower(node, self)
            self.known[known_as] = lowered
        return lowered

    def add(
        self,
        spec: Spec,
        inputs: Sequence[Edge],
        stage: int,
        node: Algebra,
        types: Sequence[pa.DataType] | None = None,
        names: Sequence[str] | None = None,
        operator: str | None = None,
        chosen: Mapping[str, KindChoice] | None = None,
    ) -> int:
        """Add a step; return its number.

        Args:
            operator: what its choices go by; None: its node and its spec.
            chosen: by part, kinds that were chosen of another operator, in whose place it is.
        """
        own = operator or step_operator(node, spec.title)
        spec, choices = self.choices.applied(self.strategy.spec(spec), own, chosen)
        order = self.orders.get(node.fingerprint)
        step = Step(
            self.first + len(self.steps),
            spec,
            tuple(inputs),
            stage,
            tuple(node.schema.types if types is None else types),
            frozenset(timed_sources(node)),
            node.pattern.short,
            tuple(node.schema.names if names is None else names),
            birth=self.birth,
            choices=choices if order is None else replace(choices, order=order),
        )
        self.steps.append(step)
        self.nodes.append(node)
        return step.id

    def table(self, node: Algebra) -> str:
        """Return the name of the table that holds the static relation `node`; its plan is added when it is new."""
        name = node.fingerprint
        if name not in self.statics:
            self.statics[name] = self.plan_static(node)
        return name

    def static(self, node: Algebra) -> Lowered:
        step = self.add(StaticSpec(self.table(node), ()), (), 1, node)
        return Lowered(step, 1, frozenset({()}))

    def keyed(self, child: Lowered, key: tuple[int, ...]) -> tuple[Edge, int, Partitions]:
        """Return the edge into an operator that needs equal `key`s in one shard: (edge, stage, partitions of its
        rows)."""
        if child.meets(key):
            return Edge(child.step), child.stage, child.partitions
        return Edge(child.step, Exchange(key)), child.stage + 1, frozenset({key})

    def equal_rows(self, child: Lowered, width: int) -> tuple[Edge, int, Partitions]:
        """Return the edge into an operator that needs equal rows in one shard, whichever: (edge, stage, partitions of
        its rows).

        Args:
            width: number of columns of a row.
        """
        if child.stage > 0 and child.colocated:
            return Edge(child.step), child.stage, child.partitions
        return self.keyed(child, tuple(range(width)))

    def ordered(self, child: Lowered) -> tuple[Edge, int, Partitions]:
        """Return the edge into an operator that needs state but no particular rows in one shard."""
        if child.stage > 0:
            return Edge(child.step), child.stage, child.partitions
        return Edge(child.step, Exchange(None)), 1, None


@singledispatch
def lower(node: Algebra, builder: Builder) -> Lowered:
    raise AssertionError(f"{type(node).__name__} has no lowering")


def with_queries(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return every step with the queries that need it."""
    users: dict[int, set[str]] = {step.id: set() for step in steps}
    for step in reversed(steps):
        if step.spec.answered is not None:
            users[step.id].add(step.spec.answered)
        for edge in step.inputs:
            users[edge.step] |= users[step.id]
    return tuple(replace(step, queries=frozenset(users[step.id])) for step in steps)


def meet(
    left: Lowered, right: Lowered, left_key: tuple[int, ...], right_key: tuple[int, ...]
) -> tuple[int, list[Edge], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return where two inputs that match by key meet: (stage, edges, the columns of either side by which rows are then
    partitioned)."""
    to_right = dict(reversed(list(zip(left_key, right_key, strict=True))))
    to_left = dict(reversed(list(zip(right_key, left_key, strict=True))))
    if left.meets(left_key) and left.stage >= right.stage:
        for part in sorted(p for p in left.partitions or () if set(p) <= set(left_key)):
            other = tuple(to_right[c] for c in part)
            if left.stage == right.stage and other in (right.partitions or ()):
                return left.stage, [Edge(left.step), Edge(right.step)], (part, other)
            if left.stage > right.stage:
                return left.stage, [Edge(left.step), Edge(right.step, Exchange(other))], (part, other)
    if right.meets(right_key) and right.stage > left.stage:
        part = min(p for p in right.partitions or () if set(p) <= set(right_key))
        other = tuple(to_left[c] for c in part)
        return right.stage, [Edge(left.step, Exchange(other)), Edge(right.step)], (other, part)
    stage = max(left.stage, right.stage) + 1
    edges = [Edge(left.step, Exchange(left_key)), Edge(right.step, Exchange(right_key))]
    return stage, edges, (left_key, right_key)


def moved_partitions(partitions: Partitions, positions: dict[int, int]) -> Partitions:
    """Return the partitions after columns moved to `positions`; None when no partition survives."""
    if partitions is None:
        return None
    kept = frozenset(tuple(positions[c] for c in p) for p in partitions if all(c in positions for c in p))
    return kept or None
