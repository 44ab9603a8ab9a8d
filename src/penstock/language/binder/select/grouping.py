"""GROUP BY, HAVING and aggregates: expressions over rows become expressions over groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from penstock.algebra import Aggregate, Algebra, Distinct, Project
from penstock.algebra.nodes.panes import check_panes
from penstock.expressions.aggregates import count_rows
from penstock.expressions.nodes import AggregateCall, Column, Expression
from penstock.expressions.text import to_sql
from penstock.language.binder.placeholders import attached_in
from penstock.language.binder.scalars.estimates import is_estimate, with_records
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.select.frequent import FrequentTerms
from penstock.language.text import TextSpan
from penstock.types import Field


@dataclass
class Grouping:
    """Collects the aggregates of a query and rewrites expressions over its input into ones over the groups."""

    binder: ExpressionBinder
    group: tuple[Expression, ...]
    calls: list[AggregateCall] = field(default_factory=list)
    frequent: FrequentTerms | None = None
    spans: list[TextSpan] = field(default_factory=list)

    def lift(self, expression: Expression, span: TextSpan) -> Expression:
        """Return `expression` over the columns (group..., aggregates...). Raises BindingFailed after P0304."""
        for i, key in enumerate(self.group):
            if expression == key:
                return Column(key.type, i, _name(key))
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

    def build(self, node: Algebra) -> Algebra:
        """Return the grouped relation over `node`: group columns, then aggregates."""
        for call, span in zip(self.calls, self.spans, strict=True):
            self.binder.context.guard(span, lambda: check_panes(node, call))  # noqa: B023
        if self.group and not self.calls and self.frequent is None:
            fields = tuple(Field(_name(e), e.type) for e in self.group)
            return Distinct(Project(node, self.group, fields))
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
        return Aggregate(node, tuple(positions), tuple(calls), names)


def _name(expression: Expression) -> str:
    """Return the name of a key; empty for one with an unresolved subquery (`Clauses.check`)."""
    if isinstance(expression, Column):
        return expression.name
    return "" if attached_in(expression) else to_sql(expression)
