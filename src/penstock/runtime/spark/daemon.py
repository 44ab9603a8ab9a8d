"""Spark's Python daemon with Penstock's operators loaded: workers are forked from it and need not load them again.

Spark runs `python -m penstock.runtime.spark.daemon pyspark.worker` in sessions of our own (`session.py`).
"""

from __future__ import annotations

from pyspark.daemon import manager

import penstock.physical.operators
import penstock.runtime.spark.ingest
import penstock.runtime.spark.stage
import penstock.runtime.spark.state_files  # noqa: F401 - loaded before workers are forked

if __name__ == "__main__":
    manager()
