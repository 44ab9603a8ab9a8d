"""Starting Spark, or settling into a session that exists already."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.runtime.java import require_java
from penstock.runtime.spark.jvm import OWN, asked_for, jvm_settings, start_daemon, taken
from penstock.runtime.spark.tasks import wake

_JOB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "20ms",
    # Spark's default asks a process of the system for every file it renames: two dozen a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # One task a file of a round, however small.
    "spark.sql.files.maxPartitionBytes": "1",
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(256 * 2**20),
    "spark.sql.session.timeZone": "UTC",
}


def local_master() -> str:
    """All cores of this machine, four tries a task."""
    return "local[*,4]"


def start_spark(
    master: str | None = None, log: Path | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session of our own. log: a file that takes what the JVM prints; settings: Spark's own, over those that
    Penstock chooses. Raises PenstockError P0603, P0601."""
    coming = asked_for(master, settings or {}) if log is None else None
    return coming.result() if coming is not None else start_now(master, log, settings or {})


def start_now(master: str | None, log: Path | None, settings: Mapping[str, str]) -> SparkSession:
    """As `start_spark`, whatever was started ahead."""
    chosen = {**OWN, **settings}
    if SparkContext._gateway is None and SparkContext._active_spark_context is None:
        _launch(chosen, log, master or local_master())
    builder = SparkSession.builder.master(master or local_master()).appName("Penstock")
    builder = builder.config("spark.pyspark.python", sys.executable)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise PenstockError("P0601", f"Spark does not start: {first_line(error)}", cause=error) from error
    threading.Thread(target=_wake, args=(spark,), name="penstock-wake", daemon=True).start()
    return spark


def _launch(settings: Mapping[str, str], log: Path | None, master: str) -> None:
    """Have a JVM, and the daemon of its workers on the way."""
    jvm = taken(settings, log)
    told: dict[str, str] = {}
    conf = SparkConf(loadDefaults=False)
    if jvm is None:
        conf.setAll(list(jvm_settings(settings, require_java()).items()))
    else:
        start_daemon(jvm, master)
        port, secret = jvm.reached()
        told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        SparkContext._gateway = launch_gateway(conf)
    finally:
        for name in told:
            del os.environ[name]
    SparkContext._jvm = SparkContext._gateway.jvm


def _wake(spark: SparkSession) -> None:
    """While the first query is still being prepared: start the Python daemon and its workers, and run what a batch
    runs, so that its classes are loaded. The answer does not matter."""
    with suppress(Exception):
        rows = job_session(spark, 2).range(0, 2, 1, 2)
        rows.mapInArrow(wake, "id long").repartition(2, "id").mapInArrow(wake, "id long").toArrow()


def job_session(spark: SparkSession, partitions: int) -> SparkSession:
    """A session of the same application with the settings that a job needs; the user's own stays as it is."""
    session = spark.newSession()
    for key, value in _JOB.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return session


def shard_keys(shards: int) -> list[int]:
    """One int per shard such that Spark's hash puts each into a partition of its own."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < shards:
        found.setdefault(_murmur3(candidate) % shards, candidate)
        candidate += 1
    return [found[k] for k in range(shards)]


def _murmur3(value: int, seed: int = 42) -> int:
    """Spark's hash of an int: 32-bit Murmur3 of its four bytes, as a signed number."""
    word = (value * 0xCC9E2D51) & 0xFFFFFFFF
    word = ((word << 15) | (word >> 17)) & 0xFFFFFFFF
    word = (word * 0x1B873593) & 0xFFFFFFFF
    state = seed ^ word
    state = ((state << 13) | (state >> 19)) & 0xFFFFFFFF
    state = (state * 5 + 0xE6546B64) & 0xFFFFFFFF
    state ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = ((state ^ (state >> shift)) * factor) & 0xFFFFFFFF
    state ^= state >> 16
    return state - 2**32 if state >= 2**31 else state


def first_line(error: Any) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
