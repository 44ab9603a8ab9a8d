"""What CREATE SUMMARY declares: counts of the values of some columns of a stream, by zones of its past `[pt 3]`."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SummaryMethod(enum.Enum):
    """How a zone counts values: by a count sketch, or exactly."""

    COUNTSKETCH = "COUNTSKETCH"
    EXACT = "EXACT"


@dataclass(frozen=True)
class SummaryDefinition:
    """A summary of a stream.

    Args:
        name: as declared.
        stream: the declared stream, or the view that is one, as declared.
        columns: names of the summarised columns, in the declared order.
        granularity: ticks of T1, at least 1: at each multiple of it the zones of G1 are added up into one of G2.
        rate: zones of a granularity that become one of the next, at least 2.
        depth: number of granularities, at least 1.
        method: how a zone counts.
        rows, counters, buckets: of the count sketch; rows is odd. A zone holds rows × (buckets · counters) counters.
        error: a zone of G1 of `minlength` ends when the deviation of its estimates exceeds this many tuples.
        maxlength, minlength: ticks after which a zone of G1 ends in any case, and before which it does not.
    """

    name: str
    stream: str
    columns: tuple[str, ...]
    granularity: int
    rate: int = 4
    depth: int = 4
    method: SummaryMethod = SummaryMethod.COUNTSKETCH
    rows: int = 5
    counters: int = 64
    buckets: int = 16
    error: float = 4.0
    maxlength: int = 1
    minlength: int = 1

    @property
    def span(self) -> int:
        """Return the ticks of the past that zones cover; what is older is beyond, at granularity depth + 1."""
        stretches: int = (self.rate**self.depth - 1) // (self.rate - 1)
        return self.granularity * stretches

    @property
    def text(self) -> str:
        """Return the summary as EXPLAIN shows it."""
        parameters = (
            f"rows {self.rows}, counters {self.counters}, buckets {self.buckets}, error {self.error:g}, "
            if self.method is SummaryMethod.COUNTSKETCH
            else ""
        )
        return (
            f"{self.name} on {self.stream}({', '.join(self.columns)}) by {self.method.value} ({parameters}"
            f"zones of {self.minlength} to {self.maxlength} ticks), granularity {self.granularity} ticks, "
            f"collapse ({self.rate}, {self.depth})"
        )
