"""`python -m benchmarks.slope`: what a tuple costs in every incremental operator, against the length of the window.

    python -m benchmarks.slope [--windows 1,10,100,1000] [--rate 200] [--measured 100] [--write]

One rate, windows in seconds. Each query runs until its windows are full and is then measured for `measured` seconds, in
rounds of ten seconds, in this process (`local_harness.py`). Keys are drawn so that a tuple meets about one partner
whatever the window's length: what grows with the result is not what is asked. The slope is the factor by which a tuple
gets dearer when the window is ten times as long, fitted over all windows; 1.0 is independence. Aggregates have a bench
of their own (`aggregates.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.local_harness import markdown, measure, write_table

#: Where `--write` puts the table.
PAGE = Path(__file__).parent / "results" / "golab.md"
HEADING = "## Cost per tuple against the length of the window"

DECLARED = "\n".join(
    f"CREATE STREAM {name} (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;" for name in "ST"
)
#: Operator -> (how many streams, the query). {w} stands for the window. `k` takes as many values as a window has
#: tuples, `v` takes 1,000.
OPERATORS: dict[str, tuple[int, str]] = {
    "window as changes": (1, "SELECT k, v FROM S {w}"),
    "ISTREAM": (1, "ISTREAM(SELECT k, v FROM S {w})"),
    "DSTREAM": (1, "DSTREAM(SELECT k, v FROM S {w})"),
    "DISTINCT (δ*)": (1, "SELECT DISTINCT v FROM S {w}"),
    "DISTINCT of updates (counts)": (1, "SELECT DISTINCT n FROM (SELECT v, COUNT(*) AS n FROM S {w} GROUP BY v) AS g"),
    "join": (2, "SELECT S.k, S.v, T.v AS u FROM S {w}, T {w} WHERE S.k = T.k"),
    "band join": (2, "SELECT S.k, S.v, T.v AS u FROM S {w}, T {w} WHERE S.k BETWEEN T.k - 1 AND T.k + 1"),
    "join by key and range": (2, "SELECT S.k, S.v, T.v AS u FROM S {w}, T {w} WHERE S.k = T.k AND S.v < T.v"),
    "join of a strict input": (
        2,
        "SELECT S.k, n FROM S {w}, (SELECT k, COUNT(*) AS n FROM T {w} GROUP BY k) AS g WHERE S.k = g.k",
    ),
    "DISTINCT over a join (δ*)": (2, "SELECT DISTINCT S.v FROM S {w}, T {w} WHERE S.k = T.k"),
    "WSTREAM of a join": (2, "WSTREAM(SELECT S.k, S.v, T.v AS u FROM S {w}, T {w} WHERE S.k = T.k){w}"),
    "ISTREAM RESTORE of a join": (
        2,
        "ISTREAM RESTORE(SELECT S.k, S.v, T.v AS u FROM S {s}, T {s} WHERE S.k = T.k)",
    ),
    "UNION": (2, "SELECT v FROM S {w} UNION SELECT v FROM T {w}"),
    "EXCEPT": (2, "SELECT v FROM S {w} EXCEPT SELECT v FROM T {w}"),
    "EXCEPT ALL": (2, "SELECT v FROM S {w} EXCEPT ALL SELECT v FROM T {w}"),
    "INTERSECT": (2, "SELECT v FROM S {w} INTERSECT SELECT v FROM T {w}"),
    "NOT EXISTS": (2, "SELECT k, v FROM S {w} WHERE NOT EXISTS (SELECT * FROM T {w} WHERE T.k = S.k)"),
    "LEFT JOIN in a band": (
        2,
        "SELECT S.k, S.v, T.v AS u FROM S {w} LEFT JOIN T {w} ON S.k BETWEEN T.k - 1 AND T.k + 1",
    ),
    "LEFT JOIN": (2, "SELECT S.k, S.v, T.v AS u FROM S {w} LEFT JOIN T {w} ON S.k = T.k"),
}


def stream(number: int, rate: int, window: int, seconds: int) -> pa.Table:
    draw = np.random.default_rng([7, number])
    size = rate * seconds
    ts = np.sort(draw.integers(0, seconds * 1000, size))
    return pa.table(
        {
            "ts": pa.array(ts.astype(np.int32)),
            "k": pa.array(draw.integers(0, rate * window, size).astype(np.int32)),
            "v": pa.array(draw.integers(0, 1_000, size).astype(np.int32)),
        }
    )


def cost(query: str, streams: int, rate: int, window: int, measured: int) -> float:
    """CPU microseconds a tuple."""
    inputs = {name: stream(n, rate, window, window + measured) for n, name in enumerate("ST"[:streams])}
    text = query.replace("{w}", f"[RANGE {window} SECONDS]").replace("{s}", f"[RANGE {window} SECONDS SLIDE 5 SECONDS]")
    return measure(f"{DECLARED}\nCREATE QUERY q AS {text};", inputs, step=10_000, warm=window * 1000).micros


def slope(windows: Sequence[int], costs: Sequence[float]) -> float:
    """The factor for ten times the window, by least squares of the logarithms."""
    fitted = np.polyfit(np.log10(windows), np.log10(costs), 1)
    return float(10 ** fitted[0])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", default="1,10,100,1000")
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--measured", type=int, default=100)
    parser.add_argument("--operators", default=",".join(OPERATORS), help="by name, separated by commas")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    chosen = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    windows = [int(w) for w in chosen.windows.split(",")]
    header = ["operator", *(f"{w:,} s" for w in windows), "slope"]
    rows: list[list[str]] = []
    for name, (streams, query) in OPERATORS.items():
        if name not in chosen.operators.split(","):
            continue
        cost(query, streams, chosen.rate, 1, 20)  # compiles
        costs = [cost(query, streams, chosen.rate, window, chosen.measured) for window in windows]
        rows.append([name, *(f"{c:.2f}" for c in costs), f"{slope(windows, costs):.2f}"])
        print(" | ".join(rows[-1]), flush=True)
    table = markdown(header, rows)
    print(f"CPU µs per tuple at {chosen.rate} tuples a second and stream.\n\n{table}\n")
    if chosen.write:
        write_table(PAGE, HEADING, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
