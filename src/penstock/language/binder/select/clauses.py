"""The bound clauses of one SELECT after WHERE, and the decorrelation of a SELECT that reads the enclosing query.

Decorrelation: `WHERE inner = outer` below a grouping becomes a group column, by which the enclosing query is joined; a
SELECT without grouping returns its conditions unchanged. Other references to the enclosing query are unnested.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from penstock.algebra import Aggregate, Algebra, Distinct, Project
from penstock.algebra.nodes.panes import check_panes
from penstock.algebra.optimizer.rules.constraints.groups import closing_groups
from penstock.expressions.aggregates import count_rows
from penstock.expressions.calls.functions import build_call
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import AggregateCall, Column, Expression, Literal, conjunction, conjuncts
from penstock.expressions.user import UserAggregateCall
from penstock.language.binder.context import BindingFailed
from penstock.language.binder.placeholders import GroupingBits, attached_in, reads_outer
from penstock.language.binder.rows import Inner, key_of_correlation, without_rows
from penstock.language.binder.scalars.estimates import is_estimate, with_records
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.select.frequent import FrequentTerms
from penstock.language.binder.subqueries.unplacing import Applied, ClauseSubqueries
from penstock.language.queries import SelectQuery
from penstock.language.text import TextSpan
from penstock.tree import walk
from penstock.types import Field

# --- GROUP BY, HAVING and aggregates: expressions over rows become expressions over groups.


@dataclass
class Grouping:
    """Collects the aggregates of a query and rewrites expressions over its input into ones over the groups.

    Args:
        absent: the grouping expressions of other sets, which are NULL in this one.
        every: those of all sets, in the order of GROUP BY; empty where there is one.
    """

    binder: ExpressionBinder
    group: tuple[Expression, ...]
    calls: list[AggregateCall] = field(default_factory=list)
    frequent: FrequentTerms | None = None
    spans: list[TextSpan] = field(default_factory=list)
    absent: tuple[Expression, ...] = ()
    every: tuple[Expression, ...] = ()

    def lift(self, expression: Expression, span: TextSpan) -> Expression:
        """Return `expression` over the columns (group..., aggregates...). Raises BindingFailed after P0304."""
        for i, key in enumerate(self.group):
            if expression == key:
                return Column(key.type, i, _name(key))
        if expression in self.absent:
            return Literal(expression.type, None)
        if isinstance(expression, GroupingBits):
            return self._bits(expression, span)
        if isinstance(expression, AggregateCall) and self.frequent is not None:
            return self.frequent.column(expression, len(self.group), span, self.binder.context)
        if isinstance(expression, AggregateCall):
            if expression not in self.calls:
                self.calls.append(expression)
                self.spans.append(span)
            position = self.calls.index(expression)
            return Column(expression.type, len(self.group) + position, "")
        if isinstance(expression, Column):
            column_span = self.binder.span_of_column(expression) or span
            hint = "group by it, or aggregate it, as in MAX(...)" if self.group else "group by it, or aggregate it"
            message = f"{expression.name} is neither grouped nor inside an aggregate"
            self.binder.context.fail("P0304", message, column_span, hint)
        children = self.binder.context.each(lambda child: self.lift(cast(Expression, child), span), expression.children)
        return expression.with_children(tuple(children))

    def _bits(self, call: GroupingBits, span: TextSpan) -> Expression:
        bits = 0
        for column in call.columns or self.every or self.group:
            if column not in self.group and column not in self.absent:
                hint = "it takes expressions of GROUP BY"
                self.binder.context.fail("P0326", "GROUPING of what is not grouped", span, hint)
            bits = bits * 2 + (column in self.absent)
        return Literal(call.type, bits)

    def build(self, node: Algebra) -> Algebra:
        """Return the grouped relation over `node`: group columns, then aggregates."""
        for call, span in zip(self.calls, self.spans, strict=True):
            self.binder.context.guard(span, lambda: check_panes(node, call))  # noqa: B023
        if self.group and not self.calls and self.frequent is None:
            fields = tuple(Field(_name(e), e.type) for e in self.group)
            return closing_groups(Distinct(Project(node, self.group, fields)))
        # HAVING alone also makes one group. A relation needs at least one column, by which its rows are counted.
        calls = self.calls if self.group else self.calls or [count_rows()]
        if any(map(is_estimate, calls)):
            span = self.spans[next(n for n, call in enumerate(calls) if is_estimate(call))]
            node, calls = self.binder.context.guard(span, lambda: with_records(node, calls, bool(self.group)))
        positions: list[int] = []
        computed: list[Expression] = []
        for key in self.group:
            if isinstance(key, Column):
                positions.append(key.index)
            else:
                positions.append(len(node.schema) + len(computed))
                computed.append(key)
        names = tuple(to_sql(c, node.schema.names) for c in calls)
        if computed:
            columns = tuple(Column(f.type, i, f.name) for i, f in enumerate(node.schema))
            fields = node.schema.fields + tuple(Field(to_sql(e, node.schema.names), e.type) for e in computed)
            node = Project(node, (*columns, *computed), fields)
        if self.frequent is not None:
            return self.frequent.relation(node, tuple(positions), self.group, self.binder.context)
        return closing_groups(Aggregate(node, tuple(positions), tuple(calls), names))


def _name(expression: Expression) -> str:
    """Return the name of a key; empty for one with an unresolved subquery (`Clauses.check`)."""
    if isinstance(expression, Column):
        return expression.name
    return "" if attached_in(expression) else to_sql(expression)


@dataclass(frozen=True)
class SelectItem:
    """A column of a select list. `column_spans`: spans of the columns that it reads."""

    name: str
    expression: Expression
    span: TextSpan
    column_spans: list[tuple[Column, TextSpan]]


@dataclass
class Grouped:
    """The groups, and the clauses over them."""

    node: Algebra
    grouping: Grouping
    items: list[Expression]
    having: list[Expression]
    keys: list[Expression]

    def lift(self, expression: Expression, span: TextSpan) -> Expression:
        return self.grouping.lift(expression, span)

    def group_column(self, expression: Expression) -> int | None:
        """Return the column of the groups that a grouping expression became; None for another expression."""
        group = self.grouping.group
        return group.index(expression) if expression in group else None


@dataclass(frozen=True)
class Clauses:
    """The clauses of one SELECT.

    `group`: None for a query without grouping; `keys`: those of ORDER BY; `within`: subqueries inside aggregates,
    applied to the rows; `behind`: all others, applied to the groups where there are any; `sure`: GROUP BY could be
    bound; `sets`: those of GROUPING SETS, ROLLUP and CUBE, whose union is `group`.
    """

    binder: ExpressionBinder
    items: list[SelectItem]
    group: tuple[Expression, ...] | None
    having: Expression | None
    having_span: TextSpan
    within: ClauseSubqueries
    behind: ClauseSubqueries
    keys: list[Expression]
    sure: bool = True
    frequent: FrequentTerms | None = None
    sets: tuple[tuple[Expression, ...], ...] = ()

    def check(self) -> None:
        """Report columns that are neither grouped nor aggregated, where there is no relation to be grouped."""
        if self.group is None or not self.sure:
            return
        grouping, context = Grouping(self.binder, self.group, frequent=self.frequent), self.binder.context
        expressions = [(item.expression, item.span) for item in self.items]
        expressions += [(part, self.having_span) for part in (() if self.having is None else conjuncts(self.having))]
        for expression, span in expressions:
            context.attempt(lambda: grouping.lift(expression, span))  # noqa: B023

    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(item.name, item.expression.type) for item in self.items)

    def expressions(self) -> tuple[Expression, ...]:
        """Return the select list, GROUP BY and HAVING."""
        having = () if self.having is None else (self.having,)
        return (*(item.expression for item in self.items), *(self.group or ()), *having)

    def grouped(
        self, node: Algebra, keys: tuple[Expression, ...], only: tuple[Expression, ...] | None = None
    ) -> Grouped:
        """Return the groups of `node` by GROUP BY, or by `only`, one of its sets, followed by `keys`."""
        assert self.group is not None
        context = self.binder.context
        rows = Applied(node, self.within)
        group = [rows.resolved(key) for key in (*(self.group if only is None else only), *keys)]
        every = () if only is None else tuple(rows.resolved(key) for key in self.group)
        absent = tuple(key for key in every if key not in group)
        unique = tuple(dict.fromkeys(group))
        grouping = Grouping(self.binder, unique, frequent=self.frequent, absent=absent, every=every)

        def lift(expression: Expression, span: TextSpan) -> Expression:
            return grouping.lift(self._within(expression, rows), span)

        items = context.attempt(lambda: context.each(lambda item: lift(item.expression, item.span), self.items))
        having = [] if self.having is None else [lift(part, self.having_span) for part in conjuncts(self.having)]
        order = context.each(lambda key: lift(key, self.having_span), self.keys)
        if items is None:
            raise BindingFailed
        # A subquery's operand may contain aggregates of its own: all must be known before the groups are built.
        for subquery in self.behind.found:
            for operand in subquery.operands:
                grouping.lift(operand, subquery.span)
        return Grouped(grouping.build(rows.node), grouping, items, having, order)

    def _within(self, expression: Expression, rows: Applied) -> Expression:
        """Return `expression` with the subqueries inside its aggregates, and in its grouping expressions, applied to
        the rows.
        """
        if isinstance(expression, AggregateCall) or expression in (self.group or ()):
            return rows.resolved(expression)
        children = tuple(self._within(c, rows) for c in expression.children if isinstance(c, Expression))
        return expression.with_children(children)


@dataclass(frozen=True)
class Correlated:
    """A SELECT that reads the enclosing query."""

    tree: SelectQuery
    clauses: Clauses

    def bind(self, node: Algebra, conditions: tuple[Expression, ...]) -> Inner | None:
        """Return the SELECT with its conditions; None where only unnesting can decorrelate it.

        Args:
            node: the relation of FROM and WHERE.
            conditions: those of WHERE that also read the enclosing query.
        """
        if self.clauses.sets:
            return None
        if self.clauses.group is None and not self.tree.distinct:
            applied = Applied(node, self.clauses.behind)
            items = tuple(applied.resolved(item.expression) for item in self.clauses.items)
            return Inner(applied.node, items, conditions)
        pairs = [pair for condition in conditions if (pair := key_of_correlation(condition)) is not None]
        if len(pairs) < len(conditions):
            return None
        return self._distinct(node, pairs) if self.clauses.group is None else self._grouped(node, pairs)

    def _distinct(self, node: Algebra, pairs: list[tuple[Expression, Expression]]) -> Inner | None:
        applied = Applied(node, self.clauses.behind)
        items = tuple(applied.resolved(item.expression) for item in self.clauses.items)
        if any(reads_outer(item) for item in items):
            return None
        keys = tuple(inner for inner, _ in pairs)
        fields = (*self.clauses.fields(), *(Field(f"key{n}", e.type) for n, e in enumerate(keys, 1)))
        distinct = Distinct(Project(applied.node, (*items, *keys), fields))
        width = len(items)
        columns = tuple(Column(f.type, i, f.name) for i, f in enumerate(distinct.schema))
        return Inner(distinct, columns[:width], _equalities(columns[width:], pairs))

    def _grouped(self, node: Algebra, pairs: list[tuple[Expression, Expression]]) -> Inner | None:
        clauses = self.clauses
        assert clauses.group is not None
        parts = (*(item.expression for item in clauses.items), *((clauses.having,) if clauses.having else ()))
        calls = [n for part in parts for n in walk(part) if isinstance(n, AggregateCall)]
        if any(reads_outer(e) for e in (*clauses.group, *calls)):
            return None
        grouped = clauses.grouped(node, tuple(inner for inner, _ in pairs))
        keys = tuple(grouped.lift(inner, self.tree.span) for inner, _ in pairs)
        conditions = _equalities(keys, pairs)
        if not clauses.group:
            return self._one_row(grouped, conditions)
        applied = Applied(grouped.node, clauses.behind, grouped.lift)
        applied.keep([part for part in grouped.having if not reads_outer(part)])
        conditions += tuple(applied.resolved(part) for part in grouped.having if reads_outer(part))
        items = tuple(applied.resolved(item) for item in grouped.items)
        return Inner(applied.node, items, conditions)

    def _one_row(self, grouped: Grouped, conditions: tuple[Expression, ...]) -> Inner | None:
        """Return an ungrouped aggregate, which has its row also for an empty group."""
        if any(attached_in(e) for e in (*grouped.items, *grouped.having)):
            return None
        calls, start = grouped.grouping.calls, len(grouped.grouping.group)
        if any(isinstance(call, UserAggregateCall) for call in calls):
            return None
        items = tuple(without_rows(e, calls, start) for e in grouped.items)
        having = conjunction(tuple(without_rows(e, calls, start) for e in grouped.having))
        return Inner(grouped.node, items, conditions, True, having)


def _equalities(keys: tuple[Expression, ...], pairs: list[tuple[Expression, Expression]]) -> tuple[Expression, ...]:
    return tuple(build_call("EQ", [key, outer]) for key, (_, outer) in zip(keys, pairs, strict=True))
