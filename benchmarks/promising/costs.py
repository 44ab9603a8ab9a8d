"""What a summary costs: CPU time of counting an element and of an estimate, and bytes, by method."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.promising.data import ITEMS, retail
from penstock.expressions import draws
from penstock.expressions.sketches.count_sketch import CountSketchShape
from penstock.physical.synopses.summaries.contract import SlotCounts
from penstock.physical.synopses.summaries.count_sketch import SketchCounts
from penstock.physical.synopses.summaries.declared import predicted_bytes
from penstock.physical.synopses.summaries.exact import ExactCounts
from penstock.physical.synopses.summaries.levels import levels_of
from penstock.physical.synopses.summaries.stream_summary import StreamSummary

METHODS: dict[str, Callable[[], SlotCounts]] = {
    "COUNTSKETCH": lambda: SketchCounts(CountSketchShape()),
    "EXACT": ExactCounts,
}
REPEATS = 5


def summaries(quick: bool) -> Iterator[str]:
    """Return a table over 700 s of stream with defaults, when all granularities are full."""
    yield "| summary of 1,000 items | every, ms | ns an element | ns a probe | zones | ns a zone | bytes | predicted |"
    yield "|---|---|---|---|---|---|---|---|"
    levels = levels_of(10_000)
    for mean in (100.0,) if quick else (100.0, 1.0):
        rows = int(700_000 / mean)
        stream = retail(1, rows, 3, mean)
        ts = stream["ts"].to_numpy()
        values = draws.mixed(stream["ItemID"].to_numpy().astype(np.uint64) + np.uint64(1))
        yes, no = np.ones(rows, np.bool_), np.zeros(min(rows, 20_000), np.bool_)
        for name, made in METHODS.items():
            summary = StreamSummary(levels, made())
            summary.process(ts[:10], values[:10], yes[:10], yes[:10])  # compiled
            summary = StreamSummary(levels, made())
            begun = time.process_time_ns()
            summary.process(ts, values, yes, yes)
            counting = (time.process_time_ns() - begun) / rows
            now, asked = np.full(len(no), ts[-1]), values[-len(no) :]
            probing = min(_timed(lambda: summary.process(now, asked, ~no, no)) for _ in range(REPEATS)) / len(no)  # noqa: B023
            zones = len(summary.zones())
            predicted = predicted_bytes(levels, CountSketchShape(), 1 / mean, ITEMS)
            promised = predicted.sketch if name == "COUNTSKETCH" else predicted.exact
            yield (
                f"| {name} | {mean:g} | {counting:,.0f} | {probing:,.0f} | {zones} | {probing / max(1, zones):.1f} | "
                f"{summary.nbytes:,} | {promised:,} |"
            )


def _timed(work: Callable[[], object]) -> int:
    begun = time.process_time_ns()
    work()
    return time.process_time_ns() - begun
