"""Unnesting of a relation that reads the enclosing row (Neumann and Kemper, Unnesting Arbitrary Queries).

The *domain* D is the set of all values that the enclosing rows have in the columns that are read. `Unnesting.put`
transforms a relation X that reads such a row d into the relation { (d, x) : d in D, x in X(d) }, which reads none: D is
pushed down to the operators that read it, each of which then has the values in its own rows. As D is a relation like
any other, this holds at every instant. Relations that are not below a reader are only multiplied by D.

Rows of D are distinguished like DISTINCT does: NULL equals NULL, so where D meets D, one condition per column compares
the values and one compares whether they are NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from typing import NoReturn

import pyarrow as pa

from penstock.algebra import (
    Aggregate,
    Algebra,
    Distinct,
    Except,
    Intersect,
    Join,
    OuterJoin,
    OuterKind,
    Project,
    Select,
    SemiJoin,
    SortKey,
    TopK,
    UnionAll,
)
from penstock.algebra.nodes.base.fields import Pairs
from penstock.algebra.nodes.promised import ClosingGroups, PromisedJoin
from penstock.algebra.null_safe import same
from penstock.expressions.aggregates import value_of_nothing
from penstock.expressions.calls.functions import build_call
from penstock.expressions.nodes import (
    Call,
    Column,
    Expression,
    Literal,
    OuterColumn,
    conjunction,
    conjuncts,
    remap,
)
from penstock.expressions.user import UserAggregateCall
from penstock.language.binder.inputs.joins import join_two, outer_join, semi_join
from penstock.language.binder.inputs.keyed import columns
from penstock.language.binder.placeholders import nearer, outer_columns
from penstock.tree import Node, transform_up
from penstock.types import Field

_STREAM = "below a window or ISTREAM there are streams, which cannot depend on the current row"
_TRUE, _FALSE = Literal(pa.bool_(), True), Literal(pa.bool_(), False)
_THERE = Field("there", pa.bool_())


@dataclass
class Unnesting:
    """Unnest relations. `positions`: positions of the enclosing row's columns in `domain`; `refuse`: is called with the
    reason why a relation cannot be unnested.
    """

    domain: Algebra
    positions: Mapping[int, int]
    refuse: Callable[[str], NoReturn]
    _reads: dict[str, bool] = field(default_factory=dict)
    _made: dict[str, Algebra] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return len(self.domain.schema)

    def put(self, node: Algebra) -> Algebra:
        """Return the rows of `node` for every row of the domain, whose columns precede its own."""
        known = self._made.get(node.fingerprint)
        if known is None:
            if not self.reads(node):
                known = join_two(self.domain, self.nearer(node), [])
            elif node.is_stream:
                self.refuse(_STREAM)
            else:
                known = self._put(node)
            self._made[node.fingerprint] = known
        return known

    def reads(self, node: Algebra) -> bool:
        """Return whether `node` reads the nearest enclosing row, and not only rows further out."""
        known = self._reads.get(node.fingerprint)
        if known is None:
            known = self._reads[node.fingerprint] = any(c.depth == 1 for c in outer_columns(node))
        return known

    def nearer(self, node: Algebra) -> Algebra:
        """Return `node`, which does not read the nearest enclosing row, as seen from the enclosing query."""
        return transform_up(node, lambda n: nearer(n) if isinstance(n, OuterColumn) else n)

    def over(self, expression: Expression, position: Callable[[int], int] | None = None) -> Expression:
        """Return `expression` over rows that begin with the domain's. `position`: maps its columns; by default they
        follow.
        """
        moved = position or (lambda i: i + self.width)

        def move(node: Node) -> Node:
            if isinstance(node, Column):
                return Column(node.type, moved(node.index), node.name)
            if not isinstance(node, OuterColumn):
                return node
            return self._place(node) if node.depth == 1 else nearer(node)

        return transform_up(expression, move)

    def _place(self, column: OuterColumn) -> Column:
        return Column(column.type, self.positions[column.index], column.name)

    def _own(self) -> tuple[Column, ...]:
        return columns(self.domain, range(self.width))

    def _same(self, start: int) -> list[Expression]:
        """Return conditions under which the row of the domain at the front and the one at `start` are equal."""
        return [
            part
            for i, f in enumerate(self.domain.schema)
            for part in same(Column(f.type, i, f.name), Column(f.type, start + i, f.name))
        ]

    # --- one operator each

    @singledispatchmethod
    def _put(self, node: Algebra) -> Algebra:
        return self.refuse(_STREAM)

    @_put.register
    def _(self, node: PromisedJoin) -> Algebra:
        return self._put(node.without_promises)  # of the relation for every row of the domain nothing is promised

    @_put.register
    def _(self, node: ClosingGroups) -> Algebra:
        return self.refuse("CLOSED") if node.final else self._put(node.without_promises)

    @_put.register
    def _(self, node: Select) -> Algebra:
        parts = conjuncts(node.predicate)
        if self.reads(node.input):
            predicate = conjunction(tuple(self.over(part) for part in parts))
            assert predicate is not None
            return Select(self.put(node.input), predicate)
        plain = conjunction(tuple(part for part in parts if not outer_columns(part)))
        below = self.nearer(node.input if plain is None else Select(node.input, plain))
        return join_two(self.domain, below, [self.over(part) for part in parts if outer_columns(part)])

    @_put.register
    def _(self, node: Project) -> Algebra:
        expressions = tuple(self.over(e) for e in node.expressions)
        return Project(self.put(node.input), (*self._own(), *expressions), (*self.domain.schema, *node.fields))

    @_put.register
    def _(self, node: Distinct) -> Algebra:
        return Distinct(self.put(node.input))

    @_put.register
    def _(self, node: UnionAll) -> Algebra:
        return UnionAll(tuple(self.put(member) for member in node.members))

    @_put.register(Except | Intersect)
    def _(self, node: Except | Intersect) -> Algebra:
        return replace(node, left=self.put(node.left), right=self.put(node.right))

    @_put.register
    def _(self, node: TopK) -> Algebra:
        order = tuple(SortKey(key.column + self.width, *key[1:]) for key in node.order)
        partition = (*range(self.width), *(i + self.width for i in node.partition))
        return TopK(self.put(node.input), order, node.limit, node.offset, partition)

    @_put.register
    def _(self, node: Aggregate) -> Algebra:
        """Return one row for each row of the domain, also for an ungrouped aggregate without input rows."""
        group = (*range(self.width), *(i + self.width for i in node.group))
        calls = tuple(self.over(call) for call in node.aggregates)
        below = self.put(node.input)
        grouped: Algebra = Aggregate(below, group, calls, node.names)  # type: ignore[arg-type]  # a call over other rows is a call
        if node.group:
            return grouped
        own = any(isinstance(call, UserAggregateCall) for call in calls)
        nothing = Aggregate(Select(below, _FALSE), (), calls, node.names) if own else None  # type: ignore[arg-type]  # of users, a call too
        return self._with_rows_of_none(node, grouped, nothing)

    def _with_rows_of_none(self, node: Aggregate, groups: Algebra, nothing: Algebra | None) -> Algebra:
        """Return `groups`, those of an ungrouped aggregate by the domain, and a row for each domain row that has
        none.

        `nothing`: the aggregate of no rows, where a function of the user defines it.
        """
        width = self.width
        groups = Project(groups, (*columns(groups, range(len(groups.schema))), _TRUE), (*groups.schema, _THERE))
        joined = outer_join(self.domain, groups, tuple(self._same(width)), OuterKind.LEFT)
        start = len(joined.schema)
        *values, mark = columns(joined, range(2 * width, start))
        none: Sequence[Expression] = [
            Literal(v.type, value_of_nothing(call)) for v, call in zip(values, node.aggregates, strict=True)
        ]
        if nothing is not None:
            joined = join_two(joined, nothing, [])
            none = columns(joined, range(start, len(joined.schema)))
        has_group = build_call("IS_NOT_NULL", [mark])
        cells = [build_call("CASE", [has_group, v, empty]) for v, empty in zip(values, none, strict=True)]
        return Project(joined, (*self._own(), *cells), (*self.domain.schema, *node.schema))

    @_put.register
    def _(self, node: Join) -> Algebra:
        conditions = _conditions(node.left, node.right, node.equal, node.residual)
        width, left = self.width, len(node.left.schema)
        if not self.reads(node.right):
            return join_two(self.put(node.left), self.nearer(node.right), [self.over(c) for c in conditions])
        if not self.reads(node.left):  # the domain comes with the right side
            mine = [_swapped(self.over(c), width, left, len(node.right.schema)) for c in conditions]
            joined = join_two(self.put(node.right), self.nearer(node.left), mine)
            right = len(node.right.schema)
            order = [*range(width), *range(width + right, width + right + left), *range(width, width + right)]
            return Project(joined, columns(joined, order), tuple(joined.schema[i] for i in order))
        start = width + left
        parts = [*(self._of_both(c, left) for c in conditions), *self._same(start)]
        return self._without(join_two(self.put(node.left), self.put(node.right), parts), start)

    @_put.register
    def _(self, node: SemiJoin) -> Algebra:
        right, parts = self._partners(node)
        return semi_join(self.put(node.left), right, parts, node.kind)

    @_put.register
    def _(self, node: OuterJoin) -> Algebra:
        if node.kind is OuterKind.FULL:
            return self._full(node)
        right, parts = self._partners(node)
        joined = outer_join(self.put(node.left), right, parts, node.kind, node.single)
        twice = len(joined.schema) - self.width > len(node.schema)
        return self._without(joined, self.width + len(node.left.schema)) if twice else joined

    def _partners(self, node: SemiJoin | OuterJoin) -> tuple[Algebra, tuple[Expression, ...]]:
        """Return the right side of a join whose left side has the domain, and the conditions over both."""
        conditions = _conditions(node.left, node.right, node.equal, node.residual)
        left = len(node.left.schema)
        if not self.reads(node.right):
            return self.nearer(node.right), tuple(self.over(c) for c in conditions)
        parts = (*(self._of_both(c, left) for c in conditions), *self._same(self.width + left))
        return self.put(node.right), parts

    def _full(self, node: OuterJoin) -> Algebra:
        """Assign unmatched rows of either side to the domain row of the side that is present."""
        conditions = _conditions(node.left, node.right, node.equal, node.residual)
        width, left, right = self.width, len(node.left.schema), len(node.right.schema)
        left_rows = self.put(node.left)
        left_rows = Project(left_rows, (*columns(left_rows, range(width + left)), _TRUE), (*left_rows.schema, _THERE))
        start = width + left + 1

        def place(i: int) -> int:
            return i + width if i < left else i - left + start + width

        parts = (*(self.over(c, place) for c in conditions), *self._same(start))
        joined = outer_join(left_rows, self.put(node.right), parts, OuterKind.FULL)
        cells = columns(joined, range(len(joined.schema)))
        from_left = build_call("IS_NOT_NULL", [cells[start - 1]])
        domain = tuple(build_call("CASE", [from_left, cells[i], cells[start + i]]) for i in range(width))
        kept = (*cells[width : width + left], *cells[start + width : start + width + right])
        return Project(joined, (*domain, *kept), (*self.domain.schema, *node.schema))

    def _of_both(self, condition: Expression, left: int) -> Expression:
        """Return a condition over left and right as one over two sides that each begin with the domain."""
        return self.over(condition, lambda i: i + self.width if i < left else i + 2 * self.width)

    def _without(self, node: Algebra, start: int) -> Algebra:
        """Return `node` without the second copy of the domain's columns, at `start`."""
        kept = [i for i in range(len(node.schema)) if not start <= i < start + self.width]
        return Project(node, columns(node, kept), tuple(node.schema[i] for i in kept))


def _conditions(left: Algebra, right: Algebra, equal: Pairs, residual: Expression | None) -> list[Expression]:
    """Return a join's condition, in parts, over the columns of both sides."""
    width = len(left.schema)
    left_columns, right_columns = columns(left, range(width)), columns(right, range(len(right.schema)))
    pairs: Sequence[Expression] = [
        Call(pa.bool_(), "EQ", (left_columns[i], Column(right_columns[j].type, width + j, right_columns[j].name)))
        for i, j in equal
    ]
    return [*pairs, *(() if residual is None else conjuncts(residual))]


def _swapped(condition: Expression, width: int, left: int, right: int) -> Expression:
    """Return a condition over (domain, left, right) as one over (domain, right, left)."""
    start = width + left
    return remap(condition, lambda i: i if i < width else i + right if i < start else i - left)
