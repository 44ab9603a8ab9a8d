"""Figures 15 and 16: many selections over one stream, under one budget that is divided among them.

Predicates are ranges of items, so both sides know without work which elements fail. SIMPLE examines the element that
came last and loses what it has no time for; under a preference elements wait, and summarising costs part of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.promising import queue
from benchmarks.promising.data import ITEMS
from penstock.compilation import loop
from penstock.expressions import draws
from penstock.physical.synopses.summaries.exact import ExactCounts
from penstock.physical.synopses.summaries.levels import SummaryLevels
from penstock.physical.synopses.summaries.stream_summary import StreamSummary

#: Units that summarising an element costs, once for all queries: see `costs of a unit` on the page.
SUMMARISING = 0.1


@dataclass(frozen=True)
class Ranges:
    """Predicates. chosen: of shape (queries, items)."""

    chosen: np.ndarray


def ranges(count: int, popularity: np.ndarray, seed: int) -> Ranges:
    """Return predicates, each a range of items in a random order that holds 5 to 10 % of all elements."""
    draw = np.random.default_rng([seed, 15])
    chosen = np.zeros((count, ITEMS), np.bool_)
    for query in range(count):
        goal = draw.uniform(0.05, 0.10)
        start, total = int(draw.integers(ITEMS)), 0.0
        for item in (np.arange(ITEMS) + start) % ITEMS:
            if total >= goal:
                break
            if total + popularity[item] <= 0.10:
                chosen[query, item] = True
                total += popularity[item]
    return Ranges(chosen)


def emitted(
    stream: queue.Side,
    predicates: Ranges,
    order: int,
    levels: SummaryLevels,
    window: int,
    units: float,
    seed: int,
    worth: np.ndarray | None = None,
    summarising: float = SUMMARISING,
    race_of: np.ndarray | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each query (elements that pass, when each is emitted or -1).

    Args:
        units: per millisecond, of all queries together.
        worth: a factor of each element's priority.
        summarising: units that an element costs.
        race_of: exponential draws of the elements, in place of draws by `seed` and query.
    """
    queries = len(predicates.chosen)
    priorities = np.ones(len(stream.ts))
    if order >= queue.DESC:
        own = queue._ask(StreamSummary(levels, ExactCounts()), stream, stream)
        inside = (own.low <= own.event) & (own.event < own.high)
        priorities = np.zeros(len(stream.ts))
        priorities[own.event[inside]] = own.estimate[inside]
        mean = float(stream.ts[-1] - stream.ts[0]) / max(1, len(stream.ts) - 1)
        units = max(1e-9, units - summarising / mean)
    weights = priorities if worth is None else priorities * worth
    made = []
    for query in range(queries):
        passed = np.flatnonzero(predicates.chosen[query][stream.items])
        words = draws.mixed(passed.astype(np.uint64) * np.uint64(2 * query + 3) + np.uint64(seed))
        race = -np.log(((words >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53)
        if race_of is not None:
            race = race_of[passed]
        with np.errstate(divide="ignore"):
            keys = {
                queue.DESC: -weights[passed],
                queue.WEIGHTED: np.where(weights[passed] > 0, race / weights[passed], np.inf),
            }.get(order, np.zeros(len(passed)))
        times = np.full(len(passed), -1, np.int64)
        _examine(stream.ts, passed, keys, order == queue.SIMPLE, window, queries / units, times)
        made.append((passed, times))
    return made


@loop
def _examine(ts, passed, keys, simple, window, each, times):  # type: ignore[no-untyped-def]
    """Write when each element is examined; `each` takes so many milliseconds."""
    heap = np.empty(passed.shape[0], np.int64)
    size, clock, entered = 0, -1e300, 0
    for arrival in range(ts.shape[0]):
        tick = ts[arrival]
        if simple:
            size = 0
        if size == 0:
            # The slot in which the instant lies: units for which nothing has waited are lost.
            clock = max(clock, np.floor(tick / each) * each)
        if entered < passed.shape[0] and passed[entered] == arrival:
            heap[size] = entered
            size += 1
            queue._rise(heap, keys, size - 1)
            entered += 1
        until = ts[arrival + 1] if arrival + 1 < ts.shape[0] else tick
        # What accrued up to an instant is for what has waited before it.
        while size and until > tick and np.ceil(clock) <= until:
            e = heap[0]
            size -= 1
            heap[0] = heap[size]
            if size:
                queue._sink(heap, keys, size, 0)
            done = max(np.int64(np.ceil(clock)), ts[passed[e]])
            if ts[passed[e]] + window > done:
                times[e] = done
                clock += each


def aggregate_errors(
    stream: queue.Side, prices: np.ndarray, answers: list[tuple[np.ndarray, np.ndarray]], window: int
) -> tuple[float, float]:
    """Return the mean squared errors of AVG(price) and SUM(price) over the window, each 5 s and each query; queries
    with an empty answer are left out of AVG's, as it has no value."""
    instants = np.arange(int(stream.ts[0]) + window, int(stream.ts[-1]), 5_000)
    averages, totals = [], []
    for passed, times in answers:
        ts, price = stream.ts[passed], prices[passed]
        for now in instants:
            true = (ts <= now) & (ts + window > now)
            told = true & (times >= 0) & (times <= now)
            totals.append((price[true].sum() - price[told].sum()) ** 2)
            if told.any():
                averages.append((price[true].mean() - price[told].mean()) ** 2)
    return float(np.mean(averages)) if averages else float("nan"), float(np.mean(totals))
