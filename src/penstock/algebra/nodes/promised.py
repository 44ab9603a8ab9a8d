"""Operators whose state ends by what streams promise (docs/promises.md).

A closing at t takes effect after t. A row that left answers no look-up; what it gave stands until its own end. Which
promises an operator uses stands in it, as the query's text decides it; no rule reads keys, an order or limits of rows
from a promise. Operators of these classes are binary and stay where they are: by default no rule moves them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra, ColumnPruning, Pruned, Unary, column_labels, operators
from penstock.algebra.nodes.base.fields import Pairs
from penstock.algebra.nodes.join import Join, condition_text, joined_pattern, pruned_sides
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.properties.promises import (
    NO_PROMISES,
    Clustered,
    ForeignKey,
    Ordered,
    PassedPromise,
    Promises,
    Unique,
    moved_promises,
)
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import AggregateCall, Expression
from penstock.tree import Node, transform_up
from penstock.types import Schema


@dataclass(frozen=True)
class Leaving:
    """By what rows of one side of a join leave.

    Args:
        side: 0 for the left, 1 for the right.
        promise: of that side, a reference to the other one, whose rows it counts; else of the other side. UNIQUE: a
            row leaves after it finds a row of the other side that is equal in all columns compared.
        columns: of that side, compared with those of the promise in their order; empty for a reference.
        slide, align: the boundaries at which rows of the other side enter, if its window has SLIDE.
    """

    side: int
    promise: PassedPromise
    columns: tuple[int, ...] = ()
    slide: int | None = None
    align: int = 0

    @property
    def of(self) -> int:
        """Return the side whose promise it is."""
        return self.side if isinstance(self.promise.promise, ForeignKey) else 1 - self.side

    def moved(self, own: Mapping[int, int], promised: Mapping[int, int]) -> Leaving:
        """Return it over sides whose columns are elsewhere. own: by position of the side whose rows leave; promised: of
        the side whose promise it is."""
        promise = replace(self.promise, columns=tuple(promised[c] for c in self.promise.columns))
        return replace(self, promise=promise, columns=tuple(own[c] for c in self.columns))

    @property
    def is_immediate(self) -> bool:
        """Return whether a row leaves after its own instant: the rows that it refers to have come."""
        kinds = [base.promise for base in self.promise.bases]
        return all(isinstance(one, ForeignKey) and not (one.within.rows or one.within.ticks) for one in kinds)


class JoinResult(enum.Enum):
    """What a join with promises returns: as `Join`, `OuterJoin` and `SemiJoin` do."""

    INNER = "pairs"
    LEFT = "left"
    FULL = "both"
    SEMI = "with a partner"
    ANTI = "without a partner"
    MARK = "marked"


@dataclass(frozen=True, eq=False)
class PromisedJoin(Algebra):
    """A join whose rows leave by promises. `left`, `right`, `equal`, `residual` as in `Join`.

    leaving: why rows leave, not empty; the first to close decides.
    """

    in_language: ClassVar[str] = "a join"

    left: Algebra
    right: Algebra
    equal: Pairs
    residual: Expression | None
    joined: JoinResult
    leaving: tuple[Leaving, ...]

    @property
    def without_promises(self) -> Join | OuterJoin | SemiJoin:
        """Return the join whose rows stay."""
        sides = self.left, self.right, self.equal, self.residual
        if self.joined is JoinResult.INNER:
            return Join(*sides)
        if self.joined in (JoinResult.LEFT, JoinResult.FULL):
            return OuterJoin(*sides, OuterKind(self.joined.value))
        return SemiJoin(*sides, SemiKind(self.joined.value))

    @property
    def schema(self) -> Schema:
        return self.without_promises.schema

    @property
    def pattern(self) -> Pattern:
        if self.joined in (JoinResult.INNER, JoinResult.SEMI):
            return joined_pattern(self.left, self.right)
        return Pattern.STRICT

    @property
    def negated_inputs(self) -> tuple[Algebra, ...]:
        return self.without_promises.negated_inputs

    @property
    def enters_with_elements(self) -> bool:
        return self.joined is JoinResult.INNER

    @property
    def promises(self) -> Promises:
        """Return the promises of the side whose rows leave after their own instant; never those of its parent, whose
        values may be closed long before a child comes."""
        sides = (self.left, self.right)
        if self.joined is not JoinResult.INNER or any(one.slide is not None for side in sides for one in side.promises):
            return NO_PROMISES
        shifts = (0, len(self.left.schema))
        immediate = {one.side for one in self.leaving if one.is_immediate}
        return tuple(
            promise
            for side in sorted(immediate)
            for promise in moved_promises(sides[side].promises, lambda c: c + shifts[side])  # noqa: B023
        )

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return self.without_promises.lives_within(holds)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # The columns of the promises stay: by them rows leave.
        width = len(self.left.schema)
        pairs = self.joined in (JoinResult.INNER, JoinResult.LEFT, JoinResult.FULL)
        read = {i for i in needed if pairs or i < width}
        for one in self.leaving:
            read |= {width * one.side + c for c in one.columns}
            read |= {width * one.of + c for c in one.promise.columns}
        below = pruned_sides((self.left, self.right), self.equal, self.residual, frozenset(read), pruning)
        sides = below.left, below.right
        leaving = tuple(one.moved(sides[one.side].positions, sides[one.of].positions) for one in self.leaving)
        node = replace(
            self, left=sides[0].node, right=sides[1].node, equal=below.equal, residual=below.residual, leaving=leaving
        )
        own = dict(below.left.positions) | {width: len(node.left.schema)}  # the mark is last
        return Pruned(node, below.positions if pairs else own)

    def describe(self) -> Mapping[str, str]:
        on = condition_text(self.left, self.right, self.equal, self.residual)
        return {"keeps": self.joined.value, "on": on, "leaving": "; ".join(map(self._shown, self.leaving))}

    def _shown(self, one: Leaving) -> str:
        side = ("left", "right")[one.side]
        base = one.promise.bases[0]
        return f"{side} by {base.promise.WORDS} of {base.source}"


@dataclass(frozen=True, eq=False)
class ClosedRows(Unary):
    """WHERE CLOSED(c, ..): every row of a monotonic relation enters at the first closing of its value at or after its
    own instant.

    closing: by condition promises of the input, not empty; of those of one condition the first to close decides, of
        several conditions the last.
    """

    in_language: ClassVar[str] = "CLOSED"

    closing: tuple[Promises, ...]

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC

    @property
    def enters_with_elements(self) -> bool:
        return True

    @property
    def promises(self) -> Promises:
        used = {one for condition in self.closing for one in condition}
        return tuple(one for one in self.input.promises if one in used)

    def describe(self) -> Mapping[str, str]:
        return {"closed by": " and ".join(shown_promises(one, self.schema) for one in self.closing)}


@dataclass(frozen=True, eq=False)
class ClosingGroups(Algebra):
    """GROUP BY over a monotonic relation. After the closing of a group its row stays as it is; a later row of the group
    begins it again, with a second row.

    rows: the grouping or DISTINCT whose groups end. closing: promises of its input, not empty, whose columns are
    grouped. final: HAVING CLOSED(c, ..): each group enters once, at its closing.
    """

    in_language: ClassVar[str] = "GROUP BY"

    input: Algebra
    group: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    names: tuple[str, ...]
    closing: Promises
    final: bool = False

    @property
    def without_promises(self) -> Aggregate | Distinct:
        """Return the grouping whose groups do not end."""
        if not self.aggregates:
            return Distinct(self.input)
        return Aggregate(self.input, self.group, self.aggregates, self.names)

    @property
    def schema(self) -> Schema:
        return self.without_promises.schema

    @property
    def pattern(self) -> Pattern:
        return Pattern.STRICT if self.aggregates and not self.final else Pattern.MONOTONIC

    @property
    def enters_with_elements(self) -> bool:
        return self.final or not self.aggregates

    @property
    def promises(self) -> Promises:
        if not self.aggregates:
            return self.input.promises
        if not self.final:
            return NO_PROMISES
        unique = (one for one in self.input.promises if isinstance(one.promise, Unique))
        placed = {c: place for place, c in reversed(list(enumerate(self.group)))}
        return moved_promises((*self.closing, *unique), placed.get)

    def describe(self) -> Mapping[str, str]:
        when = {"emitted": "once, when closed"} if self.final else {}
        return {
            **self.without_promises.describe(),
            "groups end by": shown_promises(self.closing, self.input.schema),
            **when,
        }


def closes_values(one: PassedPromise) -> bool:
    """Return whether rows of the stream itself, before or after, decide when a value is closed."""
    return isinstance(one.promise, Clustered | Ordered)


def shown_promises(promises: Promises, schema: Schema) -> str:
    labels = column_labels(schema)
    return "; ".join(f"{one.promise.WORDS} ({', '.join(labels[c] for c in one.columns)})" for one in promises)


def without_promises(root: Algebra) -> Algebra:
    """Return a plan whose state does not end by promises, of which the answer is the same where they are kept. CLOSED
    stays."""

    def change(node: Node) -> Node:
        if isinstance(node, PromisedJoin) or (isinstance(node, ClosingGroups) and not node.final):
            return node.without_promises
        return node

    return transform_up(root, change)


def awaits_closing(root: Algebra) -> bool:
    """Return whether a plan has a CLOSED(c, ..)."""
    return any(isinstance(one, ClosedRows) or (isinstance(one, ClosingGroups) and one.final) for one in operators(root))


def unfounded_promises(root: Algebra) -> Iterator[str]:
    """Yield what operators use of promises that do not hold of their inputs; nothing for a plan that is right."""
    for node in operators(root):
        if isinstance(node, PromisedJoin):
            sides = (node.left, node.right)
            for one in node.leaving:
                if one.promise not in sides[one.of].promises:
                    yield f"{one.promise} of side {one.of} of {node.describe()['on']}"
        elif isinstance(node, ClosedRows | ClosingGroups):
            used = node.closing if isinstance(node, ClosingGroups) else [one for part in node.closing for one in part]
            yield from (f"{one} below {node.worded}" for one in used if one not in node.input.promises)


def in_windows_of_time(node: Algebra) -> bool:
    """Return whether rows that leave by promises may be those of `node`: each enters with an element of a stream and
    ends with its own window, if at all."""
    return node.enters_with_elements and node.pattern is not Pattern.STRICT
