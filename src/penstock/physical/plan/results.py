"""The specs of results counted one by one, and of what SLIDE makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.physical.plan.plan import PassingSpec, Spec


@dataclass(frozen=True)
class IndividualResultsSpec(PassingSpec):
    """The stream of all comings of a relation."""


@dataclass(frozen=True)
class ShortLivesSpec(Spec):
    """The elements without a boundary align + k·slide in their validity, at the boundary behind them."""

    slide: int
    align: int


@dataclass(frozen=True)
class ShortChangesSpec(Spec):
    """As ShortLives, of a relation's netted changes."""

    slide: int
    align: int
    types: tuple[pa.DataType, ...]


@dataclass(frozen=True)
class RoundedSpec(PassingSpec):
    """The elements with both ends put off to the next boundary align + k·slide."""

    slide: int
    align: int
