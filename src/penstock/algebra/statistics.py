"""What is known of the inputs when an order of joins is chosen: arrival rates and numbers of distinct values.

Statistics decide what a plan costs, never what it answers. They are told by `SET statistics = '...'` or observed of
inputs that lie in memory; what is unknown is taken to be the defaults below. `estimate` carries them up a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.aggregate import Aggregate, Distinct
from penstock.algebra.join import Join
from penstock.algebra.multi_join import MultiJoin
from penstock.algebra.nodes import Algebra, is_static
from penstock.algebra.rowwise import Project, Select
from penstock.algebra.sample import Sample
from penstock.algebra.scans import Scan, Source
from penstock.algebra.setops import UnionAll
from penstock.algebra.windows import RowWindow, Window, WindowKind
from penstock.expressions.nodes import Call, Column, Expression, Literal, columns_of, conjuncts
from penstock.settings import SourceHint
from penstock.types import TimeDomain, Unit

#: Rows of an input that are looked at.
SAMPLE = 10_000
#: Seconds that an element of an unbounded window is taken to count.
HORIZON = 3600.0
#: The part of the tuples that a condition keeps: an equality, an inequality of columns, any other `[System R]`.
EQUALITY, INEQUALITY, OTHERWISE = 0.1, 1 / 3, 0.5


@dataclass(frozen=True)
class SourceStatistics:
    """rate: tuples per second, of a source with a timestamp; distinct: column in lower case -> values seen in it."""

    rate: float = 1.0
    distinct: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Statistics:
    """By source, in lower case. A source that is not here has one tuple a second; a column that is not, one value for
    every ten tuples of its window, and ten at the least. shards: among how many a keyed stage is divided."""

    sources: Mapping[str, SourceStatistics] = field(default_factory=dict)
    shards: int = 4

    def of(self, source: Source) -> SourceStatistics:
        return self.sources.get(source.name.lower(), SourceStatistics())

    def updated(self, hints: tuple[SourceHint, ...]) -> Statistics:
        """These, with what the hints say in their place."""
        found = dict(self.sources)
        for name, rate, distinct in hints:
            known = found.get(name.lower(), SourceStatistics())
            values = {**known.distinct, **{column.lower(): count for column, count in distinct}}
            found[name.lower()] = SourceStatistics(known.rate if rate is None else rate, values)
        return replace(self, sources=found)


def observe(sources: Mapping[str, Source], tables: Mapping[str, pa.Table]) -> Statistics:
    """What the first rows of bounded inputs show. tables: source -> its declared columns."""
    return Statistics(
        {n.lower(): _observed(s, tables[n]) for n, s in sources.items() if n in tables and len(tables[n])}
    )


def known_statistics(
    sources: Mapping[str, Source],
    rows: Mapping[str, Sequence[tuple[Any, ...]]],
    frames: Mapping[str, Any],
    hints: tuple[SourceHint, ...],
) -> Statistics:
    """What a job knows before it starts: of rows INSERTed (by name in lower case), of Arrow tables, and the hints.
    Other inputs are not looked into."""
    tables = {name: frame for name, frame in frames.items() if isinstance(frame, pa.Table)}
    for name, source in sources.items():
        if found := rows.get(name.lower(), ())[:SAMPLE]:
            arrays = [pa.array([row[i] for row in found], f.type) for i, f in enumerate(source.columns)]
            tables[name] = pa.Table.from_arrays(arrays, names=list(source.columns.names))
    return observe(sources, tables).updated(hints)


def _observed(source: Source, table: pa.Table) -> SourceStatistics:
    sample = table.slice(0, SAMPLE)
    distinct = {
        field.name.lower(): float(pc.count_distinct(sample.column(i), mode="only_valid").as_py())
        for i, field in enumerate(source.columns)
    }
    if source.timestamp is None or source.domain is None:
        return SourceStatistics(1.0, distinct)
    ticks = sample.column(source.timestamp).cast(pa.int64())
    ends = pc.min_max(ticks).as_py()
    if ends["min"] is None:
        return SourceStatistics(1.0, distinct)
    return SourceStatistics(len(sample) / seconds(ends["max"] - ends["min"] + 1, source.domain), distinct)


def seconds(ticks: float, domain: TimeDomain) -> float:
    """A length of time in seconds."""
    return ticks * domain.unit.value / Unit.SECOND.value


@dataclass(frozen=True)
class Estimate:
    """What is expected of a relation. rate: new tuples per second; length: seconds that one counts; distinct: by column
    the values among those that count at one time."""

    rate: float
    length: float
    distinct: tuple[float, ...]

    @property
    def size(self) -> float:
        return self.rate * self.length


@singledispatch
def estimate(node: Algebra, statistics: Statistics) -> Estimate:
    """What is expected of `node`. Of an operator without an entry here: what its first input says of its columns."""
    inputs = [estimate(child, statistics) for child in node.inputs]
    if not inputs:
        return Estimate(1.0, HORIZON, tuple(_values(HORIZON, None) for _ in node.schema))
    size = sum(i.size for i in inputs)
    known = inputs[0].distinct
    distinct = tuple(known[i] if i < len(known) else _values(size, None) for i in range(len(node.schema)))
    return Estimate(sum(i.rate for i in inputs), max(i.length for i in inputs), distinct)


def _values(size: float, known: float | None) -> float:
    """Distinct values among `size` tuples."""
    return max(1.0, min(size, known) if known is not None else max(10.0, size / 10))


@estimate.register
def _scan(node: Scan, statistics: Statistics) -> Estimate:
    found = statistics.of(node.source)
    size = found.rate * HORIZON
    names = [node.source.columns[i].name.lower() for i in node.columns]
    return Estimate(found.rate, HORIZON, tuple(_values(size, found.distinct.get(n)) for n in names))


@estimate.register
def _window(node: Window, statistics: Statistics) -> Estimate:
    below = estimate(node.input, statistics)
    if node.kind is WindowKind.UNBOUNDED or node.lifetime is None or node.domain is None:
        return below
    length = seconds(node.lifetime, node.domain)
    return Estimate(below.rate, length, tuple(_values(below.rate * length, v) for v in below.distinct))


@estimate.register
def _row_window(node: RowWindow, statistics: Statistics) -> Estimate:
    """As long as it takes until `rows` later tuples have come, in every partition."""
    below = estimate(node.input, statistics)
    partitions = 1.0
    for i in node.partition:
        partitions *= below.distinct[i]
    length = below.length
    if node.rows is not None:
        length = min(length, node.rows * partitions / below.rate)
    if node.length is not None and node.domain is not None:
        length = min(length, seconds(node.length, node.domain))
    return Estimate(below.rate, length, tuple(_values(below.rate * length, v) for v in below.distinct))


@estimate.register
def _sample(node: Sample, statistics: Statistics) -> Estimate:
    below = estimate(node.input, statistics)
    return Estimate(max(below.rate * float(node.percent) / 100, 1e-9), below.length, below.distinct)


@estimate.register
def _select(node: Select, statistics: Statistics) -> Estimate:
    below = estimate(node.input, statistics)
    part = 1.0
    distinct = list(below.distinct)
    for condition in conjuncts(node.predicate):
        part *= kept(condition, below.distinct)
        if _is_constant_equality(condition):
            distinct[next(iter(columns_of(condition)))] = 1.0
    rate = below.rate * part
    return Estimate(rate, below.length, tuple(min(v, max(1.0, rate * below.length)) for v in distinct))


def kept(condition: Expression, distinct: tuple[float, ...]) -> float:
    """The part of the tuples for which `condition` is expected to hold."""
    if isinstance(condition, Literal):
        return 1.0 if condition.value is True else 0.01
    if not isinstance(condition, Call):
        return OTHERWISE
    if condition.function == "EQ":
        values = [distinct[i] for i in columns_of(condition) if i < len(distinct)]
        return 1.0 / max(values) if values else EQUALITY
    return INEQUALITY if condition.function in ("LT", "LE", "GT", "GE") else OTHERWISE


def _is_constant_equality(condition: Expression) -> bool:
    if not (isinstance(condition, Call) and condition.function == "EQ"):
        return False
    return any(isinstance(a, Column) for a in condition.arguments) and any(
        isinstance(a, Literal) for a in condition.arguments
    )


@estimate.register
def _project(node: Project, statistics: Statistics) -> Estimate:
    below = estimate(node.input, statistics)
    return Estimate(below.rate, below.length, tuple(_computed(e, below.distinct) for e in node.expressions))


def _computed(expression: Expression, distinct: tuple[float, ...]) -> float:
    """As many values as the columns read have together, at the most."""
    result = 1.0
    for i in columns_of(expression):
        result *= distinct[i]
    return result


@estimate.register
def _distinct(node: Distinct, statistics: Statistics) -> Estimate:
    return _thinned(estimate(node.input, statistics), tuple(range(len(node.schema))))


@estimate.register
def _aggregate(node: Aggregate, statistics: Statistics) -> Estimate:
    """One tuple a group, replaced whenever an element comes."""
    below = estimate(node.input, statistics)
    groups = _thinned(below, node.group)
    own = tuple(below.distinct[i] for i in node.group)
    return Estimate(groups.rate, groups.length, own + tuple(groups.size for _ in node.aggregates))


def _thinned(below: Estimate, columns: tuple[int, ...]) -> Estimate:
    combinations = 1.0
    for i in columns:
        combinations *= below.distinct[i]
    size = max(1.0, min(below.size, combinations))
    return Estimate(below.rate, size / below.rate, below.distinct)


@estimate.register
def _union(node: UnionAll, statistics: Statistics) -> Estimate:
    members = [estimate(member, statistics) for member in node.members]
    distinct = tuple(max(m.distinct[i] for m in members) for i in range(len(node.schema)))
    rate = sum(m.rate for m in members)
    return Estimate(rate, sum(m.size for m in members) / rate, distinct)


@estimate.register
def _join(node: Join, statistics: Statistics) -> Estimate:
    sides = [estimate(node.left, statistics), estimate(node.right, statistics)]
    pairs = [(sides[0].distinct[i], sides[1].distinct[j]) for i, j in node.equal]
    part = 1.0
    for one, other in pairs:
        part /= max(one, other)
    moving = [s for s, n in zip(sides, (node.left, node.right), strict=True) if not is_static(n)]
    return _combined(sides, moving, part, node.residual)


@estimate.register
def _multi(node: MultiJoin, statistics: Statistics) -> Estimate:
    members = [estimate(member, statistics) for member in node.members]
    part = 1.0
    for places in node.classes:
        values = sorted(m.distinct[p] for m, p in zip(members, places, strict=True) if p is not None)
        for value in values[1:]:
            part /= value
    return _combined(members, members, part, node.residual)


def _combined(sides: list[Estimate], moving: list[Estimate], part: float, residual: Expression | None) -> Estimate:
    """Results of a join: a new tuple of any side meets those of the others."""
    distinct = tuple(v for side in sides for v in side.distinct)
    for condition in () if residual is None else conjuncts(residual):
        part *= kept(condition, distinct)
    size = part
    for side in sides:
        size *= side.size
    moving = moving or sides
    rate = sum(size / side.length for side in moving)
    length = min(side.length for side in moving)
    return Estimate(max(rate, 1e-9), length, tuple(min(v, max(1.0, size)) for v in distinct))
