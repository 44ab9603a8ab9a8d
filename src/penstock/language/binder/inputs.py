"""The relations of a FROM clause while it is read: inner joins stay flat until all conditions are known."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algebra import Algebra
from penstock.expressions.nodes import Expression
from penstock.language.binder.rows import Inner
from penstock.language.binder.scope import Entry
from penstock.language.text import Span


@dataclass(frozen=True)
class Input:
    """One relation of a FROM clause, and where it stands. internal: the place of the INTERNAL of its window."""

    node: Algebra
    span: Span
    internal: Span | None = None


@dataclass(frozen=True)
class Inputs:
    """The relations of a FROM clause. The columns of all, one after the other, are what `entries` and `conditions`
    count. failed: something in it could not be bound, which has been told; `entries` are there for what reads them.
    rows: a query that reads the row beside it, whose items `entries` count; then it has no members yet."""

    members: tuple[Input, ...]
    entries: tuple[Entry, ...]
    conditions: tuple[Expression, ...] = ()
    failed: bool = False
    rows: Inner | None = None

    @property
    def width(self) -> int:
        return sum(len(m.node.schema) for m in self.members)
