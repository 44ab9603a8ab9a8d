"""The specs of periods that last until the next element, and of rows that have lasted for so long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.until_next import Lives
from penstock.physical.plan.spec import Memory, Parameter, PassingSpec, Spec, Ticks
from penstock.physical.plan.state.state_parts import TIMES, StateInput, StatePart, width


@dataclass(frozen=True)
class UntilNextSpec(Spec):
    """The elements of a stream with their periods. types: of the columns of the stream; by, at_most, length, slide,
    align: as those of the algebra's `UntilNext`; lives: None for the stream of those that have ended."""

    types: tuple[pa.DataType, ...]
    by: tuple[int, ...]
    at_most: int | None
    lives: Lives | None
    length: int | None = None
    slide: int | None = None
    align: int = 0

    def describe(self) -> Mapping[str, Parameter]:
        found: dict[str, Parameter] = {"emitted": "at their end" if self.lives is None else self.lives.value}
        return found if self.at_most is None else {**found, "at most": Ticks(self.at_most)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        values = one.values(self.by) if self.by else 1.0
        bytes_each = 2 * 72 + width(self.types) + TIMES
        yield StatePart("last elements of every value", values, values * bytes_each, made.content)


@dataclass(frozen=True)
class LastingSpec(PassingSpec):
    """Rows whose period has lasted for `least` ticks; stateless. slide, align: the boundaries at which rows appear."""

    least: int
    slide: int | None = None
    align: int = 0

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    def describe(self) -> Mapping[str, Parameter]:
        return {"for": Ticks(self.least)}
