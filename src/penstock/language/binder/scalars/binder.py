"""The binder of scalar expressions, without its table: the interface for functions that bind one kind of node."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import pyarrow as pa
from sqlglot import exp

from penstock.expressions.calls.functions import build_call, build_cast, row_of
from penstock.expressions.coercion import TEXTS_JOINED, is_numeric
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import AggregateCall, Cast, Column, Expression, Literal
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.scalars.local_time import call_in
from penstock.language.binder.scope import Scope
from penstock.language.binder.stream_summaries import StreamSummaries
from penstock.language.binder.subqueries.unplacing import ClauseSubqueries
from penstock.language.dialect import span_of
from penstock.language.queries import Name
from penstock.language.text import SourceText, TextSpan
from penstock.tree import Node
from penstock.types import TIMESTAMP, type_name

# --- Operators as a query has them, for messages: BETWEEN is computed by `>=` and `<=`, and shown as BETWEEN.

#: operators that other ones compute (a comparison with ALL its opposite, `%` the function MOD).
_OPERATORS: Mapping[type[exp.Expr], str] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.In: "IN",
    exp.Between: "BETWEEN",
    exp.Mod: "%",
    exp.DPipe: "||",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
#: operators with several notations.
_SPELLED: Mapping[type[exp.Expr], re.Pattern[str]] = {
    exp.EQ: re.compile("==?"),
    exp.NEQ: re.compile("!=|<>"),
    exp.NullSafeEQ: re.compile(r"<=>|IS\s+NOT\s+DISTINCT\s+FROM", re.IGNORECASE),
    exp.NullSafeNEQ: re.compile(r"IS\s+DISTINCT\s+FROM", re.IGNORECASE),
}


def written_operator(node: exp.Expr, source: SourceText) -> str | None:
    """Return the operator of `node` as it is written; None where the function that computes it has that name."""
    if isinstance(node, exp.Is):
        return f"IS {'NOT ' if node.args.get('negate') else ''}{node.expression.sql().upper()}"
    spelled = _SPELLED.get(type(node))
    if spelled is None:
        return _OPERATORS.get(type(node))
    match = spelled.search(source.text, span_of(node.this).end, span_of(node.expression).start)
    return " ".join(match[0].upper().split()) if match else None


Binding: TypeAlias = Callable[["ScalarBinder", exp.Expr], Expression]


@dataclass
class ScalarBinder:
    """Binds expressions over one scope.

    Args:
        aggregates: None where an aggregate is allowed; else the name of the clause for the message (`WHERE`).
        aliases: select-list expressions to which a name refers when no column has it (GROUP BY, HAVING).
        subqueries: collects those in the expression, None where they are not allowed.
        closes: whether CLOSED(c, ..) may stand in a condition that is bound: in WHERE and HAVING.
        inner_subqueries: collects those inside aggregates.
        earlier: what the names of items before this one stand for, where no column has them (the select list).
        outputs: bound select-list columns to which a name refers before any column of the scope (ORDER BY).
        lost: names of those that could not be bound.
        unseen: names of the select list, invisible in this clause, for the hint.
        grouped: GROUP BY expressions with subqueries, and their bound forms, which equal text outside of aggregates
            shares.
        column_spans: spans of bound Columns, by identity, for errors of grouping.
        inside: within an aggregate.
        frequent: the aggregate by which items are FREQUENT, None without that clause.
        summaries: those whose estimates may be read, None outside of preferences.
    """

    scope: Scope
    context: Context
    aggregates: str | None = None
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    earlier: Mapping[str, exp.Expr] = field(default_factory=dict)
    column_spans: list[tuple[Column, TextSpan]] = field(default_factory=list)
    inside: bool = False
    subqueries: ClauseSubqueries | None = None
    inner_subqueries: ClauseSubqueries | None = None
    outputs: Sequence[tuple[str, Expression]] = ()
    lost: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    grouped: Sequence[tuple[exp.Expr, Expression]] = ()
    frequent: AggregateCall | None = None
    summaries: StreamSummaries | None = None
    closes: bool = False
    #: kind of node -> the function that binds it; filled by `expressions.py`.
    table: ClassVar[Mapping[type[exp.Expr], Binding]] = {}

    def bind(self, node: exp.Expr) -> Expression:
        """Return the bound expression. Raises BindingFailed with the errors recorded."""
        known = None if self.inside else next((bound for tree, bound in self.grouped if tree == node), None)
        if known is not None:
            return known
        bound = self.table.get(type(node))
        if bound is None:
            raise BindingFailed  # reported by unsupported.py
        return bound(self, node)

    def aliased_item(self, node: exp.Expr) -> exp.Expr:
        """Return `node`, or the item of the select list that it names."""
        if not isinstance(node, exp.Column) or node.args.get("table") is not None:
            return node
        name = name_of(node.this)
        return node if self.scope.can_resolve(name) else self.aliases.get(name.key, node)

    def bind_all(self, nodes: list[exp.Expr]) -> list[Expression]:
        return self.context.each(self.bind, nodes)

    def predicate(self, node: exp.Expr, clause: str) -> Expression:
        """Return a bound condition. It must be BOOLEAN, or P0203."""
        bound = self.bind(node)
        if pa.types.is_null(bound.type):
            return Literal(pa.bool_(), None)
        if not pa.types.is_boolean(bound.type):
            self.context.fail("P0203", f"{clause} needs a BOOLEAN, this is {type_name(bound.type)}", span_of(node))
        return bound

    def call(
        self,
        name: str,
        node: exp.Expr,
        arguments: list[Expression],
        span: TextSpan | None = None,
        written: str | None = None,
    ) -> Expression:
        """Return the call of a function or operator of the table.

        Args:
            node: the part of the query that it computes, for errors and warnings.
            span: the place of errors; None for that of `node`.
            written: what messages call it; None for the operator of `node`.
        """
        truncate = self.context.settings.get_bool("integer_division")
        written = written or written_operator(node, self.context.source)
        row = row_of(name)
        if row is not None and row.checks:
            arguments = arguments[:1] + [_computed(argument) for argument in arguments[1:]]
        bound = self.context.guard(
            span or span_of(node), lambda: build_call(name, arguments, integer_division=truncate, written=written)
        )
        self._warn_of_texts(node, bound, arguments, row is not None and row.compares)
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
            self._warn_of_numbers(node, (node.this, node.expression), bound)
        elif isinstance(node, exp.Anonymous):
            self._warn_of_numbers(node, node.expressions, bound)
        if self.context.zone is not None:
            bound = self.context.guard(span or span_of(node), lambda: call_in(self.context.zone, bound, arguments))
        return bound

    def _warn_of_numbers(self, node: exp.Expr, sides: Sequence[exp.Expr], bound: Expression) -> None:
        """Warn of a column of texts whose values are read as numbers. sides: the operands or arguments of a call."""
        for side, operand in zip(sides, bound.children, strict=False):
            if not isinstance(operand, Cast) or not is_numeric(operand.type):
                continue
            if isinstance(side, exp.Column) and pa.types.is_string(operand.argument.type):
                shown = self.context.source.slice(span_of(side))
                joined = f"; {TEXTS_JOINED}" if isinstance(node, exp.Add) else ""
                message = f"{shown} is a text: what is no number in it is NULL here"
                hint = f"CAST({shown} AS DOUBLE) means the same{joined}"
                self.context.warn(message, span_of(side), hint)

    def _warn_of_texts(self, node: exp.Expr, bound: Expression, arguments: list[Expression], compares: bool) -> None:
        """Warn of every constant text that is cast to another type implicitly and is no value of it."""
        original = {id(argument) for argument in arguments}
        for operand in bound.children:
            text = lost_text(operand)
            if isinstance(operand, Cast) and text is not None and id(operand) not in original:
                literal = next((n for n in node.find_all(exp.Literal) if n.is_string and n.this == text.value), node)
                name = type_name(operand.type)
                hint = f"write a value of {name}" + (", or CAST the other side to STRING" if compares else "")
                if isinstance(node, exp.Add | exp.Sub) and _is_time(text):
                    hint = f"DATE '{text.value}' + INTERVAL 1 DAY is a day later"
                elif isinstance(node, exp.Add):
                    hint = TEXTS_JOINED
                self.context.warn(f"{str(text.value)!r} is no {name}: it is NULL here", span_of(literal), hint)

    def output(self, name: Name) -> Expression | None:
        """Return the select-list column that `name` denotes, or None. Fails with P0205 where it is ambiguous."""
        if name.key in self.lost:
            self.context.fail_silently()
        matching = list(dict.fromkeys(value for known, value in self.outputs if name.matches(known)))
        if len(matching) > 1:
            hint = "give the columns different names with AS, or order by position"
            self.context.fail("P0205", f"{name.text} is ambiguous: it may be several columns", name.span, hint)
        return matching[0] if matching else None

    def span_of_column(self, column: Column) -> TextSpan | None:
        return next((span for known, span in self.column_spans if known is column), None)


def lost_text(operand: Node) -> Literal | None:
    """Return the constant text of a cast that is no value of its type, so that it is NULL; None for anything else."""
    if not isinstance(operand, Cast) or not pa.types.is_string(operand.argument.type):
        return None
    text = fold(operand.argument)
    if isinstance(text, Literal) and text.value is not None and fold(operand) == Literal(operand.type, None):
        return text
    return None


def _computed(argument: Expression) -> Expression:
    """Return the value of a constant expression as a literal; `argument` if it is not constant."""
    value = fold(argument)
    return value if isinstance(value, Literal) else argument


def name_of(node: exp.Expr) -> Name:
    """Return an identifier node as a Name."""
    return Name(node.name, bool(node.args.get("quoted")), span_of(node))


def _is_time(text: Literal) -> bool:
    """Return whether a text is a date or an instant."""
    return fold(build_cast(text, TIMESTAMP)) != Literal(TIMESTAMP, None)
