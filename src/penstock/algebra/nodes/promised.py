"""Operators whose state ends by what streams promise (docs/promises.md).

A closing at t takes effect after t. A row that left answers no look-up; what it gave stands until its own end. Which
promises an operator uses stands in it, as the query's text decides it; no rule reads keys, an order or limits of rows
from a promise. Operators of these classes are binary and stay where they are: by default no rule moves them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import (
    Algebra,
    ColumnPruning,
    Delay,
    Pruned,
    TimeModelWindow,
    Unary,
    column_labels,
    operators,
)
from penstock.algebra.nodes.base.fields import Pairs
from penstock.algebra.nodes.join import Join, condition_text, joined_pattern, pruned_sides
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.scans import StreamScan
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.promised_state import EndingPromise, ended_by, with_expected
from penstock.algebra.properties.promises import (
    NO_PROMISES,
    Base,
    Clustered,
    ForeignKey,
    Ordered,
    PassedPromise,
    Promises,
    Punctuated,
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


def compared_pairs(leaving: Iterable[Leaving]) -> tuple[tuple[int, int], ...]:
    """Return the pairs (left, right) of columns by which rows leave with the values of the other side."""
    pairs = [(one, pair) for one in leaving for pair in zip(one.columns, one.promise.columns, strict=False)]
    return tuple(dict.fromkeys(pair if one.side == 0 else pair[::-1] for one, pair in pairs))


def shard_pairs(leaving: Sequence[Leaving], pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return those `pairs` (left, right) of columns by which rows may lie in shards: all rows of one value of CLUSTERED
    BY, and the rows that it ends, are then in one."""
    clustered = [one for one in leaving if isinstance(one.promise.promise, Clustered)]
    return tuple(pair for pair in pairs if all(pair[one.side] in one.columns for one in clustered))


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

    leaving: why rows leave, not empty; the first to close decides. unused: promises of CLUSTERED BY that are left out,
    since no shard could have all rows of their values.
    """

    in_language: ClassVar[str] = "a join"

    left: Algebra
    right: Algebra
    equal: Pairs
    residual: Expression | None
    joined: JoinResult
    leaving: tuple[Leaving, ...]
    unused: tuple[Base, ...] = ()

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
    def stored(self) -> tuple[Boundedness, ...]:
        return tuple(bound for side in (0, 1) if (bound := self.stored_side(side)) is not None)

    def stored_side(self, side: int) -> Boundedness | None:
        """Return what bounds the rows of a side that are stored; None where none are beyond their own instant."""
        if any(one.side == side and one.is_immediate and one.slide is None for one in self.leaving):
            return None
        node = self.inputs[side]
        return ended_by(self.ending(side), node.boundedness, f"row of {', '.join(node.source_names)}")

    def ended(self, rate: Callable[[str], float]) -> tuple[Boundedness, ...]:
        found = []
        for side in (0, 1):
            bound, below = self.stored_side(side), self.inputs[side].boundedness
            if bound is None:
                bound = Boundedness(Grade.BOUNDED, "the rows of an instant", source=below.source)
            found.append(with_expected(bound, self.ending(side), rate))
        return tuple(found)

    def ending(self, side: int) -> tuple[EndingPromise, ...]:
        """Return the promises by which rows of a side leave."""
        labels = [column_labels(one.schema) for one in (self.left, self.right)]
        return tuple(
            EndingPromise(one.promise, tuple(labels[one.of][c] for c in one.promise.columns), self.domain)
            for one in self.leaving
            if one.side == side
        )

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
        shown = {"keeps": self.joined.value, "on": on, "leaving": "; ".join(map(self._shown, self.leaving))}
        not_used = "; ".join(f"{one.promise.WORDS} of {one.source} ({one.promise.name})" for one in self.unused)
        return {**shown, **({"not used": not_used} if not_used else {}), "order": "kept, by promises"}

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
    def delays(self) -> tuple[Delay, ...]:
        return (Delay(_longest_time(one for condition in self.closing for one in condition)),)

    @property
    def promises(self) -> Promises:
        used = dict.fromkeys(one for condition in self.closing for one in condition)
        whole = tuple(one for one in self.input.promises if one in used)
        return (*whole, *(one for one in used if one not in whole))

    @property
    def stored(self) -> tuple[Boundedness, ...]:
        return tuple(ended_by(_ending(self.input, one), self.input.boundedness, "") for one in self.closing)

    def ended(self, rate: Callable[[str], float]) -> tuple[Boundedness, ...]:
        pairs = zip(self.stored, self.closing, strict=True)
        return tuple(with_expected(bound, _ending(self.input, one), rate) for bound, one in pairs)

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
    def delays(self) -> tuple[Delay, ...]:
        return (Delay(_longest_time(self.closing)),) if self.final else ()

    @property
    def stored(self) -> tuple[Boundedness, ...]:
        return (ended_by(_ending(self.input, self.closing), self.without_promises.boundedness, ""),)

    def ended(self, rate: Callable[[str], float]) -> tuple[Boundedness, ...]:
        return tuple(with_expected(bound, _ending(self.input, self.closing), rate) for bound in self.stored)

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
        found = dict(self.without_promises.describe())
        found["groups end by"] = shown_promises(self.closing, self.input.schema)
        used = {one.bases for one in self.closing}
        unused = tuple(one for one in self.input.promises if self._could_end_by(one) and one.bases not in used)
        if unused:
            found["not used"] = shown_promises(unused, self.input.schema)
        return found | ({"emitted": "once, when closed"} if self.final else {})

    def _could_end_by(self, one: PassedPromise) -> bool:
        """Return whether a promise would end groups, if not for the others: their rows lie by one column or more."""
        return isinstance(one.promise, Clustered) and set(one.columns) <= set(self.group)


def _longest_time(promises: Iterable[PassedPromise]) -> int:
    """Return the longest time after its last row at which time closes a value; 0 where rows alone do."""
    bases = (base.promise for one in promises for base in one.bases)
    return max((one.within.ticks or 0 for one in bases if isinstance(one, Clustered | Ordered)), default=0)


def follows_from_entering(closing: Iterable[PassedPromise], node: Algebra) -> bool:
    """Return whether the first closing of a row by any of `closing` is the first from the instant on at which the row
    enters `node`, and not only from that of its element: that is so behind a CLOSED of one condition, which the first
    of its closings ends, and for what ORDERED BY has closed, which stays closed."""
    if not any(isinstance(one.promise, Clustered) for one in closing):
        return True
    return all(len(one.closing) == 1 for one in operators(node) if isinstance(one, ClosedRows))


def _ending(node: Algebra, promises: Promises) -> tuple[EndingPromise, ...]:
    """Return promises of the streams of `node` that close values of its rows."""
    labels = column_labels(node.schema)
    return tuple(EndingPromise(one, tuple(labels[c] for c in one.columns), node.domain) for one in promises)


def closes_values(one: PassedPromise) -> bool:
    """Return whether rows of the stream itself, before or after, decide when a value is closed."""
    return isinstance(one.promise, Clustered | Ordered | Punctuated)


def promises_by_equalities(node: Algebra) -> Promises:
    """Return the promises of a node, and behind them the same of columns of one type that a join below compares with
    theirs by `=`: a row of it has the same values in both. Only promises that close values are among these."""
    if isinstance(node, Select):
        return promises_by_equalities(node.input)
    if isinstance(node, Project):
        return tuple(dict.fromkeys((*node.promises, *node.moved(promises_by_equalities(node.input)))))
    if not isinstance(node, PromisedJoin) or node.joined is not JoinResult.INNER:
        return node.promises
    width, types = len(node.left.schema), node.schema.types
    equal = {c: c for c in range(len(types))}
    for left, right in node.equal:
        if types[left] == types[width + right]:
            equal |= {left: width + right, width + right: left}
    found = list(node.promises)
    for one in node.promises:
        if closes_values(one):
            choices = [dict.fromkeys((c, equal[c])) for c in one.columns]
            found += [replace(one, columns=columns) for columns in product(*choices)]
    return tuple(dict.fromkeys(found))


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


def closed_by_punctuations(root: Algebra) -> frozenset[str]:
    """Return the streams whose punctuations decide when a CLOSED(c, ..) of a plan holds."""
    found: list[PassedPromise] = []
    for node in operators(root):
        if isinstance(node, ClosedRows):
            found += [one for condition in node.closing for one in condition]
        elif isinstance(node, ClosingGroups) and node.final:
            found += node.closing
    return frozenset(base.source for one in found if isinstance(one.promise, Punctuated) for base in one.bases)


def unfounded_promises(root: Algebra) -> Iterator[str]:
    """Yield what operators use of promises that do not hold of their inputs; nothing for a plan that is right."""
    for node in operators(root):
        if isinstance(node, PromisedJoin):
            sides = (node.left, node.right)
            for one in node.leaving:
                if not one.promise.is_among(sides[one.of].promises):
                    yield f"{one.promise} of side {one.of} of {node.describe()['on']}"
        elif isinstance(node, ClosedRows | ClosingGroups):
            used = node.closing if isinstance(node, ClosingGroups) else [one for part in node.closing for one in part]
            there = promises_by_equalities(node.input) if isinstance(node, ClosingGroups) else node.input.promises
            yield from (f"{one} below {node.worded}" for one in used if not one.is_among(there))


def promises_used(root: Algebra) -> frozenset[tuple[str, str]]:
    """Return the stream and the name of each promise that a plan rests on: what ends state by it, or checks it."""
    found: set[tuple[str, str]] = set()
    for node in operators(root):
        used: list[PassedPromise] = []
        if isinstance(node, PromisedJoin):
            used += [one.promise for one in node.leaving]
        elif isinstance(node, ClosingGroups):
            used += node.closing
        elif isinstance(node, ClosedRows):
            used += [one for part in node.closing for one in part]
        elif isinstance(node, StreamScan):
            found |= {(node.source.name, check.name) for check in node.checks}
        found |= {(base.source, base.promise.name) for one in used for base in one.bases}
    return frozenset(found)


def enters_at_once(node: Algebra) -> bool:
    """Return whether the rows of a relation enter at the timestamps of their elements: neither at a boundary of SLIDE
    nor when CLOSED holds."""
    if node.is_stream:
        return True
    if isinstance(node, ClosedRows) or (isinstance(node, TimeModelWindow) and node.slide is not None):
        return False
    return all(map(enters_at_once, node.inputs))


def in_windows_of_time(node: Algebra) -> bool:
    """Return whether rows that leave by promises may be those of `node`: each enters with an element of a stream and
    ends with its own window, if at all."""
    return node.enters_with_elements and node.pattern is not Pattern.STRICT
