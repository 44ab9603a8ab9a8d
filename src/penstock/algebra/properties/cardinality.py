"""Cardinality: how many rows a relation is expected to have and to change, and the formulas that operators share.

Each operator computes its own `Estimate` of those of its inputs (`Algebra.estimate_from`). Values are taken to be
uniform, and those of an input with fewer of them to be among those of the other `[System R]`. Of a stream's column that
nothing is known of, the number of values is unknown (infinite) below the window, which decides it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.expressions.nodes import Call, Expression, Literal, columns_of, conjuncts

#: The part of the tuples that a condition keeps: an equality, an inequality of columns, any other `[System R]`.
EQUALITY, INEQUALITY, OTHERWISE = 0.1, 1 / 3, 0.5
#: The smallest part of the tuples that is expected to have, or to lack, a partner.
SELDOM = 0.01
#: How often an element is processed by an operator with state, and where tuples are matched with their partners.
STORED_AND_LOOKED_UP, PROBED_FOR_PARTNERS = 2, 4


@dataclass(frozen=True)
class Estimate:
    """The estimate of a relation. rate: new tuples per second; length: seconds for which one is valid; distinct: by
    column the values that occur; taken: tuples per second that are retracted before their expiration, each by a
    negative tuple (of strict patterns only)."""

    rate: float
    length: float
    distinct: tuple[float, ...]
    taken: float = 0.0

    @property
    def size(self) -> float:
        return self.rate * self.length

    @property
    def emitted(self) -> float:
        """Return the elements per second, positive and negative ones, that an operator above receives."""
        return self.rate + self.taken

    def decided(self) -> Estimate:
        """Return this estimate with a number of values for the columns without statistics."""
        unknown = max(10.0, self.size / 10)
        return replace(self, distinct=tuple(unknown if math.isinf(v) else max(1.0, v) for v in self.distinct))

    def combinations(self, columns: Iterable[int]) -> float:
        """Return how many different values of `columns` are valid at one time."""
        combinations = 1.0
        for i in columns:
            combinations *= self.distinct[i]
        return max(1.0, min(self.size, combinations))

    def distinct_rows(self) -> Estimate:
        """Return the estimate of the relation without duplicates: every tuple once while one like it is valid, and
        again when the one that represented it expires."""
        rate = self.combinations(range(len(self.distinct))) / self.length
        return Estimate(rate, self.length, self.distinct, min(self.taken, rate))


def kept(condition: Expression, distinct: tuple[float, ...]) -> float:
    """Return the part of the tuples for which `condition` is expected to hold."""
    if isinstance(condition, Literal):
        return 1.0 if condition.value is True else 0.01
    if not isinstance(condition, Call):
        return OTHERWISE
    if condition.function == "EQ":
        values = [distinct[i] for i in columns_of(condition) if i < len(distinct) and not math.isinf(distinct[i])]
        return 1.0 / max(1.0, *values) if values else EQUALITY
    return INEQUALITY if condition.function in ("LT", "LE", "GT", "GE") else OTHERWISE


def agreeing(left: Estimate, right: Estimate, equal: Iterable[tuple[int, int]]) -> float:
    """Return the part of the pairs that agree in the columns `equal`."""
    part = 1.0
    for i, j in equal:
        part /= max(left.distinct[i], right.distinct[j])
    return part


def joined(sides: Sequence[Estimate], moving: Sequence[Estimate], part: float, residual: Expression | None) -> Estimate:
    """Return the estimate of a join: a new tuple of any side is joined with those of the others, and so is one that is
    retracted. moving: the sides that are not static; part: that of the combinations that agree in their columns."""
    distinct = tuple(v for side in sides for v in side.distinct)
    for condition in () if residual is None else conjuncts(residual):
        part *= kept(condition, distinct)
    size = part
    for side in sides:
        size *= side.size
    moving = moving or sides
    rate = sum(size / side.length for side in moving)
    taken = sum(side.taken * size / side.size for side in moving)
    return Estimate(max(rate, 1e-9), min(side.length for side in moving), distinct, taken)


@dataclass(frozen=True)
class Partners:
    """The estimates of the left tuples of a join by whether they have a partner. lone, matched: those without and with
    one; a tuple passes from one to the other, with a negative tuple there and a positive one here, whenever its first
    partner enters or its last one leaves."""

    lone: Estimate
    matched: Estimate


def partners(
    tuples: Estimate, partner: Estimate, equal: Iterable[tuple[int, int]], residual: Expression | None, static: bool
) -> Partners:
    """Return the estimates of `tuples`. Partners arrive independently: among those that a tuple has m of in
    the mean, none is there for e^-m of the time `[Poisson]`. static: `partner` never changes."""
    part = agreeing(tuples, partner, equal)
    distinct = tuples.distinct + partner.distinct
    for condition in () if residual is None else conjuncts(residual):
        part *= kept(condition, distinct)
    mean = partner.size * part
    lone = min(max(math.exp(-mean), SELDOM), 1 - SELDOM)
    # The rate at which a first partner enters for a lone tuple, and a last one leaves.
    turns = 0.0 if static else tuples.size * partner.rate * part * lone
    return Partners(_part(tuples, lone, turns), _part(tuples, 1 - lone, turns))


def _part(of: Estimate, part: float, turns: float) -> Estimate:
    rate, size = of.rate * part + turns, of.size * part
    return Estimate(rate, size / rate, of.distinct, of.taken * part + turns)
