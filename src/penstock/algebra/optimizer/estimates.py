"""What is expected of a relation, from what is known of the sources: rates, lifetimes, distinct values.

`estimate` carries the statistics of the sources up a plan, as System R does for tables, per unit of time. Values are
taken to be uniform, and those of an input with fewer of them to be among those of the other. Of a stream's column that
nothing is known of, the number of values is unknown (infinite) below the window, which decides it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import singledispatch

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra, is_static
from penstock.algebra.nodes.join import Join, Pairs
from penstock.algebra.nodes.multi_join import MultiJoin
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.sample import Sample
from penstock.algebra.nodes.scans import Scan
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.nodes.set_operations import Except, UnionAll
from penstock.algebra.nodes.windows import RowWindow, Window, WindowKind
from penstock.algebra.optimizer.statistics import HORIZON, Statistics, seconds
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import Call, Column, Expression, Literal, columns_of, conjuncts

#: The part of the tuples that a condition keeps: an equality, an inequality of columns, any other `[System R]`.
EQUALITY, INEQUALITY, OTHERWISE = 0.1, 1 / 3, 0.5
#: The least part of the tuples that is expected to have, or to lack, a partner.
SELDOM = 0.01


@dataclass(frozen=True)
class Estimate:
    """What is expected of a relation. rate: new tuples per second; length: seconds that one counts; distinct: by column
    the values that occur; taken: tuples per second that are taken back before their end, each
    with a negative tuple (of strict patterns only)."""

    rate: float
    length: float
    distinct: tuple[float, ...]
    taken: float = 0.0

    @property
    def size(self) -> float:
        return self.rate * self.length

    @property
    def told(self) -> float:
        """Elements per second, positive and negative ones, that whoever reads the relation is handed."""
        return self.rate + self.taken


def estimate(node: Algebra, statistics: Statistics) -> Estimate:
    """What is expected of `node`."""
    known: Estimate | None = statistics.estimates.get(node.fingerprint)
    if known is None:
        known = statistics.estimates[node.fingerprint] = _estimate(node, statistics)
    return known


@singledispatch
def _estimate(node: Algebra, statistics: Statistics) -> Estimate:
    """Of an operator without an entry here: what its first input says of its columns."""
    inputs = [estimate(child, statistics) for child in node.inputs]
    known = inputs[0].distinct if inputs else ()
    distinct = tuple(known[i] if i < len(known) else math.inf for i in range(len(node.schema)))
    rate = sum(i.rate for i in inputs) or 1.0
    length = max((i.length for i in inputs), default=HORIZON)
    found = Estimate(rate, length, distinct, rate if node.pattern is Pattern.STRICT else 0.0)
    return found if node.is_stream else _decided(found)


def _decided(found: Estimate) -> Estimate:
    """`found` with a number of values for columns that nothing is known of."""
    unknown = max(10.0, found.size / 10)
    return replace(found, distinct=tuple(unknown if math.isinf(v) else max(1.0, v) for v in found.distinct))


@_estimate.register
def _scan(node: Scan, statistics: Statistics) -> Estimate:
    found = statistics.of(node.source)
    names = [node.source.columns[i].name.lower() for i in node.columns]
    taken = found.rate if node.pattern is Pattern.STRICT else 0.0
    told = Estimate(found.rate, HORIZON, tuple(found.distinct.get(n, math.inf) for n in names), taken)
    if node.is_stream:
        return told
    unique = {c for key in node.keys if len(key) == 1 for c in key}
    return _decided(replace(told, distinct=tuple(told.size if i in unique else v for i, v in enumerate(told.distinct))))


@_estimate.register
def _window(node: Window, statistics: Statistics) -> Estimate:
    below = estimate(node.input, statistics)
    if node.kind is WindowKind.UNBOUNDED or node.lifetime is None or node.domain is None:
        return _decided(below)
    return _decided(replace(below, length=seconds(node.lifetime, node.domain)))


@_estimate.register
def _row_window(node: RowWindow, statistics: Statistics) -> Estimate:
    """As long as it takes until `rows` later tuples have come, in every partition. All are taken back by later ones."""
    below = _decided(estimate(node.input, statistics))
    partitions = 1.0
    for i in node.partition:
        partitions *= below.distinct[i]
    length = below.length
    if node.rows is not None:
        length = min(length, node.rows * partitions / below.rate)
    if node.length is not None and node.domain is not None:
        length = min(length, seconds(node.length, node.domain))
    return replace(_decided(replace(estimate(node.input, statistics), length=length)), taken=below.rate)


@_estimate.register
def _sample(node: Sample, statistics: Statistics) -> Estimate:
    below = estimate(node.input, statistics)
    return replace(below, rate=max(below.rate * float(node.percent) / 100, 1e-9))


@_estimate.register
def _select(node: Select, statistics: Statistics) -> Estimate:
    below = estimate(node.input, statistics)
    part = 1.0
    distinct = list(below.distinct)
    for condition in conjuncts(node.predicate):
        part *= kept(condition, below.distinct)
        if _is_constant_equality(condition):
            distinct[next(iter(columns_of(condition)))] = 1.0
    return Estimate(below.rate * part, below.length, tuple(distinct), below.taken * part)


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


def _is_constant_equality(condition: Expression) -> bool:
    if not (isinstance(condition, Call) and condition.function == "EQ"):
        return False
    return any(isinstance(a, Column) for a in condition.arguments) and any(
        isinstance(a, Literal) for a in condition.arguments
    )


@_estimate.register
def _project(node: Project, statistics: Statistics) -> Estimate:
    below = estimate(node.input, statistics)
    return replace(below, distinct=tuple(_computed(e, below.distinct) for e in node.expressions))


def _computed(expression: Expression, distinct: tuple[float, ...]) -> float:
    """As many values as the columns read have together, at the most."""
    result = 1.0
    for i in columns_of(expression):
        result *= distinct[i]
    return result


@_estimate.register
def _distinct(node: Distinct, statistics: Statistics) -> Estimate:
    """Every tuple once while one like it counts: told anew when the one that it was told of ends."""
    below = estimate(node.input, statistics)
    size = _combinations(below, tuple(range(len(node.schema))))
    rate = size / below.length
    return Estimate(rate, below.length, below.distinct, min(below.taken, rate))


@_estimate.register
def _aggregate(node: Aggregate, statistics: Statistics) -> Estimate:
    """One tuple a group, replaced whenever an element comes or goes."""
    below = estimate(node.input, statistics)
    groups = _combinations(below, node.group)
    own = tuple(below.distinct[i] for i in node.group)
    rate = below.rate
    return Estimate(rate, groups / rate, own + tuple(groups for _ in node.aggregates), rate)


def _combinations(below: Estimate, columns: tuple[int, ...]) -> float:
    """Return how many different values of `columns` count at one time."""
    combinations = 1.0
    for i in columns:
        combinations *= below.distinct[i]
    return max(1.0, min(below.size, combinations))


@_estimate.register
def _union(node: UnionAll, statistics: Statistics) -> Estimate:
    members = [estimate(member, statistics) for member in node.members]
    distinct = tuple(max(m.distinct[i] for m in members) for i in range(len(node.schema)))
    rate = sum(m.rate for m in members)
    return Estimate(rate, sum(m.size for m in members) / rate, distinct, sum(m.taken for m in members))


@_estimate.register
def _join(node: Join, statistics: Statistics) -> Estimate:
    sides = [estimate(node.left, statistics), estimate(node.right, statistics)]
    moving = [s for s, n in zip(sides, (node.left, node.right), strict=True) if not is_static(n)]
    return _combined(sides, moving, _agreeing(sides[0], sides[1], node.equal), node.residual)


def _agreeing(left: Estimate, right: Estimate, equal: Pairs) -> float:
    """Return the part of the pairs that agree in the columns `equal`."""
    part = 1.0
    for i, j in equal:
        part /= max(left.distinct[i], right.distinct[j])
    return part


@_estimate.register
def _multi(node: MultiJoin, statistics: Statistics) -> Estimate:
    members = [estimate(member, statistics) for member in node.members]
    part = 1.0
    for places in node.classes:
        values = sorted(m.distinct[p] for m, p in zip(members, places, strict=True) if p is not None)
        for value in values[1:]:
            part /= value
    return _combined(members, members, part, node.residual)


def _combined(sides: list[Estimate], moving: list[Estimate], part: float, residual: Expression | None) -> Estimate:
    """Results of a join: a new tuple of any side meets those of the others, and so does one that is taken back."""
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
    """What is expected of the left tuples of a join that asks for partners. lone, matched: those without and with one;
    a tuple passes from one to the other, is taken back there and told here, whenever its first partner comes or its
    last one goes."""

    lone: Estimate
    matched: Estimate


def partners(left: Algebra, right: Algebra, equal: Pairs, residual: Expression | None, known: Statistics) -> Partners:
    """How the tuples of `left` fare. Partners come as they like: among those that a tuple has m of in the mean, none
    is there for e^-m of the time `[Poisson]`."""
    one, other = estimate(left, known), estimate(right, known)
    part = _agreeing(one, other, equal)
    distinct = one.distinct + other.distinct
    for condition in () if residual is None else conjuncts(residual):
        part *= kept(condition, distinct)
    mean = other.size * part
    lone = min(max(math.exp(-mean), SELDOM), 1 - SELDOM)
    # The first partner comes to a lone tuple, and the last one goes, so often.
    turns = 0.0 if is_static(right) else one.size * other.rate * part * lone
    return Partners(_part(one, lone, turns), _part(one, 1 - lone, turns))


def _part(of: Estimate, part: float, turns: float) -> Estimate:
    rate, size = of.rate * part + turns, of.size * part
    return Estimate(rate, size / rate, of.distinct, of.taken * part + turns)


@_estimate.register
def _semi_join(node: SemiJoin, statistics: Statistics) -> Estimate:
    found = partners(node.left, node.right, node.equal, node.residual, statistics)
    if node.kind is SemiKind.ANTI:
        return found.lone
    if node.kind is SemiKind.SEMI:
        # As that of a join, its end is known: that of the tuple or of its partner.
        return found.matched if node.pattern is Pattern.STRICT else replace(found.matched, taken=0.0)
    rate, size = found.lone.rate + found.matched.rate, estimate(node.left, statistics).size
    taken = found.lone.taken + found.matched.taken
    return Estimate(rate, size / rate, (*estimate(node.left, statistics).distinct, 2.0), taken)


@_estimate.register
def _outer_join(node: OuterJoin, statistics: Statistics) -> Estimate:
    pairs = estimate(Join(node.left, node.right, node.equal, node.residual), statistics)
    lone = [partners(node.left, node.right, node.equal, node.residual, statistics).lone]
    if node.kind is OuterKind.FULL:
        turned = tuple((j, i) for i, j in node.equal)
        lone.append(partners(node.right, node.left, turned, None, statistics).lone)
    rate, size = (pairs.rate + sum(e.rate for e in lone), pairs.size + sum(e.size for e in lone))
    return Estimate(rate, size / rate, pairs.distinct, pairs.taken + sum(e.taken for e in lone))


@_estimate.register
def _except(node: Except, statistics: Statistics) -> Estimate:
    left: Algebra = node.left if node.every else Distinct(node.left)
    equal = tuple((i, i) for i in range(len(node.schema)))
    return partners(left, node.right, equal, None, statistics).lone
