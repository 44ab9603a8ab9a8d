"""The same queries in the engine: what it emits must be what the simulation counts, pair by pair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from benchmarks.promising import queue, selections
from benchmarks.promising.data import COLUMNS, ITEMS, retail
from penstock.expressions.draws import draws, exponential_draws
from penstock.language.scripts import bind_script
from penstock.physical.synopses.summaries.exact import ExactCounts
from penstock.physical.synopses.summaries.levels import levels_of
from penstock.physical.synopses.summaries.stream_summary import StreamSummary
from penstock.runtime.local.runtime import run_local

ESTIMATES = "SUMMARY.Estimate.Count(a.ItemID), SUMMARY.Estimate.Count(b.ItemID)"
CLAUSES = {
    queue.ARRIVAL: "DESC 1",
    queue.DESC: f"DESC {ESTIMATES} FADE FACTOR 0.8",
    queue.ASC: f"ASC {ESTIMATES} FADE FACTOR 0.8",
    queue.WEIGHTED: f"WEIGHTED {ESTIMATES} FADE FACTOR 0.8",
}
#: Of a selection, by order. All read the summary: conditions on its columns cost nothing then.
OF_SELECTIONS = {
    queue.ARRIVAL: "DESC 0 * SUMMARY.Estimate.Count(ItemID)",
    queue.DESC: "DESC SUMMARY.Estimate.Count(ItemID) * Price",
    queue.WEIGHTED: "WEIGHTED SUMMARY.Estimate.Count(ItemID)",
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
        if order == queue.WEIGHTED:
            made = replace(made, race=races(made, tables))
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


def races(made: queue.Entries, tables: list[pa.Table]) -> np.ndarray:
    """Return the draws of the engine for the entries of a join."""
    found = np.empty(len(made.x))
    for side, table in enumerate(tables):
        rows = made.side == side
        found[rows] = drawn(table, side, made.x[rows], made.low[rows])
    return found


def drawn(table: pa.Table, side: int, x: np.ndarray, zones: np.ndarray) -> np.ndarray:
    """Return the engine's exponential draws of entries. x: rows of their elements; zones: as in `Entries.low`."""
    rows = table.take(pa.array(x)).combine_chunks()
    columns = [column.combine_chunks() for column in rows.columns]
    words = draws(0, f"/preference/q/{side}", rows["ts"].to_numpy(), [*columns, pa.array(zones)])
    return np.asarray(exponential_draws(words))


def check_selections(seconds: int = 60, mean: float = 50.0, window: int = 20_000, each: int = 1_500) -> dict[str, int]:
    """Compare a selection, element by element and instant by instant; return how many elements were compared. each:
    milliseconds that a unit takes.

    Raises:
        AssertionError: the engine and the simulation differ.
    """
    table = retail(1, int(seconds * 1000 / mean), 5, mean)
    stream = queue.side(table["ts"].to_numpy(), table["ItemID"].to_numpy())
    levels, compared = levels_of(3_000, 2, 3), {}
    predicate = selections.ranges(1, np.bincount(stream.items, minlength=ITEMS) / len(stream.ts), 5)
    items = ", ".join(map(str, np.flatnonzero(predicate.chosen[0])))
    for order, clause in OF_SELECTIONS.items():
        script = f"""
        SET shards = 1;
        CREATE STREAM A ({COLUMNS}) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;
        CREATE SUMMARY sa ON A (ItemID) WITH GRANULARITY 3 SECONDS AND COLLAPSE (2, 3) USING EXACT;
        CREATE QUERY q AS ISTREAM(SELECT TransactionID FROM A WHERE ItemID IN ({items})
          WITH PREFERENCE {clause} BUDGET 1 PER {each} MILLISECONDS WINDOW {window} MILLISECONDS);
        """
        out = run_local(bind_script(script).queries, {"A": table}).tables["q"]
        last = int(stream.ts[-1])
        found = {
            n: ts for ts, n in zip(out["ts"].to_pylist(), out["TransactionID"].to_pylist(), strict=True) if ts < last
        }
        worth = table["Price"].to_numpy() if order == queue.DESC else None
        ((passed, times),) = selections.emitted(
            stream,
            predicate,
            order,
            levels,
            window,
            1 / each,
            0,
            worth,
            0.0,
            drawn(table, 0, np.arange(len(stream.ts)), np.full(len(stream.ts), -1)),
        )
        numbers = table["TransactionID"].to_numpy()[passed]
        counted = {int(n): int(at) for n, at in zip(numbers, times, strict=True) if 0 <= at < last}
        if found != counted:
            raise AssertionError(f"{queue.NAMES[order]}: the engine selects other elements than the simulation")
        compared[queue.NAMES[order]] = len(found)
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
