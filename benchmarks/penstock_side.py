"""One query of the bench through Penstock, in a process of its own: python -m benchmarks.penstock_side q2 ..."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.queries import OURS
from benchmarks.spark import own_settings, report_side, side_parser, warmed
from penstock.runtime.spark.startup.session import start_spark
from penstock.session import Session


def main() -> None:
    given = side_parser(OURS).parse_args()
    # The engine is imported by Spark's worker processes too.
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    report_side(warmed(start_spark(settings=own_settings(given.scratch, given.memory))), given, run)


def run(spark: SparkSession, given: argparse.Namespace, out: Path, checkpoint: Path) -> tuple[float, float]:
    started = time.perf_counter()
    session = Session(spark)
    session.execute(OURS[given.query].script(given.data, out))
    running = session.start(checkpoint=str(checkpoint))
    running.wait()
    return time.perf_counter() - started, running.progress().batch_seconds


if __name__ == "__main__":
    main()
