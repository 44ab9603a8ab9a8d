"""Subqueries in expressions, replaced by semi-joins, marks and outer joins [semantics 4].

While an expression is bound, a subquery in it is a `SubqueryValue`, a placeholder by number; `ClauseSubqueries` has its
definition. When the relation below is known, `Applied` joins the subqueries to it: one that is a condition of its own
keeps or drops tuples, any other adds a column. References to the enclosing row outside of its conditions are first
removed by `unnesting.py`. SQL's NULL rules: `x IN S` is TRUE where a row equals x, else NULL where x or a row is NULL
(and S is not empty), else FALSE; so it is decided by three plain EXISTS conditions. `(x, y) IN S` is in
`row_membership.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NoReturn

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import Algebra, Distinct, OuterKind, Project, Select, SemiKind
from penstock.algebra.nodes.base import common_domain
from penstock.algebra.null_safe import may_be_null, same, zero_of
from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.expressions.calls.functions import build_call
from penstock.expressions.nodes import (
    Call,
    Column,
    Expression,
    Literal,
    OuterColumn,
    columns_of,
    conjunction,
    conjuncts,
    remap,
)
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.inputs.joins import join_two, outer_join, semi_join
from penstock.language.binder.inputs.keyed import columns
from penstock.language.binder.inputs.promised import outer_by_promises
from penstock.language.binder.placeholders import (
    OPERAND,
    SubqueryValue,
    attached_in,
    nearer,
    outer_columns,
    over_both,
    reads_outer,
    replace_attached,
)
from penstock.language.binder.rows import Inner
from penstock.language.binder.scope import Entry
from penstock.language.binder.subqueries import row_membership
from penstock.language.binder.subqueries.unnesting import Unnesting
from penstock.language.printer import print_query
from penstock.language.queries import EmbeddedQuery, QueryTree
from penstock.language.text import TextSpan
from penstock.tree import transform_up, walk_once
from penstock.types import Field

_TRUE, _FALSE = Literal(pa.bool_(), True), Literal(pa.bool_(), False)
_UNKNOWN = Literal(pa.bool_(), None)


#: Rows, and a condition over them and the enclosing row: is it TRUE for one of the rows?
Question = tuple[Inner, Expression]


@dataclass(frozen=True)
class Subquery:
    """One occurrence of a subquery.

    `operands`: x of `x IN (...)`, or x, y of `(x, y) IN (...)`, over the enclosing query; `test`: the condition for a
    matching row, `x = item`.
    """

    inner: Inner
    kind: str
    type: pa.DataType
    span: TextSpan
    text: str
    operands: tuple[Expression, ...] = ()
    test: Expression | None = None


@dataclass
class ClauseSubqueries:
    """The subqueries of one clause. `bind`: binds the tree of one, with the enclosing columns as argument."""

    context: Context
    entries: tuple[Entry, ...]
    bind: Callable[[QueryTree, tuple[Entry, ...]], Inner]
    found: list[Subquery] = field(default_factory=list)

    def exists(self, tree: QueryTree, span: TextSpan) -> Expression:
        return self._add(tree, "EXISTS", self.bind(tree, self.entries), span, pa.bool_())

    def scalar(self, tree: QueryTree, span: TextSpan) -> Expression:
        return self.row(1, tree, span)[0]

    def row(self, width: int, tree: QueryTree, span: TextSpan) -> list[Expression]:
        """Return the values of the one row of a subquery that has `width` columns."""
        inner = self.bind(tree, self.entries)
        self._check_width(inner, width, span)
        subquery = self._add(tree, "SCALAR", inner, span, inner.items[0].type)
        return [replace(subquery, type=item.type, position=position) for position, item in enumerate(inner.items)]

    def contains(
        self,
        operands: Sequence[Expression] | None,
        tree: QueryTree,
        span: TextSpan,
        compare: Callable[[Sequence[Expression], Sequence[Expression]], Expression],
    ) -> Expression:
        """Return whether a row of the subquery compares with the operands; None for operands that could not be
        bound.
        """
        inner = self.bind(tree, self.entries)
        if operands is None:
            raise BindingFailed
        self._check_width(inner, len(operands), span)
        own = next((item for item in inner.items if isinstance(item, OuterColumn)), None)
        if own is not None:
            message = f"{own.name} is a column of the enclosing query here, and none of the subquery's sources"
            self.context.warn(message, span, "name a column of the subquery, as in a IN (SELECT t.a FROM t)")
        outer = [OuterColumn(operand.type, OPERAND - n, "") for n, operand in enumerate(operands)]
        test = compare(outer, inner.items)
        return self._add(tree, "IN", inner, span, pa.bool_(), tuple(operands), test)

    def _check_width(self, inner: Inner, width: int, span: TextSpan) -> None:
        if len(inner.items) != width:
            has = "one column" if len(inner.items) == 1 else f"{len(inner.items)} columns"
            needed = "one is" if width == 1 else f"{width} are"
            self.context.fail("P0305", f"this subquery has {has}, {needed} needed", span)

    def _add(
        self,
        tree: QueryTree,
        kind: str,
        inner: Inner,
        span: TextSpan,
        type_: pa.DataType,
        operands: tuple[Expression, ...] = (),
        test: Expression | None = None,
    ) -> SubqueryValue:
        self.found.append(Subquery(inner, kind, type_, span, f"({print_query(tree)})", operands, test))
        return SubqueryValue(type_, len(self.found) - 1)


@dataclass
class Applied:
    """`node` with subqueries joined to it: its own columns first, then those that they added.

    `lift`: rewrites an expression over the enclosing columns, as the subqueries were bound, to one over `node` (after a
    GROUP BY these differ). `unjoined`: `node` as it was before the first unnested subquery was joined to it.
    """

    node: Algebra
    subqueries: ClauseSubqueries
    lift: Callable[[Expression, TextSpan], Expression] = lambda expression, _: expression
    values: dict[int, Sequence[Expression]] = field(default_factory=dict)
    settled: dict[int, Subquery] = field(default_factory=dict)
    unjoined: Algebra | None = None

    def keep(self, conditions: Sequence[Expression]) -> None:
        """Keep only the tuples for which all `conditions` are TRUE."""
        predicates: list[Expression] = []
        for condition in conditions:
            negated = isinstance(condition, Call) and condition.function == "NOT"
            value = condition.arguments[0] if negated and isinstance(condition, Call) else condition
            if isinstance(value, SubqueryValue) and self._questions(self._settled(value.number)) is not None:
                self._keep(self._settled(value.number), negated)
            else:
                predicates.append(self.resolved(condition))
        predicate = conjunction(tuple(predicates))
        if predicate is not None:
            self.node = Select(self.node, predicate)

    def resolved(self, expression: Expression) -> Expression:
        """Return `expression` with the values of the subqueries in it, which become columns of `node`."""
        if not attached_in(expression):
            return expression
        return replace_attached(expression, self._value)

    def paired(self, number: int, fields: Sequence[Field]) -> Algebra:
        """Return each tuple of `node` with every row of the subquery for it."""
        subquery = self._settled(number)
        inner, width = subquery.inner, len(self.node.schema)
        right = self._beside(subquery)
        conditions = self._over_both(subquery, (*inner.conditions, *inner.items))
        items = conditions[len(inner.conditions) :]
        conditions = conditions[: len(inner.conditions)]
        if inner.always:
            joined = outer_join(self.node, right, conditions, OuterKind.LEFT)
        else:
            joined = join_two(self.node, right, list(conditions))
        if inner.having is not None:
            joined = Select(joined, self._over_both(subquery, (inner.having,))[0])
        return Project(joined, (*columns(joined, range(width)), *items), (*self.node.schema, *fields))

    # --- values of subqueries for a tuple

    def _value(self, value: SubqueryValue) -> Expression:
        if value.number not in self.values:
            subquery = self._settled(value.number)
            questions = self._questions(subquery)
            row = self._row(subquery) if questions is None else [self._answer(subquery, *questions)]
            self.values[value.number] = row
        return self.values[value.number][value.position]

    def _questions(self, subquery: Subquery) -> tuple[list[Question], list[Question]] | None:
        """Return the questions whether a row makes the result TRUE, and those whether one makes it NULL where it is not
        TRUE: those of rows of values include the first.

        None where the result is computed from the one row of an aggregate.
        """
        inner = subquery.inner
        if inner.always or subquery.kind == "SCALAR":
            return None
        if subquery.test is None:
            return [(inner, _TRUE)], []
        sure = [(inner, subquery.test)]
        if len(subquery.operands) > 1:  # a row that differs in one column does not match, even if it has NULLs
            return sure, row_membership.questions(inner, subquery.test, subquery.operands)
        operand = subquery.operands[0]
        unknown = [_is_null(i) for i in inner.items if may_be_null(i)]
        if may_be_null(operand):
            unknown.append(_is_null(OuterColumn(operand.type, OPERAND, "")))
        return sure, [(inner, condition) for condition in unknown]

    def _keep(self, subquery: Subquery, negated: bool) -> None:
        questions = self._questions(subquery)
        assert questions is not None
        sure, unknown = questions
        if not negated:
            self._ask(subquery, sure[0], SemiKind.SEMI)
            return
        may_be_null = bool(unknown)  # then no promise ends what NOT IN compares
        included = len(subquery.operands) > 1
        for question in (*(() if included else sure), *unknown):  # TRUE only where no row makes IN TRUE or NULL
            self._ask(subquery, question, SemiKind.ANTI, not may_be_null)

    def _answer(self, subquery: Subquery, sure: list[Question], unknown: list[Question]) -> Expression:
        if unknown == sure:
            unknown = []
        found, *vague = [self._mark(subquery, question, not unknown) for question in (*sure, *unknown)]
        if not vague:
            return found
        return build_call("CASE", [found, _TRUE, reduce(_either, vague), _UNKNOWN, _FALSE])

    def _mark(self, subquery: Subquery, question: Question, by_promises: bool) -> Expression:
        self._ask(subquery, question, SemiKind.MARK, by_promises)
        return Column(pa.bool_(), len(self.node.schema) - 1, "matched")

    def _ask(self, subquery: Subquery, question: Question, kind: SemiKind, by_promises: bool = True) -> None:
        inner, condition = question
        subquery = replace(subquery, inner=inner)
        conditions = self._over_both(subquery, (*inner.conditions, *conjuncts(condition)))
        right = self._beside(subquery)
        joined = semi_join(self.node, right, tuple(c for c in conditions if c != _TRUE), kind)
        self.node = outer_by_promises(joined) if by_promises else joined

    def _row(self, subquery: Subquery) -> list[Expression]:
        """Return the values of the subquery's one row, as columns of an outer join."""
        inner = subquery.inner
        items = self._results(subquery)
        right = self._beside(subquery)
        if not inner.always:
            right, items = _as_columns(right, items)
        conditions = self._over_both(subquery, inner.conditions)
        width = len(self.node.schema)
        values = [over_both(item, width, lambda column: self._outer(subquery, column)) for item in items]
        single = "" if inner.one_row or inner.always or frozenset() in right.keys else subquery.text
        self.node = outer_join(self.node, right, conditions, OuterKind.LEFT, single)
        return values

    def _results(self, subquery: Subquery) -> list[Expression]:
        """Return the values of the subquery's row, over it and the enclosing row."""
        inner = subquery.inner
        if subquery.kind == "SCALAR":
            return [i if inner.having is None else build_call("CASE", [inner.having, i]) for i in inner.items]
        sure = subquery.test if subquery.test is not None else _TRUE
        return [sure if inner.having is None else build_call("CASE", [inner.having, sure, _FALSE])]

    def _beside(self, subquery: Subquery) -> Algebra:
        context, right = self.subqueries.context, subquery.inner.node
        context.guard(subquery.span, lambda: common_domain((self.node, right)))
        return right

    def _over_both(self, subquery: Subquery, conditions: Sequence[Expression]) -> tuple[Expression, ...]:
        """Return conditions over the subquery's rows as conditions over pairs.

        Other subqueries that they read are joined to `node` first, so that its width is final.
        """
        for operand in subquery.operands:
            self.resolved(operand)
        width = len(self.node.schema)
        return tuple(over_both(c, width, lambda column: self._outer(subquery, column)) for c in conditions)

    def _outer(self, subquery: Subquery, column: OuterColumn) -> Expression:
        if column.index > OPERAND:
            return self.lift(Column(column.type, column.index, column.name), subquery.span)
        return self.resolved(self.lift(subquery.operands[OPERAND - column.index], subquery.span))

    def _settled(self, number: int) -> Subquery:
        """Return the subquery with rows whose references to the enclosing row are in its conditions alone."""
        if number not in self.settled:
            subquery = self.subqueries.found[number]
            read = {c.index: c for c in outer_columns(subquery.inner.node) if c.depth == 1}
            if read:
                subquery = self._unnested(subquery, list(read.values()))
            elif outer_columns(subquery.inner.node):  # it reads rows further out
                node = transform_up(subquery.inner.node, lambda n: nearer(n) if isinstance(n, OuterColumn) else n)
                subquery = replace(subquery, inner=replace(subquery.inner, node=node))
            self.settled[number] = subquery
        return self.settled[number]

    def _unnested(self, subquery: Subquery, read: list[OuterColumn]) -> Subquery:
        """Return the subquery's rows for every value of the columns `read`, and the conditions that select those of a
        row.
        """
        context, inner = self.subqueries.context, subquery.inner

        def refuse(why: str) -> NoReturn:
            context.fail("P0312", f"this subquery reads the enclosing query where it cannot: {why}", subquery.span)

        if any(zero_of(column.type) is None for column in read):
            refuse("values of this type cannot be compared")
        if any(isinstance(n, Expression) and is_volatile(n) for n in walk_once(self.node)):
            refuse("it contains a value that is drawn anew each time")
        self._beside(subquery)
        values = tuple(self._outer(subquery, column) for column in read)
        fields = tuple(Field(column.name, column.type) for column in read)
        domain = Distinct(Project(self._rows_with(values), values, fields))
        node = Unnesting(domain, {c.index: i for i, c in enumerate(read)}, refuse).put(inner.node)

        def moved(expression: Expression) -> Expression:
            return remap(expression, lambda i: i + len(read))

        agree = [part for i, c in enumerate(read) for part in same(Column(c.type, i, c.name), c)]
        rows = replace(
            inner,
            node=node,
            items=tuple(moved(item) for item in inner.items),
            conditions=(*(moved(c) for c in inner.conditions), *agree),
            having=None if inner.having is None else moved(inner.having),
            one_row=inner.one_row or frozenset() in inner.node.keys,
        )
        return replace(subquery, inner=rows, test=None if subquery.test is None else moved(subquery.test))

    def _rows_with(self, values: Sequence[Expression]) -> Algebra:
        """Return a plan with at least the rows of `node`, over which `values` can be computed.

        That is `node` without other unnested subqueries, each of which contains a domain of its own: were they part of
        the next one's, every subquery would double the plan. Further values in the domain match no row of `node`.
        """
        if self.unjoined is None:
            self.unjoined = self.node
        width = len(self.unjoined.schema)
        return self.unjoined if all(c < width for value in values for c in columns_of(value)) else self.node


