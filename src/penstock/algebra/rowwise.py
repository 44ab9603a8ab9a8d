"""Selection and projection: one row in, at most one row out; validity passes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.algebra.nodes import Algebra, Keys, Unary, column_labels, named
from penstock.algebra.pattern import Pattern
from penstock.expressions.nodes import Column, Expression
from penstock.expressions.text import to_sql
from penstock.types import Field, Schema


@dataclass(frozen=True, eq=False)
class Select(Unary):
    """The tuples for which `predicate` is TRUE (not NULL)."""

    predicate: Expression

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern

    @property
    def keys(self) -> Keys:
        return self.input.keys

    def describe(self) -> Mapping[str, str]:
        return {"where": to_sql(self.predicate, column_labels(self.schema))}


@dataclass(frozen=True, eq=False)
class Project(Algebra):
    """One output column per expression. `fields` gives their names; its types equal the expressions' types."""

    input: Algebra
    expressions: tuple[Expression, ...]
    fields: tuple[Field, ...]

    @property
    def schema(self) -> Schema:
        return Schema(self.fields)

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern

    @property
    def keys(self) -> Keys:
        place = {e.index: i for i, e in reversed(list(enumerate(self.expressions))) if isinstance(e, Column)}
        return frozenset(frozenset(place[c] for c in key) for key in self.input.keys if all(c in place for c in key))

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        texts = (to_sql(e, labels) for e in self.expressions)
        return {"columns": ", ".join(named(text, f.name) for text, f in zip(texts, self.fields, strict=True))}
