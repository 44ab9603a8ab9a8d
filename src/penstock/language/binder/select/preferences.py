"""WITH PREFERENCE to the operators of `algebra/nodes/preferences.py` (docs/language.md).

A query whose budget is unlimited is the query without the clause; its clause is checked all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    Sample,
    Select,
    SummaryDefinition,
    Window,
    is_nrr,
    is_static,
)
from penstock.algebra.nodes.base import common_domain, operators
from penstock.algebra.properties.arrival_order import in_arrival_order
from penstock.errors import PenstockError
from penstock.expressions.coercion import DOUBLE, cast_to, is_numeric
from penstock.expressions.nodes import Expression, SummaryEstimate, columns_of, conjunction, remap
from penstock.expressions.user import volatile
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.from_.inputs import FromInput, Inputs
from penstock.language.binder.from_.joins import build_joins, columns, keyed_sides
from penstock.language.binder.from_.sources import leaves
from penstock.language.binder.scalars.estimates import ESTIMATE
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Scope
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
    Star,
)
from penstock.language.text import TextSpan
from penstock.tree import Node, transform_up, walk
from penstock.types import CALENDAR, TimeDomain, type_name

_NEGATIVE = "results that are missing would make wrong ones; put the preference into a view, and this above it"
#: Units of a budget: their square, and their product with the elements of an instant, are 64-bit integers.
MOST_UNITS = 3_000_000_000
#: Ticks of a budget's interval; times the shards they are a 64-bit integer.
MOST_BUDGET_TICKS = 2**48


@dataclass(frozen=True)
class Terms:
    """The bound expressions of a clause, and the summaries by name that they read."""

    expressions: tuple[Expression, ...]
    spans: tuple[TextSpan, ...]
    summaries: dict[str, SummaryDefinition]


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
    if not any(isinstance(node, preferring) for node in operators(root)):
        return
    for node in operators(root):
        for below in node.negated_inputs:
            if any(isinstance(one, preferring) for one in operators(below)):
                what = type(node).__name__
                context.fail("P0351", f"results of a preference are negated by {what}", span, _NEGATIVE)


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
        PreferenceOrder(clause.order or "DESC"), budget or Budget(BudgetKind.AUTO), fade, per,
        context.settings.get_int("seed"), context.view or "", context.settings.get_int("preference_queue"),
    )  # fmt: skip
    conditions = [*inputs.conditions, *where]
    node = _Builder(terms, preference, clause.span, context).build(inputs.members, conditions)
    idle = budget is not None and budget.kind is BudgetKind.AUTO and not context.settings["target_latency"]
    if unlimited or idle:
        if preference.order is not PreferenceOrder.WEIGHTED or not _estimates(tree):
            return build_joins(inputs, conjunction(tuple(where)), context)
        # The records that ESTIMATE reads are made by the operator, of which no work waits.
        preference = replace(preference, budget=Budget(BudgetKind.PER_TUPLE, MOST_UNITS))
        node = _Builder(terms, preference, clause.span, context).build(inputs.members, conditions)
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
        context.fail("P0321", "a preference must be the same whenever it is computed", span_of(node))
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
    yield from (item.value for item in tree.items if not isinstance(item.value, Star))
    yield from (scalar for scalar in (tree.where, tree.having, *tree.group) if scalar is not None)
    yield from (join.on for join in _joins(tree.source) if join.on is not None)


def _estimates(tree: SelectQuery) -> bool:
    """Return whether a SELECT has an ESTIMATE of an aggregate."""
    return any(one.name.upper() == ESTIMATE for scalar in _scalars(tree) for one in scalar.find_all(exp.Anonymous))


def _note_wrong(what: str, span: TextSpan, context: Context) -> None:
    context.note(PenstockError("P0351", what, hint=_NEGATIVE), span)


def is_table(node: Algebra) -> bool:
    """Return whether `node` is looked up by elements of a stream as of their instants."""
    return is_static(node) or is_nrr(node)


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
    if len(inputs.members) > 2:
        hint = "join two of them in a view that is a stream, and prefer there"
        context.fail("P0901", "a preference over more than two inputs is not supported yet", streams[-1].span, hint)


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


# --- operators


@dataclass(frozen=True)
class _Builder:
    terms: Terms
    preference: Preference
    span: TextSpan
    context: Context

    def build(self, members: Sequence[FromInput], conditions: list[Expression]) -> Algebra:
        if len(members) == 1:
            return self._selection(members[0], conditions)
        first, second = (member.node for member in members)
        if not is_table(first) and not is_table(second):
            return self._join(members, conditions)
        if is_table(second):
            return self._look_up(members, conditions)
        # The stream comes first.
        table, width = len(first.schema), len(second.schema)

        def swapped(index: int) -> int:
            return index - table if index >= table else index + width

        terms = replace(self.terms, expressions=tuple(remap(e, swapped) for e in self.terms.expressions))
        node = replace(self, terms=terms)._look_up(members[::-1], [remap(c, swapped) for c in conditions])
        order = [swapped(i) for i in range(table + width)]
        return Project(node, columns(node, order), tuple(node.schema[i] for i in order))

    def _selection(self, member: FromInput, conditions: list[Expression]) -> Algebra:
        summary, summarised = self._summary(member, 0, len(member.node.schema))
        free = [c for c in conditions if columns_of(c) and columns_of(c) <= set(summarised)]
        tested = tuple(c for c in conditions if c not in free)
        return PreferringSelection(
            member.node, conjunction(tested), conjunction(tuple(free)), summary, summarised, self.terms.expressions,
            self.preference,
        )  # fmt: skip

    def _look_up(self, members: Sequence[FromInput], conditions: list[Expression]) -> Algebra:
        left, right = members[0].node, members[1].node
        width = len(left.schema)
        summary, summarised = self._summary(members[0], 0, width)
        own, between = _split(conditions, width)
        if summary is None:
            left, own[0] = _selected(left, own[0]), None
        right = _selected(right, own[1])
        keyed = keyed_sides(left, right, between)
        shift = len(keyed.left.schema) - width
        node: Algebra = PreferringLookUp(
            keyed.left, keyed.right, keyed.equal, keyed.residual, own[0], summary, summarised,
            tuple(_shifted(e, width, shift) for e in self.terms.expressions), self.preference,
        )  # fmt: skip
        return keyed.without_keys(node, [*range(width), *keyed.right_places])

    def _join(self, members: Sequence[FromInput], conditions: list[Expression]) -> Algebra:
        sides = [member.node for member in members]
        width = len(sides[0].schema)
        first = self._summary(members[0], 0, width)
        second = self._summary(members[1], width, width + len(sides[1].schema))
        summaries = (first[0], second[0])
        own, between = _split(conditions, width)
        for side in (0, 1):
            if summaries[side] is None:
                sides[side], own[side] = _selected(sides[side], own[side]), None
        keyed = keyed_sides(sides[0], sides[1], between)
        if not keyed.equal:
            hint = "write one in WHERE or ON, such as a.k = b.k"
            self.context.fail("P0901", "a preference over a join of streams needs an equality", self.span, hint)
        summarised = (first[1], tuple(i - width for i in second[1]))
        self._same_pairs(summaries, summarised, keyed.equal)
        shift = len(keyed.left.schema) - width
        by_side = [self._into(side, width, shift, keyed.equal, len(keyed.left.schema)) for side in (0, 1)]
        node: Algebra = PreferringJoin(
            keyed.left, keyed.right, keyed.equal, keyed.residual, (own[0], own[1]), summaries, summarised,
            (by_side[0], by_side[1]), self.preference,
        )  # fmt: skip
        return keyed.without_keys(node, [*range(width), *keyed.right_places])

    def _into(
        self, side: int, width: int, shift: int, equal: Sequence[tuple[int, int]], offset: int
    ) -> tuple[Expression, ...]:
        """Return the expressions for elements that probe `side`: estimates there are of the prober's key."""
        found: list[Expression] = []
        for term, span in zip(self.terms.expressions, self.terms.spans, strict=True):
            estimates = [e for e in walk(term) if isinstance(e, SummaryEstimate)]
            owners = {int(e.columns[0].index >= width) for e in estimates}
            if len(owners) > 1:
                hint = "write two preferences, which are multiplied"
                self.context.fail("P0350", "one preference reads estimates of both streams", span, hint)
            if owners and owners != {side}:
                continue
            partner: dict[int, int] = {}
            for pair in equal:
                own, other = pair[side], pair[1 - side]
                partner.setdefault(own + (width if side else 0), other if side else offset + other)
            for column in (column for e in estimates for column in e.columns):
                if column.index not in partner:
                    hint = "equate it with a column of the other stream, of the same type"
                    self.context.fail("P0350", f"no condition of the join equates {column.name}", span, hint)
            found.append(_probing(term, width, shift, partner))
        return tuple(found)

    def _same_pairs(
        self,
        summaries: tuple[SummaryDefinition | None, SummaryDefinition | None],
        summarised: tuple[tuple[int, ...], tuple[int, ...]],
        equal: Sequence[tuple[int, int]],
    ) -> None:
        if None in summaries:
            return
        read = [{pair for pair in equal if pair[side] in summarised[side]} for side in (0, 1)]
        if read[0] != read[1]:
            hint = "declare both summaries on the columns that the join equates"
            message = "summaries of two streams on columns that are not equated with each other are not supported yet"
            self.context.fail("P0901", message, self.span, hint)

    def _summary(self, member: FromInput, first: int, end: int) -> tuple[SummaryDefinition | None, tuple[int, ...]]:
        """Return the summary that is read of a stream, and the positions of its columns among those of FROM."""
        read = [
            e for term in self.terms.expressions for e in walk(term)
            if isinstance(e, SummaryEstimate) and first <= e.columns[0].index < end
        ]  # fmt: skip
        names = {e.summary for e in read}
        if not names:
            return None, ()
        if len(names) > 1:
            hint = "read one of them"
            self.context.fail(
                "P0901", "a preference over two summaries of a stream is not supported yet", self.span, hint
            )
        if not isinstance(member.node, Window) or any(isinstance(n, Sample) for n in operators(member.node)):
            hint = "read the stream itself under a window in time, without SAMPLE"
            message = "a summary of a stream that is sampled or computed in FROM is not supported yet"
            self.context.fail("P0901", message, member.span, hint)
        return self.terms.summaries[read[0].summary], tuple(column.index for column in read[0].columns)


