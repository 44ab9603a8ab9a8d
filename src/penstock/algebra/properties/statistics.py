"""Statistics of the inputs by which a plan is chosen: arrival rates and numbers of distinct values.

Statistics decide the cost of a plan, never its answers. They are set by `SET statistics = '...'` or observed in inputs
in memory; unknown ones have the defaults below. `optimizer/estimates.py` propagates them up a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.settings import SourceHint
from penstock.types import Schema, TimeDomain, Unit

#: Number of rows of an input that are sampled.
SAMPLE = 10_000
#: Seconds for which an element of an unbounded window, or a row of a relation, is assumed to be valid.
HORIZON = 3600.0


class DeclaredSource(Protocol):
    """The part of a declared stream or relation that statistics read (`algebra/nodes/scans.py`). Operators estimate
    themselves by statistics, so these cannot import operators."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> Schema: ...

    def timestamps(self, column: Callable[[int], pa.Array], length: int) -> pa.Array | None: ...

    @property
    def domain(self) -> TimeDomain | None: ...


@dataclass(frozen=True)
class SourceStatistics:
    """The statistics of a source. rate: tuples per second; of a static relation, as if its rows arrived within the
    `HORIZON`; distinct: column in lower case -> values observed in it."""

    rate: float = 1.0
    distinct: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Statistics:
    """The statistics by source, in lower case. The default of a source is one tuple a second; that of a column, one
    value for every ten tuples of its window, and at least ten. shards: among how many a keyed stage is divided."""

    sources: Mapping[str, SourceStatistics] = field(default_factory=dict)
    shards: int = 4
    #: The estimates of plans so far, by fingerprint.
    estimates: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def of(self, source: DeclaredSource) -> SourceStatistics:
        return self.sources.get(source.name.lower(), SourceStatistics())

    def updated(self, hints: tuple[SourceHint, ...]) -> Statistics:
        """Return these statistics, overridden by the hints."""
        sources = dict(self.sources)
        for name, rate, distinct in hints:
            known = sources.get(name.lower(), SourceStatistics())
            values = {**known.distinct, **{column.lower(): count for column, count in distinct}}
            sources[name.lower()] = SourceStatistics(known.rate if rate is None else rate, values)
        return replace(self, sources=sources)


def observe(sources: Mapping[str, DeclaredSource], tables: Mapping[str, pa.Table]) -> Statistics:
    """Return the statistics of the first rows of bounded inputs. tables: source -> its declared columns."""
    return Statistics(
        {n.lower(): _observed(s, tables[n]) for n, s in sources.items() if n in tables and len(tables[n])}
    )


def known_statistics(
    sources: Mapping[str, DeclaredSource],
    rows: Mapping[str, Sequence[object]],
    frames: Mapping[str, object],
    hints: tuple[SourceHint, ...],
) -> Statistics:
    """Return the statistics that a job has before it starts: of rows INSERTed (by name in lower case), of Arrow tables,
    and the hints. Other inputs are not read."""
    tables = {name: frame for name, frame in frames.items() if isinstance(frame, pa.Table)}
    for name, source in sources.items():
        # A heartbeat among them is no row.
        if sample := [row for row in rows.get(name.lower(), ())[:SAMPLE] if isinstance(row, tuple)]:
            arrays = [pa.array([row[i] for row in sample], f.type) for i, f in enumerate(source.columns)]
            tables[name] = pa.Table.from_arrays(arrays, names=list(source.columns.names))
    return observe(sources, tables).updated(hints)


def _observed(source: DeclaredSource, table: pa.Table) -> SourceStatistics:
    sample = table.slice(0, SAMPLE)
    distinct = {
        field.name.lower(): float(pc.count_distinct(sample.column(i), mode="only_valid").as_py())
        for i, field in enumerate(source.columns)
        # Arrow does not count distinct arrays and structs, which answers of queries may have.
        if not pa.types.is_nested(field.type)
    }
    timestamps = source.timestamps(lambda position: sample.column(position).combine_chunks(), len(sample))
    if timestamps is None or source.domain is None:
        return SourceStatistics(len(table) / HORIZON, distinct)
    ends = pc.min_max(timestamps.cast(pa.int64())).as_py()
    if ends["min"] is None:
        return SourceStatistics(1.0, distinct)
    return SourceStatistics(len(sample) / seconds(ends["max"] - ends["min"] + 1, source.domain), distinct)


def seconds(ticks: float, domain: TimeDomain) -> float:
    """Return a length of time in seconds."""
    return ticks * domain.unit.value / Unit.SECOND.value
