"""What a figure is, and how the values of shards and operators become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TypeAlias


class FigureKind(Enum):
    """How a figure changes: a counter only rises, a gauge rises and falls, a histogram is a count for each bucket."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class OverShards(Enum):
    """How the values of all shards, and of several operators of a query, become one value."""

    SUM = "sum"
    GREATEST = "greatest"
    LEAST = "least"
    #: There is one value, which the driver computes.
    LAST = "last"


class FigureUnit(Enum):
    """What a figure counts or measures. `NONE`: a number of the things that the figure itself names."""

    NONE = ""
    RATIO = "ratio"
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    TICKS = "ticks"
    BYTES = "bytes"
    ROWS = "rows"
    ROWS_PER_SECOND = "rows per second"
    RECORDS = "records"
    SPLITS = "splits"
    TUPLES = "tuples"
    TUPLES_OR_BYTES = "tuples or bytes"
    PERIODS = "periods"
    WORK = "units of work"
    ENTRIES = "entries"

    @property
    def is_whole(self) -> bool:
        """Return whether values in it are whole numbers."""
        return self not in (FigureUnit.RATIO, FigureUnit.SECONDS, FigureUnit.MILLISECONDS, FigureUnit.ROWS_PER_SECOND)


@dataclass(frozen=True, eq=False)
class Figure:
    """One figure. It is compared by identity: there is one object for each name.

    Args:
        name: its name in EXPLAIN ANALYZE and in the reports of tasks; empty for one that the driver computes.
        help: what it is, a phrase without a period.
        field: where it stands in the objects of `runtime/monitoring/metrics.py` and in JSON, as
            `queries.shedding.held`; empty for one that they do not have.
        series: its name in Prometheus; empty for one that Prometheus does not have.
        labels: of the series.
    """

    name: str
    kind: FigureKind
    unit: FigureUnit
    over_shards: OverShards
    help: str
    field: str = ""
    series: str = ""
    labels: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return self.name or self.field

    def __post_init__(self) -> None:
        assert (self.name, self.field) not in _DECLARED, f"{self} is declared twice"
        _DECLARED[self.name, self.field] = self

    def __reduce__(self) -> tuple[object, ...]:
        return _declared, (self.name, self.field)

    @property
    def sentence(self) -> str:
        """Return what it is, as a sentence."""
        return f"{self.help[0].upper()}{self.help[1:]}."

    @cached_property
    def owner(self) -> str:
        """Return the object that has it as a field."""
        return self.field.rpartition(".")[0]

    @cached_property
    def attribute(self) -> str:
        """Return the name of its field in that object."""
        return self.field.rpartition(".")[2]


_DECLARED: dict[tuple[str, str], Figure] = {}


def declared_figures() -> tuple[Figure, ...]:
    """Return all figures in the order of their declaration."""
    return tuple(_DECLARED.values())


def _declared(name: str, field: str) -> Figure:
    """Return a figure, for pickle."""
    return _DECLARED[name, field]


#: The counts of a histogram, by the number of the bucket.
CountsByBucket: TypeAlias = Mapping[int, int]
#: Figures of one operator in one shard, or of several together.
FigureValues: TypeAlias = Mapping[Figure, int | float | CountsByBucket]


def number(values: FigureValues, figure: Figure) -> int | float:
    """Return the value of a counter or gauge, 0 where there is none."""
    value = values.get(figure, 0)
    assert isinstance(value, int | float), f"{figure} is a histogram"
    return value


def bucket_counts(values: FigureValues, figure: Figure) -> CountsByBucket:
    """Return the counts of a histogram, none where there is none."""
    value = values.get(figure, {})
    assert isinstance(value, Mapping), f"{figure} is no histogram"
    return value


def put_together(parts: Iterable[FigureValues]) -> dict[Figure, int | float | CountsByBucket]:
    """Return the figures of several shards or operators as one."""
    found: dict[Figure, int | float | CountsByBucket] = {}
    for part in parts:
        for figure, value in part.items():
            found[figure] = _together(figure, found[figure], value) if figure in found else value
    return found


def _together(
    figure: Figure, one: int | float | CountsByBucket, other: int | float | CountsByBucket
) -> int | float | CountsByBucket:
    if isinstance(one, int | float) and isinstance(other, int | float):
        match figure.over_shards:
            case OverShards.SUM:
                return one + other
            case OverShards.GREATEST:
                return max(one, other)
            case OverShards.LEAST:
                return min(one, other)
            case OverShards.LAST:
                return other
    assert isinstance(one, Mapping) and isinstance(other, Mapping), f"{figure} has values of two kinds"
    return {bucket: one.get(bucket, 0) + other.get(bucket, 0) for bucket in one.keys() | other.keys()}


def added(before: FigureValues, now: FigureValues) -> FigureValues:
    """Return what sums have become more, and of other figures the values of now."""
    return {
        figure: value - number(before, figure)
        if isinstance(value, int | float) and figure.over_shards is OverShards.SUM
        else value
        for figure, value in now.items()
    }


def fields_of(values: FigureValues, owner: str) -> dict[str, int | float]:
    """Return the fields of the object `owner` that have values here."""
    return {figure.attribute: number(values, figure) for figure in values if figure.owner == owner}
