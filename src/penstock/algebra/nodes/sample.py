"""SAMPLE(p): a stream with some of its elements left out, before any window [semantics 4.1]."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from penstock.algebra.nodes.base import RECORD, Algebra, Unary, column_labels
from penstock.algebra.nodes.base.checks import need_stream, refused
from penstock.algebra.nodes.base.fields import Columns, Seed
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs
from penstock.algebra.properties.promises import Promises
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.timestamps import Risings
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class Sample(Unary):
    """Each element is kept with probability `percent` / 100 (0 to 100).

    The draw is a function of the seed, the stream's name and the element, its timestamp and all its columns
    (`expressions/draws.py`), so that it is the same in every run, however the input is cut. Hence nothing below may
    drop columns, and what is kept at 10 percent is kept at 20.

    by: with columns it is a universe sample: the draw is one of the seed and their values alone, the same in every
    stream, so that samples of two streams by the columns that they are joined on meet. records: a last column has the
    inclusion records.
    """

    percent: Fraction
    seed: Seed
    name: str
    by: Columns = ()
    records: bool = False

    def __post_init__(self) -> None:
        need_stream(self.input)
        if not 0 <= self.percent <= 100:
            hint = "SAMPLE(10) keeps a tenth"
            raise refused("a sample is between 0 and 100 percent", "P0102", hint, ("percent",))

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, RECORD)) if self.records else self.input.schema

    def with_inclusion(self) -> Algebra | None:
        if self.input.with_inclusion() is not None:
            hint = "leave one of the samples out"
            raise PenstockError("P0355", f"ESTIMATE over a sample of a sample, {self.name}", hint=hint)
        return replace(self, records=True)

    @property
    def needs(self) -> Needs:
        return self.input.needs

    @property
    def promises(self) -> Promises:
        return self.input.promises

    @property
    def enters_with_elements(self) -> bool:
        return self.input.enters_with_elements

    @property
    def drawn_by(self) -> tuple[str, int] | None:
        # Universe samples share draws by intent: their records say which.
        return None if self.by else (self.name.lower(), self.seed)

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

    @property
    def rising(self) -> Risings:
        return self.input.rising

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        distinct = (*below.distinct, math.inf) if self.records else below.distinct
        return replace(below, rate=max(below.rate * float(self.percent) / 100, 1e-9), distinct=distinct)

    def describe(self) -> Mapping[str, str]:
        percent = self.percent.numerator if self.percent.denominator == 1 else float(self.percent)
        names = column_labels(self.input.schema)
        by = {"by": ", ".join(names[i] for i in self.by)} if self.by else {}
        return {"sample": f"{percent} percent", **by, "seed": str(self.seed)}
