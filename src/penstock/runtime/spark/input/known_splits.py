"""The splits of a source in the order of their discovery, by their place since the source began.

A source that removes what it has read (`SourceConnector.removes_read`) keeps no past, so its first splits are dropped
once no round can need them. Places stay what they were: offsets count splits from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.connectors.contract import Split


@dataclass(frozen=True)
class KnownSplits:
    """The splits of one source.

    Args:
        dropped: number of the first splits, which are not known any more.
        kept: those that follow.
    """

    dropped: int = 0
    kept: Sequence[Split] = field(default_factory=list)

    def __len__(self) -> int:
        """Return how many there have been, the dropped ones included."""
        return self.dropped + len(self.kept)

    def __iter__(self) -> Iterator[Split]:
        """Yield those that are known."""
        return iter(self.kept)

    def __getitem__(self, places: slice) -> Sequence[Split]:
        """Return those at some places, as far as they are known."""
        first, last, _ = places.indices(len(self))
        return self.kept[max(0, first - self.dropped) : max(0, last - self.dropped)]

    def and_more(self, splits: Sequence[Split]) -> KnownSplits:
        """Return these and the `splits` discovered after them."""
        return KnownSplits(self.dropped, [*self.kept, *splits])

    def without(self, first: int) -> KnownSplits:
        """Return these without the `first` ones since the beginning."""
        return KnownSplits(max(first, self.dropped), self[first:])
