"""Bind what defines a query, as several statements have it: the query itself, and where its answer begins."""

from __future__ import annotations

import math

from penstock.algebra import Algebra, Pattern
from penstock.algebra.nodes.query import Start
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.optimizer.answer_rate import MANY, rows_of_answer
from penstock.algebra.properties.statistics import known_statistics
from penstock.errors import counted
from penstock.expressions.calls.volatile import volatile, volatile_calls
from penstock.expressions.nodes import Expression
from penstock.language.binder.context import Context
from penstock.language.binder.from_.windows import moment
from penstock.language.binder.inputs.nonretroactive import refuse_unjoined
from penstock.language.binder.select.first_rows import OrderRule
from penstock.language.binder.select.queries import QueryBinder
from penstock.language.clauses import AsOf, StartClause
from penstock.language.plans.document import read_plan
from penstock.language.queries import PlanQuery, WholeQuery
from penstock.language.text import TextSpan
from penstock.tree import derived, reached
from penstock.types import CALENDAR, TimeDomain


def root_of(tree: WholeQuery, context: Context, order: OrderRule = OrderRule.DROPPED) -> Algebra:
    """Return a query that is written as text or as a plan. Raises BindingFailed with the errors recorded.

    Args:
        order: what ORDER BY without LIMIT means.
    """
    binder = QueryBinder(context, order=order)
    if isinstance(tree, PlanQuery):
        return binder.as_root(context.guard(tree.text_span, lambda: read_plan(tree.text, context)), tree.span)
    return binder.root(tree)


def continuous(tree: WholeQuery, context: Context) -> Algebra:
    """Return a continuous query. Raises BindingFailed with the errors recorded."""
    root = root_of(tree, context, OrderRule.REFUSED)
    refuse_unjoined(root, tree.span, context)
    check_volatile(root, tree.span, context)
    return root


def bind_start(clause: StartClause | None, root: Algebra, context: Context) -> Start | None:
    """Return where the answer of a query begins. Raises BindingFailed after P0102."""
    if clause is None:
        return None
    at = None if clause.at is None else instant(clause.at, root.domain or CALENDAR, context)
    return Start(clause.mode, at, clause.wait is not None)


def instant(clause: AsOf, domain: TimeDomain, context: Context) -> int:
    """Return an instant in ticks of `domain`. Raises BindingFailed after P0102."""
    word = context.source.slice(clause.span).split(maxsplit=1)[0].upper()
    written = "AS OF" if word == "AS" else "this instant"
    if isinstance(clause.at, str):
        if not domain.calendar:
            context.fail("P0102", f"the ticks of these streams are integers: {written} takes one", clause.span)
        return moment(clause.at, clause.span, context)
    if domain.calendar:
        example = "AS OF '2020-01-31 12:00:00'" if word == "AS" else "'2020-01-31 12:00:00'"
        context.fail("P0102", f"{written} takes a timestamp", clause.span, f"write it as {example}")
    return clause.at


def warn_of_many_answers(root: Algebra, span: TextSpan, context: Context) -> None:
    """Warn where a query answers far more rows than it reads, by the statistics that are known."""
    if context.errors:
        return
    statistics = known_statistics(declared_sources(root), {}, {}, context.settings["statistics"])
    answered, read = rows_of_answer(root, statistics)
    if read <= 0 or answered < MANY * read or not math.isfinite(answered):
        return
    context.warn(
        f"about {counted(answered / read, 'row')} of answers for each row of input:"
        f" {counted(answered, 'row')} a second where it reads {counted(read, 'row')}",
        span,
        "a longer SLIDE, a shorter window or a narrower join; SET statistics describes the sources",
    )


def check_volatile(root: Algebra, span: TextSpan, context: Context) -> None:
    """Reject a volatile function over rows that negative tuples retract: a second draw for the retraction would give
    another row.
    """
    drawn = _first_draw(root)
    if drawn is not None:
        message = f"{drawn} is VOLATILE and is applied to rows that may be retracted"
        hint = "call it on the rows of a stream or of a time window, below joins and groups"
        context.fail("P0321", message, span, hint)


@derived
def _first_draw(root: Algebra) -> str | None:
    """Return the first volatile function that an operator of a plan applies to rows which may be retracted. A view
    below, which has been looked at by itself, is not looked at again."""
    unseen = reached(root, lambda one: tuple(node for node in one.inputs if not _draws_nothing(node)))
    return next((name for node in unseen for name in _draws(node)), None)


def _draws_nothing(node: Algebra) -> bool:
    return _first_draw.is_known(node) and _first_draw(node) is None


def _draws(node: Algebra) -> list[str]:
    """Return the volatile functions that `node` itself applies to rows that may be retracted."""
    if not any(i.pattern is Pattern.STRICT for i in node.inputs):
        return []
    return [f for c in node.children if isinstance(c, Expression) and volatile(c) for f in volatile_calls(c)]
