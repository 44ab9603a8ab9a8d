"""SAMPLE(p): a stream with some of its elements left out, before any window [semantics 4.1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from penstock.algebra.nodes.base import Algebra, Unary
from penstock.algebra.optimizer.statistics import Statistics
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs
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
    def needs(self) -> Needs:
        return self.input.needs

    @property
    def is_stream(self) -> bool:
        return True

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern

    @property
    def arrives_in_order(self) -> bool:
        return self.input.arrives_in_order

    def as_read(self) -> Algebra:
        below = self.input.as_read()
        return self if below is self.input else replace(self, input=below)

    @property
    def timestamp_column(self) -> int | None:
        return self.input.timestamp_column

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        return replace(below, rate=max(below.rate * float(self.percent) / 100, 1e-9))

    def describe(self) -> Mapping[str, str]:
        percent = self.percent.numerator if self.percent.denominator == 1 else float(self.percent)
        return {"sample": f"{percent} percent", "seed": str(self.seed)}
