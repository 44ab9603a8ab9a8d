"""The leaf of queries that hold their rows themselves: VALUES, and a SELECT without FROM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base import NO_KEYS, Algebra, ColumnPruning, Keys, Pruned
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.statistics import HORIZON, Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import counted
from penstock.types import Field, Schema


@dataclass(frozen=True, eq=False)
class Constant(Algebra):
    """Rows that a query holds itself: a static relation, which holds from the beginning of time. There is at least one
    column. rows: values of the columns' types, as Python has them."""

    in_language = "VALUES"

    rows: tuple[tuple[object, ...], ...]
    fields: tuple[Field, ...]

    @property
    def schema(self) -> Schema:
        return Schema(self.fields)

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC

    @property
    def keys(self) -> Keys:
        return frozenset({frozenset()}) if len(self.rows) <= 1 else NO_KEYS

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness(Grade.FIXED, counted(len(self.rows), "constant row"))

    @property
    def may_be_kept(self) -> bool:
        return True

    @property
    def is_plain_sql(self) -> bool:
        return True

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        kept = sorted(needed) or [0]
        if len(kept) == len(self.fields):
            return pruning.whole(self)
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        thin = Constant(rows, tuple(self.fields[i] for i in kept))
        return Pruned(thin, {old: new for new, old in enumerate(kept)})

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        distinct = tuple(float(len({repr(row[i]) for row in self.rows})) for i in range(len(self.fields)))
        return Estimate(max(1, len(self.rows)) / HORIZON, HORIZON, distinct).decided()

    def describe(self) -> Mapping[str, str]:
        return {"rows": str(len(self.rows)), "columns": ", ".join(self.schema.names)}


def one_row() -> Constant:
    """Return what a SELECT without FROM reads: one row. Its column stands there so that rows can be counted; no name
    reaches it."""
    return Constant(((True,),), (Field("one row", pa.bool_()),))
