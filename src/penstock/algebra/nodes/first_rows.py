"""ORDER BY ... LIMIT: the first rows of a relation [semantics 4]."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from penstock.algebra.nodes.base import Algebra, Keys, Unary, column_labels, is_static
from penstock.algebra.nodes.base.checks import need_relations
from penstock.algebra.nodes.base.fields import Columns, RowCount
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import KeyDirection


class SortKey(NamedTuple):
    """A column to order by: its position, the direction, and where its NULLs sort."""

    column: int
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, eq=False)
class TopK(Unary):
    """The rows at places offset+1 ... offset+limit of R(τ), at every instant; of each part of it whose rows agree in
    the columns `partition`, where NULL equals NULL.

    The order is total up to equal tuples: by `order`, then by all other columns, left to right, ascending with NULL
    first and NaN last. So the answer depends on R(τ) alone.
    """

    in_language: ClassVar[str] = "ORDER BY and LIMIT"

    order: tuple[SortKey, ...]
    limit: RowCount
    offset: RowCount = 0
    partition: Columns = ()

    def __post_init__(self) -> None:
        need_relations(self.inputs)

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def pattern(self) -> Pattern:
        # A row that enters may displace another, also where nothing expires.
        return Pattern.MONOTONIC if is_static(self) else Pattern.STRICT

    @property
    def keys(self) -> Keys:
        return self.input.keys | ({frozenset(self.partition)} if self.limit <= 1 else frozenset())

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness(Grade.BOUNDED, f"LIMIT {self.limit}", length=self.input.boundedness.length)

    @property
    def carries_ends(self) -> bool:
        return False

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        found = super().estimate_from(inputs, statistics)
        parts = math.prod(found.distinct[i] for i in self.partition)
        return replace(found, length=min(found.length, max(1.0, self.limit * parts) / found.rate))

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    @property
    def total_order(self) -> tuple[SortKey, ...]:
        """Return `order`, followed by the columns that break its ties."""
        named = {key.column for key in self.order}
        return self.order + tuple(SortKey(i) for i in range(len(self.schema)) if i not in named)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        text = {
            "order": ", ".join(_shown(key, labels) for key in self.order) or "by all columns",
            "limit": str(self.limit),
        }
        if self.partition:
            text["of each"] = ", ".join(labels[i] for i in self.partition)
        return text | ({"offset": str(self.offset)} if self.offset else {})


def _shown(key: SortKey, labels: tuple[str, ...]) -> str:
    return labels[key.column] + KeyDirection(key.descending, key.nulls_first).text
