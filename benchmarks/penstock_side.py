"""One query of the bench through Penstock, in a process of its own: python -m benchmarks.penstock_side q2 ..."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.queries import QUERIES
from benchmarks.spark import own_settings, warmed
from penstock.runtime.spark.session import start_spark
from penstock.session import Session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("query", choices=QUERIES)
    for name in ("data", "out", "scratch", "report"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--memory", default="4g")
    given = parser.parse_args()
    # The engine is imported by Spark's worker processes too.
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    spark = warmed(start_spark(settings=own_settings(given.scratch, given.memory)))
    seconds, _ = run(spark, given, given.out, given.scratch / "checkpoint")
    # Once more in the warm process: what its batches take now is the steady state.
    _, steady = run(spark, given, given.scratch / "again", given.scratch / "checkpoint-again")
    given.report.write_text(json.dumps({"seconds": seconds, "steady": steady, "spark": spark.version}))
    spark.stop()


def run(spark: SparkSession, given: argparse.Namespace, out: Path, checkpoint: Path) -> tuple[float, float]:
    """(seconds from the start of the query to its end, seconds of its batches)."""
    started = time.perf_counter()
    session = Session(spark)
    session.execute(QUERIES[given.query].script(given.data, out))
    running = session.start(checkpoint=str(checkpoint))
    running.wait()
    return time.perf_counter() - started, running.progress().batch_seconds


if __name__ == "__main__":
    main()
