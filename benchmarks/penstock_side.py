"""One query of the bench through Penstock, in a process of its own: python -m benchmarks.penstock_side q2 ..."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks.queries import QUERIES
from benchmarks.spark import warm_session
from penstock.session import Session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("query", choices=QUERIES)
    for name in ("data", "out", "scratch", "report"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--memory", default="4g")
    given = parser.parse_args()
    spark = warm_session(given.scratch, given.memory)
    started = time.perf_counter()
    session = Session(spark)
    session.execute(QUERIES[given.query].script(given.data, given.out))
    session.start(checkpoint=str(given.scratch / "checkpoint")).wait()
    seconds = time.perf_counter() - started
    given.report.write_text(json.dumps({"seconds": seconds, "spark": spark.version}))
    spark.stop()


if __name__ == "__main__":
    main()
