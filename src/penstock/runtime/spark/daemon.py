"""Spark's Python daemon with Penstock's operators loaded: workers are forked from it and need not load them again.

Spark runs `python -m penstock.runtime.spark.daemon pyspark.worker` in sessions of our own (`session.py`).
"""

from __future__ import annotations

import gc

import pyarrow as pa
from pyspark.daemon import manager

import penstock.runtime.spark.ingest
import penstock.runtime.spark.stage
import penstock.runtime.spark.state_files
import penstock.runtime.spark.tasks  # noqa: F401 - loaded before workers are forked
from penstock.algebra import Aggregate, Source, StreamScan, Window, WindowKind
from penstock.algebra.query import Query, SinkSpec
from penstock.connectors.sources import open_source
from penstock.expressions.nodes import AggregateCall, Column
from penstock.runtime.allocation import give_back
from penstock.runtime.local import run_local
from penstock.types import Field, Schema, TimeDomain, Unit


def warm() -> None:
    """Answer a query, so that the compiled loops it takes are in memory too."""
    number = pa.int64()
    columns = Schema(tuple(Field(name, number) for name in ("ts", "k", "x")))
    source = Source("warm", True, columns, "MEMORY", (), 0, TimeDomain(Unit.SECOND, False))
    open_source(source)  # loads the readers of files
    scan = StreamScan(source, (0, 1, 2))
    window = Window(scan, WindowKind.RANGE, 2, 1)
    calls = (AggregateCall(number, "COUNT", ()), AggregateCall(number, "SUM", (Column(number, 2, "x"),)))
    groups = Aggregate(window, (1,), calls, ("n", "total"))
    rows = pa.table({name: pa.array([1, 2, 3], number) for name in columns.names})
    run_local([Query("warm", groups, SinkSpec("MEMORY"))], {"warm": rows}, shards=2, batch_rows=1)


if __name__ == "__main__":
    give_back()
    warm()
    # What is loaded stays: workers need not look through it after every task, nor own copies of its pages.
    gc.collect()
    gc.freeze()
    manager()
