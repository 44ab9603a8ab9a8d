"""What the planner of the rounds knows of one source: its connector and its splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import LogConnector, SourceConnector, Split
from penstock.runtime.spark.input.known_splits import KnownSplits
from penstock.types import MOST_TICKS


@dataclass
class SourceState:
    """The source and what is known of it."""

    source: Source
    connector: SourceConnector
    splits: KnownSplits = field(default_factory=KnownSplits)
    #: The paths of the splits, and whether each of them has statistics: kept, since there may be very many.
    paths: set[str] = field(default_factory=set)
    all_have_statistics: bool = True

    def know(self, splits: KnownSplits, new: Sequence[Split] | None = None) -> None:
        """Take `splits` for those that are known. new: those at their end that were not known; None for all."""
        if new is None:
            self.paths, self.all_have_statistics, new = set(), True, splits.kept
        self.splits = splits
        self.paths.update(split.path for split in new)
        self.all_have_statistics = self.all_have_statistics and all(s.high is not None or s.rows == 0 for s in new)

    def forget(self, first: int, last: int) -> None:
        """Notify the connector that the splits from place `first` up to `last` are not read again."""
        paths = {split.path for split in self.splits[first:last]}
        self.connector.forget(sorted(paths - {split.path for split in self.splits[last:]}))
        if self.connector.removes_read:
            self.know(self.splits.without(last))

    def in_parallel(self, splits: Sequence[Split], high: int | None) -> bool:
        """Return whether tasks can read `splits` in parallel, since the largest timestamp before each is known: all
        splits of the source have statistics. high: the largest timestamp before them."""
        known = self.all_have_statistics and not self.source.loses_rows
        return known and _in_range(splits) and _keep_up(splits, high, self.source.ahead)

    @property
    def log(self) -> LogConnector | None:
        return self.connector if isinstance(self.connector, LogConnector) else None


def _in_range(splits: Sequence[Split]) -> bool:
    """Return whether no row can have a timestamp out of range: such a row is a dead letter, and its split does not
    contain the largest timestamp of the others."""
    ticks = (tick for split in splits for tick in (split.low, split.high) if tick is not None)
    return all(-MOST_TICKS < tick < MOST_TICKS for tick in ticks)


def _keep_up(splits: Sequence[Split], high: int | None, ahead: int | None) -> bool:
    """Return whether no row can be too far ahead, whatever the order within a split; then the largest timestamp after
    each split is known before any is read.

    Args:
        high: the largest timestamp before them.
        ahead: the length of ADVANCE AT MOST, in ticks.
    """
    if ahead is None:
        return True
    for split in (split for split in splits if split.rows != 0):
        first = split.low if high is None else high
        if first is None or split.high is None or split.high > first + ahead:
            return False
        high = max(first, split.high)
    return True
