"""Row windows against a window in time, on the local runtime: `python -m benchmarks.windows [rows]`.

One element a tick, so that `[ROWS n]` and `[RANGE n]` hold the same elements and must give the same answer, which is
checked; the partitioned window is checked against NumPy. Told is the rate of each as a part of that of the time window
of the same length, for windows of 10 to 100,000 rows: what a row costs should not depend on the length.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

LENGTHS = (10, 1_000, 100_000)
PARTITIONS = 100
BATCH = 50_000
SOURCE = "CREATE STREAM S (ts BIGINT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"


def data(rows: int) -> pa.Table:
    draw = np.random.default_rng(1)
    columns = [np.arange(rows), draw.integers(0, PARTITIONS, rows), draw.integers(0, 1000, rows)]
    types = (pa.int64(), pa.int32(), pa.int32())
    return pa.table({n: pa.array(c, t) for n, c, t in zip(("ts", "k", "v"), columns, types, strict=True)})


def answer(query: str, table: pa.Table) -> tuple[pa.Table, float]:
    """The answer, and the rows per second; the best of two runs."""
    queries = bind_script(f"{SOURCE} CREATE QUERY q AS {query};").queries
    run_local(queries, {"S": table.slice(0, BATCH)}, batch_rows=BATCH // 5)  # compile
    best = 0.0
    for _ in range(2):
        began = time.perf_counter()
        result = run_local(queries, {"S": table}, batch_rows=BATCH)
        best = max(best, table.num_rows / (time.perf_counter() - began))
    return result.tables["q"], best


def last_sums(table: pa.Table, length: int) -> dict[int, int]:
    """The sum of the last `length` rows of every partition at the end."""
    keys, values = table.column("k").to_numpy(), table.column("v").to_numpy()
    return {int(k): int(values[keys == k][-length:].sum()) for k in np.unique(keys)}


def final_rows(table: pa.Table) -> dict[int, int]:
    """What a grouped sum, told as changes, comes to: the last `+` of every group."""
    signs = table.column("op").to_pylist()
    rows = zip(table.column(2).to_pylist(), table.column(3).to_pylist(), signs, strict=True)
    return {k: total for k, total, sign in rows if sign == "+"}


def main(rows: int) -> None:
    table = data(rows)
    print(f"{rows} rows, batches of {BATCH}; rate of SUM as a part of that over RANGE of the same length")
    print(f"{'length':>8}  {'RANGE rows/s':>12}  {'ROWS':>6}  {'RANGE by k':>11}  {'PARTITION BY k ROWS':>20}")
    for length in LENGTHS:
        timed, base = answer(f"SELECT SUM(v) AS s FROM S [RANGE {length} SECOND]", table)
        counted, rate = answer(f"SELECT SUM(v) AS s FROM S [ROWS {length}]", table)
        assert counted.equals(timed), f"ROWS {length} differs from RANGE {length}"
        _, grouped = answer(f"SELECT k, SUM(v) AS s FROM S [RANGE {length} SECOND] GROUP BY k", table)
        each = max(1, length // PARTITIONS)
        parts, partitioned = answer(f"SELECT k, SUM(v) AS s FROM S [PARTITION BY k ROWS {each}] GROUP BY k", table)
        assert final_rows(parts) == last_sums(table, each), f"PARTITION BY k ROWS {each} differs"
        shares = f"{rate / base:6.2f}  {grouped:11.0f}  {partitioned / grouped:20.2f}"
        print(f"{length:8d}  {base:12.0f}  {shares}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
