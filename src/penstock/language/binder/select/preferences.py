"""WITH PREFERENCE to the operators of `algebra/nodes/preferences.py` (docs/language/queries.md).

A query whose budget is unlimited is the query without the clause; its clause is checked all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import (
    Algebra,
    Budget,
    BudgetKind,
    Preference,
    PreferenceOrder,
    PreferringJoin,
    PreferringLookUp,
    PreferringSelection,
    Project,
    Select,
    Window,
    is_nrr,
    is_static,
)
from penstock.algebra.nodes.base import common_domain, has_operator, operators
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.preference_clause import MOST_BUDGET_TICKS, MOST_UNITS
from penstock.errors import PenstockError
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.coercion import DOUBLE, cast_to, is_numeric
from penstock.expressions.nodes import Expression, SummaryEstimate, conjunction
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.from_.sources import leaves
from penstock.language.binder.inputs.inputs import Inputs
from penstock.language.binder.inputs.joins import build_joins
from penstock.language.binder.scalars.estimates import ESTIMATE
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Scope
from penstock.language.binder.select.preference_operators import PreferenceBuilder, Terms, is_table
from penstock.language.binder.stream_summaries import StreamSummaries, SummarisedStream
from penstock.language.dialect import span_of
from penstock.language.queries import (
    EmbeddedQuery,
    FromSource,
    JoinedSource,
    JoinKind,
    NamedSource,
    PreferenceClause,
    SelectQuery,
)
from penstock.language.text import TextSpan
from penstock.tree import walk
from penstock.types import CALENDAR, TimeDomain, type_name

_NEGATIVE = "results that are missing would make wrong ones; put the preference into a view, and this above it"


def check_tree(tree: SelectQuery, context: Context) -> None:
    """Note what a SELECT with a preference must not have: P0351, and P0103 for two windows."""
    clause = tree.preference
    if clause is None:
        return
    for join in _joins(tree.source):
        if join.kind not in (JoinKind.INNER, JoinKind.CROSS):
            _note_wrong(f"a preference in a SELECT with a {join.kind.value} JOIN", join.kind_span, context)
    if tree.frequency is not None:
        _note_wrong("a preference in a SELECT with FREQUENCY", tree.frequency.span, context)
    for leaf in leaves(tree.source):
        if leaf.window is None:
            continue
        if leaf.window.frequency is not None:
            _note_wrong("a preference over a window with FREQUENCY", leaf.window.frequency.span, context)
        elif clause.window is not None:
            hint = "leave one of them out"
            message = "WINDOW of the preference beside a window in brackets"
            context.note(PenstockError("P0103", message, hint=hint), leaf.window.span)
    for scalar in (*_scalars(tree), *clause.expressions):
        for embedded in scalar.find_all(EmbeddedQuery):
            _note_wrong("a preference in a SELECT with a subquery", span_of(embedded), context)


def refuse_misplaced(root: Algebra, span: TextSpan, context: Context) -> None:
    """Fail with P0351 where a query reads results of a preference so that missing ones would make wrong results."""
    preferring = (PreferringJoin, PreferringLookUp, PreferringSelection)
    if not has_operator(root, *preferring):
        return
    for node in operators(root):
        for below in node.negated_inputs:
            if has_operator(below, *preferring):
                context.fail("P0351", f"results of a preference are negated by {node.worded}", span, _NEGATIVE)


def preferred(
    tree: SelectQuery, inputs: Inputs, where: Sequence[Expression], scope: Scope, context: Context
) -> Algebra:
    """Return the relation of FROM and the conditions `where` under the preference of `tree`. Raises BindingFailed with
    the errors recorded."""
    clause = tree.preference
    assert clause is not None
    if len(inputs.members) != len(leaves(tree.source)):
        hint = "put it into a view that is a stream"
        context.fail("P0901", "a preference beside a join of another kind is not supported yet", clause.span, hint)
    terms = context.attempt(lambda: _terms(tree, clause, inputs, scope, context))
    domain = context.guard(clause.span, lambda: common_domain(tuple(m.node for m in inputs.members))) or CALENDAR
    parts = (
        context.attempt(lambda: _fade(clause, terms, context)),
        context.attempt(lambda: None if clause.per is None else ticks(clause.per, domain, context, code="P0303")),
        context.attempt(lambda: _budget(clause, domain, context)),
    )
    known = len(context.errors)
    context.attempt(lambda: _check_inputs(inputs, context))
    fade, per, budget = parts
    unlimited = clause.budget is not None and clause.budget.kind == "UNLIMITED"
    if terms is None or context.errors[known:] or fade is None or (budget is None) != unlimited:
        raise BindingFailed
    if (clause.per is None) != (per is None):
        raise BindingFailed
    preference = Preference(
        PreferenceOrder(clause.order or "DESC"),
        budget or Budget(BudgetKind.AUTO),
        fade,
        per,
        context.settings.get_int("seed"),
        context.view or "",
        context.settings.get_int("preference_queue"),
    )
    conditions = [*inputs.conditions, *where]
    node = PreferenceBuilder(terms, preference, clause.span, context).build(inputs.members, conditions)
    idle = budget is not None and budget.kind is BudgetKind.AUTO and not context.settings["target_latency"]
    if unlimited or idle:
        if preference.order is not PreferenceOrder.WEIGHTED or not _estimates(tree):
            return build_joins(inputs, conjunction(tuple(where)), context)
        # The records that ESTIMATE reads are made by the operator, of which no work waits.
        preference = replace(preference, budget=Budget(BudgetKind.PER_TUPLE, MOST_UNITS))
        node = PreferenceBuilder(terms, preference, clause.span, context).build(inputs.members, conditions)
    _check_division(node, inputs, context)
    return node


# --- the clause


def _terms(tree: SelectQuery, clause: PreferenceClause, inputs: Inputs, scope: Scope, context: Context) -> Terms:
    declared = tuple(one.definition for one in context.catalog.summaries.values())
    streams: list[SummarisedStream] = []
    at = 0
    for member, leaf in zip(inputs.members, leaves(tree.source), strict=True):
        end = at + len(member.node.schema)
        streams.append(SummarisedStream(at, end, leaf.name.text if isinstance(leaf, NamedSource) else ""))
        at = end
    binder = ExpressionBinder(scope, context, "WITH PREFERENCE", summaries=StreamSummaries(tuple(streams), declared))
    bound = context.each(lambda node: _term(node, binder), clause.expressions)
    names = {e.summary for one in bound for e in walk(one) if isinstance(e, SummaryEstimate)}
    known = {one.name: one for one in declared if one.name in names}
    return Terms(tuple(bound), tuple(map(span_of, clause.expressions)), known)


def _term(node: exp.Expr, binder: ExpressionBinder) -> Expression:
    bound, context = binder.bind(node), binder.context
    if pa.types.is_null(bound.type):
        return cast_to(bound, DOUBLE)
    if not is_numeric(bound.type):
        hint = "write a number, such as CASE WHEN urgent THEN 1 ELSE 0 END"
        context.fail("P0203", f"a preference is a number, this is {type_name(bound.type)}", span_of(node), hint)
    if volatile(bound):
        context.fail("P0321", "a preference must not depend on when it is computed", span_of(node))
    return cast_to(bound, DOUBLE)


def _fade(clause: PreferenceClause, terms: Terms | None, context: Context) -> Fraction:
    fade = Fraction(1) if clause.fade is None else clause.fade
    if not 0 < fade <= 1:
        hint = "1 does not fade, 0.8 takes a fifth away"
        context.fail("P0203", "FADE FACTOR is above 0 and at most 1 (100 PERCENT)", clause.fade_span, hint)
    if fade != 1 and clause.per is None and terms is not None and not terms.summaries:
        hint = "fade by age: FADE FACTOR 0.8 PER 10 SECONDS; or read an estimate of a summary"
        context.fail("P0350", "FADE FACTOR without PER in a query that reads no summary", clause.fade_span, hint)
    return fade


def _budget(clause: PreferenceClause, domain: TimeDomain, context: Context) -> Budget | None:
    """Return the budget, None for UNLIMITED."""
    written = clause.budget
    if written is None or written.kind == "AUTO":
        return Budget(BudgetKind.AUTO)
    if written.kind == "UNLIMITED":
        return None
    if not 1 <= written.units <= MOST_UNITS:
        hint = "BUDGET UNLIMITED does all work"
        most = f" and at most {MOST_UNITS:,}" if written.units > MOST_UNITS else ""
        context.fail("P0203", f"a budget is a whole number of units, 1 or more{most}", written.span, hint)
    if written.interval is None:
        return Budget(BudgetKind.PER_TUPLE, written.units)
    interval = ticks(written.interval, domain, context, code="P0303")
    if interval > MOST_BUDGET_TICKS:
        hint = "write fewer units per a shorter interval"
        context.fail("P0303", f"a budget's interval is at most {MOST_BUDGET_TICKS:,} ticks", written.span, hint)
    return Budget(BudgetKind.PER_TIME, written.units, interval)


# --- inputs


def _joins(source: FromSource | None) -> Iterator[JoinedSource]:
    if isinstance(source, JoinedSource):
        yield source
        yield from _joins(source.left)
        yield from _joins(source.right)


def _scalars(tree: SelectQuery) -> Iterator[exp.Expr]:
    yield from (value for item in tree.items for value in item.expressions)
    yield from (scalar for scalar in (tree.where, tree.having, *tree.group) if scalar is not None)
    yield from (join.on for join in _joins(tree.source) if join.on is not None)


def _estimates(tree: SelectQuery) -> bool:
    """Return whether a SELECT has an ESTIMATE of an aggregate."""
    return any(one.name.upper() == ESTIMATE for scalar in _scalars(tree) for one in scalar.find_all(exp.Anonymous))


def _note_wrong(what: str, span: TextSpan, context: Context) -> None:
    context.note(PenstockError("P0351", what, hint=_NEGATIVE), span)


def window_of(node: Algebra) -> Window | None:
    """Return the window in time that `node` selects and projects; None for another relation, and for one under SLIDE
    whose elements have no order of arrival: several instants become one at a boundary."""
    while isinstance(node, Select | Project):
        node = node.input
    if not isinstance(node, Window):
        return None
    return node if node.slide is None or in_arrival_order(node.input) is not None else None


def _check_inputs(inputs: Inputs, context: Context) -> None:
    streams = [member for member in inputs.members if not is_table(member.node)]
    if not streams:
        hint = "of tables nothing arrives that could wait"
        context.fail("P0301", "a preference needs a stream", inputs.members[0].span, hint)
    for member in streams:
        if window_of(member.node) is None:
            message = "a preference over rows whose ends or order are not known is not supported yet"
            hint = "it reads streams under a window in time, under SLIDE a declared one, and relations without updates"
            context.fail("P0901", message, member.span, hint)
    if len(inputs.members) > 2 and (changing := [member for member in inputs.members if is_nrr(member.node)]):
        hint = "join two of them in a view that is a stream, and prefer there"
        message = "a preference over more than two inputs of which one is NON RETROACTIVE is not supported yet"
        context.fail("P0901", message, changing[0].span, hint)


def _check_division(node: Algebra, inputs: Inputs, context: Context) -> None:
    """Fail with P0901 where a stream and a NON RETROACTIVE relation cannot be divided by the same values, or meet at
    another instant than that at which the row begins."""
    for one in operators(node):
        if not isinstance(one, PreferringLookUp) or is_static(one.right):
            continue
        window = window_of(one.left)
        if window is not None and window.slide is not None:
            hint = "leave SLIDE out, or say BUDGET UNLIMITED"
            message = (
                "a preference over a join of a window with SLIDE and a NON RETROACTIVE relation is not supported yet"
            )
            context.fail("P0901", message, next(m.span for m in inputs.members if is_nrr(m.node)), hint)
        if not {pair[0] for pair in one.equal} >= set(one.summarised):
            hint = "read a summary on columns that a condition equates with the relation's, or say BUDGET UNLIMITED"
            message = "a summary on columns that are not equated with a NON RETROACTIVE relation's is not supported yet"
            context.fail("P0901", message, next(m.span for m in inputs.members if is_nrr(m.node)), hint)
