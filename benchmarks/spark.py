"""The Spark session of the bench, the same for both sides, warmed up so that neither pays for the JVM's start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.runtime.java import require_java


def batch_seconds(query: StreamingQuery) -> float:
    """The time that the query's batches took to execute, by Spark's own account (addBatch)."""
    return sum(p["durationMs"].get("addBatch", 0) for p in query.recentProgress) / 1000.0


def warm_session(scratch: Path, memory: str) -> SparkSession:
    """A session on all cores of this machine. State lies where Spark puts it unless told otherwise, in the heap: for
    these sizes that is the faster of its two stores."""
    os.environ["JAVA_HOME"] = str(require_java())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # The engine is imported by Spark's worker processes too.
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", memory)
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.pyspark.python", sys.executable)
        .config("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.range(1000).selectExpr("sum(id)").collect()
    return spark
