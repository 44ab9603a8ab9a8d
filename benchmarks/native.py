"""The queries of the bench by Spark's own streaming, one in a process: python -m benchmarks.native q2 --rows ...

Written as Spark's guide would have them: DataFrame operators where there are any, results to parquet by its own file
sink. Unless --files-per-batch says otherwise Spark takes all files in one micro-batch, its default and its fastest; so
does Penstock with files this small. CQL's window at ks is (ks-T, ks], Spark's is
[ks-T, ks): time is shifted by one tick, so that both hold the same rows, and the window's end is the answer's instant.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.spark import batch_seconds, report_side, side_parser, warm_session

_SCHEMA = "ts BIGINT, src INT, dst INT, proto STRING, bytes DOUBLE"
_WINDOW_MS = 10_000


def connections(spark: SparkSession, data: Path, files: int | None) -> DataFrame:
    reader = spark.readStream.schema(_SCHEMA)
    if files is not None:
        reader = reader.option("maxFilesPerTrigger", files)
    return reader.parquet(str(data))


def with_time(stream: DataFrame) -> DataFrame:
    """With an event time shifted by one tick, and a watermark that allows no lateness: the files are in order."""
    return stream.withColumn("t", F.timestamp_millis(F.col("ts") - 1)).withWatermark("t", "0 seconds")


def filtered(stream: DataFrame) -> DataFrame:
    chosen = stream.where("proto = 'udp' AND bytes > 1000")
    return chosen.select("ts", "src", "dst", (F.col("bytes") * 8).alias("bits"))


def tumbling(stream: DataFrame) -> DataFrame:
    grouped = with_time(stream).groupBy(F.window("t", "10 seconds"), "src")
    counted = grouped.agg(F.count("*").alias("n"), F.sum("bytes").alias("total"))
    return counted.select(_window_end(), "src", "n", "total")


def sliding(stream: DataFrame) -> DataFrame:
    grouped = with_time(stream).groupBy(F.window("t", "60 seconds", "1 second"), "src")
    return grouped.agg(F.sum("bytes").alias("total")).select(_window_end(), "src", "total")


def per_tuple(stream: DataFrame) -> DataFrame:
    """Spark has no operator for it, so state in Python: the last 10 s of each source as two binary arrays."""
    return stream.groupBy("src").applyInPandasWithState(
        _last_ten_seconds,
        outputStructType="ts BIGINT, src INT, total DOUBLE",
        stateStructType="ts BINARY, bytes BINARY",
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )


def joined(stream: DataFrame) -> DataFrame:
    timed = with_time(stream)
    a = timed.where("proto = 'tcp'").select(F.col("ts").alias("a_ts"), F.col("t").alias("a_t"), "dst")
    b = timed.where("proto = 'udp'").select(F.col("ts").alias("b_ts"), F.col("t").alias("b_t"), F.col("dst").alias("d"))
    near = "dst = d AND b_t > a_t - INTERVAL 2 SECONDS AND b_t < a_t + INTERVAL 2 SECONDS"
    return a.join(b, F.expr(near)).select("a_ts", "b_ts", "dst")


def distinct_counted(stream: DataFrame) -> DataFrame:
    """Spark refuses DISTINCT aggregates over a stream; the set of values is what its users take instead."""
    grouped = with_time(stream).groupBy(F.window("t", "10 seconds"), "src")
    return grouped.agg(F.size(F.collect_set("dst")).alias("n")).select(_window_end(), "src", "n")


def top_ten(stream: DataFrame) -> DataFrame:
    """Spark refuses ORDER BY over a stream; the sums of a window are put together again and sorted."""
    grouped = (
        with_time(stream).groupBy(F.window("t", "60 seconds", "5 seconds"), "src").agg(F.sum("bytes").alias("total"))
    )
    ranked = F.struct((-F.col("total")).alias("rank"), "src")
    sums = grouped.groupBy(F.window(F.window_time("window"), "5 seconds")).agg(F.collect_list(ranked).alias("all"))
    first = sums.select(_window_end(), F.explode(F.slice(F.sort_array("all"), 1, 10)).alias("one"))
    return first.select("ts", F.col("one.src").alias("src"), (-F.col("one.rank")).alias("total"))


def joined_three(stream: DataFrame) -> DataFrame:
    timed = with_time(stream)
    a, b, c = (
        timed.where(f"proto = '{proto}'").select(
            F.col("ts").alias(f"{name}_ts"), F.col("t").alias(f"{name}_t"), F.col("dst").alias(f"{name}_dst")
        )
        for name, proto in (("a", "tcp"), ("b", "udp"), ("c", "icmp"))
    )

    def near(one: str, other: str) -> str:
        return (
            f"{one}_dst = {other}_dst AND {other}_t > {one}_t - INTERVAL 5 SECONDS "
            f"AND {other}_t < {one}_t + INTERVAL 5 SECONDS"
        )

    # Spark takes one event time a stream: of the pairs it is that of a, and b is compared by its plain timestamp.
    pairs = a.join(b, F.expr(near("a", "b"))).drop("b_t")
    both = pairs.join(c, F.expr(f"{near('a', 'c')} AND c_ts > b_ts - 5000 AND c_ts < b_ts + 5000"))
    return both.select("a_ts", "b_ts", "c_ts", F.col("a_dst").alias("dst"))


def sessions(stream: DataFrame) -> DataFrame:
    timed = stream.withColumn("t", F.timestamp_millis("ts")).withWatermark("t", "0 seconds")
    grouped = timed.groupBy(F.session_window("t", "10 seconds"), "src")
    counted = grouped.agg(F.count("*").alias("n"), F.sum("bytes").alias("total"))
    end, start = (F.unix_millis(F.col(f"session_window.{name}")) for name in ("end", "start"))
    return counted.select(end.alias("ts"), "src", start.alias("s_from"), "n", "total")


def stretches(stream: DataFrame) -> DataFrame:
    """Spark coalesces no periods: the seconds of a window are collected, and runs of them found by SQL."""
    timed = with_time(stream).withColumn("k", F.expr("(ts + 999) DIV 1000"))
    grouped = timed.groupBy(F.window("t", "60 seconds", "1 second"), "src").agg(F.collect_set("k").alias("all"))
    seen = grouped.select(_window_end(), "src", F.sort_array("all").alias("a"))
    firsts, lasts = (F.expr(f"filter(a, k -> NOT array_contains(a, k {next_to} 1))") for next_to in ("-", "+"))
    runs = seen.select("ts", "src", F.explode(F.arrays_zip(firsts.alias("first"), lasts.alias("last"))).alias("run"))
    long = runs.where("run.last - run.first >= 2")
    return long.select("ts", "src", F.expr("(run.first - 1) * 1000 AS s_from"), F.expr("run.last * 1000 AS s_to"))


def _window_end() -> Any:
    return F.unix_millis(F.col("window.end")).alias("ts")


def _last_ten_seconds(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    fresh = pd.concat(list(frames))
    fresh = fresh.sort_values("ts", kind="stable")
    old_ts, old_bytes = np.empty(0, np.int64), np.empty(0)
    if state.exists:
        old_ts, old_bytes = np.frombuffer(state.get[0], np.int64), np.frombuffer(state.get[1])
    ts = np.concatenate([old_ts, fresh["ts"].to_numpy()])
    sizes = np.concatenate([old_bytes, fresh["bytes"].to_numpy()])
    sums = np.concatenate([[0.0], np.cumsum(sizes)])
    new_ts = ts[len(old_ts) :]
    # Ties count for each other; no tie is cut in two by the end of a file.
    upto, since = np.searchsorted(ts, new_ts, side="right"), np.searchsorted(ts, new_ts - _WINDOW_MS, side="right")
    kept = ts > ts[-1] - _WINDOW_MS
    state.update((ts[kept].tobytes(), sizes[kept].tobytes()))
    yield pd.DataFrame({"ts": new_ts, "src": np.int32(key[0]), "total": sums[upto] - sums[since]})


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "q1": filtered,
    "q2": tumbling,
    "q3": sliding,
    "q4": per_tuple,
    "q5": joined,
    "q6": distinct_counted,
    "q7": top_ten,
    "q9": joined_three,
    "q10": sessions,
    "q11": stretches,
}


def main() -> None:
    parser = side_parser(QUERIES)
    parser.add_argument("--files-per-batch", type=int)
    given = parser.parse_args()
    report_side(warm_session(given.scratch, given.memory), given, run)


def run(spark: SparkSession, given: argparse.Namespace, out: Path, checkpoint: Path) -> tuple[float, float]:
    started = time.perf_counter()
    answer = QUERIES[given.query](connections(spark, given.data, given.files_per_batch))
    writer = answer.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    running = writer.option("path", str(out)).outputMode("append").trigger(availableNow=True).start()
    running.awaitTermination()
    return time.perf_counter() - started, batch_seconds(running)


if __name__ == "__main__":
    main()
