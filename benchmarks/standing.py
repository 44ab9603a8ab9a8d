"""q8: 1, 10, 100, 1,000 standing sums with different sliding windows over one stream: python -m benchmarks.standing

Penstock's side is one script, so one job. Spark has no job of several queries: its side starts a streaming query for
each in one session, on fewer rows where all would take hours. Every answer of every query is compared with sums that
NumPy takes from a table of (second, src). Answers grow with the number of queries: `answers` says how many came.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks import answers, data, processes, records
from benchmarks.queries import STREAM, BenchQuery
from benchmarks.spark import batch_seconds, own_settings, warm_session, warmed

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("ts", "q", "src", "total")
PROBE = BenchQuery("q8", "standing sums", "", "", COLUMNS)
#: Rows of Spark's side at the most, by number of queries. Each of its queries holds every open window of its own, so a
#: hundred of them fill a heap of 4 GiB with little more; it is not asked for more queries than the last.
NATIVE_ROWS = {1: 1_000_000, 10: 100_000, 100: 20_000}


@dataclass(frozen=True)
class Standing:
    """One sum by src over RANGE length SLIDE slide, in seconds."""

    number: int
    length: int
    slide: int

    def cql(self, out: Path) -> str:
        return (
            f"CREATE QUERY q{self.number} INTO FILES (path '{out / f'q{self.number}'}', format 'parquet') AS "
            f"SELECT RSTREAM({self.number} AS q, src, SUM(bytes) AS total) "
            f"FROM C [RANGE {self.length} SECONDS SLIDE {self.slide} SECONDS] GROUP BY src;\n"
        )


def standing(count: int) -> list[Standing]:
    """Windows of 5 to 60 seconds with slides of 1 to 5; of up to 204 seconds where there are too few of these."""
    few = [(length, slide) for length in range(5, 61) for slide in range(1, 6)]
    more = [(length, slide) for length in range(61, 205) for slide in range(1, 6)]
    random.Random(8).shuffle(few)
    return [Standing(i, *window) for i, window in enumerate([*few, *more][:count])]


def reference(folder: Path, queries: Sequence[Standing], last: int) -> answers.Checksum:
    """Of the sums of all `queries` up to the tick `last`."""
    table = pq.read_table(folder, columns=["ts", "src", "bytes"])
    second = -(-(table["ts"].to_numpy() - data.START_MS) // 1000)
    src = table["src"].to_numpy()
    seconds = int(second.max()) + 1
    cell = second * data.SOURCES + src
    size = seconds * data.SOURCES
    counts, sums = (
        np.bincount(cell, weights, size).reshape(seconds, -1).cumsum(axis=0)
        for weights in (None, table["bytes"].to_numpy())
    )
    total = answers.checksum([np.empty(0, np.int64)] * len(COLUMNS))
    for query in queries:
        ends = np.arange(-(data.START_MS // 1000) % query.slide, seconds, query.slide)
        ends = ends[data.START_MS + ends * 1000 <= last]
        for end in ends.tolist():
            start = end - query.length
            live = counts[end] - (counts[start] if start >= 0 else 0)
            held = sums[end] - (sums[start] if start >= 0 else 0)
            found = np.flatnonzero(live)
            instant = np.full(len(found), data.START_MS + end * 1000)
            columns = [instant, np.full(len(found), query.number), found, held[found]]
            total += answers.of_columns(columns, PROBE, last)
    return total


@dataclass(frozen=True)
class Figure:
    """One side with `queries` standing queries. problem: empty, or why the figures do not count."""

    queries: int
    side: str
    rows: int
    net_seconds: float
    steady_seconds: float
    peak_bytes: int
    answers: int
    problem: str = ""


def measure(count: int, side: str, rows: int, given: argparse.Namespace) -> Figure:
    folder, last = data.connections(rows), data.last_ms(rows)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data.FOLDER) as name:
        scratch = Path(name)
        report = scratch / "report.json"
        command = [sys.executable, "-m", "benchmarks.standing", "--side", side, "--counts", str(count)]
        command += ["--rows", str(rows), "--memory", given.memory, "--scratch", str(scratch)]
        outcome = processes.run(command, ROOT, scratch / "log", given.timeout)
        if outcome.code or not report.exists():
            reason = "too slow" if outcome.code == processes.KILLED else outcome.output[-2000:] or "no output"
            return Figure(count, side, rows, 0.0, 0.0, outcome.peak_bytes, 0, reason)
        found = answers.result_checksum(scratch / "out", PROBE, last)
        expected = reference(folder, standing(count), last)
        problem = "" if found == expected else f"wrong answer: {found}, expected {expected}"
        told = json.loads(report.read_text())
        return Figure(count, side, rows, told["seconds"], told["steady"], outcome.peak_bytes, found.rows, problem)


def penstock_side(count: int, rows: int, memory: str, scratch: Path) -> None:
    from penstock.runtime.spark.startup.session import start_spark
    from penstock.session import Session

    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    spark = warmed(start_spark(settings=own_settings(scratch, memory)))

    def run(out: Path, checkpoint: Path) -> tuple[float, float]:
        started = time.perf_counter()
        session = Session(spark)
        folder = data.connections(rows)
        session.execute(STREAM.format(data=folder) + "".join(query.cql(out) for query in standing(count)))
        running = session.start(checkpoint=str(checkpoint))
        running.wait()
        return time.perf_counter() - started, running.progress().batch_seconds

    _twice(run, spark, scratch)


def native_side(count: int, rows: int, memory: str, scratch: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

    from benchmarks.native import connections, with_time

    spark = warm_session(scratch, memory)

    def run(out: Path, checkpoint: Path) -> tuple[float, float]:
        started = time.perf_counter()
        running = []
        for query in standing(count):
            stream = with_time(connections(spark, data.connections(rows), None))
            # Spark's windows begin at multiples of the slide; ours end there.
            offset = f"{-query.length % query.slide} seconds"
            window = F.window("t", f"{query.length} seconds", f"{query.slide} seconds", offset)
            summed = stream.groupBy(window, "src").agg(F.sum("bytes").alias("total"))
            told = summed.select(
                F.unix_millis(F.col("window.end")).alias("ts"), F.lit(query.number).alias("q"), "src", "total"
            )
            writer = told.writeStream.format("parquet").option(
                "checkpointLocation", str(checkpoint / str(query.number))
            )
            running.append(writer.option("path", str(out / f"q{query.number}")).trigger(availableNow=True).start())
        for one in running:
            one.awaitTermination()
        return time.perf_counter() - started, sum(batch_seconds(one) for one in running)

    _twice(run, spark, scratch)


def _twice(run: Callable[[Path, Path], tuple[float, float]], spark: SparkSession, scratch: Path) -> None:
    """The first run counts from nothing but a session, the second shows what the batches take in a warm process."""
    seconds, _ = run(scratch / "out", scratch / "checkpoint")
    _, steady = run(scratch / "again", scratch / "checkpoint-again")
    (scratch / "report.json").write_text(json.dumps({"seconds": seconds, "steady": steady}))
    spark.stop()


def table(figures: Sequence[Figure]) -> Table:
    """times one: net seconds over those of one query on this side, rows alike."""
    shown = Table(title="standing sums over one stream")
    for heading in ("queries", "side", "rows", "net s", "steady s", "answers", "rows/s net", "times one", "peak MB"):
        shown.add_column(heading, justify="right")
    for figure in figures:
        rate = figure.rows / figure.net_seconds if figure.net_seconds else 0.0
        one = [f for f in figures if f.queries == 1 and f.side == figure.side and not f.problem]
        share = figure.net_seconds / figure.rows
        times = f"{share / (one[0].net_seconds / one[0].rows):.1f}" if one and rate else "-"
        shown.add_row(
            str(figure.queries),
            figure.side + (" FAILED" if figure.problem else ""),
            f"{figure.rows:,}",
            f"{figure.net_seconds:.1f}",
            f"{figure.steady_seconds:.1f}",
            f"{figure.answers:,}",
            f"{rate:,.0f}",
            times,
            f"{figure.peak_bytes / 2**20:,.0f}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standing", description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 100, 1000], help="how many queries")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the stream, a multiple of 100")
    parser.add_argument("--sides", nargs="+", default=["penstock", "native"], choices=["penstock", "native"])
    parser.add_argument("--memory", default="4g", help="heap of the JVM, the same for both sides")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one side of one size")
    parser.add_argument("--side", choices=["penstock", "native"], help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side is not None:
        side = penstock_side if given.side == "penstock" else native_side
        side(given.counts[0], given.rows, given.memory, given.scratch)
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    figures = []
    for count in given.counts:
        for side_name in given.sides:
            rows = given.rows if side_name == "penstock" else min(given.rows, NATIVE_ROWS.get(count, 0))
            if not rows:
                console.print(f"{count:,} queries: Spark's side is not asked for so many streaming queries at once")
                continue
            figures.append(measure(count, side_name, rows, given))
            console.print(figures[-1])
    console.print(table(figures))
    path = records.save("standing", given.memory, [asdict(figure) for figure in figures])
    console.print(f"figures: {path.relative_to(ROOT)}")
    sys.exit(1 if any(figure.problem for figure in figures) else 0)


if __name__ == "__main__":
    main()
