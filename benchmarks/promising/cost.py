"""What a preference costs whose budget covers all work, beside the plain join: python -m benchmarks.promising.cost

CPU time of this process, the runs in turn: the least of `--runs` of each, and the median of what each run takes times
the plain join just before it. Then, with --slope, what a row costs by the length of the window, with as many keys as
make one partner a row at every length; and, with --readers, what queries cost that read one summary, which each of them
keeps.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np
import pyarrow as pa

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

SCRIPT = """
SET target_latency = '2 s';
CREATE STREAM A (ts INT, k INT, amount INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM B (ts INT, k INT, weight INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE SUMMARY b_keys ON B (k);
CREATE QUERY q AS SELECT A.k, amount, weight FROM A [RANGE 1 MINUTE] AS A, B [RANGE 1 MINUTE] AS B WHERE A.k = B.k
"""
CLAUSES = {
    "plain": "",
    "PER TUPLE": "WITH PREFERENCE A.amount BUDGET 100000 PER TUPLE",
    "AUTO": "WITH PREFERENCE A.amount BUDGET AUTO",
    "summary": "WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(B.k) BUDGET 100000 PER TUPLE",
}


def inputs(rows: int, keys: int) -> dict[str, pa.Table]:
    """Return two streams with 100 rows a second."""
    draw = np.random.default_rng(1)
    ts = (np.arange(rows) // 100).astype(np.int32)
    found: dict[str, pa.Table] = {}
    for name, value in (("A", "amount"), ("B", "weight")):
        columns = {"k": draw.integers(0, keys, rows), value: draw.integers(0, 1000, rows)}
        found[name] = pa.table({"ts": ts, **{c: v.astype(np.int32) for c, v in columns.items()}})
    return found


def slope(rows: int, runs: int) -> None:
    """Print what a row costs, where all work is covered and where a third of it is, by window."""
    clauses = {
        "plain": "",
        "all work": CLAUSES["summary"],
        "1 PER TUPLE": "WITH PREFERENCE DESC SUMMARY.Estimate.Count(B.k) BUDGET 1 PER TUPLE",
    }
    for seconds in (10, 30, 100, 300):
        tables = inputs(rows, 100 * seconds)
        for name, clause in clauses.items():
            text = f"{SCRIPT} {clause};".replace("1 MINUTE", f"{seconds} SECONDS")
            print(f"{seconds:4} s {name:12} {_least(text, tables, runs) / (2 * rows) * 1e6:.2f} µs a row")


def readers(rows: int, runs: int) -> None:
    """Print what queries cost together that read one summary."""
    tables = inputs(rows, 6000)
    declared, query = SCRIPT.split("CREATE QUERY q")
    for count in (1, 2, 4, 8):
        text = declared + "".join(f"CREATE QUERY q{n}{query} {CLAUSES['summary']};" for n in range(count))
        print(f"{count} queries: {_least(text, tables, runs):.3f} s")


def _least(text: str, tables: dict[str, pa.Table], runs: int) -> float:
    """Return the least CPU time of a run of the script's queries."""
    queries, spent = bind_script(text).queries, []
    for _ in range(runs):
        began = time.process_time()
        run_local(queries, tables, batch_rows=6000)
        spent.append(time.process_time() - began)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slope", action="store_true")
    parser.add_argument("--readers", action="store_true")
    given = parser.parse_args()
    if given.slope or given.readers:
        measure = slope if given.slope else readers
        measure(given.rows, given.runs)
        return
    queries = {name: bind_script(f"{SCRIPT} {clause};").queries for name, clause in CLAUSES.items()}
    for keys in (6000, 600):
        tables = inputs(given.rows, keys)
        spent: dict[str, list[float]] = {}
        rows = set()
        for _ in range(given.runs):
            for name, query in queries.items():
                began = time.process_time()
                rows.add(run_local(query, tables, batch_rows=6000).tables["q"].num_rows)
                spent.setdefault(name, []).append(time.process_time() - began)
        assert len(rows) == 1, f"a budget that covers all work gives the plain join: {rows}"
        print(f"{rows.pop():,} changes of the result over {given.rows:,} rows a side")
        for name, seconds in spent.items():
            times = median(own / plain for own, plain in zip(seconds, spent["plain"], strict=True))
            print(f"  {name:10} {min(seconds):.3f} s, {times:.2f} times")


if __name__ == "__main__":
    main()
