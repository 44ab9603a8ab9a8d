"""What the sink of a relation query has received, from which a continued result emits the net difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.physical.elements import Elements
from penstock.physical.execution.progress import NOTHING


@dataclass(frozen=True)
class EmittedContent:
    """The net changes that a sink has received.

    Args:
        settled: the distinct rows of the content at `tick`, with their multiplicities.
        early: changes of later instants, each at its own.
        tick: the instant up to which the content is complete, `NOTHING` before the first.
    """

    settled: Elements
    early: Elements
    tick: int = NOTHING

    @property
    def reached(self) -> int:
        """Return the last instant of which the sink may have received something."""
        return max(self.tick, int(self.early.ts.max())) if len(self.early) else self.tick


#: Returns the content of the result with an id. Raises PenstockError P0711 where it is not kept.
ContentReader = Callable[[str], EmittedContent]
