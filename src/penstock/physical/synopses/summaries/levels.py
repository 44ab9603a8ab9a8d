"""What a summary is made by: its granularities, and when a zone of the finest one ends."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from penstock.expressions.sketches.count_sketch import square_limit
from penstock.physical.elements import Int64s
from penstock.physical.synopses.summaries import zone_kernel

#: Elements of one granularity that are summarised; a counter of a sketch has 32 bits.
MOST = 2**31 - 1


@dataclass(frozen=True)
class SummaryLevels:
    """GRANULARITY, COLLAPSE and the options of self-adjusting zones.

    Args:
        granularity: ticks of G1.
        rate: zones of each coarser granularity, at least 2.
        depth: number of granularities, at least 1.
        minlength: ticks before which a zone of G1 does not end for its error.
        maxlength: ticks after which it ends.
        squares: the largest median of ΣC² of a zone that goes on (`square_limit`).
        most: elements of one granularity that are summarised.
    """

    granularity: int
    rate: int
    depth: int
    minlength: int
    maxlength: int
    squares: int
    most: int = MOST

    def parameters(self) -> Int64s:
        """Return the parameters as `zone_kernel` reads them."""
        return np.array(
            [
                self.granularity,
                self.rate,
                self.depth,
                min(self.squares, 2**63 - 1),
                self.minlength,
                self.maxlength,
                self.most,
            ],
            np.int64,
        )

    def granularities(self, ts: Int64s, now: int) -> Int64s:
        """Return in which granularity elements that arrived at `ts` lie at the instant `now`: 1 to depth, or depth + 1
        for what is older than all zones."""
        made: Int64s = zone_kernel.granularities(ts // self.granularity, now // self.granularity, self.rate, self.depth)
        return made

    @property
    def span(self) -> int:
        """Return the ticks that all granularities cover, from when they are full."""
        return self.granularity * sum(int(self.rate**level) for level in range(self.depth))


def levels_of(
    granularity: int,
    rate: int = 4,
    depth: int = 4,
    error: Fraction = Fraction(4),
    counters: int = 64,
    minlength: int | None = None,
    maxlength: int | None = None,
) -> SummaryLevels:
    """Return the levels of a summary with the options given and the defaults of those that are not."""
    longest = max(1, granularity // rate) if maxlength is None else maxlength
    shortest = max(1, granularity // (8 * rate)) if minlength is None else minlength
    return SummaryLevels(granularity, rate, depth, shortest, longest, square_limit(error, counters))
