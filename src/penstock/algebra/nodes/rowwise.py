"""Selection and projection: one row in, at most one row out; validity passes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.nodes.base import (
    RECORD,
    Algebra,
    ColumnPruning,
    Keys,
    Pruned,
    RowWise,
    arrival_column,
    column_labels,
    inclusion_column,
    named,
)
from penstock.algebra.nodes.base.fields import Condition
from penstock.algebra.properties.cardinality import Estimate, kept
from penstock.algebra.properties.computation import Computation
from penstock.algebra.properties.domains import Domains, domain_of_type, narrowed
from penstock.algebra.properties.promises import Promises, moved_promises
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.timestamps import Risings, rising_of
from penstock.expressions.calls.text import to_sql
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.nodes import Call, Column, Expression, Literal, columns_of, conjuncts
from penstock.types import Field, Schema


@dataclass(frozen=True, eq=False)
class Select(RowWise):
    """The tuples for which `predicate` is TRUE (not NULL)."""

    predicate: Condition

    @property
    def promises(self) -> Promises:
        return self.input.promises  # of all elements of their streams, those that are dropped here too

    @property
    def domains(self) -> Domains:
        return narrowed(self.input.domains, self.predicate)

    @property
    def keys(self) -> Keys:
        return self.input.keys

    @property
    def timestamp_column(self) -> int | None:
        return self.input.timestamp_column

    @property
    def rising(self) -> Risings:
        return self.input.rising

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        part = 1.0
        distinct = list(below.distinct)
        for condition in conjuncts(self.predicate):
            part *= kept(condition, below.distinct)
            if _is_constant_equality(condition):
                distinct[next(iter(columns_of(condition)))] = 1.0
        return Estimate(below.rate * part, below.length, tuple(distinct), below.taken * part)

    def with_inclusion(self) -> Algebra | None:
        below = self.input.with_inclusion()
        return None if below is None else replace(self, input=below)

    def with_arrival_time(self) -> Algebra:
        return Select(self.input.with_arrival_time(), self.predicate)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        below = pruning.pruned(self.input, needed | columns_of(self.predicate))
        return Pruned(Select(below.node, below.moved(self.predicate)), below.positions)

    def computation(self, column: int) -> Computation:
        return Computation(((0, column),), copied=True)

    def describe(self) -> Mapping[str, str]:
        return {"where": to_sql(self.predicate, column_labels(self.schema))}


def _is_constant_equality(condition: Expression) -> bool:
    if not (isinstance(condition, Call) and condition.function == "EQ"):
        return False
    return any(isinstance(a, Column) for a in condition.arguments) and any(
        isinstance(a, Literal) for a in condition.arguments
    )


@dataclass(frozen=True, eq=False)
class Project(RowWise):
    """One output column per expression. `fields` gives their names; its types equal the expressions' types."""

    expressions: tuple[Expression, ...]
    fields: tuple[Field, ...]

    @property
    def schema(self) -> Schema:
        return Schema(self.fields)

    @property
    def promises(self) -> Promises:
        return self.moved(self.input.promises)

    def moved(self, promises: Promises) -> Promises:
        """Return those of some promises of the input all of whose columns are there as they are."""
        columns = [(e.index, i) for i, e in enumerate(self.expressions) if isinstance(e, Column)]
        return moved_promises(promises, dict(reversed(columns)).get)

    @property
    def domains(self) -> Domains:
        below = self.input.domains
        return tuple(below[e.index] if isinstance(e, Column) else domain_of_type(e.type) for e in self.expressions)

    @property
    def keys(self) -> Keys:
        positions = {e.index: i for i, e in reversed(list(enumerate(self.expressions))) if isinstance(e, Column)}
        return frozenset(
            frozenset(positions[c] for c in key) for key in self.input.keys if all(c in positions for c in key)
        )

    @property
    def timestamp_column(self) -> int | None:
        below = self.input.timestamp_column
        return next((i for i, e in enumerate(self.expressions) if isinstance(e, Column) and e.index == below), None)

    @property
    def rising(self) -> Risings:
        below = self.input.rising
        found = ((i, rising_of(e, below)) for i, e in enumerate(self.expressions)) if below else ()
        return {i: one for i, one in found if one is not None}

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        return replace(below, distinct=tuple(_computed(e, below.distinct) for e in self.expressions))

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return 0.0

    def with_inclusion(self) -> Algebra | None:
        below = self.input.with_inclusion()
        if below is None:
            return None
        record = inclusion_column(len(below.schema) - 1)
        return Project(below, (*self.expressions, record), (*self.fields, RECORD))

    def with_arrival_time(self) -> Algebra:
        below = self.input.with_arrival_time()
        arrival = arrival_column(len(below.schema) - 1)
        return Project(below, (*self.expressions, arrival), (*self.fields, below.schema[arrival.index]))

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        """Return the projection of the needed columns; one that only renames or reorders is dissolved."""
        kept = sorted(needed) or [0]
        chosen = [self.expressions[i] for i in kept]
        below = pruning.pruned(self.input, frozenset().union(*(columns_of(e) for e in chosen)))
        columns = [e for e in chosen if isinstance(e, Column)]
        if len(columns) == len(chosen):
            return Pruned(below.node, {i: below.positions[c.index] for i, c in zip(kept, columns, strict=True)})
        thin = Project(below.node, tuple(below.moved(e) for e in chosen), tuple(self.fields[i] for i in kept))
        return Pruned(thin, {old: new for new, old in enumerate(kept)})

    def computation(self, column: int) -> Computation | None:
        expression = self.expressions[column]
        if volatile(expression):
            return None
        return Computation(tuple((0, read) for read in sorted(columns_of(expression))), isinstance(expression, Column))

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        texts = (to_sql(e, labels) for e in self.expressions)
        return {"columns": ", ".join(named(text, f.name) for text, f in zip(texts, self.fields, strict=True))}


def _computed(expression: Expression, distinct: tuple[float, ...]) -> float:
    """Return the number of values of `expression`: at most as many as the columns that it reads have together."""
    result = 1.0
    for i in columns_of(expression):
        result *= distinct[i]
    return result


def with_latest_arrival(node: Algebra, kept: Sequence[int], arrivals: Sequence[int], schema: Schema) -> Project:
    """Return the columns `kept` of `node`, named as in `schema`, followed by the latest of the arrival times in its
    columns `arrivals`."""
    times = tuple(arrival_column(i) for i in arrivals)
    latest = times[0] if len(times) == 1 else Call(times[0].type, "GREATEST", times)
    columns = tuple(Column(f.type, i, f.name) for f, i in zip(schema, kept, strict=True))
    return Project(node, (*columns, latest), (*schema.fields, node.schema[arrivals[0]]))
