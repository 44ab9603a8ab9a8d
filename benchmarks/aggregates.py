"""What aggregates cost per tuple, and whether it depends on the window: python -m benchmarks.aggregates

One stream at one rate (grouped by a Zipf column) goes in batches through the operators of `SELECT src, f(x) FROM C
[RANGE w] GROUP BY src`, in this process, without Spark. Each window is filled first; then the processor time of the
next rows is taken. What the operators said is checked at two instants against DuckDB over the window's rows. Printed
are the rates, the ratio to SUM at the same window, and the slope: by which factor a tuple gets dearer when the window
is ten times as long.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from penstock.algebra.optimizer.optimizer import optimize
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.executor import IngestExecutor
from penstock.physical.operators import make_operator
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.plan.aggregates import AggregateSpec
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import plan_queries
from penstock.types import END

RATE = 200
"""Rows per second; ticks are milliseconds."""
WINDOWS = (1, 10, 100, 1_000)
#: name -> (what Penstock is asked, what DuckDB is asked). `v` takes 1,000 values, `x` is a double.
AGGREGATES = {
    "SUM": ("SUM(v)", "SUM(v)"),
    "COUNT": ("COUNT(v)", "COUNT(v)"),
    "AVG": ("AVG(x)", "AVG(x)"),
    "STDDEV": ("STDDEV(x)", "STDDEV(x)"),
    "MIN": ("MIN(x)", "MIN(x)"),
    "MAX": ("MAX(v)", "MAX(v)"),
    "COUNT DISTINCT": ("COUNT(DISTINCT v)", "COUNT(DISTINCT v)"),
    "MEDIAN": ("MEDIAN(x)", "MEDIAN(x)"),
    "QUANTILE": ("QUANTILE(v, 0.9)", "QUANTILE_CONT(v, 0.9)"),
}


def stream(rows: int) -> pa.Table:
    draw = np.random.default_rng(2013)
    weights = 1.0 / np.arange(1, 10_001) ** 1.1
    source = np.searchsorted(np.cumsum(weights / weights.sum()), draw.random(rows)).astype(np.int32)
    sizes = np.floor(draw.exponential(800.0, rows)) + draw.integers(0, 4, rows) / 4
    ts = np.arange(rows, dtype=np.int64) * 1000 // RATE
    return pa.table({"ts": ts, "src": source, "v": draw.integers(0, 1_000, rows), "x": sizes})


@dataclass(frozen=True)
class Pipeline:
    """What stands in front of the aggregate in the ingest (window, lanes), and the operators from there on: where rows
    are taken back, negative tuples and lanes; the aggregate; all fresh."""

    ingest: IngestExecutor
    operators: tuple[Operator, ...]

    @staticmethod
    def of(call: str, seconds: int, taken_back: bool) -> Pipeline:
        script = f"""
            CREATE STREAM C (ts BIGINT, src INT, v BIGINT, x DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;
            CREATE QUERY q AS SELECT src, {call} AS a FROM C [RANGE {seconds} SECOND] GROUP BY src;"""
        query = bind_script(script).queries[0]
        strategy = Strategy.NEGATIVE if taken_back else Strategy.PATTERN
        plan = plan_queries([replace(query, root=optimize(query.root))], strategy=strategy)
        last = next(i for i, step in enumerate(plan.steps) if isinstance(step.spec, AggregateSpec))
        keyed = tuple(make_operator(step.spec, {}, 1) for step in plan.steps[: last + 1] if step.stage > 0)
        return Pipeline(IngestExecutor(plan, "C", {}), keyed)

    def feed(self, table: pa.Table) -> list[Elements]:
        """What the next rows, in order of time, give."""
        ts = table["ts"].to_numpy()
        names = ("ts", "src", "v", "x")
        columns = tuple(table[names[i]].combine_chunks() for i in self.ingest.columns)
        forever = np.full(len(ts), END, np.int64)
        onward = self.ingest.run(Elements(columns, ts, forever)).onward.values()
        told = [elements for batches in onward for elements in batches]
        for operator in self.operators:
            given = [said for elements in told for said in operator.process(0, elements)]
            told = given + operator.advance(Moment(int(ts[-1]) - 1, 0))
        return told


def measure(name: str, table: pa.Table, seconds: int, measured: int, batch: int, taken_back: bool = False) -> float:
    """Seconds a row, in the median batch, once the window is full; NaN where the clock of the process did not move in
    any. Raises AssertionError where an answer is wrong."""
    ours, theirs = AGGREGATES[name]
    pipeline = Pipeline.of(ours, seconds, taken_back)
    filling = seconds * RATE
    made = pipeline.feed(table.slice(0, filling))
    spent: list[float] = []
    for start in range(filling, filling + measured, batch):
        rows = table.slice(start, min(batch, filling + measured - start)).combine_chunks()
        before = time.process_time()
        given = pipeline.feed(rows)
        spent.append((time.process_time() - before) / rows.num_rows)
        made += given
    last = int(table["ts"][filling + measured - 1].as_py()) - 1
    for instant in (last, last - 777 * 1_000 // RATE):
        check(name, theirs, made, table, seconds, instant)
    # Some clocks have ticks longer than a batch: most batches then take no time, and one takes a tick.
    return statistics.median(spent) or statistics.fmean(spent) or math.nan


def check(name: str, theirs: str, made: list[Elements], table: pa.Table, seconds: int, instant: int) -> None:
    """The relation that the elements tell at `instant` is what SQL says of the window's rows."""
    held: Counter[tuple[Any, ...]] = Counter()
    for elements in made:
        here = elements.filter((elements.ts <= instant) & (instant < elements.exp))
        for row, sign in zip(zip(*(c.to_pylist() for c in here.columns), strict=True), here.signs, strict=True):
            held[_hashable(row)] += int(sign)
    with duckdb.connect() as connection:
        connection.register("C", table)
        low = instant - seconds * 1_000
        plain = connection.sql(f"SELECT src, {theirs} FROM C WHERE ts <= {instant} AND ts > {low} GROUP BY src")
        expected = sorted(_hashable(row) for row in plain.fetchall())
    found = sorted(row for row, n in held.items() for _ in range(n))
    assert len(found) == len(expected), f"{name} over {seconds} s: {len(found)} groups, not {len(expected)}"
    for one, other in zip(found, expected, strict=True):
        same = one == other or (
            isinstance(one[1], float) and math.isclose(one[1], other[1], rel_tol=1e-9, abs_tol=1e-9)
        )
        assert same, f"{name} over {seconds} s at {instant}: {one}, DuckDB says {other}"


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(-1.0 if v is None else tuple(v) if isinstance(v, list) else v for v in row)


def main() -> None:
    parser = argparse.ArgumentParser(description="What aggregates cost per tuple.")
    parser.add_argument("--rows", type=int, default=200_000, help="rows measured, behind those that fill the window")
    parser.add_argument("--batch", type=int, default=20_000, help="rows a batch")
    parser.add_argument("--windows", type=int, nargs="*", default=list(WINDOWS), help="window lengths in seconds")
    parser.add_argument("--only", nargs="*", default=list(AGGREGATES), help="names of aggregates")
    parser.add_argument("--taken-back", action="store_true", help="rows are taken back by negative tuples")
    options = parser.parse_args()
    table = stream(max(options.windows) * RATE + options.rows)
    for name in options.only:  # compile first
        measure(name, table, 1, 2_000, 1_000, options.taken_back)
    sums = {w: measure("SUM", table, w, options.rows, options.batch, options.taken_back) for w in options.windows}
    print(f"{'':16}" + "".join(f"{f'{w} s':>20}" for w in options.windows) + f"{'slope':>10}")
    for name in options.only:
        costs = {w: measure(name, table, w, options.rows, options.batch, options.taken_back) for w in options.windows}
        cells = "".join(f"{1e-3 / cost:>11,.0f} k/s {sums[w] / cost:>4.2f}" for w, cost in costs.items())
        print(f"{name:16}{cells}{_slope(costs):>10.2f}", flush=True)


def _slope(costs: dict[int, float]) -> float:
    """By which factor a tuple gets dearer when the window is ten times as long (least squares over the logarithms)."""
    if len(costs) < 2:
        return 1.0
    if any(map(math.isnan, costs.values())):
        return math.nan
    lengths = np.log10(np.array(list(costs), np.float64))
    prices = np.log10(np.array(list(costs.values())))
    return float(10 ** np.polyfit(lengths, prices, 1)[0])


if __name__ == "__main__":
    main()
