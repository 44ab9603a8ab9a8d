"""Approximate aggregates beside their exact twins, and Spark's own: python -m benchmarks.approximate

One stream goes through `RSTREAM(SELECT f(x) FROM S [RANGE 60 SECONDS SLIDE 1 SECOND])` in this process, and each side
is warmed first. Printed are rows per second of processor time, the greatest state of the aggregation in bytes, and the
greatest relative difference from the exact answer. With `--spark` the same windows are computed by Spark in one batch,
with its own functions, over as many rows as `--spark-rows` says, and its answers are compared with the exact ones too.
With `--flink-python F/bin/python` (docs/decisions/fair-benches.md) Flink counts distinct values of these rows, as a
batch too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from penstock.language.scripts import bind_script
from penstock.physical.operators.aggregates.aggregate import Aggregation
from penstock.runtime.local.runtime import run_local

SECONDS = 120
DECLARED = "CREATE STREAM S (x BIGINT, v DOUBLE, ts INT) FROM MEMORY () TIMESTAMP BY ts;"
QUERY = "CREATE QUERY q AS RSTREAM(SELECT {} AS r FROM S [RANGE 60 SECONDS SLIDE 1 SECOND]);"
#: approximate -> (exact, Spark's own); the exact call is the one whose answer is compared.
PAIRS = {
    "APPROX_COUNT_DISTINCT(x)": ("COUNT(DISTINCT x)", "approx_count_distinct(x, 0.01625)"),
    "APPROX_QUANTILE(v, 0.99)": ("QUANTILE(v, 0.99)", "percentile_approx(v, 0.99, 10000)"),
    "APPROX_PERCENTILE(v, 0.99, 1000)": ("QUANTILE(v, 0.99)", "percentile_approx(v, 0.99, 1000)"),
}
#: approximate -> Flink's own, of which there is one; it says that its error is about 1 %.
FLINK = {"APPROX_COUNT_DISTINCT(x)": "APPROX_COUNT_DISTINCT(x)"}


@dataclass(frozen=True)
class Measured:
    """rate: rows per second of processor time; state: the most bytes held; answers: by instant."""

    rate: float
    state: int
    answers: dict[int, float]


def stream(rows: int, distinct: int) -> pa.Table:
    draw = np.random.default_rng(2018)
    return pa.table(
        {
            "x": draw.integers(0, distinct, rows),
            "v": draw.lognormal(3.0, 1.0, rows),
            "ts": pa.array(np.arange(rows, dtype=np.int64) * SECONDS // rows, pa.int32()),
        }
    )


@contextmanager
def greatest_state() -> Iterator[list[int]]:
    """Yield a list with the greatest size of the state of an aggregation meanwhile."""
    most, original = [0], Aggregation.process

    def process(self: Aggregation, port: int, elements: Any) -> Any:
        most[0] = max(most[0], sum(synopsis.nbytes for synopsis in self.synopses().values()))
        return original(self, port, elements)

    Aggregation.process = process  # type: ignore[method-assign]
    try:
        yield most
    finally:
        Aggregation.process = original  # type: ignore[method-assign]


def measure(call: str, rows: pa.Table, batch: int) -> Measured:
    queries = bind_script(DECLARED + QUERY.format(call)).queries
    run_local(queries, {"S": rows.slice(0, len(rows) // 20)}, shards=1, batch_rows=batch)
    with greatest_state() as most:
        begun = time.process_time()
        found = run_local(queries, {"S": rows}, shards=1, batch_rows=batch).tables["q"]
        took = time.process_time() - begun
    answers = {row["ts"]: row["r"] for row in found.to_pylist()}
    return Measured(len(rows) / took, most[0], answers)


def _processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_spark(call: str, rows: pa.Table) -> Measured:
    """Return what Spark takes of processor time, its JVM's, for the windows in one batch, and its answers. Its state is
    not measured."""
    from pyspark.sql.functions import expr

    from penstock.runtime.spark.startup.session import start_spark

    session = start_spark("local[2]")
    jvm = int(session._jvm.java.lang.ProcessHandle.current().pid())
    frame = session.createDataFrame(rows.to_pandas()).selectExpr("x", "v", "timestamp_seconds(ts) AS at").cache()

    def answers() -> dict[int, float]:
        last = "unix_timestamp(window.end) - 1"
        window = expr("window(at, '60 seconds', '1 second')")
        found = frame.groupBy(window).agg(expr(call).alias("r")).selectExpr(f"{last} AS ts", "r").collect()
        return {row.ts: row.r for row in found}

    answers()
    begun = _processor_seconds(jvm)
    found = answers()
    return Measured(len(rows) / (_processor_seconds(jvm) - begun), 0, found)


def measure_flink(python: Path, call: str, rows: pa.Table) -> Measured:
    """Return what Flink takes of processor time, its JVM's, for the windows in one batch, and its answers. python: that
    of an environment with PyFlink."""
    with tempfile.TemporaryDirectory() as folder:
        data, report = Path(folder) / "rows.csv", Path(folder) / "report.json"
        csv.write_csv(rows, data, csv.WriteOptions(include_header=False))
        command = [str(python), "-m", "benchmarks.peers.flink_approximate", call, "--data", str(data)]
        subprocess.run([*command, "--scratch", folder, "--report", str(report)], check=True)
        said = json.loads(report.read_text())
    return Measured(len(rows) / said["seconds"], 0, {int(ts): r for ts, r in said["answers"].items()})


def greatest_difference(found: Measured, exact: Measured) -> float:
    """Return the greatest relative difference of answers at the instants of the stream."""
    times = [t for t in exact.answers if 0 <= t < SECONDS]
    assert times and all(t in found.answers for t in times)
    return max(abs(found.answers[t] - exact.answers[t]) / abs(exact.answers[t]) for t in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=12_000_000)
    parser.add_argument("--distinct", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=300_000)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--spark-rows", type=int, default=200_000)
    parser.add_argument("--flink-python", type=Path)
    options = parser.parse_args()
    rows = stream(options.rows, options.distinct)
    batch = min(options.batch, max(1, options.rows // 20))  # state is read when a batch comes, so one would show none
    print("| call | rows/s | times the exact | state | part of the exact | greatest difference |")
    print("|---|---|---|---|---|---|")
    exact: dict[str, Measured] = {}
    for call, (twin, _) in PAIRS.items():
        if twin not in exact:
            exact[twin] = measure(twin, rows, batch)
            print(f"| `{twin}` | {exact[twin].rate:,.0f} | | {exact[twin].state:,} | | |", flush=True)
        one, other = measure(call, rows, batch), exact[twin]
        assert one.answers.keys() == other.answers.keys()
        off = max(abs(one.answers[t] - other.answers[t]) / abs(other.answers[t]) for t in one.answers)
        faster, smaller = one.rate / other.rate, other.state / one.state
        print(
            f"| `{call}` | {one.rate:,.0f} | {faster:.1f} | {one.state:,} | 1/{smaller:.0f} | {100 * off:.2f} % |",
            flush=True,
        )
    few, python = stream(options.spark_rows, options.distinct), options.flink_python
    if options.spark:
        beside("Spark", {call: own for call, (_, own) in PAIRS.items()}, measure_spark, few, options.batch)
    if python is not None:
        beside("Flink", FLINK, lambda call, rows: measure_flink(python, call, rows), few, options.batch)


def beside(
    engine: str, calls: dict[str, str], run: Callable[[str, pa.Table], Measured], rows: pa.Table, batch: int
) -> None:
    """Print what each call takes here, and what another engine takes for its own. calls: here -> there."""
    print(f"\n| call | rows/s | greatest difference | {engine}'s | rows/s | greatest difference |")
    print("|---|---|---|---|---|---|")
    for call, theirs in calls.items():
        exact, own, other = measure(PAIRS[call][0], rows, batch), measure(call, rows, batch), run(theirs, rows)
        off, other_off = (greatest_difference(one, exact) for one in (own, other))
        # Five and more standard errors of either: an answer to another question is farther away.
        assert call not in FLINK or max(off, other_off) < 0.1, (off, other_off)
        print(
            f"| `{call}` | {own.rate:,.0f} | {100 * off:.2f} % | `{theirs}` | {other.rate:,.0f}"
            f" | {100 * other_off:.2f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
