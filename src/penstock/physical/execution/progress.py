"""Progress of time: heartbeats of sources and of queries [semantics 1].

A source's heartbeat trails the largest timestamp seen by its slack and one more tick, because ties of the largest may
still arrive. A query's heartbeat is the smallest of its sources'. When all of them have ended, time stops at the
largest timestamp of all, or with `drain` at the last end of a window. The frontier is the earliest instant at which
elements may still arrive, the one after the heartbeat: results that nothing can retract are emitted up to and including
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.algebra.nodes.base import Algebra, Delay, operators
from penstock.algebra.nodes.scans import Source, declared_sources
from penstock.physical.kernels.ticks import later, round_up
from penstock.physical.synopses.promises.punctuations import Punctuations
from penstock.storage.documents import Json, as_boolean, as_integer, as_optional_integer
from penstock.tree import derived
from penstock.types import BEGIN, END

#: The heartbeat before anything is known.
NOTHING = BEGIN - 1


@dataclass(frozen=True)
class SourceProgress:
    """What has been seen of a source: its smallest and largest timestamp (None: nothing), and whether it has ended.

    `beat`: a heartbeat without an element, from the wall clock (`wall_clock.py`), the source's own report or a record;
    `recorded`: that of records alone; `punctuations`: what the stream keeps of them, None before the first. They are
    not sent with the rest.
    """

    first: int | None = None
    high: int | None = None
    ended: bool = False
    beat: int = NOTHING
    recorded: int = NOTHING
    punctuations: Punctuations | None = field(default=None, compare=False, repr=False)

    def merge(self, other: SourceProgress) -> SourceProgress:
        """Return the combined progress of both; `other` is later."""
        firsts = [f for f in (self.first, other.first) if f is not None]
        highs = [h for h in (self.high, other.high) if h is not None]
        first, high = min(firsts, default=None), max(highs, default=None)
        beat, recorded = max(self.beat, other.beat), max(self.recorded, other.recorded)
        punctuations = self.punctuations if other.punctuations is None else other.punctuations
        return SourceProgress(first, high, self.ended or other.ended, beat, recorded, punctuations)

    def heartbeat(self, slack: int) -> int:
        if self.ended:
            return END
        return self.beat if self.high is None else max(self.high - slack - 1, self.beat)

    def as_list(self) -> list[int | bool | None]:
        """Return plain JSON: the arguments of the constructor."""
        return [self.first, self.high, self.ended, self.beat, self.recorded]

    @staticmethod
    def from_list(values: Sequence[Json]) -> SourceProgress:
        """Return the progress that `as_list` wrote. Raises TypeError or ValueError for others."""
        first, high, ended, beat, recorded = values
        return SourceProgress(
            as_optional_integer(first, "first"),
            as_optional_integer(high, "high"),
            as_boolean(ended, "ended"),
            as_integer(beat, "beat"),
            as_integer(recorded, "recorded"),
        )


def limited(seen: SourceProgress, most: int) -> SourceProgress:
    """Return the progress of a source that keeps so many punctuations at most."""
    kept = seen.punctuations or Punctuations()
    return seen if kept.most == most else replace(seen, punctuations=replace(kept, most=most))


Progress = Mapping[str, SourceProgress]


class Rooted(Protocol):
    """What answers a relation or stream, as a query does."""

    @property
    def root(self) -> Algebra:
        """Return the root of its plan."""


def timed_sources(root: Algebra) -> dict[str, Source]:
    """Return the timed sources below `root` by name."""
    return dict(_timed(root))


@derived
def _timed(root: Algebra) -> Mapping[str, Source]:
    """Return the timed sources below a root, found once: a change of a job asks for those of every query."""
    return {name: source for name, source in declared_sources(root).items() if not source.is_static}


@derived
def timed_names(root: Algebra) -> frozenset[str]:
    """Return the names of the timed sources below `root`."""
    return frozenset(_timed(root))


def query_heartbeats(roots: Mapping[str, Algebra], progress: Progress, drain: bool = False) -> dict[str, int]:
    """Return the heartbeat of each of many queries by name. Without `drain` queries over the same sources have the same
    one, so it is computed once for them."""
    if drain:
        return {name: query_heartbeat(root, _timed(root), progress, drain) for name, root in roots.items()}
    known: dict[tuple[tuple[str, int], ...], int] = {}
    heartbeats: dict[str, int] = {}
    for name, root in roots.items():
        key = _heartbeat_key(root)
        if key not in known:
            known[key] = query_heartbeat(root, _timed(root), progress, drain)
        heartbeats[name] = known[key]
    return heartbeats


class QueryHeartbeats(Mapping[str, int]):
    """The heartbeats of many queries by name, each computed on first access, once for queries over the same sources.

    Args:
        queries: anything by name that has the root of a query.
    """

    def __init__(self, queries: Mapping[str, Rooted], progress: Progress) -> None:
        self._queries, self._progress = queries, progress
        self._known: dict[tuple[tuple[str, int], ...], int] = {}

    def __getitem__(self, name: str) -> int:
        root = self._queries[name].root
        key = _heartbeat_key(root)
        if key not in self._known:
            self._known[key] = query_heartbeat(root, _timed(root), self._progress, drain=False)
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)


def query_frontiers(roots: Mapping[str, Algebra], heartbeats: Mapping[str, int], progress: Progress) -> dict[str, int]:
    """Return by query, of which the heartbeat is known, the earliest instant at which elements of its sources may still
    arrive.

    Before any progress, and where time has stopped, it is the heartbeat, because no result may follow it.
    """
    ended: dict[tuple[tuple[str, int], ...], bool] = {}
    frontiers: dict[str, int] = {}
    for name, root in roots.items():
        key, heartbeat = _heartbeat_key(root), heartbeats[name]
        if key not in ended:
            ended[key] = all(progress.get(source, SourceProgress()).ended for source, _ in key)
        frontiers[name] = heartbeat if ended[key] or heartbeat == NOTHING else heartbeat + 1
    return frontiers


@derived
def _heartbeat_key(root: Algebra) -> tuple[tuple[str, int], ...]:
    """Return what the heartbeat of a query depends on beside the progress: its timed sources, and their slacks."""
    return tuple((name, source.slack) for name, source in _timed(root).items())


def query_heartbeat(root: Algebra, sources: Mapping[str, Source], progress: Progress, drain: bool) -> int:
    """Return the tick up to which the answer of a query is final."""
    if not sources:
        return 0
    seen = {name: progress.get(name, SourceProgress()) for name in sources}
    if not all(p.ended for p in seen.values()):
        return min(p.heartbeat(sources[name].slack) for name, p in seen.items())
    if all(p.high is None for p in seen.values()):
        return NOTHING
    # A heartbeat once set by the wall clock stays valid.
    highs = [tick for p in seen.values() for tick in (p.high, p.beat) if tick is not None]
    if drain:
        # Time itself never reaches END: an element that would end there never does.
        last = last_end(root, seen, waits_for_rows(root))
        return min(max([*highs, *([] if last is None else [last])]), END - 1)
    return max(highs)


def first_instant(sources: Iterable[str], progress: Progress) -> int | None:
    """Return the smallest timestamp of the given sources, None while there is none; 0 if there are no sources."""
    names = list(sources)
    if not names:
        return 0
    firsts = [p.first for p in (progress.get(name, SourceProgress()) for name in names) if p.first is not None]
    return min(firsts, default=None)


class FirstTimestamps:
    """The smallest timestamp of each source, for the steps that an epoch has added: what came before does not count for
    them."""

    def __init__(self, births: Iterable[int], before: FirstTimestamps | None = None) -> None:
        self._firsts: dict[int, dict[str, SourceProgress]] = {
            birth: {} if before is None else before._firsts.get(birth, {}) for birth in births
        }
        #: For each source, the smallest timestamp that all these epochs know.
        self._known: dict[str, int] = {}

    def note(self, source: str, first: int) -> None:
        """Take a smallest timestamp of a source that has been seen."""
        known_by_all = self._known.get(source)
        if known_by_all is not None and known_by_all <= first:
            return
        self._known[source] = first
        for firsts in self._firsts.values():
            known = firsts.get(source)
            if known is None or known.first is None or first < known.first:
                firsts[source] = SourceProgress(first)

    def instant(self, birth: int, sources: Iterable[str]) -> int | None:
        """Return the first instant of steps over `sources` that the epoch `birth` has added."""
        return first_instant(sources, self._firsts[birth])

    def marks(self) -> dict[int, dict[str, int | None]]:
        """Return them by epoch and source, for `restore`."""
        return {birth: {name: seen.first for name, seen in found.items()} for birth, found in self._firsts.items()}

    def restore(self, marks: Mapping[int, Mapping[str, int | None]]) -> None:
        """Restore what `marks` returned, of the epochs that are there."""
        self._known = {}
        for birth, firsts in marks.items():
            if birth in self._firsts:
                self._firsts[birth] |= {name: SourceProgress(first) for name, first in firsts.items()}


def waits_for_rows(root: Algebra) -> bool:
    """Return whether time may advance to its end, as rows end at instants of their own: not where an operator is
    evaluated at every boundary."""
    return not any(each.ticks is not None for node in operators(root) for each in node.evaluations())


def last_end(node: Algebra, progress: Progress, waits: bool = False) -> int | None:
    """Return the last instant at which something can end in `node` or below, None if nothing can. `Algebra.delays`
    has how long after the ends below it that is. waits: whether it is END where rows end at instants of their own."""
    ends = [last_end(child, progress, waits) for child in node.ending_inputs]
    if not node.inputs:
        # Of a leaf, the last element or update of its source; a static relation has none.
        ends = [progress[name].high for name in node.source_names if name in progress]
    last = max((end for end in ends if end is not None), default=None)
    if last is None:
        return None
    return max([last, *(_after(last, delay, waits) for delay in node.delays)])


def _after(tick: int, delay: Delay, waits: bool) -> int:
    if delay.ticks is None:
        return END if waits else tick
    end = later(tick, delay.ticks)
    return end if delay.slide is None else round_up(end, delay.slide, delay.align)
