"""The join of two streams under a preference and a budget in event time, as a compiled simulation.

It follows the text of `algebra/nodes/preferences.py`: entries for the zones of the other stream and for the rest, a
unit for each look-up and each candidate, keys that change when zones move. What it returns is counted, not listed.
Zones and estimates are those of the engine's own summaries. Also the peers: order of arrival, with and without
deferral.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.promising.data import ITEMS
from penstock.compilation import loop
from penstock.expressions import draws
from penstock.physical.synopses.summaries.levels import SummaryLevels
from penstock.physical.synopses.summaries.stream_summary import StreamSummary
from penstock.physical.synopses.summaries.zone_kernel import granularity_of

#: Orders of the queue. SIMPLE: by arrival, and what waits is dropped when the next element arrives; OLDEST: so too, but
#: the oldest partner is met first, as in a hash chain to which tuples are appended.
SIMPLE, ARRIVAL, DESC, ASC, WEIGHTED, OLDEST = range(6)
NAMES = {
    SIMPLE: "SIMPLE-SHJ",
    OLDEST: "SIMPLE-SHJ, oldest first",
    ARRIVAL: "arrival order, deferred",
    DESC: "PT DESC",
    ASC: "PT ASC",
    WEIGHTED: "PT WEIGHTED",
}
#: Lives of elements without a window.
FOREVER = 2**60


@dataclass(frozen=True)
class Side:
    """One stream. starts: of shape (items + 1), places: the elements of each item, in order of arrival."""

    ts: np.ndarray
    items: np.ndarray
    starts: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class Entries:
    """Pieces of work in order of x. side: of x. low, high: the numbers of its partners in the other stream; -1 and the
    number of partners for the rest entry, whose partners are in no other entry of x. first: the first entry of x."""

    x: np.ndarray
    side: np.ndarray
    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    stretch: np.ndarray
    estimate: np.ndarray
    race: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """What a run emitted. pairs: by item. apart: mean |ts1 - ts2| in ms. delay: mean time from x to its result, in
    ms. asked: pairs that the exact answer has, by item. units: done. entries: made."""

    pairs: np.ndarray
    asked: np.ndarray
    apart: float
    delay: float
    units: int
    entries: int

    @property
    def share(self) -> float:
        """Return the percentage of the exact output."""
        return 100.0 * float(self.pairs.sum()) / float(self.asked.sum())

    @property
    def histogram_error(self) -> float:
        """Return the paper's Hist-MSE over 100 intervals of items, times 10⁶."""
        one, two = self.asked.reshape(100, -1).sum(axis=1), self.pairs.reshape(100, -1).sum(axis=1)
        return 1e6 * float(((one / one.sum() - two / max(1, two.sum())) ** 2).sum())


def side(ts: np.ndarray, items: np.ndarray) -> Side:
    starts = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=ITEMS))])
    return Side(ts, items.astype(np.int64), starts, np.argsort(items, kind="stable"))


def before(one: Side, two: Side) -> tuple[np.ndarray, np.ndarray]:
    """Return how many elements of the other stream come before each element, in order of (ts, side)."""
    return np.searchsorted(two.ts, one.ts, "left"), np.searchsorted(one.ts, two.ts, "right")


