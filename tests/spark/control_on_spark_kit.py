"""A control with the engine on Spark, for tests that post rows to it and read what its queries have written."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.connectors.sinks.files import read_result
from penstock.control.live.control import Control
from penstock.engines.spark import SparkEngine


def opened(checkpoint: Path, spark: Any) -> tuple[SparkEngine, Control]:
    engine = SparkEngine(checkpoint, lambda: spark)
    return engine, Control(checkpoint, engine, {"shards": "2"})


def rows(*ticks: int) -> pa.Table:
    """Rows (ts, v), in which both are the tick."""
    return pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(ticks, pa.int32())})


def result(path: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in read_result(str(path)).to_pylist()] if path.exists() else []


def until(condition: Callable[[], bool], control: Control, seen: Callable[[], object] = lambda: None) -> None:
    """Wait until a condition holds. seen: what is told of a condition that does not."""
    end = time.monotonic() + 200
    while not condition():
        assert control.failure is None, control.failure
        assert time.monotonic() < end, seen()
        time.sleep(0.1)
