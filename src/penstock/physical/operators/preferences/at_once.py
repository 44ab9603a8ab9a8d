"""Rounds whose work is done at once: nothing waits before, and the budget covers all units of every instant.

No entry then needs a place in the queue, and no summary is asked: pairs are examined in batches, as a plain join does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.physical.elements import Elements, Int64s, empty
from penstock.physical.operators.preferences.entries import Direction, MakingElements
from penstock.physical.synopses.preferences.numbered_elements import NumberedElements

#: Pairs are examined in portions of about this many.
PAIRS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Arrivals:
    """What has arrived at one input.

    Args:
        direction: how elements make entries.
        making: those that do.
        others: the elements that they look up.
    """

    direction: Direction
    making: MakingElements
    others: NumberedElements

    def count_pairs(self, most: int) -> Int64s | None:
        """Return the pairs of each element; None where they are more than `most` together."""
        if self.direction.alone:
            return np.ones(len(self.making.elements), np.int64)
        return self.others.count_alive(self.making.starts, self.making.elements.ts, most)

    def units(self, pairs: Int64s) -> Int64s:
        """Return the units of each element, which is looked up once."""
        return pairs if self.direction.single or self.direction.alone else pairs + 1

    def part(self, low: int, high: int) -> Arrivals:
        """Return elements low to before high."""
        if low == 0 and high == len(self.making.elements):
            return self
        one = self.making
        making = MakingElements(
            one.elements.slice(low, high),
            one.numbers[low:high],
            one.starts[low:high],
            one.bounds[low:high],
            one.orders[low:high],
        )
        return replace(self, making=making)


@dataclass(frozen=True)
class WorkAtOnce:
    """Pairs of one input that are examined when its elements arrive.

    Args:
        x: by pair, its element.
        partners: by pair, the other element; None for a selection.
        entries, units: how many are done.
    """

    x: Elements
    partners: Elements | None
    entries: int
    units: int


def is_covered(arrivals: Sequence[Arrivals], pairs: Sequence[Int64s], units_per_element: int | None, most: int) -> bool:
    """Return whether the budget covers all units. pairs: by input and element; units_per_element: grants, if any; most:
    units of all together."""
    units = [one.units(count) for one, count in zip(arrivals, pairs, strict=True)]
    if sum(int(of.sum()) for of in units) > most:
        return False
    if units_per_element is None or max(int(of.max(initial=0)) for of in units) <= units_per_element:
        return True
    ts = np.concatenate([one.making.elements.ts for one in arrivals])
    every = np.concatenate(units)
    order = np.argsort(ts, kind="stable")
    starts = np.flatnonzero(np.diff(ts[order], prepend=ts[order][0] - 1))
    counts = np.diff(np.append(starts, len(ts)))
    return bool((np.add.reduceat(every[order], starts) <= units_per_element * counts).all())


def in_one_portion(pairs: Sequence[Int64s]) -> bool:
    """Return whether pairs are so few that they are examined together; then places of elements are not needed."""
    return sum(int(count.sum()) for count in pairs) <= PAIRS_AT_ONCE


def portions(arrivals: Sequence[Arrivals], pairs: Sequence[Int64s]) -> Iterator[list[tuple[Arrivals, Int64s]]]:
    """Yield what arrived in the order of the elements, cut so that about `PAIRS_AT_ONCE` pairs are in a portion."""
    if in_one_portion(pairs):
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
    """Return the pairs of elements. counts: pairs of each."""
    direction, making, others = arrived.direction, arrived.making, arrived.others
    size = len(making.elements)
    if direction.alone:
        return WorkAtOnce(making.elements, None, size, size)
    which, numbers = others.alive(making.starts, counts, making.elements.ts)
    x = making.elements.take(which)
    partners = others.rows_of(numbers) if len(numbers) else empty(direction.types[1 - direction.side])
    look_ups = 0 if direction.single else size
    return WorkAtOnce(x, partners, look_ups or len(which), look_ups + len(which))
