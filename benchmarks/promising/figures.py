"""The figures of `[pt 5]`, each as panels of lines over one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from benchmarks.promising import queue, selections, structures
from benchmarks.promising.data import ITEMS, retail
from penstock.expressions.sketches.count_sketch import CountSketchShape
from penstock.physical.synopses.summaries.count_sketch import SketchCounts
from penstock.physical.synopses.summaries.levels import levels_of
from penstock.physical.synopses.summaries.stream_summary import StreamSummary

LEVELS = levels_of(10_000)
WINDOW = 60_000
#: The budget of a virtual processor: this part of the work that the plain join asks for at 100 ms.
PART = 0.75
#: Of the paper: t_hit of T1, and the interarrival time, in ms.
PAPER_HIT, PAPER_INTERARRIVAL = 80.0, 100.0
#: Interarrival times in ns.
FAST, RATES = 2_000.0, (100.0, 200.0, 500.0, 1_000.0, 1_500.0, 2_000.0, 3_000.0)


@dataclass(frozen=True)
class Panel:
    """One figure or part of one. lines: name -> a value for each x; logarithmic: the height, with a 0."""

    name: str
    title: str
    across: str
    xs: tuple[float, ...]
    lines: dict[str, list[float]]
    logarithmic: bool = False


@dataclass(frozen=True)
class Setting:
    """seconds: of stream time. seeds: runs whose mean is shown. means: milliseconds between two elements."""

    seconds: int = 300
    seeds: tuple[int, ...] = (1, 2, 3)
    means: tuple[int, ...] = (10, 20, 30, 50, 70, 100)
    queries: tuple[int, ...] = (20, 40, 60, 80, 100, 140, 200)
    windows: tuple[int, ...] = (10, 20, 40, 60, 80, 100, 120)


@cache
def sides(seed: int, mean: float, seconds: int, drift: bool = False) -> tuple[queue.Side, queue.Side]:
    """Return two stores."""
    rows = int(seconds * 1000 / mean)
    tables = [retail(store, rows, seed, mean, drift) for store in (1, 2)]
    one, two = (queue.side(t["ts"].to_numpy(), t["ItemID"].to_numpy()) for t in tables)
    return one, two


@cache
def budget(seconds: int) -> int:
    """Return the units per second: a part of the look-ups and pairs of the plain join at 100 ms, over a window."""
    one, two = sides(1, 100.0, seconds)
    asked = int(queue.exact_pairs(one, two, WINDOW).sum()) + len(one.ts) + len(two.ts)
    return int(PART * asked / seconds)


@cache
def outcome(
    order: int, seed: int, mean: float, seconds: int, window: int = WINDOW, fade: float = 1.0, drift: bool = False
) -> queue.Outcome:
    one, two = sides(seed, mean, seconds, drift)
    summaries = None
    if queue.DESC <= order <= queue.WEIGHTED:
        summaries = tuple(StreamSummary(LEVELS, SketchCounts(CountSketchShape())) for _ in range(2))
    made = queue.entries(one, two, summaries, seed)
    return queue.run(one, two, made, order, LEVELS, fade, window, budget(seconds), 1000)


def _share(outcome: queue.Outcome, rare: np.ndarray) -> float:
    return outcome.share


def _apart(outcome: queue.Outcome, rare: np.ndarray) -> float:
    return outcome.apart / 1000


def joins(setting: Setting) -> Iterator[Panel]:
    """Figures 11 to 14."""
    three = (queue.SIMPLE, queue.ARRIVAL)
    yield _panel(setting, "11", "output, % of the exact", (*three, queue.DESC, queue.WEIGHTED), _share)
    whole = {"window": queue.FOREVER, "fade": 0.8}
    lines = (queue.SIMPLE, queue.OLDEST, queue.ARRIVAL, queue.DESC)
    yield _panel(setting, "12a", "output, % of the exact, whole-stream window", lines, _share, **whole)
    fresh = _panel(setting, "12b", "mean |ts1 - ts2|, s", lines, _apart, **whole)
    unfaded = _panel(setting, "", "", (queue.DESC,), _apart, window=queue.FOREVER)
    yield replace(fresh, lines={**fresh.lines, "PT DESC without fading": unfaded.lines[queue.NAMES[queue.DESC]]})
    faithful = (*three, queue.DESC, queue.WEIGHTED)
    yield _panel(setting, "13a", "output, % of the exact", (*three, queue.WEIGHTED), _share)
    yield _panel(setting, "13b", "Hist-MSE, millionths", faithful, lambda o, *_: o.histogram_error)
    yield _panel(
        setting,
        "13b drift",
        "Hist-MSE, millionths, the ranking drifts",
        faithful,
        lambda o, *_: o.histogram_error,
        drift=True,
    )
    yield _panel(setting, "delay", "mean delay of results, s", faithful, lambda o, *_: o.delay / 1000)
    rare = (*three, queue.DESC, queue.ASC)
    yield _panel(setting, "14a", "output, % of the exact", rare, _share)
    yield _panel(setting, "14b", "outliers in the output, %", rare, lambda o, r: _percent(o.pairs[r], o.pairs))
    yield _panel(setting, "14c", "outliers that are found, %", rare, lambda o, r: _percent(o.pairs[r], o.asked[r]))


def _panel(setting: Setting, name: str, title: str, orders: Sequence[int], value, **how) -> Panel:  # type: ignore[no-untyped-def]
    lines: dict[str, list[float]] = {}
    for order in orders:
        lines[queue.NAMES[order]] = []
        for mean in setting.means:
            found = []
            for seed in setting.seeds:
                rare = outliers(seed, mean, setting.seconds, how.get("drift", False))
                found.append(value(outcome(order, seed, mean, setting.seconds, **how), rare))
            lines[queue.NAMES[order]].append(mean_of(found))
    return Panel(name, title, "mean interarrival time, ms", tuple(map(float, setting.means)), lines)


def mean_of(values: Sequence[float]) -> float:
    """Return the mean of the values that there are; NaN for none."""
    there = [value for value in values if not np.isnan(value)]
    return float(np.mean(there)) if there else float("nan")


@cache
def outliers(seed: int, mean: float, seconds: int, drift: bool = False) -> np.ndarray:
    """Return a mask of the rarest items, which together have 5 % of the elements of both streams. (The rarest 5 % of
    the items have not one pair in most runs.)"""
    counts = sum(np.bincount(side.items, minlength=ITEMS) for side in sides(seed, mean, seconds, drift))
    order = np.argsort(counts, kind="stable")
    rare = np.zeros(ITEMS, np.bool_)
    rare[order[np.cumsum(counts[order]) <= 0.05 * counts.sum()]] = True
    return rare


def _percent(part: np.ndarray, whole: np.ndarray) -> float:
    return 100.0 * float(part.sum()) / float(whole.sum()) if whole.sum() else float("nan")


def selecting(setting: Setting) -> Iterator[Panel]:
    """Figures 15 and 16."""
    names = {queue.SIMPLE: "SIMPLE-Selection", queue.ARRIVAL: "arrival order, deferred", queue.DESC: "PT-Selection"}
    means = tuple(map(float, setting.means))
    shares = {name: [_selected(order, 100, m, setting) for m in setting.means] for order, name in names.items()}
    yield Panel("15a", "output of 100 selections, % of the exact", "mean interarrival time, ms", means, shares)
    shares = {name: [_selected(order, n, 100, setting) for n in setting.queries] for order, name in names.items()}
    yield Panel("15b", "output, % of the exact, at 100 ms", "queries", tuple(map(float, setting.queries)), shares)
    for number, name, order in ((0, "16a", queue.WEIGHTED), (1, "16b", queue.DESC)):
        kinds = {
            "SIMPLE": queue.SIMPLE,
            "arrival order, deferred": queue.ARRIVAL,
            f"PT {queue.NAMES[order][3:]}": order,
        }
        lines = {kind: [_error(by, m, setting, number) for m in setting.means] for kind, by in kinds.items()}
        yield Panel(name, f"MSE of {('AVG', 'SUM')[number]}(Price)", "mean interarrival time, ms", means, lines)


def _answers(order: int, queries: int, mean: float, seed: int, seconds: int, total: bool):  # type: ignore[no-untyped-def]
    table = retail(1, int(seconds * 1000 / mean), seed, mean)
    stream, prices = queue.side(table["ts"].to_numpy(), table["ItemID"].to_numpy()), table["Price"].to_numpy()
    predicates = selections.ranges(queries, np.bincount(stream.items, minlength=ITEMS) / len(stream.items), seed)
    # The work asked at 100 ms by 100 queries: each examines 7.5 % of 10 elements a second.
    units = PART * 100 * 0.075 * 10 / 1000
    worth = prices if total else None
    return stream, prices, selections.emitted(stream, predicates, order, LEVELS, WINDOW, units, seed, worth)


def _selected(order: int, queries: int, mean: float, setting: Setting) -> float:
    found = []
    for seed in setting.seeds:
        _, _, answers = _answers(order, queries, mean, seed, setting.seconds, False)
        found += [100.0 * float(np.mean(times >= 0)) for passed, times in answers if len(passed)]
    return float(np.mean(found))


def _error(order: int, mean: float, setting: Setting, which: int) -> float:
    found = []
    for seed in setting.seeds:
        stream, prices, answers = _answers(order, 100, mean, seed, setting.seconds, which == 1)
        found.append(selections.aggregate_errors(stream, prices, answers, WINDOW)[which])
    return mean_of(found)


def structural(setting: Setting) -> tuple[list[Panel], dict[str, structures.Cost]]:
    """Figures 9c to 10, and the costs at 100 ms.

    9c is equation 1 twice: with the times of this machine at 2 µs, and with the paper's 100 ms if walking a tuple takes
    as long as its t_hit of T1 implies. 10 has this machine's times.
    """

    def at(mean: float, window: int) -> dict[str, structures.Cost]:
        rows = int(1.2 * window * 1000 / mean) + 2_000
        one, two = (
            queue.side(t["ts"].to_numpy(), t["ItemID"].to_numpy())
            for t in (retail(store, rows, 9, mean) for store in (1, 2))
        )
        return structures.costs(one, two, window * 1000)

    costs = at(100.0, 60)
    walk = PAPER_HIT / costs["T1"].walked
    linked = structures.STRUCTURES[:4]
    implied = [PAPER_INTERARRIVAL / (walk * costs[name].walked) for name in linked]
    here = [costs[name].outputs(FAST) for name in linked]
    by_window: dict[str, list[float]] = {name: [] for name in costs}
    for window in setting.windows:
        for name, cost in at(100.0, window).items():
            by_window[name].append(cost.outputs(FAST))
    rates = {name: [cost.outputs(ns) for ns in RATES] for name, cost in costs.items()}
    return [
        Panel(
            "9c",
            "N_o/p by equation 1",
            "structure T",
            (1, 2, 3, 4),
            {"at 2 µs here": here, "at 100 ms, walking as slow as in the paper": implied},
        ),
        Panel("10a", "N_o/p", "interarrival time, ns", RATES, rates),
        Panel("10b", "N_o/p at 2 µs", "window, s", tuple(map(float, setting.windows)), by_window),
    ], costs


def quick(setting: Setting) -> Setting:
    """Return a setting that runs in seconds."""
    return replace(setting, seconds=90, seeds=(1,), means=(20, 100), queries=(20, 100), windows=(10, 60))
