"""Queries to algebra [semantics 4]: SELECT, ORDER BY ... LIMIT, relation-to-stream operators."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import (
    Algebra,
    AtInstants,
    Distinct,
    Except,
    IndividualResults,
    Intersect,
    Project,
    RelationToStream,
    StreamKind,
    UnionAll,
    unbounded,
)
from penstock.algebra import Select as AlgebraSelect
from penstock.algebra.analysis.period_operators import period_operator
from penstock.algebra.nodes.base import common_domain, has_lives
from penstock.algebra.nodes.constant import one_row
from penstock.algebra.nodes.frequency import answers, each_result, in_sequence, on_the_line
from penstock.algebra.nodes.internal import reaches_internal
from penstock.algebra.nodes.promised import awaits_closing, without_promises
from penstock.algebra.nodes.results import not_to_be_kept, restored
from penstock.algebra.optimizer.rules.constraints.groups import closing_groups
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import counted
from penstock.expressions.coercion import cast_to, common_type
from penstock.expressions.nodes import AggregateCall, Column, Expression, Literal, conjunction, conjuncts
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.from_.frequency import answer_stream, checked, in_order, items_of_partition, picked
from penstock.language.binder.from_.internal import collected, refuse_internal, refuse_partners
from penstock.language.binder.from_.sources import SourceBinder, as_stream
from penstock.language.binder.from_.windows import bind_window, check_window
from penstock.language.binder.inputs.inputs import FromInput, Inputs
from penstock.language.binder.inputs.joins import build_joins
from penstock.language.binder.placeholders import attached_in, outer_columns, reads_outer
from penstock.language.binder.rows import Inner, whole
from penstock.language.binder.scalars import lengths, periods
from penstock.language.binder.scalars.binder import name_of
from penstock.language.binder.scalars.calls import called_aggregate
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.local_time import cast_in
from penstock.language.binder.scalars.stars import star_columns
from penstock.language.binder.scope import Entry, Scope
from penstock.language.binder.select.clauses import Clauses, Correlated, SelectItem
from penstock.language.binder.select.closed import closed_groups, closed_inputs
from penstock.language.binder.select.earlier_items import earlier_items, in_full
from penstock.language.binder.select.first_rows import (
    NO_LIMITS,
    Limits,
    OrderRule,
    all_items,
    bind_keys,
    first_rows,
    limits_of,
    ordinal,
    place_keys,
    refuse_stream,
    sort_keys,
    sorted_relation,
)
from penstock.language.binder.select.frequent import frequent_terms
from penstock.language.binder.select.preferences import check_tree, preferred, refuse_misplaced
from penstock.language.binder.select.values import bare_nulls, bind_values
from penstock.language.binder.subqueries.unplacing import Applied, ClauseSubqueries
from penstock.language.catalog import Catalog, View
from penstock.language.dialect import span_of
from penstock.language.limits import check_size, continues
from penstock.language.printer import scalar_text
from penstock.language.queries import (
    AllItems,
    Extent,
    Item,
    Name,
    QueryTree,
    SelectQuery,
    SetOperator,
    SetQuery,
    SortedQuery,
    Star,
    StreamOperator,
    StreamQuery,
    ToStream,
    ValuesQuery,
    WindowClause,
    WithQuery,
)
from penstock.language.text import TextSpan
from penstock.tree import walk
from penstock.types import Field, type_name

# --- UNION, EXCEPT and INTERSECT: members with columns of common types (docs/language/queries.md).


def bind_set(tree: SetQuery, bind: Callable[[QueryTree], Algebra], context: Context) -> Algebra:
    """Return the set operation over its members, bound by `bind`; a stream among them gets an unbounded window."""

    def member(part: QueryTree) -> Algebra:
        node = bind(part)
        return unbounded(node) if node.is_stream else node

    parts = _members(tree)
    nodes = context.each(member, parts)
    # INTERSECT ALL and UNION ALL keep their results; the others retract some, or emit equal tuples once.
    if not (tree.all and tree.kind is not SetOperator.EXCEPT) and any(reaches_internal(node) for node in nodes):
        refuse_internal(_word(tree), None, tree.operator_span, context)
    bare = [_bare_nulls(part) for part in parts]
    if tree.by_name is not None:
        nodes, bare = by_name(parts, nodes, bare, context)
    nodes = _alike(_word(tree), parts, nodes, bare, context)
    if tree.kind is SetOperator.EXCEPT:
        return Except(nodes[0], nodes[1], tree.all)
    if tree.kind is SetOperator.INTERSECT:
        return Intersect(nodes[0], nodes[1], tree.all)
    return UnionAll(tuple(nodes)) if tree.all else Distinct(UnionAll(tuple(nodes)))


def by_name(
    parts: list[QueryTree], nodes: list[Algebra], bare: list[frozenset[int]], context: Context
) -> tuple[list[Algebra], list[frozenset[int]]]:
    """Return the members of UNION BY NAME with the columns of all of them, in order of first appearance; those that
    one lacks are NULL there. Raises BindingFailed after P0205.

    Args:
        bare: of each member, the columns that have no type of their own; they are returned for the new columns.
    """
    names: dict[str, str] = {}
    places: list[dict[str, int]] = []
    for part, node in zip(parts, nodes, strict=True):
        own: dict[str, int] = {}
        for i, field_ in enumerate(node.schema):
            if own.setdefault(field_.name.lower(), i) != i:
                hint = "give the columns different names with AS"
                context.fail("P0205", f"UNION BY NAME of two columns called {field_.name}", part.span, hint)
            names.setdefault(field_.name.lower(), field_.name)
        places.append(own)
    found: list[Algebra] = []
    untyped: list[frozenset[int]] = []
    for node, own, nulls in zip(nodes, places, bare, strict=True):
        columns = [node.schema[own[key]] if key in own else Field(name, pa.string()) for key, name in names.items()]
        expressions = tuple(
            Column(column.type, own[key], column.name) if key in own else Literal(column.type, None)
            for key, column in zip(names, columns, strict=True)
        )
        fields = tuple(Field(name, column.type) for name, column in zip(names.values(), columns, strict=True))
        found.append(Project(node, expressions, fields))
        untyped.append(frozenset(i for i, key in enumerate(names) if key not in own or own[key] in nulls))
    return found, untyped


def _word(tree: SetQuery) -> str:
    return tree.kind.value + (" ALL" if tree.all else "") + (" BY NAME" if tree.by_name else "")


def _members(tree: SetQuery) -> list[QueryTree]:
    """Return the operands of nested UNIONs of the same kind, left to right; of any other set operation its two."""
    if tree.kind is not SetOperator.UNION:
        return [tree.left, tree.right]
    members: list[QueryTree] = []
    todo: list[QueryTree] = [tree]
    while todo:
        part = todo.pop()
        if isinstance(part, SetQuery) and continues(part, tree):
            todo += [part.right, part.left]
        else:
            members.append(part)
    return members


def _alike(
    word: str, parts: list[QueryTree], nodes: list[Algebra], bare: list[frozenset[int]], context: Context
) -> list[Algebra]:
    """Return the members with casts to common types. Raises BindingFailed after P0302 or P0305.

    Args:
        bare: of each member, the columns that have no type of their own.
    """
    first = nodes[0]
    for part, node in zip(parts[1:], nodes[1:], strict=True):
        if len(node.schema) != len(first.schema):
            message = f"{word} of {len(first.schema)} and {counted(len(node.schema), 'column')}"
            context.fail("P0305", message, part.span)
        context.guard(part.span, partial(common_domain, (first, node)))
    node_types = [
        [pa.null() if i in nulls else f.type for i, f in enumerate(node.schema)]
        for node, nulls in zip(nodes, bare, strict=True)
    ]
    columns = [list(column) for column in zip(*node_types, strict=True)]
    types = [_common(word, column, i, parts[-1].span, context) for i, column in enumerate(columns)]
    return [_as_types(node, types, nulls, context.zone) for node, nulls in zip(nodes, bare, strict=True)]


def _bare_nulls(part: QueryTree) -> frozenset[int]:
    """Return the columns of a member that are a bare NULL and so have no type of their own; none after a star."""
    if isinstance(part, SetQuery) and part.by_name is not None:
        return frozenset()  # its columns have other places than those of its members
    if isinstance(part, SetQuery):
        return frozenset.intersection(*map(_bare_nulls, _members(part)))
    if isinstance(part, ValuesQuery):
        return bare_nulls(part)
    if not isinstance(part, SelectQuery):
        return _bare_nulls(part.query)
    plain = itertools.takewhile(lambda value: not isinstance(value, Star), (item.value for item in part.items))
    return frozenset(i for i, value in enumerate(plain) if isinstance(value, exp.Null))


def _common(word: str, types: list[pa.DataType], column: int, span: TextSpan, context: Context) -> pa.DataType:
    common = common_type(types)
    if common is None:
        shown = " and ".join(dict.fromkeys(type_name(t) for t in types))
        context.fail("P0305", f"column {column + 1} of {word} is {shown}", span, "CAST one of them")
    return pa.string() if pa.types.is_null(common) else common


def _as_types(node: Algebra, types: list[pa.DataType], nulls: frozenset[int], zone: str | None) -> Algebra:
    if list(node.schema.types) == types:
        return node
    columns = [Column(f.type, i, f.name) for i, f in enumerate(node.schema)]
    expressions = tuple(
        Literal(t, None) if i in nulls and t != c.type else cast_in(zone, c, t)
        for i, (c, t) in enumerate(zip(columns, types, strict=True))
    )
    return Project(node, expressions, tuple(Field(f.name, t) for f, t in zip(node.schema, types, strict=True)))


# --- Relation-to-stream operators: ISTREAM, DSTREAM, RSTREAM, with RESTORE, and WSTREAM (docs/language/queries.md).


def to_stream(operator: ToStream, node: Algebra, context: Context, often: bool = False) -> Algebra:
    """Return `operator` over the relation `node`. often: a FREQUENCY follows it. Raises BindingFailed after P0307,
    P0318 or P0319.
    """
    kind = operator.operator
    if node.is_stream:
        hint = f"leave out {kind.value}, or give the inner stream a window in FROM"
        context.fail("P0307", f"{kind.value} over a stream: it needs a relation", operator.span, hint)
    counted = often or in_sequence(node)
    if kind is StreamOperator.DSTREAM and not counted and node.pattern is Pattern.MONOTONIC:
        hint = "rows leave a window: s [RANGE 1 HOUR]"
        context.warn("no row ever leaves this answer, so DSTREAM emits none", operator.span, hint)
    if counted:
        node = on_the_line(checked(node, operator.span, context))
    if operator.restore is not None:
        return _restored(operator, node, counted, context)
    if kind is StreamOperator.WSTREAM:
        return _windowed(operator, node, counted, context)
    if not counted:
        return RelationToStream(node, StreamKind[kind.name])
    everything = kind is StreamOperator.RSTREAM
    stream = AtInstants(node) if everything else RelationToStream(node, StreamKind[kind.name])
    return in_order(stream, operator.span, context)


def _windowed(operator: ToStream, node: Algebra, counted: bool, context: Context) -> Algebra:
    """Return WSTREAM(R)[w]: the window w over all results of R as a monotonic relation. counted: R is in the sequence
    model.
    """
    if operator.window is None:
        context.fail("P0318", "WSTREAM needs a window after it", operator.span, "WSTREAM(...)[ROWS 10]")
    unfit = not_to_be_kept(node)
    if unfit is not None:
        hint = "a kept result would no longer answer the query; a window over its ISTREAM would keep it"
        context.fail("P0318", f"WSTREAM over {unfit.worded}", operator.span, hint)
    results: Algebra = IndividualResults(node) if has_lives(node) else RelationToStream(node, StreamKind.ISTREAM)
    if counted:
        results = in_order(each_result(node), operator.span, context)
    if operator.window.internal is not None:
        message = "the window of WSTREAM determines the answer: it cannot be INTERNAL"
        context.fail(
            "P0310", message, operator.window.internal.span, "the windows below WSTREAM already act as INTERNAL"
        )
    entries = tuple(Entry(i, f.name, f.type) for i, f in enumerate(results.schema))
    return bind_window(operator.window, results, context, entries)


def _restored(operator: ToStream, node: Algebra, counted: bool, context: Context) -> Algebra:
    kind = operator.operator
    assert operator.restore is not None
    if kind not in (StreamOperator.ISTREAM, StreamOperator.RSTREAM):
        message = f"{kind.value} RESTORE: only ISTREAM and RSTREAM restore results"
        context.fail("P0319", message, operator.restore.span)
    by_periods = period_operator(node)
    if by_periods is not None:
        hint = "RESTORE looks between boundaries, where granules end; without it all results of boundaries are emitted"
        context.fail("P0374", f"{by_periods} under RESTORE has no meaning", operator.restore.span, hint)
    if counted:
        message = "a query with FREQUENCY has no SLIDE between whose boundaries results are lost"
        context.fail("P0319", message, operator.restore.span, "leave out RESTORE")
    return context.guard(operator.restore.span, lambda: restored(RelationToStream(node, StreamKind[kind.name])))


#: A select list, the sort keys over its columns, and the number of columns before those that only the keys need.
Projected: TypeAlias = tuple[Algebra, list[Expression], int]


@dataclass(frozen=True)
class QueryBinder:
    """Bind query trees.

    `views`: those of enclosing WITH clauses; `enclosing`: the columns of the queries around a subquery, the nearest
    first, which it may read; `outer`: those around a WITH, which it may not; `order`: what
    ORDER BY without LIMIT means.
    """

    context: Context
    views: dict[str, View] = field(default_factory=dict)
    outer: tuple[Entry, ...] = ()
    enclosing: tuple[tuple[Entry, ...], ...] = ()
    order: OrderRule = OrderRule.DROPPED

    def root(self, tree: QueryTree) -> Algebra:
        """Return a whole query, with the default operator of [semantics 4.3]. Raises BindingFailed with the errors
        recorded.
        """
        return self.as_root(self.bind(tree), span_of_query(tree))

    def as_root(self, node: Algebra, span: TextSpan) -> Algebra:
        """Return what is bound as a whole query. Raises as `root` does."""
        stream = as_stream(node, span, self.context)
        refuse_misplaced(stream, span, self.context)
        self.context.guard(span, lambda: check_size(stream))
        return stream

    def relation(self, tree: QueryTree) -> Algebra:
        """Return the relation of a whole one-time query: of a stream that of all its elements so far. Raises
        BindingFailed with the errors recorded.
        """
        span = span_of_query(tree)
        found = answer_stream(replace(self, order=OrderRule.KEPT).bind(tree), span, self.context)
        if not awaits_closing(found):
            # State that ends is of no use where rows are read once.
            found = without_promises(found)
        whole = unbounded(found) if found.is_stream else found
        refuse_misplaced(whole, span, self.context)
        self.context.guard(span, lambda: check_size(whole))
        return whole

    def bind(self, tree: QueryTree) -> Algebra:
        """Return a query without that default: a stream when its outermost operator returns one, else a relation."""
        if isinstance(tree, SelectQuery):
            return self._select(tree)
        if isinstance(tree, ValuesQuery):
            return bind_values(tree, self.context)
        if isinstance(tree, SetQuery):
            return bind_set(tree, replace(self, order=OrderRule.DROPPED).bind, self.context)
        if isinstance(tree, StreamQuery):
            within = replace(self, order=OrderRule.REFUSED)
            node = self.context.attempt(lambda: within.bind(tree.query))
            if node is None:
                check_window(tree.operator.window, self.context)
                raise BindingFailed
            return to_stream(tree.operator, node, self.context)
        if isinstance(tree, WithQuery):
            return self._with(tree)
        assert isinstance(tree, SortedQuery)
        return self._sorted(tree)

    def _nested(
        self, tree: QueryTree, enclosing: tuple[tuple[Entry, ...], ...], beside: bool
    ) -> tuple[Inner, tuple[str, ...]]:
        """Return a query in FROM. `beside`: the first of `enclosing` are columns of the sources beside it."""
        binder = QueryBinder(self.context, self.views, self.outer, enclosing)
        if beside and isinstance(tree, SelectQuery):
            return binder.rows_of(tree, beside=True)
        node = binder.bind(tree)
        return whole(node), node.schema.names

    def _with(self, tree: WithQuery) -> Algebra:
        views, context = dict(self.views), self.context
        for local in tree.views:
            beside = (*self.outer, *(entry for entries in self.enclosing for entry in entries))
            bound = context.attempt(lambda: QueryBinder(context, views, beside).root(local.query))  # noqa: B023
            if bound is None:  # statements that use it fail without a message
                context = replace(context, failed=context.failed | {local.name.key})
                continue
            root, names = bound, bound.schema.names
            if local.columns:
                if len(local.columns) != len(names):
                    self.context.fail(
                        "P0305",
                        f"{counted(len(local.columns), 'name')} for {counted(len(names), 'column')}",
                        local.name.span,
                    )
                names = tuple(c.text for c in local.columns)
            views[local.name.key] = View(local.name.text, root, names, "")
        node = replace(self, context=context, views=views).bind(tree.query)
        if context is not self.context:
            raise BindingFailed
        return node

    # --- SELECT

    def _select(self, tree: SelectQuery, order: SortedQuery | None = None, limits: Limits | None = None) -> Algebra:
        """Bind one SELECT.

        Args:
            tree: the SELECT.
            order: the enclosing ORDER BY ... LIMIT, whose keys may use the columns of FROM.
            limits: its bound LIMIT and OFFSET.
        """
        inputs, node, conditions, clauses = self._bound(tree, order)
        order = None if order is None else all_items(order, len(clauses.items))
        projected = self._project(tree, clauses, _selected(node, conditions), order)
        return self._as_often(tree, clauses, self._finished(tree, inputs, projected, order, limits))

    def _as_often(self, tree: SelectQuery, clauses: Clauses, node: Algebra) -> Algebra:
        """Apply the FREQUENCY of a SELECT to its answer stream."""
        if tree.frequency is None:
            return node
        context = self.context
        outputs = [(item.name, item.expression) for item in clauses.items]
        partition = items_of_partition(tree.frequency, clauses.binder.scope, outputs, context)
        if not node.is_stream:
            checked(node, tree.frequency.span, context)
            node = in_order(answers(on_the_line(without_promises(node))), tree.frequency.span, context)
        return picked(tree.frequency, node, partition, context)

    def _bound(
        self, tree: SelectQuery, order: SortedQuery | None = None
    ) -> tuple[Inputs, Algebra, tuple[Expression, ...], Clauses]:
        """Return FROM, the relation of it and WHERE, the conditions that also read enclosing rows, and the later
        clauses.

        Every clause is bound even if another one fails, so that each reports its errors.
        """
        inputs, scope = self._inputs(tree)
        rows = self.context.attempt(lambda: self._rows(tree, inputs, scope))
        clauses, whole = self._clauses(tree, scope, order)
        if rows is None or not whole:
            clauses.check()
            raise BindingFailed
        return inputs, *rows, clauses

    def _finished(
        self,
        tree: SelectQuery,
        inputs: Inputs,
        selected: Projected,
        order: SortedQuery | None = None,
        limits: Limits | None = None,
    ) -> Algebra:
        context = self.context
        projected, keys, width = selected
        projected = collected(projected, inputs, context)
        refuse_partners(projected, inputs, tree.span, context)
        if tree.distinct:
            if reaches_internal(projected):
                refuse_internal("DISTINCT", inputs, tree.span, context)
            projected = closing_groups(Distinct(projected))
        if order is not None:
            projected = first_rows(order, projected, keys, width, limits or NO_LIMITS)
        if tree.wrapped is None:
            return projected
        return to_stream(tree.wrapped, projected, context, tree.frequency is not None)

    def _inputs(self, tree: SelectQuery) -> tuple[Inputs, Scope]:
        check_tree(tree, self.context)
        if tree.source is None:
            scope = Scope((), self.outer, self.enclosing, without_from=True)
            return Inputs((FromInput(one_row(), tree.span),), ()), scope
        closed = {periods.closed_alias(part) for part in periods.anded(tree.where)}
        binder = SourceBinder(
            self.context,
            self._nested,
            self.views,
            self._subqueries,
            self.outer,
            self.enclosing,
            frozenset(alias for alias in closed if alias is not None),
            lengths.lower_bounds(tree.where),
            _window_of_all(tree),
        )
        inputs = binder.bind(tree.source)
        return inputs, Scope(inputs.entries, self.outer, self.enclosing)

    def _subqueries(self, scope: Scope) -> ClauseSubqueries:
        """Return a collector for the subqueries of one clause; they may read the columns of this query and of enclosing
        ones.
        """

        def bind(nested: QueryTree, entries: tuple[Entry, ...]) -> Inner:
            enclosing = (entries, *scope.enclosing)
            return QueryBinder(self.context, self.views, self.outer, enclosing).subquery(nested)

        return ClauseSubqueries(self.context, scope.entries, bind)

    def _rows(self, tree: SelectQuery, inputs: Inputs, scope: Scope) -> tuple[Algebra, tuple[Expression, ...]]:
        """Return the relation of FROM and WHERE, and the conditions that also read the enclosing query."""
        subqueries = self._subqueries(scope)
        condition = tree.where
        unseen = frozenset(item.alias.key for item in tree.items if item.alias is not None)
        where = self.context.attempt(lambda: self._where(condition, scope, subqueries, unseen))
        parts = () if where is None else conjuncts(where)
        plain = conjunction(tuple(p for p in parts if not attached_in(p) and not reads_outer(p)))
        if inputs.failed:
            raise BindingFailed
        if where is not None:
            columns = ExpressionBinder(scope, self.context, "WHERE")
            inputs = closed_inputs(condition, inputs, plain, columns, self.context)
        if tree.preference is None:
            node = self.context.attempt(lambda: build_joins(inputs, plain, self.context))
        else:
            own = () if plain is None else conjuncts(plain)
            node = self.context.attempt(lambda: preferred(tree, inputs, own, scope, self.context))
        if node is None or (where is None and condition is not None):
            raise BindingFailed
        applied = Applied(node, subqueries)
        applied.keep([p for p in parts if attached_in(p) and not reads_outer(p)])
        correlated = tuple(applied.resolved(p) for p in parts if reads_outer(p))
        return applied.node, correlated

    def _where(
        self, condition: exp.Expr | None, scope: Scope, subqueries: ClauseSubqueries, unseen: frozenset[str]
    ) -> Expression | None:
        if condition is None:
            return None
        binder = ExpressionBinder(scope, self.context, "WHERE", closes=True, subqueries=subqueries, unseen=unseen)
        return binder.predicate(condition, "WHERE")

    def _clauses(self, tree: SelectQuery, scope: Scope, order: SortedQuery | None = None) -> tuple[Clauses, bool]:
        """Return the bound select list, GROUP BY, HAVING and ORDER BY, and whether all of them could be bound."""
        context = self.context
        within, behind = self._subqueries(scope), self._subqueries(scope)
        earlier = earlier_items(tree.items, scope)
        aliases = {
            item.alias.key: in_full(item.value, before, scope)
            for item, before in zip(tree.items, earlier, strict=True)
            if item.alias is not None and not isinstance(item.value, Star)
        }
        binder = ExpressionBinder(scope, context, None, aliases, subqueries=behind, inner_subqueries=within)
        if tree.distinct and len(tree.items) > 1 and isinstance(tree.items[0].value, exp.Paren):
            hint = "the last row of each key is s [PARTITION BY key ROWS 1]"
            context.warn("DISTINCT is of all items together, not of the first", span_of(tree.items[0].value), hint)
        bound = context.attempt(lambda: self._group(tree, binder, earlier))
        group, sets = (None, ()) if bound is None else bound
        frequent = context.attempt(lambda: frequent_terms(tree.frequent, group or (), binder))
        binder.frequent = None if frequent is None else frequent.aggregate
        tried = [
            (item, context.attempt(partial(self._item, item, replace(binder, earlier=before))))
            for item, before in zip(tree.items, earlier, strict=True)
        ]
        items = [output for _, bound in tried for output in bound or ()]
        missing = frozenset(name.key for item, bound in tried if bound is None for name in _names_of(item))
        grouped = (
            bool(tree.group or tree.sets)
            or tree.group_all is not None
            or tree.having is not None
            or _has_aggregate(tree, order, context.catalog)
        )
        having_tree = tree.having
        having = None
        if having_tree is not None:
            having = context.attempt(lambda: replace(binder, closes=True).predicate(having_tree, "HAVING"))
        outputs = [(item.name, item.expression) for item in items]
        sorter = replace(binder, aliases={}, outputs=outputs, lost=missing)
        complete = all(bound is not None for _, bound in tried)
        order = None if order is None else all_items(order, len(items))
        keys = [] if order is None else context.attempt(lambda: bind_keys(order, outputs, sorter, complete))
        binder.column_spans.extend(column_span for item in items for column_span in item.column_spans)
        span = tree.span if having_tree is None else span_of(having_tree)
        known = group if grouped else None
        sure = group is not None and (frequent is None) == (tree.frequent is None)
        clauses = Clauses(binder, items, known, having, span, within, behind, keys or [], sure, frequent, sets)
        return clauses, complete and sure and keys is not None and (having_tree is None) == (having is None)

    def _project(
        self, tree: SelectQuery, clauses: Clauses, node: Algebra, order: SortedQuery | None = None
    ) -> Projected:
        """Return the select list over `node`, grouped where the query is, and the sort keys over its columns.

        The columns after the returned number are only needed by the keys.
        """
        if clauses.sets:
            return self._project_sets(tree, clauses, node, order)
        if clauses.group is None:
            applied = Applied(node, clauses.behind)
            items, keys = [item.expression for item in clauses.items], clauses.keys
        else:
            grouped = clauses.grouped(node, ())
            closed = closed_groups(tree.having, grouped.node, grouped.group_column, clauses.binder)
            applied = Applied(closed, clauses.behind, grouped.lift)
            applied.keep(grouped.having)
            items, keys = grouped.items, grouped.keys
        expressions = [applied.resolved(item) for item in items]
        resolved = [applied.resolved(key) for key in keys]
        fields = clauses.fields()
        placed, hidden = place_keys(resolved, expressions, order if tree.distinct else None, self.context)
        extra = tuple(Field(f"order {i + 1}", e.type) for i, e in enumerate(hidden))
        return Project(applied.node, (*expressions, *hidden), fields + extra), placed, len(fields)

    def _project_sets(self, tree: SelectQuery, clauses: Clauses, node: Algebra, order: SortedQuery | None) -> Projected:
        """Return the select list of every grouping set over `node`, one behind the other, as `_project` does."""
        written = [item.expression for item in clauses.items]
        placed, hidden = place_keys(clauses.keys, written, order if tree.distinct else None, self.context)
        members: list[Algebra] = []
        for only in clauses.sets:
            grouped = clauses.grouped(node, (), only)
            closed = closed_groups(tree.having, grouped.node, grouped.group_column, clauses.binder)
            applied = Applied(closed, clauses.behind, grouped.lift)
            applied.keep(grouped.having)
            keys = [key for key, of in zip(grouped.keys, clauses.keys, strict=True) if of in hidden]
            expressions = tuple(applied.resolved(part) for part in (*grouped.items, *keys))
            extra = tuple(Field(f"order {i + 1}", e.type) for i, e in enumerate(keys))
            members.append(Project(applied.node, expressions, clauses.fields() + extra))
        return UnionAll(tuple(members)) if len(members) > 1 else members[0], placed, len(clauses.items)

    # --- subqueries

    def subquery(self, tree: QueryTree) -> Inner:
        """Return a query in an expression, as rows that the enclosing query is joined with."""
        inner = self.rows_of(tree)[0] if isinstance(tree, SelectQuery) else whole(self.bind(tree))
        return whole(unbounded(inner.node)) if inner.node.is_stream else inner

    def rows_of(self, tree: SelectQuery, beside: bool = False) -> tuple[Inner, tuple[str, ...]]:
        """Return a SELECT by its references to the enclosing row, and the names of its columns.

        `beside`: it only reads the nearest enclosing row, beside which it is in FROM.
        """
        inputs, node, conditions, clauses = self._bound(tree)
        names = tuple(item.name for item in clauses.items)
        read = [column for e in (*conditions, *clauses.expressions()) for column in outer_columns(e)]
        if any(column.depth == 1 or not beside for column in read):
            self._refuse_around(tree, inputs)
            correlated = Correlated(tree, clauses).bind(node, conditions)
            if correlated is not None:
                return correlated, names
        finished = self._finished(tree, inputs, self._project(tree, clauses, _selected(node, conditions)))
        return whole(self._as_often(tree, clauses, finished)), names

    def _refuse_around(self, tree: SelectQuery, inputs: Inputs) -> None:
        """Report clauses that a SELECT that reads the enclosing query may not have."""
        if tree.frequency is not None:
            hint = "write the subquery as a view"
            message = "FREQUENCY in a subquery that reads the enclosing query"
            self.context.fail("P0312", message, tree.frequency.span, hint)
        if tree.frequent is not None:
            hint = "write the subquery as a view"
            message = "FREQUENT in a subquery that reads the enclosing query"
            self.context.fail("P0312", message, tree.frequent.span, hint)
        if tree.wrapped is not None:
            hint = "leave it out: the subquery is a relation at every instant"
            message = f"{tree.wrapped.operator.value} in a subquery that reads the enclosing query"
            self.context.fail("P0312", message, tree.wrapped.span, hint)
        if any(member.internal is not None for member in inputs.members):
            refuse_internal("a subquery that reads the enclosing query", inputs, tree.span, self.context)

    def _item(self, item: Item, clauses: ExpressionBinder) -> list[SelectItem]:
        value, scope = item.value, clauses.scope
        if isinstance(value, Star):
            columns = star_columns(value, replace(clauses, aliases={}))
            return [SelectItem(one.name, one.expression, one.span, one.column_spans) for one in columns]
        binder = replace(clauses, aliases={}, column_spans=[])
        if periods.is_period(binder, value):
            alias = None if item.alias is None else item.alias.text
            found = periods.items(binder, value, alias)
            return [SelectItem(name, bound, span_of(value), binder.column_spans) for name, bound in found]
        bound = binder.bind(value)
        if pa.types.is_null(bound.type):
            bound = cast_to(bound, pa.string())  # a bare NULL is a column too
        if item.alias is not None:
            name = item.alias.text
            self._warn_of_alias(item, item.alias, scope)
        else:
            of_column = isinstance(bound, Column) and isinstance(value, exp.Column)
            same = of_column and scope.can_resolve(name_of(value.this))
            name = bound.name if same and isinstance(bound, Column) else display_name(value)
        return [SelectItem(name, bound, span_of(value), binder.column_spans)]

    def _warn_of_alias(self, item: Item, alias: Name, scope: Scope) -> None:
        """Warn of a column whose alias, without AS, is another column: a comma is probably missing."""
        if not isinstance(item.value, exp.Column) or not scope.can_resolve(alias):
            return
        place = span_of(item.value)
        if not self.context.source.text[place.end : alias.span.start].strip():
            shown = self.context.source.slice(place)
            hint = (
                f"a comma between them selects both: {shown}, {alias.text}; with AS before the name there is no warning"
            )
            self.context.warn(f"{shown} is called {alias.text} here, the name of a column", alias.span, hint)

    def _group(
        self, tree: SelectQuery, clauses: ExpressionBinder, earlier: Sequence[Mapping[str, exp.Expr]]
    ) -> tuple[tuple[Expression, ...], tuple[tuple[Expression, ...], ...]]:
        """Return the grouping expressions, and those of each grouping set. A number means the item at that position,
        ALL every item without an aggregate. Those with subqueries, which are applied to the rows, are registered in
        `clauses`.

        Args:
            earlier: for each item, what the names of those before it stand for.
        """
        binder = replace(clauses, aggregates="GROUP BY", subqueries=clauses.inner_subqueries, inner_subqueries=None)

        def bind(node: exp.Expr) -> list[Expression]:
            return bind_key(self._ordinal(node, tree) if isinstance(node, exp.Literal) and not node.is_string else node)

        def bind_key(grouped_by: exp.Expr) -> list[Expression]:
            of_period = periods.bounds_of(binder, grouped_by)
            if of_period is not None:
                return of_period
            bound = binder.bind(grouped_by)
            if attached_in(bound):
                clauses.grouped = (*clauses.grouped, (binder.aliased_item(grouped_by), bound))
            return [bound]

        def bind_item(item: Item, before: Mapping[str, exp.Expr]) -> list[Expression]:
            if isinstance(item.value, Star):
                columns = [one.expression for one in star_columns(item.value, replace(clauses, aliases={}))]
                return [one for one in columns if not any(isinstance(part, AggregateCall) for part in walk(one))]
            value = in_full(item.value, before, clauses.scope)
            return [] if _calls_aggregate(value, self.context.catalog) else bind_key(value)

        if tree.group_all is None:
            bound = self.context.each(bind, tree.group)
        else:
            bound = self.context.each(lambda pair: bind_item(*pair), list(zip(tree.items, earlier, strict=True)))
        sets = tuple(tuple(dict.fromkeys(key for i in one for key in bound[i])) for one in tree.sets)
        return tuple(dict.fromkeys(key for keys in bound for key in keys)), sets

    def _ordinal(self, node: exp.Expr, tree: SelectQuery) -> exp.Expr:
        text = str(node.this)
        position = ordinal(text, len(tree.items))
        if position is None:
            message = f"GROUP BY {text}: the select list has {counted(len(tree.items), 'item')}"
            self.context.fail("P0304", message, span_of(node))
        value = tree.items[position].value
        if isinstance(value, Star):
            self.context.fail("P0304", f"GROUP BY {text} refers to a *; name the columns", span_of(node))
        return value

    # --- set operations, ORDER BY

    def _sorted(self, tree: SortedQuery) -> Algebra:
        context = self.context
        if not isinstance(tree.order, AllItems):
            tree = replace(tree, order=tuple(part for key in tree.order for part in periods.order_of(key, context)))
        limits = context.attempt(lambda: limits_of(tree, context, self.order))
        if isinstance(tree.query, SelectQuery) and tree.query.wrapped is None and tree.query.frequency is None:
            node = self._select(tree.query, tree, limits)
        elif isinstance(tree.query, StreamQuery | SelectQuery):
            self.context.attempt(lambda: self.bind(tree.query))
            refuse_stream(tree, context)
        else:
            node = self.bind(tree.query)
            if node.is_stream:
                refuse_stream(tree, context)
            node = sorted_relation(tree, node, limits or NO_LIMITS, context)
        if limits is None:
            raise BindingFailed
        return node


def _window_of_all(tree: SelectQuery) -> WindowClause | None:
    """Return the window that a preference gives to every stream of FROM that has none."""
    clause = tree.preference
    if clause is None or clause.window is None:
        return None
    return WindowClause(Extent.RANGE, clause.window, span=clause.window_span)


def span_of_query(tree: QueryTree) -> TextSpan:
    return tree.operator_span if isinstance(tree, SetQuery) else tree.span


def _selected(node: Algebra, conditions: tuple[Expression, ...]) -> Algebra:
    predicate = conjunction(conditions)
    return node if predicate is None else AlgebraSelect(node, predicate)


def _names_of(item: Item) -> list[Name]:
    """Return the names of a select item: its alias, or that of its column."""
    if item.alias is not None:
        return [item.alias]
    value = item.value
    plain = isinstance(value, exp.Column) and isinstance(value.this, exp.Identifier)
    return [name_of(value.this)] if plain and not isinstance(value, Star) else []


def _has_aggregate(tree: SelectQuery, order: SortedQuery | None, catalog: Catalog) -> bool:
    values = [value for item in tree.items for value in item.expressions]
    values += [key.value for key in sort_keys(order)] if order is not None else []
    return any(_calls_aggregate(value, catalog) for value in values)


def _calls_aggregate(value: exp.Expr, catalog: Catalog) -> bool:
    calls = (call for call in value.find_all(exp.Anonymous) if not isinstance(call.parent, exp.Window))
    return any(called_aggregate(call, catalog) for call in calls)


def display_name(node: exp.Expr) -> str:
    """Return the name of an item without alias: its text, lower case, without qualifiers: `sum(bytes)`."""
    copy = node.copy()
    for column in copy.find_all(exp.Column):
        column.set("table", None)
        column.this.set("quoted", False)
    text = scalar_text(copy).replace("FILTER(", "FILTER (")
    parts = re.split(r"('(?:[^'\\]|\\.)*')", text)
    return "".join(part if i % 2 else part.lower() for i, part in enumerate(parts))
