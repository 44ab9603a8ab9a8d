"""What both sides of the bench share: their command line, their report, and a Spark session that is warmed up, so that
neither pays for the JVM's start."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.runtime.java import require_java


def side_parser(queries: Iterable[str]) -> argparse.ArgumentParser:
    """What `benchmarks.run` tells either side on its command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("query", choices=list(queries))
    for name in ("data", "out", "scratch", "report"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--memory", default="4g")
    return parser


def report_side(
    spark: SparkSession,
    given: argparse.Namespace,
    run: Callable[[SparkSession, argparse.Namespace, Path, Path], tuple[float, float]],
) -> None:
    """Run the query, and once more in the warm process: what its batches take then is the steady state. run: is given
    the places of the answer and of the checkpoint; (seconds from the start of the query to its end, of its batches)."""
    seconds, _ = run(spark, given, given.out, given.scratch / "checkpoint")
    _, steady = run(spark, given, given.scratch / "again", given.scratch / "checkpoint-again")
    given.report.write_text(json.dumps({"seconds": seconds, "steady": steady, "spark": spark.version}))
    spark.stop()


def batch_seconds(query: StreamingQuery) -> float:
    """The time that the query's batches took to execute, by Spark's own account (addBatch)."""
    return float(sum(p["durationMs"].get("addBatch", 0) for p in query.recentProgress)) / 1000.0


def own_settings(scratch: Path, memory: str) -> dict[str, str]:
    """What both sides' sessions are told alike."""
    return {
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }


def warm_session(scratch: Path, memory: str) -> SparkSession:
    """Spark as people start it, on all cores of this machine. State lies where Spark puts it unless told otherwise, in
    the heap: for these sizes that is the faster of its two stores."""
    os.environ["JAVA_HOME"] = str(require_java())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[*]").config("spark.pyspark.python", sys.executable)
    for key, value in own_settings(scratch, memory).items():
        builder = builder.config(key, value)
    return warmed(builder.getOrCreate())


def warmed(spark: SparkSession) -> SparkSession:
    """The session, after its first job."""
    spark.range(1000).selectExpr("sum(id)").collect()
    return spark
