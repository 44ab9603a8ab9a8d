"""FROM: declared sources, views, nested queries and joins, each with the window that makes it a relation.

Inner joins of any number of inputs are kept flat during binding (`from_joins.py`), with their conditions over the
columns of all of them; `inputs/joins.py` then builds the binary joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from sqlglot import exp

from penstock.algebra import (
    Algebra,
    Closing,
    Gaps,
    Lasting,
    RelationScan,
    RelationToStream,
    Sample,
    Select,
    Source,
    StreamKind,
    StreamScan,
    StreamToRelation,
    ValidWindow,
    WindowSample,
    unjoined,
)
from penstock.algebra.nodes.frequency import in_sequence
from penstock.algebra.nodes.scans import stream_scan
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError, counted, nearest
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import BIGINT, is_integer, is_numeric
from penstock.expressions.nodes import Column, Literal
from penstock.language.binder.context import Context, QueryNames
from penstock.language.binder.from_.answers import bind_query_name
from penstock.language.binder.from_.control_names import bind_control_name
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.from_.frequency import answer_stream
from penstock.language.binder.from_.from_joins import Around, join_sources
from penstock.language.binder.from_.lateral import reads_beside
from penstock.language.binder.from_.period_windows import windowed_by_period
from penstock.language.binder.from_.periods import PeriodSource, Timed, bound_entries, read_periods
from penstock.language.binder.from_.series import bind_series
from penstock.language.binder.from_.until_next import lasting
from penstock.language.binder.from_.window_tables import window_table
from penstock.language.binder.from_.windows import bind_window
from penstock.language.binder.inputs.inputs import FromInput, Inputs
from penstock.language.binder.rows import Inner
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.lengths import ComparedLength, least_ticks
from penstock.language.binder.scope import Entry, Role, Scope, lost
from penstock.language.binder.subqueries.unplacing import ClauseSubqueries
from penstock.language.catalog import View
from penstock.language.dialect import span_of
from penstock.language.queries import (
    SERIES,
    DerivedSource,
    Duration,
    Extent,
    FromSource,
    JoinedSource,
    Mark,
    Name,
    NamedSource,
    QueryTree,
    SampleClause,
    WindowClause,
)
from penstock.language.queries import SampleClause as SampleTree
from penstock.language.text import TextSpan
from penstock.types import CALENDAR, type_name

# --- SAMPLE of a source in FROM (docs/language/windows.md).

#: More rows than a sample has.
MOST_ROWS = 2**31 - 1


def bind_sample(node: Algebra, sample: SampleClause, name: str, context: Context) -> Algebra:
    """Return the sample of the stream `node`. Raises BindingFailed after P0102, P0103, P0202 or P0901."""
    if not node.is_stream:
        hint = "leave SAMPLE out: of a relation every row is read"
        context.fail("P0103", f"SAMPLE draws from a stream; {name} is a relation", sample.span, hint)
    if sample.percent is None:
        return node
    if not sample.percent:
        hint = "the number is in percent: SAMPLE(10) keeps a tenth"
        context.warn(f"no row of {name} is in a sample of 0 percent", sample.span, hint)
    if not isinstance(node, StreamScan) and not sample.by:
        hint = "let the query keep a column in which they differ, or sample the stream that it reads"
        context.warn(f"rows of {name} that are equal at one instant are sampled together", sample.span, hint)
    seed = context.settings.get_int("seed") if sample.seed is None else sample.seed
    percent, by = sample.percent, _columns(node, sample.by, name, context)
    return context.guard(sample.span, lambda: Sample(node, percent, seed, name, by))


def bind_rows(node: Algebra, sample: SampleClause | None, name: str, scope: Scope, context: Context) -> Algebra:
    """Return SAMPLE(n ROWS) of the content of a window of `name`; `node` itself for another sample, or none."""
    if sample is None or sample.rows is None:
        return node
    if not 1 <= sample.rows <= MOST_ROWS:
        hint = "write SAMPLE(100 ROWS)"
        context.fail("P0203", f"a sample has 1 to {MOST_ROWS:,} rows, not {sample.rows}", sample.span, hint)
    if in_sequence(node):
        hint = "write the part with FREQUENCY as a view, and read the view, which is a stream"
        context.fail("P0310", "SAMPLE(n ROWS) in a query with FREQUENCY", sample.span, hint)
    seed = context.settings.get_int("seed") if sample.seed is None else sample.seed
    per = _columns(node, sample.per, "", context, scope)
    weight = None
    if sample.weight is not None:
        tree = sample.weight
        weight = ExpressionBinder(scope, context, "WEIGHT").bind(tree)
        if not is_numeric(weight.type):
            hint = "weigh by a column of numbers, or cast the value"
            context.fail("P0203", f"WEIGHT is a number, not {type_name(weight.type)}", span_of(tree), hint)
    return WindowSample(node, sample.rows, seed, name, per, weight)


def refuse_rows(source: NamedSource | None, context: Context) -> None:
    """Refuse SAMPLE(n ROWS) of a source whose rows have periods. Raises BindingFailed after P0103."""
    if source is not None and source.sample is not None and source.sample.rows is not None:
        hint = "SAMPLE(10) leaves elements out before they have periods; windows in time or rows have SAMPLE(n ROWS)"
        context.fail("P0103", "SAMPLE(n ROWS) of a source with periods", source.sample.span, hint)


def _columns(
    node: Algebra, columns: Sequence[exp.Expr], name: str, context: Context, scope: Scope | None = None
) -> tuple[int, ...]:
    entries = tuple(Entry(i, f.name, f.type, name) for i, f in enumerate(node.schema))
    binder = ExpressionBinder(scope or Scope(entries), context, "SAMPLE")
    found: dict[int, None] = {}
    for bound, written in zip(context.each(binder.bind, columns), columns, strict=True):
        if not isinstance(bound, Column):
            hint = "name a column; compute others in a view, and sample that"
            context.fail("P0102", "a sample is by columns of the stream", span_of(written), hint)
        found[bound.index] = None
    return tuple(found)


# --- GAPS OF a source: the periods between those of its values.


def gaps_between(
    source: PeriodSource,
    timed: Timed,
    coalesced: tuple[Algebra, tuple[Entry, ...]],
    closed: bool,
    mark: Mark,
    least: Duration | None,
) -> tuple[Timed, Algebra, tuple[Entry, ...]]:
    """Return the gaps between the stretches of `coalesced`, with their columns. Raises BindingFailed with the errors
    recorded.

    Args:
        timed: the rows that are coalesced.
        closed: only the gaps that have ended.
        least: the shortest gap, None for any.
    """
    context = source.context
    node, entries = coalesced
    domain = source.domain
    if not closed and domain is not None and domain.calendar == is_integer(timed.bound.type):
        message = "an open gap is there when its period has begun: it and the query are of different time domains"
        context.fail("P0302", message, mark.span, "WHERE CLOSED(VALID(..)) takes those that have ended")
    bound = replace(timed.bound, open=not closed)
    gaps: Algebra = Gaps(node, timed.closing or _at_ends(source), closed)
    if least is not None:
        most = ticks(least, timed.bound.domain or domain or CALENDAR, context)
        gaps = _at_least(gaps, most)
    entries = tuple(replace(e, bound=bound) if e.bound is not None else e for e in entries)
    return replace(timed, bound=bound), gaps, entries


def _at_least(gaps: Algebra, least: int) -> Algebra:
    """Return the gaps of `least` ticks or more; an open one from that instant on at which it is so long."""
    assert isinstance(gaps, Gaps)
    if not gaps.only_ended:
        return Lasting(gaps, least, gaps.closing.slide, gaps.closing.align)
    width = len(gaps.schema)
    begin, end = Column(BIGINT, width - 2, "begin"), Column(BIGINT, width - 1, "end")
    return Select(gaps, build_call("GE", [end, build_call("ADD", [begin, Literal(BIGINT, least)])]))


def _at_ends(source: PeriodSource) -> Closing:
    """Return when the end of a stretch is past, of periods that may begin at any time."""
    window = source.node
    return Closing(window.slide, window.align) if isinstance(window, StreamToRelation) else Closing()


#: The columns of the enclosing queries, the innermost first.
Levels = tuple[tuple[Entry, ...], ...]
#: Binds a nested query: (tree, enclosing columns, whether the innermost of them are beside it) -> (rows, column names).
NestedBinder = Callable[[QueryTree, Levels, bool], tuple[Inner, tuple[str, ...]]]


@dataclass(frozen=True)
class SourceBinder:
    """Binds FROM clauses. views: those of WITH, by lower-case name; subqueries, outer, enclosing: as in `Around`;
    closed: aliases in lower case of which WHERE takes the closed periods alone; lasting: by alias in lower case, how
    long periods have to last by WHERE; window: of streams that have none.
    """

    context: Context
    nested: NestedBinder
    views: dict[str, View]
    subqueries: Callable[[Scope], ClauseSubqueries]
    outer: tuple[Entry, ...] = ()
    enclosing: Levels = ()
    closed: frozenset[str] = frozenset()
    lasting: Mapping[str, tuple[ComparedLength, ...]] = field(default_factory=dict)
    window: WindowClause | None = None

    def bind(self, source: FromSource) -> Inputs:
        """Return all relations of a FROM clause; with `failed`, and the errors recorded, where some could
        not be bound.
        """
        inputs = self._bind(source, self.enclosing)
        clashing = self._clashing(source)
        if clashing:
            entries = (*inputs.entries, *(lost(name) for name in clashing))
            return replace(inputs, entries=entries, failed=True)
        return inputs

    def _bind(self, source: FromSource, around: Levels, right: bool = False) -> Inputs:
        """Bind one source. around: before `enclosing`, the columns left of each join whose right side contains this
        source; right: whether it is all of the right side.
        """
        if isinstance(source, JoinedSource):
            return self._joined(source, around)
        name = source.alias
        if isinstance(source, NamedSource):
            named, name = source, name or source.name
            inputs = self.context.attempt(lambda: self._named(named))
        else:
            derived = source
            inputs = self.context.attempt(lambda: self._derived(derived, around, right))
        return inputs or Inputs((), (lost(name.text if name else None),), failed=True)

    # --- one source

    def _named(self, source: NamedSource) -> Inputs:
        name = source.name
        qualifier = (source.alias or name).text
        if name.schema:
            table = bind_control_name(name, self.context)
            root = self._sampled(_scan(table), source.sample, table.name)
            return self._relation(root, root.schema.names, source.window, qualifier, name, source)
        view = self.views.get(name.key) or self.context.catalog.views.get(name.key)
        if view is not None and name.matches(view.name):
            self.context.uncoalesced += view.uncoalesced
            root = self._sampled(view.root, source.sample, view.name)
            return self._relation(root, view.names, source.window, qualifier, name, source)
        query = self.context.catalog.queries.get(name.key)
        if query is not None and name.matches(query.name):
            if self.context.query_names is QueryNames.DEFINITION:
                self.context.uncoalesced += query.uncoalesced
            root = self._sampled(bind_query_name(query, name, self.context), source.sample, query.name)
            return self._relation(root, root.schema.names, source.window, qualifier, name, source)
        declared = self.context.catalog.sources.get(name.key)
        if declared is None and name.key in SERIES and source.items is not None:
            series = bind_series(source, self.context)
            return self._relation(series, series.schema.names, source.window, qualifier, name)
        if declared is None or not name.matches(declared.name):
            self._unknown(name)
        node = self._sampled(_scan(declared), source.sample, declared.name)
        alias = source.alias.text if source.alias else declared.name
        return self._relation(node, node.schema.names, source.window, alias, name, source, declared.valid)

    def _derived(self, source: DerivedSource, around: Levels, right: bool) -> Inputs:
        beside, last = len(around) - len(self.enclosing), source.lateral is None
        levels = tuple(tuple(replace(e, beside=last) for e in entries) for entries in around[:beside])
        rows, names = self.nested(source.query, levels + self.enclosing, right)
        if source.columns:
            if len(source.columns) != len(names):
                message = f"{counted(len(source.columns), 'name')} for {counted(len(names), 'column')}"
                self.context.fail("P0305", message, source.columns[0].span.to(source.columns[-1].span))
            names = tuple(c.text for c in source.columns)
        qualifier = source.alias.text if source.alias else None
        if right and reads_beside(rows):
            return self._lateral(source, rows, names, qualifier)
        node = rows.node
        if source.window is not None or (source.sample is not None and node.pattern is Pattern.MONOTONIC):
            node = as_stream(node, source.span, self.context)
        stamp = None
        if source.windows is not None:
            node = as_stream(node, source.span, self.context)
            node, names, stamp = window_table(source.windows, node, names, qualifier, self.context)
        node = self._sampled(node, source.sample, qualifier or "this query")
        return self._relation(node, names, source.window, qualifier, source, stamp=stamp)

    def _lateral(self, source: DerivedSource, rows: Inner, names: Sequence[str], qualifier: str | None) -> Inputs:
        entries = tuple(Entry(i, n, e.type, qualifier) for i, (n, e) in enumerate(zip(names, rows.items, strict=True)))
        behind, what = (source.window, "a window") if source.window is not None else (source.sample, "SAMPLE")
        if behind is not None:
            hint = f"put {what.replace('a w', 'the w')} after the stream that the query reads"
            message = f"{what} over a query that reads the sources beside it"
            self.context.note(PenstockError("P0312", message, hint=hint), behind.span)
            return Inputs((), entries, failed=True)
        return Inputs((), entries, rows=rows)

    def _sampled(self, node: Algebra, sample: SampleTree | None, name: str) -> Algebra:
        """Return the sample of `node`; a SAMPLE that fails is reported, and binding continues without it."""
        if sample is None:
            return node
        return self.context.attempt(lambda: bind_sample(node, sample, name, self.context)) or node

    def _relation(
        self,
        node: Algebra,
        names: Sequence[str],
        window: WindowClause | None,
        qualifier: str | None,
        item: Name | DerivedSource,
        named: NamedSource | None = None,
        valid: str | None = None,
        stamp: int | None = None,
    ) -> Inputs:
        window = self.window if window is None and node.is_stream else window
        stream = node if node.is_stream else None
        if node.is_stream and stamp is None:
            stamp = node.timestamp_column
        plain = Role.ELEMENT if node.is_stream else Role.RELATION
        entries = tuple(
            Entry(i, n, f.type, qualifier, role=Role.TIMESTAMP if i == stamp else plain)
            for i, (n, f) in enumerate(zip(names, node.schema, strict=True))
        )
        if window is not None and window.extent in (Extent.VALID, Extent.SESSION):
            shown = item.text if isinstance(item, Name) else "this query"
            source = PeriodSource(node, stream, entries, window, shown, item.span, self.context, valid)
            bound = self.context.attempt(lambda: self._over_periods(source, named, qualifier))
            if bound is None:
                # Its period is not known, nor what reads it.
                return Inputs((), (*entries, lost(qualifier)), failed=True)
            return Inputs((FromInput(bound[0], item.span, None),), bound[1])
        if node.is_stream:
            called = item if isinstance(item, Name) else item.called
            own = called.text if called is not None else qualifier
            # A window after an alias may still use the stream's own name.
            other = () if own == qualifier else (replace(e, qualifier=own, merged=True) for e in entries)
            elements = node
            windowed = self.context.attempt(lambda: bind_window(window, elements, self.context, (*entries, *other)))
            if windowed is None:
                return Inputs((), entries, failed=True)
            sampled_source = item if isinstance(item, DerivedSource) else named
            sample = None if sampled_source is None else sampled_source.sample
            shown = item.text if isinstance(item, Name) else ""
            scope = Scope((*entries, *other))
            sampled = self.context.attempt(lambda: bind_rows(windowed, sample, shown, scope, self.context))
            if sampled is None:
                return Inputs((), entries, failed=True)
            node = sampled
        elif window is not None:
            shown = item.text if isinstance(item, Name) else "this query"
            hint = "a window belongs to a stream; leave it out"
            self.context.note(
                PenstockError("P0301", f"{shown} is a relation, which has no window", hint=hint), window.span
            )
            return Inputs((), entries, failed=True)
        source = PeriodSource(
            node,
            stream,
            entries,
            window,
            item.text if isinstance(item, Name) else "this query",
            item.span,
            self.context,
            valid,
        )
        node, entries = self._timed(source, named, qualifier)
        internal = window.internal.span if window is not None and window.internal is not None else None
        return Inputs((FromInput(node, item.span, internal),), entries)

    def _timed(
        self, source: PeriodSource, named: NamedSource | None, qualifier: str | None
    ) -> tuple[Algebra, tuple[Entry, ...]]:
        """Return the relation with the period of each row, where the query reads it, or coalesced on its list."""
        items = None if named is None else named.items
        valid = None if named is None else named.valid
        written = read_periods(self.context.source.text)
        elsewhere = source.window is not None and source.window.time is not None
        read = qualifier is not None and (elsewhere or qualifier.lower() in written)
        if items is None and valid is None and not read:
            return source.node, source.entries
        refuse_rows(named, self.context)
        closed = qualifier is not None and qualifier.lower() in self.closed
        gaps = None if named is None else named.gaps
        timed = source.timed(valid, closed and gaps is None, items is not None)
        if items is not None:
            if timed is None:
                source.without_valid_time(source.span)
            if gaps is not None and named is not None:
                found = source.coalesced(timed, items, qualifier, closed, gaps=True)
                return self._long_enough(
                    source, *gaps_between(source, timed, found, closed, gaps, named.least), qualifier
                )
            return self._long_enough(source, timed, *source.coalesced(timed, items, qualifier, closed), qualifier)
        if timed is None or not read:
            return source.node, source.entries
        bounds = bound_entries(len(source.node.schema), replace(timed.bound, of_row=True), qualifier)
        if timed.ended:
            bounds = (replace(bounds[0], closes=True), replace(bounds[1], closes=True))
        return self._long_enough(source, timed, timed.node, (*source.entries, *bounds), qualifier)

    def _long_enough(
        self, source: PeriodSource, timed: Timed, node: Algebra, entries: tuple[Entry, ...], qualifier: str | None
    ) -> tuple[Algebra, tuple[Entry, ...]]:
        """Return a relation with its columns, of open periods only those that have lasted as long as WHERE requires."""
        bounds = self.lasting.get((qualifier or "").lower(), ())
        if not timed.bound.open or not bounds:
            return node, entries
        binder = ExpressionBinder(Scope(()), self.context, "WHERE")
        return lasting(node, source.node, least_ticks(bounds, timed.bound, binder)), entries

    def _over_periods(
        self, source: PeriodSource, named: NamedSource | None, qualifier: str | None
    ) -> tuple[Algebra, tuple[Entry, ...]]:
        """Return a source under `[VALID]` or SESSION, whose rows have the period of the window."""
        if named is not None and named.gaps is not None:
            hint = f"as in GAPS OF {source.name} (c) VALID FOR 5 MINUTES, which a window in time may follow"
            message = "rows are in this window no longer than in their period: it has no gaps"
            self.context.fail("P0374", message, named.gaps.span, hint)
        refuse_rows(named, self.context)
        timed = windowed_by_period(source, None if named is None else named.valid)
        items = None if named is None else named.items
        if items is not None:
            closed = qualifier is not None and qualifier.lower() in self.closed
            return self._long_enough(source, timed, *source.coalesced(timed, items, qualifier, closed), qualifier)
        # The period of a row under SESSION is that of its session.
        bound = replace(timed.bound, of_row=isinstance(timed.node, ValidWindow))
        bounds = bound_entries(len(source.node.schema), bound, qualifier)
        return self._long_enough(source, timed, timed.node, (*source.entries, *bounds), qualifier)

    def _unknown(self, name: Name) -> NoReturn:
        context = self.context
        if name.key in context.failed:
            context.fail_silently()
        if context.depends_on_itself(name.key):
            context.fail(
                "P0306", f"{context.view_kind} {context.view} depends on itself through {name.text}", name.span
            )
        if name.key in context.later:
            hint = f"it is declared later, in line {context.later[name.key][-1]}; move that statement up"
            context.fail("P0201", f"{name.text} is not declared yet", name.span, hint)
        known = [s.name for s in context.catalog.sources.values()]
        known += [q.name for q in context.catalog.queries.values()]
        known += [v.name for v in (*context.catalog.views.values(), *self.views.values())]
        hint = (
            nearest(name.text, known) or f"declare it first: CREATE STREAM {name.text} (...) FROM ... TIMESTAMP BY ..."
        )
        context.check_bound(name)
        context.fail("P0201", f"unknown stream, relation or view {name.text}", name.span, hint)

    # --- joins

    def _joined(self, join: JoinedSource, around: Levels) -> Inputs:
        left = self._bind(join.left, around)
        right = self._bind(join.right, (left.entries, *around), right=True)
        hidden = tuple(() for _ in around[len(self.enclosing) :])  # ON sees its two sides, and the enclosing queries
        return join_sources(
            join, left, right, Around(self.outer, (*hidden, *self.enclosing), self.subqueries), self.context
        )

    def _clashing(self, source: FromSource) -> list[str]:
        """Report the names that occur twice, and return them."""
        seen: dict[str, Name] = {}
        clashing: list[str] = []
        for leaf in leaves(source):
            name = leaf.alias or (leaf.name if isinstance(leaf, NamedSource) else None)
            if name is None:
                continue
            if name.text.lower() in seen:
                hint = f"give it a unique name: {name.text} AS {name.text}2"
                message = f"{name.text} occurs twice in FROM"
                self.context.note(PenstockError("P0206", message, hint=hint), name.span)
                clashing.append(name.text)
            seen[name.text.lower()] = name
        return clashing


def as_stream(node: Algebra, span: TextSpan, context: Context) -> Algebra:
    """Return a query's default answer (docs/language/queries.md): the ISTREAM of a relation that never loses a
    tuple, else `node` unchanged; in the sequence model its answer stream.
    """
    node = answer_stream(node, span, context)
    timed = not node.is_stream and node.domain is not None
    if timed and node.pattern is Pattern.MONOTONIC and next(unjoined(node), None) is None:
        return RelationToStream(node, StreamKind.ISTREAM)
    return node


def _scan(source: Source) -> Algebra:
    columns = tuple(range(len(source.columns)))
    return stream_scan(source, columns) if source.is_stream else RelationScan(source, columns)


def leaves(source: FromSource | None) -> list[NamedSource | DerivedSource]:
    """Return the sources of FROM, left to right."""
    if isinstance(source, JoinedSource):
        return leaves(source.left) + leaves(source.right)
    return [] if source is None else [source]
