"""Bases of operators that have much in common: over one input, row by row, over two compared sides, result streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.nodes.base.algebra import Algebra, Keys, has_lives
from penstock.algebra.nodes.base.checks import need_alike
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs
from penstock.algebra.properties.timestamps import common_columns
from penstock.algebra.properties.update_pattern import Pattern
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class Unary(Algebra):
    """An operator over one input, whose columns it passes on unless it overrides `schema`."""

    input: Algebra

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, eq=False)
class RowWise(Unary):
    """An operator that processes each row alone."""

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern

    @property
    def needs(self) -> Needs:
        return self.input.needs

    @property
    def arrives_in_order(self) -> bool:
        return self.input.arrives_in_order

    def as_read(self) -> Algebra:
        below = self.input.as_read()
        return self if below is self.input else replace(self, input=below)

    def without_window(self, ended: bool = False) -> Algebra | None:
        below = self.input.without_window(ended)
        return None if below is None else replace(self, input=below)

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    def lives_an_instant(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    @property
    def results_have_lives(self) -> bool:
        return has_lives(self.input)

    @property
    def may_be_kept(self) -> bool:
        return True

    @property
    def may_stand_over_internal(self) -> bool:
        return True

    @property
    def is_elementwise(self) -> bool:
        return self.input.is_elementwise

    @property
    def over_one_window(self) -> bool:
        return self.input.over_one_window

    @property
    def enters_with_elements(self) -> bool:
        return self.input.enters_with_elements


@dataclass(frozen=True, eq=False)
class Compared(Algebra):
    """A comparison of the copies of a tuple on two sides. every: by multiplicities; else as sets, with one copy in the
    result. Column types agree; names are the left's."""

    left: Algebra
    right: Algebra
    every: bool

    def __post_init__(self) -> None:
        need_alike((self.left, self.right))

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def schema(self) -> Schema:
        return self.left.schema

    @property
    def is_complete_at_once(self) -> bool:
        """Return whether equal rows of both sides enter together, and none leaves."""
        never_lose = self.left.pattern is self.right.pattern is Pattern.MONOTONIC
        return never_lose and bool(common_columns([self.left.timestamps, self.right.timestamps]))

    @property
    def whole(self) -> Keys:
        """Return the key that every set has: all columns together."""
        return frozenset({frozenset(range(len(self.schema)))})

    @property
    def carries_ends(self) -> bool:
        return False

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        return {"copies": "all" if self.every else "one"}


@dataclass(frozen=True, eq=False)
class Emitted(Algebra):
    """A stream of results: it is append-only, so nothing in it is ever retracted."""

    @property
    def is_stream(self) -> bool:
        return True

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC
