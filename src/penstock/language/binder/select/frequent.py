"""GROUP BY .. FREQUENT: its terms, and what the select list may hold (docs/language/aggregates.md)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algebra import Algebra, Frequent, Measure
from penstock.algebra.nodes.frequent import MOST_ITEMS, check_above, check_aggregate, refuse_without_panes
from penstock.expressions.aggregates import count_rows
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import AggregateCall, Column, Expression
from penstock.language.binder.context import Context
from penstock.language.binder.placeholders import attached_in, reads_outer
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.frequent_bounds import MISSED_BOUND, UPPER_OF_ITEM
from penstock.language.dialect import span_of
from penstock.language.queries import FrequentClause
from penstock.language.text import TextSpan

MEASURES = (Measure.RECORDED, Measure.UPPER, Measure.MISSED)


@dataclass(frozen=True)
class FrequentTerms:
    """The bound clause. aggregate: by which items are frequent; per: grouping expressions."""

    clause: FrequentClause
    aggregate: AggregateCall
    per: tuple[Expression, ...]
    thesis: bool

    def column(self, call: AggregateCall, width: int, span: TextSpan, context: Context) -> Expression:
        """Return the value of `call` over (group columns, measures). width: the number of group columns. Raises
        BindingFailed after P0356."""

        def measure(one: Measure) -> Column:
            return Column(self.aggregate.type, width + MEASURES.index(one), "")

        if call.function == MISSED_BOUND:
            return measure(Measure.MISSED)
        upper = call.function == UPPER_OF_ITEM
        inner = call.arguments[0] if upper else call
        if inner != self.aggregate:
            kept = to_sql(self.aggregate)
            hint = f"it keeps {kept} of the group columns, its bounds and {MISSED_BOUND}(); write BY for another"
            context.fail("P0356", f"{to_sql(inner)} is not kept by FREQUENT", span, hint)
        return measure(Measure.UPPER if upper else Measure.RECORDED)

    def relation(
        self, node: Algebra, positions: tuple[int, ...], group: tuple[Expression, ...], context: Context
    ) -> Algebra:
        """Return the frequent items of `node`. positions: of the grouping expressions `group` in it. Raises
        BindingFailed after P0352 or P0353."""
        context.guard(self.clause.span, lambda: refuse_without_panes(node, "FREQUENT"))
        per = tuple(dict.fromkeys(group.index(key) for key in self.per))
        names = tuple(f"{one.value} {to_sql(self.aggregate, node.schema.names)}" for one in MEASURES)
        return Frequent(
            node,
            positions,
            self.aggregate,
            self.clause.k,
            per,
            self.clause.above,
            self.clause.possibly is not None,
            self.thesis,
            MEASURES,
            names,
        )


def frequent_terms(
    clause: FrequentClause | None, group: tuple[Expression, ...], binder: ExpressionBinder
) -> FrequentTerms | None:
    """Return the bound clause, None for none. Raises BindingFailed after P0203, P0304 or P0356."""
    if clause is None:
        return None
    context = binder.context
    if not 1 <= clause.k <= MOST_ITEMS:
        message = f"FREQUENT keeps 1 to {MOST_ITEMS:,} items of each pane, not {clause.k}"
        context.fail("P0203", message, clause.span, "write FREQUENT 10")
    context.guard(clause.span, lambda: check_above(clause.above))
    aggregate = count_rows() if clause.by is None else _aggregate(clause, binder)
    per = tuple(context.each(binder.bind, clause.per))
    for key, node in zip(per, clause.per, strict=True):
        if key not in group:
            context.fail("P0304", "PER names columns of GROUP BY", span_of(node), "group by it too")
    if len(set(per)) == len(set(group)):
        hint = "leave one column of GROUP BY out of PER"
        context.fail("P0304", "PER leaves no column to be an item", clause.span, hint)
    return FrequentTerms(clause, aggregate, per, context.settings["frequent_bound"] == "thesis")


def _aggregate(clause: FrequentClause, binder: ExpressionBinder) -> AggregateCall:
    context = binder.context
    assert clause.by is not None
    span = span_of(clause.by)
    call = binder.bind(clause.by)
    if not isinstance(call, AggregateCall):
        context.fail("P0356", "FREQUENT keeps items by COUNT or SUM", span, "write BY COUNT(x) or BY SUM(x)")
    if attached_in(call) or reads_outer(call):
        context.fail("P0356", "FREQUENT by an aggregate with a subquery", span, "compute it in a view")
    context.guard(span, lambda: check_aggregate(call))
    return call
