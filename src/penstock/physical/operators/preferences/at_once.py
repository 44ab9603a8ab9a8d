"""Rounds whose work is done at once: nothing waits before, and the budget covers all units of every instant.

No entry then needs a place in the queue: pairs are examined when they are made, in batches, as a plain join does. What
is told of entries and results is the same as where each had waited for its turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.physical.elements import Elements, Int64s, empty
from penstock.physical.operators.preferences.entries import Direction, EntriesAtOnce, MakingElements
from penstock.physical.synopses.preferences.layout import REST, WHOLE
from penstock.physical.synopses.preferences.numbered_elements import NumberedElements
from penstock.physical.synopses.summaries.stream_summary import ZoneEstimates

#: Pairs are examined in portions of about this many.
PAIRS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Arrivals:
    """What has arrived at one input.

    Args:
        direction: how elements make entries.
        making: those that do.
        others: the elements that they look up.
        zones: their zones, None without a summary.
    """

    direction: Direction
    making: MakingElements
    others: NumberedElements
    zones: ZoneEstimates | None

    def count_pairs(self, most: int) -> Int64s | None:
        """Return the pairs of each element; None where they are more than `most` together."""
        if self.direction.alone:
            return np.ones(len(self.making.elements), np.int64)
        return self.others.count_alive(self.making.starts, self.making.elements.ts, most)

    def units(self, pairs: Int64s) -> Int64s:
        """Return the units of each element."""
        if self.direction.single or self.direction.alone:
            return pairs
        return pairs + self._look_ups()

    def _look_ups(self) -> Int64s:
        found = np.ones(len(self.making.elements), np.int64)
        if self.zones is not None and not self.direction.own_zone:
            found += np.bincount(self.zones.event, minlength=len(found))
        return found

    def part(self, low: int, high: int) -> Arrivals:
        """Return elements low to before high."""
        if low == 0 and high == len(self.making.elements):
            return self
        one, zones = self.making, self.zones
        making = MakingElements(
            one.elements.slice(low, high), one.numbers[low:high], one.orders[low:high], one.starts[low:high],
            one.bounds[low:high], one.fed_back[low:high],
        )  # fmt: skip
        if zones is not None:
            first, last = (int(place) for place in np.searchsorted(zones.event, [low, high]))
            zones = ZoneEstimates(*(column[first:last] for column in zones))
            zones = zones._replace(event=zones.event - low)
        return replace(self, making=making, zones=zones)


@dataclass(frozen=True)
class WorkAtOnce:
    """Pairs of one input that are examined when their entries are made.

    Args:
        x: by pair, its element.
        partners: by pair, the other element; None for a selection.
        entries: the entries.
        newest: by entry, the timestamp of its newest partner, of x where it has none; any where it is not read.
        units: that are done.
        unknown: of entries whose pairs nothing estimates, how many there are, and their pairs.
    """

    x: Elements
    partners: Elements | None
    entries: EntriesAtOnce
    newest: Int64s
    units: int
    unknown: tuple[int, int]


def is_covered(arrivals: Sequence[Arrivals], pairs: Sequence[Int64s], units_per_element: int | None, most: int) -> bool:
    """Return whether the budget covers all units. pairs: by input and element; units_per_element: grants, if any; most:
    units of all together."""
    units = [one.units(count) for one, count in zip(arrivals, pairs, strict=True)]
    if sum(int(of.sum()) for of in units) > most:
        return False
    if units_per_element is None:
        return True
    ts = np.concatenate([one.making.elements.ts for one in arrivals])
    every = np.concatenate(units)
    if int(every.max(initial=0)) <= units_per_element:
        return True
    order = np.argsort(ts, kind="stable")
    starts = np.flatnonzero(np.diff(ts[order], prepend=ts[order][0] - 1))
    counts = np.diff(np.append(starts, len(ts)))
    return bool((np.add.reduceat(every[order], starts) <= units_per_element * counts).all())


def portions(arrivals: Sequence[Arrivals], pairs: Sequence[Int64s]) -> Iterator[list[tuple[Arrivals, Int64s]]]:
    """Yield what arrived in the order of the elements, cut so that about `PAIRS_AT_ONCE` pairs are in a portion."""
    if sum(int(count.sum()) for count in pairs) <= PAIRS_AT_ONCE:
        yield list(zip(arrivals, pairs, strict=True))
        return
    orders = np.concatenate([one.making.orders for one in arrivals])
    order = np.argsort(orders, kind="stable")
    before = np.cumsum(np.concatenate(pairs)[order])
    portion = np.append(0, before[:-1]) // PAIRS_AT_ONCE
    begins = orders[order][np.flatnonzero(np.diff(portion, prepend=-1))].tolist()
    for low, high in zip(begins, [*begins[1:], int(orders.max()) + 1], strict=True):
        found = []
        for one, count in zip(arrivals, pairs, strict=True):
            first, last = (int(place) for place in np.searchsorted(one.making.orders, [low, high]))
            found.append((one.part(first, last), count[first:last]))
        yield found


def work_at_once(arrived: Arrivals, counts: Int64s) -> WorkAtOnce:
    """Return the pairs of elements and their entries. counts: pairs of each."""
    direction, making, others = arrived.direction, arrived.making, arrived.others
    size = len(making.elements)
    if direction.alone:
        every = np.arange(size)
        entries = direction.entries_at_once(making, every, every, arrived.zones)
        return WorkAtOnce(making.elements, None, entries, entries.made, size, (0, 0))
    which, numbers = others.alive(making.starts, counts, making.elements.ts)
    x = making.elements.take(which)
    partners = others.rows_of(numbers) if len(numbers) else empty(direction.types[1 - direction.side])
    if direction.single:
        entries = direction.single_at_once(making, which, numbers, arrived.zones, x, partners)
        return WorkAtOnce(x, partners, entries, partners.ts, len(which), (0, 0))
    entries = direction.entries_at_once(making, which, numbers, arrived.zones)
    newest = entries.made
    if direction.preference.fades and direction.preference.per is not None:
        newest = newest.copy()
        # The pairs of an entry are newest first; of several values for a place the last one stays.
        newest[entries.entry[::-1]] = partners.ts[::-1]
    unknown = (entries.stretch == WHOLE) | (entries.stretch == REST) | direction.own_zone
    counted = int(np.count_nonzero(unknown)), int(np.count_nonzero(unknown[entries.entry]))
    return WorkAtOnce(x, partners, entries, newest, len(entries.bases) + len(which), counted)