def _as_columns(right: Algebra, items: Sequence[Expression]) -> tuple[Algebra, list[Expression]]:
    """Return `right` with `items` as columns, so that they are NULL where it has no row.

    Those that read the enclosing row too test a last column for its presence.
    """
    kept = columns(right, range(len(right.schema)))
    computed = [item for item in items if not isinstance(item, Column) and not reads_outer(item)]
    more = [Field("value", item.type) for item in computed]
    present = Column(pa.bool_(), len(kept) + len(computed), "there")
    correlated = any(map(reads_outer, items))
    if correlated:
        more.append(Field("there", pa.bool_()))
    if more:
        right = Project(right, (*kept, *computed, *([_TRUE] if correlated else [])), (*right.schema.fields, *more))
    positions = itertools.count(len(kept))

    def read(item: Expression) -> Expression:
        if isinstance(item, Column):
            return item
        return build_call("CASE", [present, item]) if reads_outer(item) else Column(item.type, next(positions), "value")

    return right, [read(item) for item in items]


def embedded_tree(node: exp.Expr) -> QueryTree:
    """Return the query inside a node of sqlglot that holds one."""
    query = node if isinstance(node, EmbeddedQuery) else node.find(EmbeddedQuery)
    assert isinstance(query, EmbeddedQuery)
    return query.tree


def _either(first: Expression, second: Expression) -> Expression:
    return build_call("OR", [first, second])


def _is_null(expression: Expression) -> Expression:
    return build_call("IS_NULL", [expression])
