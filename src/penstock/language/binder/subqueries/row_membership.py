"""Where `(x1, x2) IN S` is not FALSE: conditions for semi-joins by equality.

A row of S makes the comparison TRUE or NULL exactly if it agrees with the operands wherever neither is NULL. For rows
without NULL that is an equality; with NULLs, which columns must be equal depends on both rows. So the columns that may
be NULL in S are divided: in each *question* those of some are NULL in S, and the others are compared. For the latter, S
is united with copies in which the columns that may be NULL on the left are blank, each marked with which ones, so that
an operand row finds those with the blanks it has itself. Every question is then a semi-join by equalities, and takes
time in proportion to its rows. Of more than `_MOST` such columns, the last are compared by a condition in the questions
about rows with NULL in them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.algebra import Project, UnionAll
from penstock.algebra.null_safe import may_be_null, without_null, zero_of
from penstock.expressions.calls.functions import build_call
from penstock.expressions.nodes import Call, Column, Expression, Literal, OuterColumn, conjunction, conjuncts
from penstock.language.binder.inputs.keyed import columns
from penstock.language.binder.placeholders import OPERAND, outer_columns
from penstock.language.binder.rows import Inner
from penstock.tree import Node, transform_up, walk
from penstock.types import Field

#: Most columns that are divided by whether they are NULL; where there are more, one fewer are.
_MOST = 3


@dataclass(frozen=True)
class _Compared:
    """A column: `equal` is TRUE where the operand `mine` equals `other`, that of S. mine_null, other_null: whether they
    may be NULL."""

    equal: Expression
    mine: Expression
    other: Expression
    mine_null: bool
    other_null: bool

    @property
    def agrees(self) -> Expression:
        """The condition that they are equal, or one is NULL."""
        return build_call("OR", [build_call("OR", [_is_null(self.mine), _is_null(self.other)]), self.equal])


def questions(inner: Inner, test: Expression, operands: Sequence[Expression]) -> list[tuple[Inner, Expression]]:
    """Return rows with a condition each, over them and the operands: `test` is TRUE or NULL for some row of `inner`
    exactly if one of the conditions is TRUE for one of its rows.

    Args:
        test: compares a row of `inner` with the operands, which are OuterColumns there.
    """
    parts = [_compared(part, operands) for part in conjuncts(test)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return [(inner, test), (inner, _is_null(test))]
    apart = [
        p for p in known if _is_operand(p.mine) and not outer_columns(p.other) and zero_of(p.mine.type) is not None
    ]
    always = [p.equal if not (p.mine_null or p.other_null) else p.agrees for p in known if p not in apart]
    always += [p.equal for p in apart if not (p.mine_null or p.other_null)]
    divided = [p for p in apart if p.mine_null or p.other_null]
    rest: list[_Compared] = []
    if len(divided) > _MOST:
        divided, rest = divided[: _MOST - 1], divided[_MOST - 1 :]
    found = []
    for blank in _subsets([p for p in divided if p.other_null]):
        rows, compared = _blanked(inner, [p for p in divided if p not in blank])
        here = [*always, *(_is_null(p.other) for p in blank), *compared]
        for more in _of_rest(rest):
            condition = conjunction((*here, *more))
            assert condition is not None, "there is a column"
            found.append((rows, condition))
    return found


def _compared(part: Expression, operands: Sequence[Expression]) -> _Compared | None:
    """Return the values that `part` compares for equality, None where it compares otherwise."""
    if not (isinstance(part, Call) and part.function == "EQ"):
        return None
    mine, other = part.arguments
    if _is_operand(other):
        mine, other = other, mine

    def operand(node: Node) -> Node:
        return operands[OPERAND - node.index] if isinstance(node, OuterColumn) and node.index <= OPERAND else node

    return _Compared(part, mine, other, may_be_null(transform_up(mine, operand)), may_be_null(other))


def _is_operand(expression: Expression) -> bool:
    """Return whether `expression` reads operands alone."""
    read = outer_columns(expression)
    return (
        bool(read)
        and all(c.depth == 1 and c.index <= OPERAND for c in read)
        and not any(isinstance(n, Column) for n in walk(expression))
    )


def _blanked(inner: Inner, compared: Collection[_Compared]) -> tuple[Inner, list[Expression]]:
    """Return the rows of `inner` united with their copies that have blanks where operands are NULL, and the equalities
    by which an operand row finds the rows that agree with it in the columns `compared`."""
    conditions = [p.equal for p in compared if not p.mine_null]
    nullable = [p for p in compared if p.mine_null]
    if not nullable:
        return inner, conditions
    width = len(inner.node.schema)
    own = columns(inner.node, range(width))
    members, fields = [], list(inner.node.schema.fields)
    for n, p in enumerate(nullable):
        value, gap = Column(p.other.type, width + 2 * n, "value"), Column(pa.bool_(), width + 2 * n + 1, "blank")
        fields += [Field(value.name, value.type), Field(gap.name, gap.type)]
        conditions += [build_call("EQ", [without_null(p.mine), value]), build_call("EQ", [_is_null(p.mine), gap])]
    for blank in _subsets(nullable):
        cells: list[Expression] = []
        for p in nullable:
            zero = Literal(p.other.type, zero_of(p.other.type))
            cell: Expression = zero if p in blank else without_null(p.other) if p.other_null else p.other
            cells += [cell, Literal(pa.bool_(), p in blank)]
        members.append(Project(inner.node, (*own, *cells), tuple(fields)))
    return replace(inner, node=UnionAll(tuple(members))), conditions


def _of_rest(rest: Sequence[_Compared]) -> Iterator[list[Expression]]:
    """Yield the conditions under which columns that are not divided agree: without NULL, with one in S, with one
    among the operands."""
    yield [p.equal for p in rest]
    agree = [p.agrees for p in rest]
    for gaps in ([p.other for p in rest if p.other_null], [p.mine for p in rest if p.mine_null]):
        if gaps:
            some = _is_null(gaps[0])
            for gap in gaps[1:]:
                some = build_call("OR", [some, _is_null(gap)])
            yield [some, *agree]


def _subsets(parts: Sequence[_Compared]) -> Iterator[tuple[_Compared, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(parts, n) for n in range(len(parts) + 1))


def _is_null(expression: Expression) -> Expression:
    return build_call("IS_NULL", [expression])
