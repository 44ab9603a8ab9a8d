"""The binder of scalar expressions, without its table: what a function that binds one kind of node works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import pyarrow as pa
from sqlglot import exp

from penstock.expressions.functions import build_call
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import Context, Refused
from penstock.language.binder.scope import Scope
from penstock.language.binder.subqueries import Subqueries
from penstock.language.dialect import span_of
from penstock.language.queries import Name
from penstock.language.text import Span
from penstock.types import type_name

Binding: TypeAlias = Callable[["ScalarBinder", exp.Expr], Expression]


@dataclass
class ScalarBinder:
    """Binds expressions over one scope.

    aggregates: where an aggregate may stand, None; else where we are, for the message (`WHERE`).
    aliases: select-list expressions that a name may mean when no column has it (GROUP BY, HAVING).
    subqueries: collects those in the expression; None where none may stand; inner_subqueries: those inside aggregates.
    outputs: bound select-list columns that a name means before any column of the scope (ORDER BY); lost: names of those
    that could not be bound; unseen: names of the select list, which this clause does not see, for the hint.
    grouped: GROUP BY expressions that hold subqueries, and what they were bound to, which the same text means outside
    of aggregates.
    places: where each bound Column stands, by identity, so that grouping can point at it; inside: within an aggregate.
    """

    scope: Scope
    context: Context
    aggregates: str | None = None
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    places: list[tuple[Column, Span]] = field(default_factory=list)
    inside: bool = False
    subqueries: Subqueries | None = None
    inner_subqueries: Subqueries | None = None
    outputs: Sequence[tuple[str, Expression]] = ()
    lost: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    grouped: Sequence[tuple[exp.Expr, Expression]] = ()
    #: kind of node -> how it is bound; filled in by `expressions.py`.
    table: ClassVar[Mapping[type[exp.Expr], Binding]] = {}

    def bind(self, node: exp.Expr) -> Expression:
        """The bound expression. Raises Refused with the errors noted."""
        known = None if self.inside else next((bound for tree, bound in self.grouped if tree == node), None)
        if known is not None:
            return known
        bound = self.table.get(type(node))
        if bound is None:
            raise Refused  # unsupported.py has said why
        return bound(self, node)

    def meant(self, node: exp.Expr) -> exp.Expr:
        """`node`, or the item of the select list that it names."""
        if not isinstance(node, exp.Column) or node.args.get("table") is not None:
            return node
        name = name_of(node.this)
        return node if self.scope.can_resolve(name) else self.aliases.get(name.key, node)

    def bind_all(self, nodes: list[exp.Expr]) -> list[Expression]:
        return self.context.each(self.bind, nodes)

    def predicate(self, node: exp.Expr, clause: str) -> Expression:
        """A condition: BOOLEAN, or P0203."""
        bound = self.bind(node)
        if pa.types.is_null(bound.type):
            return Literal(pa.bool_(), None)
        if not pa.types.is_boolean(bound.type):
            self.context.fail("P0203", f"{clause} needs a BOOLEAN, this is {type_name(bound.type)}", span_of(node))
        return bound

    def call(self, name: str, node: exp.Expr, arguments: list[Expression], span: Span | None = None) -> Expression:
        truncate = self.context.settings.get_bool("integer_division")
        return self.context.guard(span or span_of(node), lambda: build_call(name, arguments, integer_division=truncate))

    def output(self, name: Name) -> Expression | None:
        """The select-list column that `name` means. Fails with P0205 where it could mean several."""
        if name.key in self.lost:
            self.context.fail_silently()
        found = list(dict.fromkeys(value for known, value in self.outputs if name.matches(known)))
        if len(found) > 1:
            hint = "give the columns different names with AS, or order by position"
            self.context.fail("P0205", f"{name.text} can mean several columns", name.span, hint)
        return found[0] if found else None

    def place_of(self, column: Column) -> Span | None:
        return next((span for known, span in self.places if known is column), None)


def name_of(node: exp.Expr) -> Name:
    """An identifier node as a Name."""
    return Name(node.name, bool(node.args.get("quoted")), span_of(node))
