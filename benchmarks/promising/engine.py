"""The same queries in the engine: what it emits must be what the simulation counts, pair by pair."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.promising import queue
from benchmarks.promising.data import COLUMNS, ITEMS, retail
from penstock.language import bind_script
from penstock.physical.synopses.summaries.exact import ExactCounts
from penstock.physical.synopses.summaries.levels import levels_of
from penstock.physical.synopses.summaries.stream_summary import StreamSummary
from penstock.runtime.local.runtime import run_local

ESTIMATES = "SUMMARY.Estimate.Count(a.ItemID), SUMMARY.Estimate.Count(b.ItemID)"
CLAUSES = {
    queue.ARRIVAL: "DESC 1",
    queue.DESC: f"DESC {ESTIMATES} FADE FACTOR 0.8",
    queue.ASC: f"ASC {ESTIMATES} FADE FACTOR 0.8",
}


def check(seconds: int = 40, mean: float = 50.0, window: int = 20, units: int = 130) -> dict[str, int]:
    """Compare, by item and instant's end, and return how many pairs were compared.

    Raises:
        AssertionError: the engine and the simulation differ.
    """
    tables = [retail(store, int(seconds * 1000 / mean), 5, mean) for store in (1, 2)]
    one, two = (queue.side(t["ts"].to_numpy(), t["ItemID"].to_numpy()) for t in tables)
    levels = levels_of(3_000, 2, 3)
    compared = {}
    for order, clause in CLAUSES.items():
        table = answer(tables, window, f"{clause} BUDGET {units} PER SECOND")
        last = max(int(one.ts[-1]), int(two.ts[-1]))
        early = table.filter(pa.compute.less(table["ts"], last))
        emitted = np.bincount(early["item"].to_numpy(), minlength=ITEMS)
        summaries = (StreamSummary(levels, ExactCounts()), StreamSummary(levels, ExactCounts()))
        made = queue.entries(one, two, summaries if order >= queue.DESC else None, 0)
        counted = queue.run(one, two, made, order, levels, 0.8, window * 1000, units, 1000)
        if (emitted != counted.pairs).any():
            raise AssertionError(
                f"{queue.NAMES[order]}: the engine emits {emitted.sum()}, not {counted.pairs.sum()} pairs"
            )
        apart = np.abs(early["one"].to_numpy() - early["two"].to_numpy()).sum()
        if apart != round(counted.apart * counted.pairs.sum()):
            raise AssertionError(f"{queue.NAMES[order]}: other pairs than the simulation's")
        compared[queue.NAMES[order]] = int(emitted.sum())
    return compared


def answer(tables: list[pa.Table], window: int, clause: str) -> pa.Table:
    """Return the pairs (ts, item, one, two) that the engine emits; one, two: the timestamps of the pair."""
    script = f"""
    SET shards = 1;
    CREATE STREAM A ({COLUMNS}) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;
    CREATE STREAM B ({COLUMNS}) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;
    CREATE SUMMARY sa ON A (ItemID) WITH GRANULARITY 3 SECONDS AND COLLAPSE (2, 3) USING EXACT;
    CREATE SUMMARY sb ON B (ItemID) WITH GRANULARITY 3 SECONDS AND COLLAPSE (2, 3) USING EXACT;
    CREATE QUERY q AS ISTREAM(SELECT a.ItemID AS item, a.ts AS one, b.ts AS two
      FROM A AS a, B AS b WHERE a.ItemID = b.ItemID WITH PREFERENCE {clause} WINDOW {window} SECONDS);
    """
    bound = bind_script(script).queries
    return run_local(bound, dict(zip("AB", tables, strict=True))).tables["q"]
