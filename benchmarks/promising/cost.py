"""What a preference costs whose budget covers all work, beside the plain join: python -m benchmarks.promising.cost

CPU time of this process, the runs in turn, the least of `--runs` of each.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

from penstock.language import bind_script
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
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
        plain = min(spent["plain"])
        print(f"{rows.pop():,} changes of the result over {given.rows:,} rows a side")
        for name, seconds in spent.items():
            print(f"  {name:10} {min(seconds):.3f} s, {min(seconds) / plain:.1f} times")


if __name__ == "__main__":
    main()