def _split(conditions: Sequence[Expression], width: int) -> tuple[list[Expression | None], list[Expression]]:
    """Return the conditions over each side alone, over its own columns, and those over both."""
    own: list[list[Expression]] = [[], []]
    between: list[Expression] = []
    for condition in conditions:
        sides = {column >= width for column in columns_of(condition)}
        if len(sides) == 1:
            side = int(next(iter(sides)))
            own[side].append(remap(condition, lambda i: i - width) if side else condition)
        else:
            between.append(condition)
    return [conjunction(tuple(own[0])), conjunction(tuple(own[1]))], between


def _selected(node: Algebra, condition: Expression | None) -> Algebra:
    return node if condition is None else Select(node, condition)


def _shifted(expression: Expression, width: int, shift: int) -> Expression:
    """Return an expression over a joined row whose left side has got `shift` more columns."""
    return remap(expression, lambda i: i if i < width else i + shift)


def _probing(term: Expression, width: int, shift: int, partner: dict[int, int]) -> Expression:
    """Return `term` over the joined row, with the estimates over the columns that are equated with theirs."""
    shifted = _shifted(term, width, shift)

    def probing(node: Node) -> Node:
        if not isinstance(node, SummaryEstimate):
            return node
        own = [column.index if column.index < width else column.index - shift for column in node.columns]
        keys = [replace(column, index=partner[at]) for column, at in zip(node.columns, own, strict=True)]
        return replace(node, columns=tuple(keys))

    return transform_up(shifted, probing)
