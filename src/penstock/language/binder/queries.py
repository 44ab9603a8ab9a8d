"""Queries to algebra (LANGUAGE 4): SELECT, ORDER BY ... LIMIT, relation-to-stream operators."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import Algebra, Distinct, Project
from penstock.algebra import Select as Selection
from penstock.algebra.internal import reaches_internal
from penstock.expressions.coercion import cast_to
from penstock.expressions.nodes import Column, Expression
from penstock.language.binder.calls import called_aggregate
from penstock.language.binder.context import Context, Refused
from penstock.language.binder.expressions import ExpressionBinder
from penstock.language.binder.grouping import Grouping
from penstock.language.binder.internal import collected, refuse_internal
from penstock.language.binder.joins import build_joins
from penstock.language.binder.scope import Entry, Scope
from penstock.language.binder.setops import bind_set
from penstock.language.binder.sorting import (
    NO_LIMITS,
    Limits,
    bind_keys,
    first_rows,
    limits_of,
    place_keys,
    refuse_stream,
    sorted_relation,
)
from penstock.language.binder.sources import SourceBinder, as_stream
from penstock.language.binder.streams import to_stream
from penstock.language.catalog import Catalog, View
from penstock.language.dialect import span_of
from penstock.language.printer import scalar_text
from penstock.language.queries import (
    Item,
    QueryTree,
    Select,
    SetQuery,
    SortedQuery,
    Star,
    StreamQuery,
    ToStream,
    WithQuery,
)
from penstock.language.text import Span
from penstock.types import Field


@dataclass(frozen=True)
class _Output:
    """A column of a select list; places: where the columns it reads stand."""

    name: str
    expression: Expression
    span: Span
    places: list[tuple[Column, Span]]


@dataclass(frozen=True)
class QueryBinder:
    """Binds query trees. views: those of WITH clauses around; outer: the columns of an enclosing query."""

    context: Context
    views: dict[str, View] = field(default_factory=dict)
    outer: tuple[Entry, ...] = ()

    def root(self, tree: QueryTree) -> Algebra:
        """A whole query, with the default of LANGUAGE 4.3. Raises Refused with the errors noted."""
        return as_stream(self.bind(tree))

    def bind(self, tree: QueryTree) -> Algebra:
        """A query as it stands: a stream when its outermost operator makes one, else a relation."""
        if isinstance(tree, Select):
            return self._select(tree)
        if isinstance(tree, SetQuery):
            return bind_set(tree, self.bind, self.context)
        if isinstance(tree, StreamQuery):
            return self._to_stream(tree.operator, self.bind(tree.query))
        if isinstance(tree, WithQuery):
            return self._with(tree)
        assert isinstance(tree, SortedQuery)
        return self._sorted(tree)

    def _nested(self, tree: QueryTree, outer: tuple[Entry, ...]) -> tuple[Algebra, tuple[str, ...]]:
        node = QueryBinder(self.context, self.views, outer).bind(tree)
        return node, node.schema.names

    def _with(self, tree: WithQuery) -> Algebra:
        views = dict(self.views)
        for local in tree.views:
            root = QueryBinder(self.context, views, self.outer).root(local.query)
            names = root.schema.names
            if local.columns:
                if len(local.columns) != len(names):
                    self.context.fail("P0305", f"{len(local.columns)} names for {len(names)} columns", local.name.span)
                names = tuple(c.text for c in local.columns)
            views[local.name.key] = View(local.name.text, root, names, "")
        return QueryBinder(self.context, views, self.outer).bind(tree.query)

    def _to_stream(self, operator: ToStream, node: Algebra) -> Algebra:
        return to_stream(operator, node, self.context)

    # --- SELECT

    def _select(self, tree: Select, order: SortedQuery | None = None, limits: Limits | None = None) -> Algebra:
        """order: the ORDER BY ... LIMIT around, which sees the columns of FROM; limits: what it comes to."""
        if tree.source is None:
            raise Refused
        inputs = SourceBinder(self.context, self._nested, self.views, self.outer).bind(tree.source)
        scope = Scope(inputs.entries, self.outer)
        context = self.context
        # Every clause is bound, so that each tells its errors; then the first Refused counts.
        condition = tree.where
        where = context.attempt(lambda: self._where(condition, scope, tree))
        node = context.attempt(lambda: build_joins(inputs, where, context))
        projected, keys, width = self._project(tree, scope, node if node is not None else inputs.members[0].node, order)
        if node is None or (where is None and condition is not None):
            raise Refused
        projected = collected(projected, inputs, context)
        if tree.distinct:
            if reaches_internal(projected):
                refuse_internal("DISTINCT", inputs, tree.span, context)
            projected = Distinct(projected)
        if order is not None:
            projected = first_rows(order, projected, keys, width, limits or NO_LIMITS)
        return self._to_stream(tree.wrapped, projected) if tree.wrapped is not None else projected

    def _where(self, condition: exp.Expr | None, scope: Scope, tree: Select) -> Expression | None:
        if condition is None:
            return None
        return ExpressionBinder(scope, self.context, "WHERE").predicate(condition, "WHERE")

    def _project(
        self, tree: Select, scope: Scope, node: Algebra, order: SortedQuery | None
    ) -> tuple[Algebra, list[Expression], int]:
        """The select list over `node`, grouped where the query is; the sort keys over its columns, of which those
        behind the given number are there for the keys alone."""
        context = self.context
        items = context.attempt(lambda: self._items(tree.items, scope))
        aliases = {i.alias.key: i.value for i in tree.items if i.alias is not None and not isinstance(i.value, Star)}
        grouped = bool(tree.group) or tree.having is not None or _has_aggregate(tree, order, context.catalog)
        binder = ExpressionBinder(scope, context, None, aliases)
        group = context.attempt(lambda: self._group(tree, scope, aliases, binder.places))
        having_tree = tree.having
        having = context.attempt(lambda: binder.predicate(having_tree, "HAVING")) if having_tree is not None else None
        if items is None or group is None or (having_tree is not None and having is None):
            raise Refused
        outputs = [(item.name, item.expression) for item in items]
        sorter = ExpressionBinder(scope, context, None, outputs=outputs, places=binder.places)
        keys = [] if order is None else bind_keys(order, outputs, sorter)
        binder.places.extend(place for item in items for place in item.places)
        expressions = [item.expression for item in items]
        if grouped:
            grouping = Grouping(binder, group)
            lifted = context.attempt(
                lambda: context.each(lambda item: grouping.lift(item.expression, item.span), items)
            )
            condition = None
            if having is not None and having_tree is not None:
                condition = grouping.lift(having, span_of(having_tree))
            if lifted is None:
                raise Refused
            expressions = lifted
            spans = [] if order is None else [span_of(key.value) for key in order.order]
            keys = context.each(lambda pair: grouping.lift(*pair), zip(keys, spans, strict=True))
            node = grouping.build(node)
            if condition is not None:
                node = Selection(node, condition)
        fields = tuple(Field(item.name, e.type) for item, e in zip(items, expressions, strict=True))
        width = len(fields)
        keys, hidden = place_keys(keys, expressions, order if tree.distinct else None, context)
        extra = tuple(Field(f"order {i + 1}", e.type) for i, e in enumerate(hidden))
        return Project(node, (*expressions, *hidden), fields + extra), keys, width

    def _items(self, items: Iterable[Item], scope: Scope) -> list[_Output]:
        return [output for found in self.context.each(lambda i: self._item(i, scope), items) for output in found]

    def _item(self, item: Item, scope: Scope) -> list[_Output]:
        value = item.value
        if isinstance(value, Star):
            entries = scope.star(value.qualifier, value.span, self.context)
            columns = [(e.name, e.column()) for e in entries]
            return [_Output(name, column, value.span, [(column, value.span)]) for name, column in columns]
        binder = ExpressionBinder(scope, self.context)
        bound = binder.bind(value)
        if pa.types.is_null(bound.type):
            bound = cast_to(bound, pa.string())  # a bare NULL is a column too
        if item.alias is not None:
            name = item.alias.text
        else:
            name = bound.name if isinstance(bound, Column) and isinstance(value, exp.Column) else display_name(value)
        return [_Output(name, bound, span_of(value), binder.places)]

    def _group(
        self, tree: Select, scope: Scope, aliases: dict[str, exp.Expr], places: list[tuple[Column, Span]]
    ) -> tuple[Expression, ...]:
        """The grouping expressions; a number means the item at that position."""
        binder = ExpressionBinder(scope, self.context, "GROUP BY", aliases, places)

        def bind(node: exp.Expr) -> Expression:
            if isinstance(node, exp.Literal) and not node.is_string:
                return binder.bind(self._ordinal(node, tree))
            return binder.bind(node)

        bound = self.context.each(bind, tree.group)
        return tuple(dict.fromkeys(bound))

    def _ordinal(self, node: exp.Expr, tree: Select) -> exp.Expr:
        text = str(node.this)
        position = int(text) if text.isdigit() else 0
        if not 1 <= position <= len(tree.items):
            message = f"GROUP BY {text}: the select list has {len(tree.items)} items"
            self.context.fail("P0304", message, span_of(node))
        value = tree.items[position - 1].value
        if isinstance(value, Star):
            self.context.fail("P0304", f"GROUP BY {text} means a *; name the columns", span_of(node))
        return value

    # --- set operations, ORDER BY

    def _sorted(self, tree: SortedQuery) -> Algebra:
        context = self.context
        limits = context.attempt(lambda: limits_of(tree, context))
        if isinstance(tree.query, Select) and tree.query.wrapped is None:
            node = self._select(tree.query, tree, limits)
        else:
            node = self.bind(tree.query)
            if node.is_stream:
                refuse_stream(tree, context)
            node = sorted_relation(tree, node, limits or NO_LIMITS, context)
        if limits is None:
            raise Refused
        return node


def _has_aggregate(tree: Select, order: SortedQuery | None, catalog: Catalog) -> bool:
    values = [item.value for item in tree.items if not isinstance(item.value, Star)]
    values += [key.value for key in order.order] if order is not None else []
    return any(called_aggregate(call, catalog) for value in values for call in value.find_all(exp.Anonymous))


def display_name(node: exp.Expr) -> str:
    """The name of an item without alias: its text, lower case, without qualifiers: `sum(bytes)`."""
    copy = node.copy()
    for column in copy.find_all(exp.Column):
        column.set("table", None)
        column.this.set("quoted", False)
    text = scalar_text(copy).replace("FILTER(", "FILTER (")
    parts = re.split(r"('(?:[^'\\]|\\.)*')", text)
    return "".join(part if i % 2 else part.lower() for i, part in enumerate(parts))
