"""The Spark part of `csql.py`: Penstock's query and window identifiers as Spark has them, in one warm session.

Both read the same four parquet files, whose timestamps are the tuples' numbers, in one micro-batch, and write parquet.
Penstock's side is the query with RANGE and FREQUENCY through `Session`; it counts the tuples by itself, in one shard.
The peer is Structured Streaming's `window(t, W, F)` over those numbers as event time: Spark's planner expands each
row into every window that it belongs to and groups by window, with partial sums before the shuffle. Where W < F, which
Spark refuses, the rows of no window are filtered out and the rest is tumbling. The time is that of the batches, as each
engine tells it; answers are compared but for the last window, which Spark's watermark holds back.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from benchmarks import csql_queries
from benchmarks.local_harness import markdown
from benchmarks.spark import batch_seconds, own_settings, warmed
from penstock.runtime.spark.startup.session import start_spark
from penstock.session import Session

FILES = 4
FREQUENCIES = (100, 10_000)
PERCENTS = (50, 100, 300)
#: Of figure 5: windows in seconds and in tuples.
SECONDS = (1, 10)
TUPLES = (100, 10_000)

RATIO = "### On Spark, {kind}: seconds of batches, Penstock's by Spark's own"
MIXED = "### On Spark, figure 5: mixed jumping windows (ms of batches by answer)"


def tables(rows: int, quick: bool) -> Iterator[tuple[str, str]]:
    """(heading, table), each as soon as it is there."""
    # The engine is imported by Spark's worker processes too.
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    with tempfile.TemporaryDirectory(prefix="csql-") as name:
        folder = Path(name)
        data = _data(rows, folder / "data")
        spark = warmed(start_spark(settings=own_settings(folder, "2g")))
        try:
            bench = _Bench(spark, data, folder, rows)
            bench.compare(100, 100, True)  # both sides pay for their start here
            few = 1 if quick else None
            for kind, grouped in ((csql_queries.PLAIN, False), (csql_queries.GROUPED, True)):
                cells = {(f, p): bench.compare(f, p, grouped) for f in FREQUENCIES[:few] for p in PERCENTS[:few]}
                made = csql_queries.grid(PERCENTS[:few], lambda p: f"W = {p} % of F", cells, "F, tuples")
                yield RATIO.format(kind=kind), made
            yield MIXED, bench.mixed_table(quick)
        finally:
            spark.stop()


def _data(rows: int, folder: Path) -> Path:
    folder.mkdir()
    table = csql_queries.stream(rows)
    size = -(-rows // FILES)
    for number in range(FILES):
        pq.write_table(table.slice(number * size, size), folder / f"part-{number}.parquet")
    return folder


class _Bench:
    def __init__(self, spark: SparkSession, data: Path, folder: Path, rows: int) -> None:
        self._spark, self._data, self._folder, self._rows = spark, data, folder, rows

    def compare(self, every: int, percent: int, grouped: bool) -> str:
        rows = every * percent // 100
        ours, told = self._penstock(csql_queries.counted(rows, every), grouped)
        theirs, expected = self._native(rows, every, grouped)
        last = self._rows - every
        mine, other = (_in_order(t, last, grouped) for t in (told, expected))
        assert mine.num_rows > 0
        assert mine.equals(other), f"F {every}, W {percent} %: different answers"
        return f"{ours / theirs:.2f} ({ours:.2f} / {theirs:.2f})"

    def mixed_table(self, quick: bool) -> str:
        few = 1 if quick else None
        windows = [
            *((f"RANGE {s} SECONDS", f"FREQUENCY {f} TUPLES") for s in SECONDS[:few] for f in FREQUENCIES[:few]),
            *((f"RANGE {n} TUPLES", f"FREQUENCY {ms} MILLISECONDS") for n in TUPLES[:few] for ms in FREQUENCIES[:few]),
        ]
        lines = []
        for window, frequency in windows:
            seconds, told = self._penstock(f"{window}, {frequency}", False)
            assert told.num_rows > 0
            lines.append([f"`{window}, {frequency}`", f"{told.num_rows:,}", f"{seconds / told.num_rows * 1e3:.3f}"])
        return markdown(["window", "answers", "ms by answer"], lines)

    def _penstock(self, window: str, grouped: bool) -> tuple[float, pa.Table]:
        with self._fresh() as scratch:
            out = scratch / "out"
            source = f"FILES (path '{self._data}/*.parquet', format 'parquet')"
            sink = f"CREATE QUERY q INTO FILES (path '{out}', format 'parquet') AS "
            session = Session(self._spark)
            session.execute(
                f"{csql_queries.DECLARED.format(source=source)}\n{sink}{csql_queries.select(window, grouped)};"
            )
            running = session.start(checkpoint=str(scratch / "checkpoint"))
            running.wait()
            return running.progress().batch_seconds, _read(out)

    def _native(self, rows: int, every: int, grouped: bool) -> tuple[float, pa.Table]:
        """By Spark's own windows: [start, start + W) holds tuples number jF - W + 1 to jF, counted from 1."""
        with self._fresh() as scratch:
            stream = self._spark.readStream.schema("ts BIGINT, k INT, v DOUBLE").parquet(str(self._data))
            number = F.col("ts")  # from 0 on
            if rows < every:
                stream = stream.where(number % every >= every - rows)
            timed = stream.withColumn("t", F.timestamp_millis(number)).withWatermark("t", "0 seconds")
            length = max(rows, every)
            start = (every - length % every) % every
            window = F.window("t", f"{length} milliseconds", f"{every} milliseconds", f"{start} milliseconds")
            keys = ["k"] if grouped else []
            averages = timed.groupBy(window, *keys).agg(F.avg("v").alias("a"))
            answer = averages.select((F.unix_millis(F.col("window.end")) - 1).alias("ts"), *keys, "a")
            writer = answer.writeStream.format("parquet").option("checkpointLocation", str(scratch / "checkpoint"))
            running = writer.option("path", str(scratch / "out")).trigger(availableNow=True).start()
            running.awaitTermination()
            return batch_seconds(running), _read(scratch / "out")

    @contextmanager
    def _fresh(self) -> Iterator[Path]:
        """A folder for one run."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            yield Path(name)


def _read(folder: Path) -> pa.Table:
    """What a file sink has written."""
    parts = [pq.ParquetFile(path).read() for path in sorted(folder.rglob("*.parquet"))]
    return pa.concat_tables(parts)


def _in_order(told: pa.Table, last: int, grouped: bool) -> pa.Table:
    """The answers of windows that end by `last`, in order."""
    names = ["ts", *(["k"] if grouped else []), "a"]
    types = {"ts": pa.int64(), "k": pa.int32(), "a": pa.float64()}
    table = pa.table({name: told[name].cast(types[name]).combine_chunks() for name in names})
    kept = table.filter(pc.less_equal(table["ts"], last))
    return kept.sort_by([(name, "ascending") for name in names[:-1]]).combine_chunks()
