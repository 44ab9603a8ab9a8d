"""Selection and projection: one row in, at most one row out; validity passes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.algebra.nodes.base import Keys, RowWise, column_labels, named
from penstock.expressions.nodes import Column, Expression
from penstock.expressions.text import to_sql
from penstock.types import Field, Schema


@dataclass(frozen=True, eq=False)
class Select(RowWise):
    """The tuples for which `predicate` is TRUE (not NULL)."""

    predicate: Expression

    @property
    def keys(self) -> Keys:
        return self.input.keys

    def describe(self) -> Mapping[str, str]:
        return {"where": to_sql(self.predicate, column_labels(self.schema))}


@dataclass(frozen=True, eq=False)
class Project(RowWise):
    """One output column per expression. `fields` gives their names; its types equal the expressions' types."""

    expressions: tuple[Expression, ...]
    fields: tuple[Field, ...]

    @property
    def schema(self) -> Schema:
        return Schema(self.fields)

    @property
    def keys(self) -> Keys:
        place = {e.index: i for i, e in reversed(list(enumerate(self.expressions))) if isinstance(e, Column)}
        return frozenset(frozenset(place[c] for c in key) for key in self.input.keys if all(c in place for c in key))

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        texts = (to_sql(e, labels) for e in self.expressions)
        return {"columns": ", ".join(named(text, f.name) for text, f in zip(texts, self.fields, strict=True))}
