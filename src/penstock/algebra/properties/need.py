"""How much of the past of its sources determines a query from an instant on: what a query needs that begins late.

Contract: `Algebra.needs` is derived from the plan alone. For every instant τ0 and every source, the elements that
`Need` names determine the relation at all instants from τ0 on, and the elements of a stream after τ0, together with

- the elements after τ0;
- the first timestamp of each source, with which time begins, or any instant after it that lies as far before τ0 as
  `reach` says;
- the content of a relation that is updated: its rows at the instant from which its updates are needed.

By default an operator needs everything. One whose result at an instant is a function of its inputs at that instant
needs what they need; a window adds its length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import counted
from penstock.types import BEGIN, END


@dataclass(frozen=True)
class LastRows:
    """The last `count` elements, or some more, of each partition by the declared columns at the positions `partition`:
    so many that the number of those before them is a multiple of `multiple`, since an operator counts arrivals."""

    count: int
    partition: tuple[int, ...] = ()
    multiple: int = 1

    def kept(self, rows: int) -> int:
        """Return how many are kept of a partition of `rows` elements."""
        return rows - max(0, rows - self.count) // self.multiple * self.multiple


@dataclass(frozen=True)
class Need:
    """What is needed of a source: the elements with ts > τ0 - `ticks`, and of those before the last ones by `rows`.
    ticks None: all elements."""

    ticks: int | None = 0
    rows: frozenset[LastRows] = frozenset()

    def longer(self, ticks: int) -> Need:
        """Return what is needed to determine a result from `ticks` before τ0 on."""
        return self if self.ticks is None else Need(self.ticks + ticks, self.rows)

    def and_also(self, other: Need) -> Need:
        """Return what is needed for both."""
        if self.ticks is None or other.ticks is None:
            return EVERYTHING
        merged: dict[tuple[int, ...], LastRows] = {}
        for last in (*self.rows, *other.rows):
            known = merged.get(last.partition, last)
            multiple = math.lcm(last.multiple, known.multiple)
            merged[last.partition] = LastRows(max(last.count, known.count), last.partition, multiple)
        if len(merged) > 1 and any(last.multiple > 1 for last in merged.values()):
            return EVERYTHING  # what is kept for one partitioning would be counted in the other
        # The last rows before a later instant are among those after the earlier one and the last before it.
        return Need(max(self.ticks, other.ticks), frozenset(merged.values()))


EVERYTHING = Need(None)

#: What is needed, by source; nothing of a source that is not named.
Needs = Mapping[str, Need]
#: Ticks of elements.
Ticks = npt.NDArray[np.int64]
#: Returns the ticks of elements of a source.
Held = Callable[[str], Ticks]


def ticks_without(ticks: Ticks, gone: Ticks) -> Ticks:
    """Return ticks without those in `gone`, each as often as it is there, in order."""
    found, counts = np.unique(ticks, return_counts=True)
    less, times = np.unique(gone[np.isin(gone, found)], return_counts=True)
    counts[np.searchsorted(found, less)] -= times
    return np.repeat(found, np.maximum(counts, 0))


def together(found: Iterable[Needs]) -> Needs:
    """Return what several inputs need."""
    needs: dict[str, Need] = {}
    for one in found:
        for name, need in one.items():
            needs[name] = need.and_also(needs[name]) if name in needs else need
    return needs


class Operand(Protocol):
    """A stream or relation below an operator."""

    @property
    def is_stream(self) -> bool: ...

    @property
    def source_names(self) -> tuple[str, ...]: ...

    @property
    def needs(self) -> Needs: ...


def needs_of_relations(inputs: Iterable[Operand]) -> Needs:
    """Return what an operator needs whose result at an instant is a function of its inputs at that instant. A stream in
    place of a relation is unbounded."""
    return together(everything(one.source_names) if one.is_stream else one.needs for one in inputs)


def longer(needs: Needs, ticks: int) -> Needs:
    """Return what is needed from `ticks` before τ0 on."""
    return {name: need.longer(ticks) for name, need in needs.items()}


def everything(names: Iterable[str]) -> Needs:
    """Return the need of all elements of the sources `names`."""
    return dict.fromkeys(names, EVERYTHING)


def first_full_instant(needs: Needs, lost: Mapping[str, int], begin: int, held: Held | None = None) -> int | None:
    """Return the first instant from `begin` on at which everything is there that a query needs; None where it is not
    known. The last rows are there when so many elements are behind those that are gone; of partitions that is never
    known, as one may have rows among these alone.

    Args:
        needs: of the query.
        lost: by source of the query, the tick up to which elements of it may be gone; of a relation, updates that its
            content at that tick does not show. Of sources that are not named, everything is there.
        begin: the heartbeat of the query.
        held: returns by source the ticks of its elements behind those in `lost` up to its heartbeat, behind which
            none comes any more; None where no such elements are known.
    """
    tick = begin
    for name in lost:
        need = needs.get(name, Need())
        full: int | None = lost[name]
        if need.rows:
            full = _full_of_rows(need, lost[name], np.empty(0, np.int64) if held is None else held(name))
        if need.ticks is None or full is None or full + need.ticks >= END:
            return None
        tick = max(tick, full + need.ticks)
    return tick


@dataclass(frozen=True)
class AwaitedRows:
    """What a query waits for that needs the last rows of sources of which elements are gone.

    Args:
        rows: by source, how many elements are still missing.
        tick: the first instant at which everything is there; None while elements are missing.
    """

    rows: Mapping[str, int]
    tick: int | None = None


def missing_rows(rows: Mapping[str, int]) -> str:
    """Return in words how many elements of sources are missing, of `AwaitedRows`."""
    return " and ".join(f"{counted(count, 'more row')} of {name}" for name, count in sorted(rows.items()))


def awaited_rows(needs: Needs, lost: Mapping[str, int], held: Held) -> AwaitedRows | None:
    """Return what a query waits for that begins when its last rows are there; None where it needs no last rows of what
    is gone, and where no number of elements brings them. The arguments are those of `first_full_instant`."""
    counts: dict[str, int] = {}
    for name in lost:
        need = needs.get(name, Need())
        count = most_rows(need)
        if need.ticks is None or count is None or lost[name] + need.ticks >= END:
            return None
        if need.rows:
            counts[name] = count
    if not counts:
        return None
    missing = {name: count - min(count, len(held(name))) for name, count in counts.items()}
    tick = None if any(missing.values()) else first_full_instant(needs, lost, BEGIN, held)
    return AwaitedRows({name: count for name, count in missing.items() if count}, tick)


def _full_of_rows(need: Need, lost: int, held: Ticks) -> int | None:
    """Return the instant up to which there are as many elements behind the lost ones as `need` names; None for none."""
    count = most_rows(need)
    return None if count is None or len(held) < count else max(lost, int(np.partition(held, count - 1)[count - 1]))


def most_rows(need: Need) -> int | None:
    """Return how many of the last elements of a source hold the last rows that `need` names; None where no number
    does: the last of each partition, or as many as make a count of arrivals right."""
    counts = [None if last.partition or last.multiple > 1 else last.count for last in need.rows]
    return None if None in counts else max((count for count in counts if count is not None), default=0)


def is_mature(needs: Needs, unseen: Mapping[str, int], heartbeat: int) -> bool:
    """Return whether a query that did not see a part of its sources answers from now on as if it had.

    Args:
        unseen: by source, the tick up to which it did not see elements.
        heartbeat: of the query.
    """
    return first_full_instant(needs, unseen, heartbeat) == heartbeat


def reach(needs: Needs) -> int | None:
    """Return for how many ticks before τ0 elements matter; None if there is no such number."""
    ticks = [None if need.rows else need.ticks for need in needs.values()]
    return None if None in ticks else max((t for t in ticks if t is not None), default=0)
