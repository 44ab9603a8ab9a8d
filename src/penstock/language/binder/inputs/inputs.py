"""The relations of a FROM clause during binding: inner joins stay flat until all conditions are known."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algebra import Algebra
from penstock.expressions.nodes import Expression
from penstock.language.binder.rows import Inner
from penstock.language.binder.scope import Entry
from penstock.language.text import TextSpan


@dataclass(frozen=True)
class FromInput:
    """One relation of a FROM clause, and its span in the script. internal: the span of the INTERNAL of its window."""

    node: Algebra
    span: TextSpan
    internal: TextSpan | None = None


@dataclass(frozen=True)
class Inputs:
    """The relations of a FROM clause.

    `entries` and `conditions` refer to the concatenated columns of all relations. failed: something in it could not be
    bound and has been reported; `entries` remain for what reads them. rows: a query that reads the row beside it, to
    whose items `entries` refer; then it has no members yet.
    """

    members: tuple[FromInput, ...]
    entries: tuple[Entry, ...]
    conditions: tuple[Expression, ...] = ()
    failed: bool = False
    rows: Inner | None = None

    @property
    def width(self) -> int:
        return sum(len(m.node.schema) for m in self.members)
