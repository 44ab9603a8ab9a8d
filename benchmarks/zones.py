"""Time zones in a filter: CPU of a query over 5 million elements with a zone, against the same one in UTC.

    python -m benchmarks.zones [--rows 5000000]

Elements come in the order of their timestamps, as streams do, over 20 years, and carry a second time in no order. Both
queries answer the same number of rows but for the offset.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

_DECLARED = "CREATE STREAM S (ts TIMESTAMP, at TIMESTAMP, v INT) FROM MEMORY () TIMESTAMP BY ts;"
_FIRST, _LAST = 1_000_000_000_000_000, 1_630_000_000_000_000
#: name -> (the query in UTC, the same in a zone).
QUERIES = {
    "in order": ("HOUR(ts) = 8", "HOUR(ts AT TIME ZONE 'Europe/Berlin') = 8"),
    "in no order": ("HOUR(at) = 8", "HOUR(at AT TIME ZONE 'Europe/Berlin') = 8"),
}


def elements(rows: int) -> pa.Table:
    draw = np.random.default_rng(1)
    utc = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "ts": pa.array(np.sort(draw.integers(_FIRST, _LAST, rows))).cast(utc),
            "at": pa.array(draw.integers(_FIRST, _LAST, rows)).cast(utc),
            "v": pa.array(draw.integers(0, 1_000, rows).astype(np.int32)),
        }
    )


def seconds(condition: str, table: pa.Table) -> float:
    """CPU seconds of a run."""
    query = bind_script(f"{_DECLARED} CREATE QUERY q AS SELECT v FROM S WHERE {condition};").queries
    begin = time.process_time()
    found = run_local(query, {"S": table}, batch_rows=250_000).tables["q"]
    assert 0 < found.num_rows < table.num_rows
    return time.process_time() - begin


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    chosen = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    table = elements(chosen.rows)
    print("| times | UTC | in a zone | ratio |\n|---|--:|--:|--:|")
    for name, conditions in QUERIES.items():
        for condition in conditions:
            seconds(condition, table.slice(0, 1_000))
        plain, zoned = (min(seconds(condition, table) for _ in range(2)) for condition in conditions)
        print(f"| {name} | {plain:.2f} s | {zoned:.2f} s | {zoned / plain:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