def entries(one: Side, two: Side, summaries: tuple[StreamSummary, StreamSummary] | None, seed: int) -> Entries:
    """Return the entries of all elements; without summaries one each."""
    parts = []
    for number, (own, other) in enumerate(((one, two), (two, one))):
        partners = before(one, two)[number]
        x = np.arange(len(own.ts))
        rest = [x, np.full(len(x), -1), partners, np.full(len(x), FOREVER), np.zeros(len(x), np.int64)]
        if summaries is None:
            columns = rest
        else:
            found = _ask(summaries[1 - number], own, other)
            asked = found.event
            inside = [asked, found.low, np.minimum(found.high, partners[asked]), found.stretch, found.estimate]
            columns = [np.concatenate(pair) for pair in zip(inside, rest, strict=True)]
        order = np.lexsort((-columns[1], columns[0]))
        columns = [column[order] for column in columns]
        parts.append([np.full(len(columns[0]), number), own.ts[columns[0]], *columns])
    joined = [np.concatenate(pair) for pair in zip(*parts, strict=True)]
    order = np.lexsort((-joined[3], joined[2], joined[0], joined[1]))
    sides, _, x, low, high, stretch, estimate = (column[order].astype(np.int64) for column in joined)
    new = np.concatenate([[True], (x[1:] != x[:-1]) | (sides[1:] != sides[:-1])])
    first = np.maximum.accumulate(np.where(new, np.arange(len(x)), 0))
    numbers = draws.mixed(
        (x * 4 + sides * 2 + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + low.astype(np.uint64)
    )
    chances = (draws.mixed(numbers + np.uint64(seed)) >> np.uint64(11)).astype(np.float64)
    return Entries(x, sides, low, high, first, stretch, estimate, -np.log((chances + 0.5) / 2**53))


def _ask(summary: StreamSummary, own: Side, other: Side):  # type: ignore[no-untyped-def]
    """Return where the partners of `own` are in `other`: at each instant elements are counted before others ask."""
    ts = np.concatenate([other.ts, own.ts])
    asks = np.concatenate([np.zeros(len(other.ts), np.bool_), np.ones(len(own.ts), np.bool_)])
    events = np.lexsort((asks, ts))
    values = draws.mixed(np.concatenate([other.items, own.items]).astype(np.uint64) + np.uint64(1))
    known = np.ones(len(ts), np.bool_)
    found = summary.process(ts[events], values[events], known, ~asks[events])
    return found._replace(event=events[found.event] - len(other.ts))


def exact_pairs(one: Side, two: Side, window: int) -> np.ndarray:
    """Return by item how many pairs the join has."""
    made = np.zeros(ITEMS, np.int64)
    for own, other, partners in zip((one, two), (two, one), before(one, two), strict=True):
        _count_pairs(own.ts, own.items, other.ts, other.starts, other.places, partners, window, made)
    return made


@loop
def _count_pairs(ts, items, other_ts, starts, places, partners, window, made):  # type: ignore[no-untyped-def]
    for x in range(ts.shape[0]):
        item = items[x]
        own = places[starts[item] : starts[item + 1]]
        high = np.searchsorted(own, partners[x])
        while high > 0 and other_ts[own[high - 1]] + window > ts[x]:
            made[item] += 1
            high -= 1


def run(
    one: Side,
    two: Side,
    made: Entries,
    order: int,
    levels: SummaryLevels,
    fade: float,
    window: int,
    units: int,
    per: int,
) -> Outcome:
    """Simulate a query with `units` per `per` milliseconds, until the last element has come."""
    pairs = np.zeros(ITEMS, np.int64)
    sums = np.zeros(3, np.float64)
    _simulate(
        one.ts,
        one.items,
        one.starts,
        one.places,
        two.ts,
        two.items,
        two.starts,
        two.places,
        made.x,
        made.side,
        made.low,
        made.high,
        made.first,
        made.stretch,
        made.estimate,
        made.race,
        order,
        levels.parameters(),
        fade,
        window,
        units,
        per,
        pairs,
        sums,
    )
    total = max(1, int(pairs.sum()))
    return Outcome(pairs, exact_pairs(one, two, window), sums[0] / total, sums[1] / total, int(sums[2]), len(made.x))


@loop
def _key(e, order, estimate, low, race, stretch, now, parameters, fade):  # type: ignore[no-untyped-def]
    """Return the key of an entry, least first."""
    if order <= 1 or order == 5:
        return 0.0
    g = parameters[2] + 1
    if low[e] >= 0:
        g = granularity_of(stretch[e], now, parameters[1], parameters[2])[0]
    faded = fade ** (g - 1)
    if order == 2:
        return -(estimate[e] * faded)
    if low[e] < 0 or estimate[e] == 0:
        return np.inf
    if order == 3:
        return estimate[e] / faded
    return race[e] * (1.0 + estimate[e]) / (estimate[e] * faded)


@loop
def _sink(heap, keys, size, place):  # type: ignore[no-untyped-def]
    """Let an entry sink to its place; ties by number."""
    e = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (keys[heap[right]], heap[right]) < (keys[heap[child]], heap[child]):
            child = right
        if (keys[e], e) <= (keys[heap[child]], heap[child]):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = e


@loop
def _rise(heap, keys, place):  # type: ignore[no-untyped-def]
    e = heap[place]
    while place > 0:
        parent = (place - 1) // 2
        if (keys[heap[parent]], heap[parent]) <= (keys[e], e):
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = e


@loop
def _anew(heap, size, keys, order, estimate, low, race, stretch, now, parameters, fade):  # type: ignore[no-untyped-def]
    """Make the keys of waiting entries anew, as zones have moved."""
    if fade == 1.0:
        return
    for i in range(size):
        keys[heap[i]] = _key(heap[i], order, estimate, low, race, stretch, now, parameters, fade)
    for i in range(size // 2 - 1, -1, -1):
        _sink(heap, keys, size, i)


@loop
def _covered(e, number, first, low, high):  # type: ignore[no-untyped-def]
    """Return whether a partner of the rest entry `e` is in another entry of its element."""
    for other in range(first[e], e):  # noqa: SIM110
        if low[other] <= number < high[other]:
            return True
    return False


@loop
def _candidate(e, start, own, first, low, high):  # type: ignore[no-untyped-def]
    """Return the place in `own` of the newest candidate of an entry before the place `start`, or -1."""
    place = start - 1
    if low[e] >= 0:
        return place if place >= 0 and own[place] >= low[e] else -1
    while place >= 0 and _covered(e, own[place], first, low, high):
        place -= 1
    return place


@loop
def _ended(
    e, now, window, cursor, x, side, low, high, first, items1, ts1, starts1, places1, items2, ts2, starts2, places2
):  # type: ignore[no-untyped-def]
    """Return whether an entry has nothing left that is alive, though it had."""
    if side[e] == 0:
        mine, item = ts1[x[e]], items1[x[e]]
        others, own = ts2, places2[starts2[item] : starts2[item + 1]]
    else:
        mine, item = ts2[x[e]], items2[x[e]]
        others, own = ts1, places1[starts1[item] : starts1[item + 1]]
    place = cursor[e]
    if place < -1:
        place = _candidate(e, np.searchsorted(own, high[e]), own, first, low, high)
        if place >= 0 and others[own[place]] + window <= mine:
            place = -1
    return mine + window <= now or (place >= 0 and others[own[place]] + window <= now)


@loop
def _simulate(
    ts1,
    items1,
    starts1,
    places1,
    ts2,
    items2,
    starts2,
    places2,
    x,
    side,
    low,
    high,
    first,
    stretch,
    estimate,
    race,
    order,
    parameters,
    fade,
    window,
    units,
    per,
    pairs,
    sums,
):  # type: ignore[no-untyped-def]
    count = x.shape[0]
    keys = np.zeros(count)
    cursor = np.full(count, -2, np.int64)  # -2: not looked up
    heap = np.empty(count, np.int64)
    size, entered, clock, now = 0, 0, -(2**62), -(2**62)
    while entered < count:
        e = entered
        tick = ts1[x[e]] if side[e] == 0 else ts2[x[e]]
        stretch_now = tick // parameters[0]
        if order == 0 or order == 5:
            size = 0
        if stretch_now != now:
            now = stretch_now
            _anew(heap, size, keys, order, estimate, low, race, stretch, now, parameters, fade)
        while size and _ended(
            heap[0],
            tick,
            window,
            cursor,
            x,
            side,
            low,
            high,
            first,
            items1,
            ts1,
            starts1,
            places1,
            items2,
            ts2,
            starts2,
            places2,
        ):
            size -= 1
            heap[0] = heap[size]
            if size:
                _sink(heap, keys, size, 0)
        if size == 0:
            # The slot in which the instant lies: units for which nothing has waited are lost.
            clock = max(clock, tick * units // per * per)
        while entered < count and (ts1[x[entered]] if side[entered] == 0 else ts2[x[entered]]) == tick:
            keys[entered] = _key(entered, order, estimate, low, race, stretch, now, parameters, fade)
            heap[size] = entered
            size += 1
            _rise(heap, keys, size - 1)
            entered += 1
        if entered == count:
            break
        until = ts1[x[entered]] if side[entered] == 0 else ts2[x[entered]]
        while size:
            done = max(-((-clock) // units), tick)
            # What accrued up to an instant is for what has waited before it.
            if done > until:
                break
            if done // parameters[0] != now:
                now = done // parameters[0]
                _anew(heap, size, keys, order, estimate, low, race, stretch, now, parameters, fade)
            e = heap[0]
            if side[e] == 0:
                mine, item, others, own = (
                    ts1[x[e]],
                    items1[x[e]],
                    ts2,
                    places2[starts2[items1[x[e]]] : starts2[items1[x[e]] + 1]],
                )
            else:
                mine, item, others, own = (
                    ts2[x[e]],
                    items2[x[e]],
                    ts1,
                    places1[starts1[items2[x[e]]] : starts1[items2[x[e]] + 1]],
                )
            looked = cursor[e] >= -1
            if looked:
                place = cursor[e]
            elif order == 5:
                place = 0
                while place < own.shape[0] and others[own[place]] + window <= done:
                    place += 1
                if place >= np.searchsorted(own, high[e]):
                    place = -1
            else:
                place = _candidate(e, np.searchsorted(own, high[e]), own, first, low, high)
                if place >= 0 and others[own[place]] + window <= mine:
                    place = -1  # its partners had ended before it came, so it has none
            finished = mine + window <= done or (place >= 0 and others[own[place]] + window <= done)
            if not finished and not looked:
                cursor[e] = place
                clock += per
                sums[2] += 1
                finished = place < 0
            elif not finished:
                pairs[item] += 1
                sums[0] += abs(mine - others[own[place]])
                sums[1] += done - mine
                sums[2] += 1
                clock += per
                if order == 5:
                    cursor[e] = place + 1 if place + 1 < np.searchsorted(own, high[e]) else -1
                else:
                    cursor[e] = _candidate(e, place, own, first, low, high)
                finished = cursor[e] < 0
            if finished:
                size -= 1
                heap[0] = heap[size]
                if size:
                    _sink(heap, keys, size, 0)
