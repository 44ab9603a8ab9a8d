"""SAMPLE(p): a stream with some of its elements left out, before any window [semantics 4.1]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from penstock.algebra.nodes.base import Unary
from penstock.algebra.properties.update_pattern import Pattern


@dataclass(frozen=True, eq=False)
class Sample(Unary):
    """Each element is kept with probability `percent` / 100 (0 to 100).

    The draw is a function of the seed, the stream's name and the element, its timestamp and all its columns
    (`expressions/draws.py`), so that it is the same in every run, however the input is cut. Hence nothing below may
    drop columns, and what is kept at 10 percent is kept at 20.
    """

    percent: Fraction
    seed: int
    name: str

    @property
    def is_stream(self) -> bool:
        return True

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern

    def describe(self) -> Mapping[str, str]:
        percent = self.percent.numerator if self.percent.denominator == 1 else float(self.percent)
        return {"sample": f"{percent} percent", "seed": str(self.seed)}
