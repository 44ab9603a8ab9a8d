"""Grouping and duplicate elimination [semantics 4.2]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.algebra.nodes.base import Algebra, Keys, Unary, column_labels, is_static, named
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import AggregateCall
from penstock.expressions.text import to_sql
from penstock.types import Field, Schema


@dataclass(frozen=True, eq=False)
class Aggregate(Algebra):
    """One row per non-empty group: the `group` columns (positions in the input), then the aggregates.

    An empty `group` means the ungrouped aggregate: always exactly one row. `names` names the aggregates' columns.
    Arguments of the aggregates are arbitrary expressions over the input.
    """

    input: Algebra
    group: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    names: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        grouped = tuple(self.input.schema[i] for i in self.group)
        computed = tuple(Field(n, a.type) for n, a in zip(self.names, self.aggregates, strict=True))
        return Schema(grouped + computed)

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC if is_static(self) else Pattern.STRICT

    @property
    def keys(self) -> Keys:
        return frozenset({frozenset(range(len(self.group)))})

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        calls = (named(to_sql(a, labels), n) for a, n in zip(self.aggregates, self.names, strict=True))
        return {"group": ", ".join(labels[i] for i in self.group) or "()", "aggregates": ", ".join(calls)}


@dataclass(frozen=True, eq=False)
class Distinct(Unary):
    """Every tuple once (δ; δ* where expirations are known `[golab 3.5.2]`)."""

    @property
    def pattern(self) -> Pattern:
        given = self.input.pattern
        return Pattern.WEAK if given is Pattern.WEAKEST else given

    @property
    def keys(self) -> Keys:
        return self.input.keys | {frozenset(range(len(self.schema)))}
