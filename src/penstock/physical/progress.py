"""How far time is known: heartbeats of sources and of queries (LANGUAGE 1).

A source's heartbeat trails the largest timestamp seen by its slack; ties of the largest may still come, hence one tick
more. A query's heartbeat is the least of its sources'. When all of them have ended, time stops at the largest timestamp
of all, or with `drain` at the last end of a window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import singledispatch

from penstock.algebra.nodes import Algebra, leaves
from penstock.algebra.scans import Scan, Source
from penstock.algebra.windows import RowWindow, Window
from penstock.physical.elements import round_up
from penstock.types import BEGIN, END

#: The heartbeat before anything is known.
NOTHING = BEGIN - 1


@dataclass(frozen=True)
class SourceProgress:
    """What has been seen of a source: its smallest and largest timestamp (None: nothing), and whether it has ended."""

    first: int | None = None
    high: int | None = None
    ended: bool = False

    def merge(self, other: SourceProgress) -> SourceProgress:
        """What is known from both."""
        firsts = [f for f in (self.first, other.first) if f is not None]
        highs = [h for h in (self.high, other.high) if h is not None]
        return SourceProgress(min(firsts, default=None), max(highs, default=None), self.ended or other.ended)

    def heartbeat(self, slack: int) -> int:
        if self.ended:
            return END
        return NOTHING if self.high is None else self.high - slack - 1


Progress = Mapping[str, SourceProgress]


def timed_sources(root: Algebra) -> dict[str, Source]:
    """The timed sources below `root` by name."""
    scans = (node.source for node in leaves(root) if isinstance(node, Scan))
    return {source.name: source for source in scans if not source.is_static}


def query_heartbeat(root: Algebra, sources: Mapping[str, Source], progress: Progress, drain: bool) -> int:
    """Up to where the answer of a query is final."""
    if not sources:
        return 0
    seen = {name: progress.get(name, SourceProgress()) for name in sources}
    if not all(p.ended for p in seen.values()):
        return min(p.heartbeat(sources[name].slack) for name, p in seen.items())
    highs = [p.high for p in seen.values() if p.high is not None]
    if not highs:
        return NOTHING
    if drain:
        return max([*highs, *(e for e in [last_end(root, seen)] if e is not None)])
    return max(highs)


def first_instant(sources: Iterable[str], progress: Progress) -> int | None:
    """The smallest timestamp of the given sources, None while there is none; 0 for no sources at all."""
    names = list(sources)
    if not names:
        return 0
    firsts = [p.first for p in (progress.get(name, SourceProgress()) for name in names) if p.first is not None]
    return min(firsts, default=None)


@singledispatch
def last_end(node: Algebra, progress: Progress) -> int | None:
    """The last instant at which something can end below `node`, None for nothing."""
    ends = [end for end in (last_end(child, progress) for child in node.inputs) if end is not None]
    return max(ends, default=None)


@last_end.register
def _scan(node: Scan, progress: Progress) -> int | None:
    return None if node.source.is_static else progress[node.source.name].high


@last_end.register(Window)
@last_end.register(RowWindow)
def _window(node: Window | RowWindow, progress: Progress) -> int | None:
    last = last_end(node.input, progress)
    if last is None:
        return None
    # UNBOUNDED and ROWS never empty; their boundaries that saw data are still evaluated.
    end = last + (node.lifetime or 0)
    return end if node.slide is None else round_up(end, node.slide, node.align)
