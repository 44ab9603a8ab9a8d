"""Figures 9 and 10: structures that scan linked tuples, as in `[pt 3]`, beside the engine's exact index.

T1 links all tuples of the window. T2 cuts time into zones with a count sketch each, and a probe walks only zones in
which its item is promised. T3 also links by value bucket. T4 lets zones end by their error. All links go from a tuple
to the one before. Times are CPU time of this process, the best of several runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from benchmarks.promising import queue
from penstock.compilation import loop
from penstock.expressions import draws
from penstock.expressions.sketches.count_sketch import CountSketchShape
from penstock.physical.elements import Elements
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.synopses.join_indexes.hash_index import HashJoinIndex
from penstock.physical.synopses.summaries.count_sketch import SketchCounts
from penstock.physical.synopses.summaries.levels import levels_of
from penstock.physical.synopses.summaries.stream_summary import StreamSummary

STRUCTURES = ("T1", "T2", "T3", "T4", "exact index")
BUCKETS = 16
REPEATS = 5


@dataclass(frozen=True)
class Cost:
    """insert: ns for a tuple. hit: ns for an output tuple. walked: tuples walked for an output tuple. hits: output
    tuples of a probe."""

    insert: float
    hit: float
    walked: float
    hits: float

    def outputs(self, interarrival: float) -> float:
        """Return N_o/p by equation 1, the interarrival time in ns; not more than there are."""
        return min(self.hits, max(0.0, interarrival - self.insert) / self.hit)


def costs(one: queue.Side, two: queue.Side, window: int) -> dict[str, Cost]:
    """Return the cost of each structure over the last window of `two`, probed by the last tuples of `one`."""
    last = int(two.ts[-1])
    begin = int(np.searchsorted(two.ts, last - window, "right"))
    items, ts = two.items[begin:], two.ts[begin:]
    probes = one.items[-2_000:]
    made = {name: _linked(name, items, ts, probes) for name in STRUCTURES[:4]}
    made[STRUCTURES[4]] = _exact(items, ts, probes, window)
    return made


def _best(work: Callable[[], object]) -> float:
    """Return the least CPU time in ns of several runs."""
    found = []
    for _ in range(REPEATS):
        begun = time.process_time_ns()
        work()
        found.append(time.process_time_ns() - begun)
    return float(min(found))


def _linked(name: str, items: np.ndarray, ts: np.ndarray, probes: np.ndarray) -> Cost:
    buckets = BUCKETS if name in ("T3", "T4") else 1
    error = Fraction(4) if name == "T4" else Fraction(10**6)
    shape = CountSketchShape(5, 64, buckets)
    values = draws.mixed(items.astype(np.uint64) + np.uint64(1))
    asked = draws.mixed(probes.astype(np.uint64) + np.uint64(1))
    levels = levels_of(10_000, error=error)
    yes, no = np.ones(len(items), np.bool_), np.zeros(len(probes), np.bool_)
    links, heads = np.empty(len(items), np.int64), np.empty(buckets, np.int64)
    kept: list[StreamSummary] = []

    def insert() -> None:
        _link(items, values, buckets, links, heads)
        if name != "T1":
            kept[:] = [StreamSummary(levels, SketchCounts(shape))]
            kept[0].process(ts, values, yes, yes)

    insert()
    base = _best(lambda: StreamSummary(levels, SketchCounts(shape))) if name != "T1" else 0.0
    inserting = max(0.0, _best(insert) - base)
    now = np.full(len(probes), ts[-1])
    totals = np.zeros(2, np.int64)
    tips = _tips(values, buckets)

    def probe() -> None:
        totals[:] = 0
        if name == "T1":
            everything = np.zeros(len(probes), np.int64)
            _walk(
                items,
                links,
                tips,
                buckets,
                asked,
                probes,
                np.arange(len(probes)),
                everything,
                everything + len(items),
                totals,
            )
            return
        found = kept[0].process(now, asked, ~no, no)
        order = np.lexsort((-found.estimate, found.event))
        _walk(
            items, links, tips, buckets, asked, probes, found.event[order], found.low[order], found.high[order], totals
        )

    probe()
    probing = _best(probe)
    walked, hits = int(totals[0]), max(1, int(totals[1]))
    return Cost(inserting / len(items), probing / hits, walked / hits, hits / len(probes))


@loop
def _link(items, values, buckets, links, heads):  # type: ignore[no-untyped-def]
    heads[:] = -1
    for i in range(items.shape[0]):
        bucket = np.int64(values[i] % np.uint64(buckets))
        links[i] = heads[bucket]
        heads[bucket] = i


@loop
def _tips(values, buckets):  # type: ignore[no-untyped-def]
    """Return where each cell's list begins. The paper keeps a list for each cell, so finding it is not counted."""
    tips = np.empty((buckets, values.shape[0] + 1), np.int64)
    newest = np.full(buckets, -1, np.int64)
    for i in range(values.shape[0]):
        tips[:, i] = newest
        newest[np.int64(values[i] % np.uint64(buckets))] = i
    tips[:, values.shape[0]] = newest
    return tips


@loop
def _walk(items, links, tips, buckets, asked, probes, events, low, high, totals):  # type: ignore[no-untyped-def]
    """Walk cells of one probe after the other. tips: the newest tuple of each bucket before each place."""
    for row in range(events.shape[0]):
        item = probes[events[row]]
        place = tips[np.int64(asked[events[row]] % np.uint64(buckets)), high[row]]
        while place >= low[row]:
            totals[0] += 1
            totals[1] += items[place] == item
            place = links[place]


def _exact(items: np.ndarray, ts: np.ndarray, probes: np.ndarray, window: int) -> Cost:
    stored = Elements((pa.array(items),), ts, ts + window)
    now = np.full(len(probes), ts[-1])
    asking = Elements((pa.array(probes),), now, now + 1)
    first, second = fingerprints(asking.columns, len(probes))
    kept: list[HashJoinIndex] = []

    def insert() -> None:
        kept[:] = [HashJoinIndex((0,), strict=False)]
        kept[0].add(stored)

    hits = [0]

    def probe() -> None:
        hits[0] = sum(len(rows) for rows, _ in kept[0].meet(asking, first, second, 1 << 20))

    insert()
    inserting = _best(insert)
    probe()
    probing = _best(probe)
    return Cost(inserting / len(items), probing / max(1, hits[0]), 1.0, hits[0] / len(probes))
