"""Stream to relation: windows give every element a validity interval (LANGUAGE 4.1)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.algebra.nodes import Algebra
from penstock.algebra.pattern import Pattern
from penstock.types import Schema


class WindowKind(enum.Enum):
    NOW = "NOW"
    RANGE = "RANGE"
    UNBOUNDED = "UNBOUNDED"


@dataclass(frozen=True, eq=False)
class Window(Algebra):
    """A time window over a stream. Lengths are in ticks of the input's domain.

    length: T of RANGE T (≥ 1), None otherwise; slide: s of SLIDE s (≥ 1), None for none; align: the tick that
    boundaries are counted from (ALIGN TO).
    """

    input: Algebra
    kind: WindowKind
    length: int | None = None
    slide: int | None = None
    align: int = 0

    @property
    def lifetime(self) -> int | None:
        """How many ticks an element counts, before SLIDE rounds: one for NOW, None for ever."""
        return 1 if self.kind is WindowKind.NOW else self.length

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC if self.kind is WindowKind.UNBOUNDED else Pattern.WEAKEST

    def describe(self) -> Mapping[str, str]:
        domain = self.domain
        show = domain.show_length if domain else str
        text = self.kind.value + (f" {show(self.length)}" if self.length is not None else "")
        if self.slide is not None:
            text += f" SLIDE {show(self.slide)}"
        if self.align:
            text += f" ALIGN TO {domain.show(self.align) if domain else self.align}"
        return {"window": text}
