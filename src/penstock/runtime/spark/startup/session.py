"""Start Spark, or use an existing session."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import PenstockError, close_names
from penstock.events import log_event, logger_of
from penstock.runtime.java import require_java
from penstock.runtime.spark.startup.jvm import (
    asked_for,
    is_unused,
    jvm_settings,
    local_master,
    not_started,
    session_settings,
    start_daemon,
    taken,
)
from penstock.runtime.spark.worker.tasks import wake

_LOG = logger_of("runtime")

_JOB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "20ms",
    # Spark's default starts a system process for every file it renames: two dozen a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # One task for each file of a round, however small.
    "spark.sql.files.maxPartitionBytes": "1",
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(256 * 2**20),
    "spark.sql.session.timeZone": "UTC",
}


def start_spark(
    master: str | None = None, log: Path | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a Spark session, or return the one started ahead.

    Args:
        log: a file for the output of the JVM.
        settings: Spark's settings, which override Penstock's.

    Raises:
        PenstockError: P0603, P0601.
    """
    ahead = asked_for(master, settings or {}) if log is None else None
    return ahead if ahead is not None else start_now(master, log, settings or {})


def start_now(master: str | None, log: Path | None, settings: Mapping[str, str]) -> SparkSession:
    """Start a session as `start_spark` does, ignoring one that was started ahead."""
    spark_settings = session_settings(master, settings)
    is_new = SparkContext._gateway is None and SparkContext._active_spark_context is None
    if is_new:
        _launch(spark_settings, log, master or local_master())
    builder = SparkSession.builder.master(master or local_master()).appName("Penstock")
    builder = builder.config("spark.pyspark.python", sys.executable)
    for key, value in spark_settings.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise not_started(first_line(error), cause=error) from error
    if is_new:
        _silence_reports_of_its_end(spark)
    tasks: list[tuple[str, Callable[[], None]]] = [("wake", lambda: _wake(spark)), ("load", _load)]
    if settings:
        tasks.append(("settings", lambda: _warn_of_unknown(spark, settings)))
    for name, task in tasks:
        thread = threading.Thread(target=task, name=f"penstock-{name}", daemon=True)
        _THREADS.append(thread)
        thread.start()
    return spark


class Stopped(Protocol):
    def stop(self) -> None: ...


#: Runs that may still be active when the process ends, and threads that Penstock started.
_RUNS: WeakSet[Any] = WeakSet()
_THREADS: list[threading.Thread] = []
#: Seconds that the end of the process waits for such a thread.
_END_SECONDS = 10.0


def stop_at_end(run: Stopped) -> None:
    """Stop `run` before Python ends, if it is still active then."""
    _RUNS.add(run)


@atexit.register
def _end() -> None:
    """Stop all runs and wait for their threads: one that returns from Arrow during shutdown of the interpreter aborts
    the process (exit code 134). An unused JVM that was started ahead is killed next, and needs no waiting."""
    for run in list(_RUNS):
        with suppress(Exception):
            run.stop()
    for thread in () if is_unused() else _THREADS:
        thread.join(_END_SECONDS)


#: Loggers through which py4j reports failed calls, in both directions; a filter applies to its own logger alone. The
#: first is that of the whole process, which py4j uses too.
_CALL_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")
#: An error of py4j with this text repeats what Java answered; one without it means that no answer came.
_ANSWERED_BY_JAVA = "Trace:"


def is_gone(failure: BaseException) -> bool:
    """Return whether a call of Spark failed because its JVM has ended."""
    if isinstance(failure, Py4JError):
        return not isinstance(failure, Py4JJavaError) and _ANSWERED_BY_JAVA not in str(failure)
    return isinstance(failure, ConnectionError)


def _silence_reports_of_its_end(spark: SparkSession) -> None:
    """Let py4j and Spark print no traceback for a JVM that is killed, nor for an error that ends a run: the caller that
    waits for the run gets it.
    """
    for name in _CALL_LOGGERS:
        logging.getLogger(name).addFilter(_is_news)
    server = spark.sparkContext._accumulatorServer
    print_error = server.handle_error

    def handle_error(request: Any, client: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            print_error(request, client)

    server.handle_error = handle_error


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a record is not of py4j, or reports what the error of the run does not."""
    failure = record.exc_info[1] if record.exc_info else None
    if failure is None or Path(record.pathname).parent.name != "py4j":
        return True
    return not (isinstance(failure, PenstockError) or is_gone(failure))


def _launch(settings: Mapping[str, str], log: Path | None, master: str) -> None:
    """Start or reuse a JVM, and start the daemon of its workers."""
    jvm = taken(settings, log)
    environ: dict[str, str] = {}
    conf = SparkConf(loadDefaults=False)
    if jvm is None:
        conf.setAll(list(jvm_settings(settings, require_java()).items()))
    else:
        port, secret = jvm.reached()
        start_daemon(jvm, master)
        environ = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(environ)
    try:
        SparkContext._gateway = launch_gateway(conf)
    finally:
        for name in environ:
            del os.environ[name]
    SparkContext._jvm = SparkContext._gateway.jvm


def _wake(spark: SparkSession) -> None:
    """Start the Python daemon and its workers while the first query is still being prepared, and run what a batch runs,
    so that its classes are loaded. The answer is not used.
    """
    with suppress(Exception):
        rows = job_session(spark, 2).range(0, 2, 1, 2)
        rows.mapInArrow(wake, "id long").repartition(2, "id").mapInArrow(wake, "id long").toArrow()


def _load() -> None:
    """Load numba by calling a compiled loop, which takes half a second. The driver's first is the one that sorts
    answers, when the user waits for them; so it is loaded while the workers start.
    """
    with suppress(Exception):
        import numpy as np

        from penstock.physical.kernels.compiled import argsort_time

        argsort_time(np.array([1, 0]))


#: Beginnings of Spark's settings whose further names are free, or of parts of Spark that are loaded when they are used.
_FREE = (
    "spark.hadoop.", "spark.executorEnv.", "spark.kubernetes.", "spark.yarn.", "spark.ssl.", "spark.metrics.",
    "spark.sql.catalog.", "spark.hive.", "spark.databricks.", "spark.connect.", "spark.jars.", "spark.penstock.",
    "spark.pyspark.", "spark.python.", "spark.app.", "spark.submit.", "spark.repl.", "spark.org.", "spark.com.",
)  # fmt: skip


def _warn_of_unknown(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Warn of settings that Spark has not, which it keeps without a word."""
    with suppress(Exception):
        entries = spark._jvm.org.apache.spark.internal.config.ConfigEntry.knownConfigs()
        known = entries.keySet().toString().strip("[]").split(", ")
        for message in unknown_settings(settings, known):
            log_event(_LOG, logging.WARNING, "setting", message)


def unknown_settings(settings: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return a warning for each setting that Spark does not know. known: the names that it knows."""
    found = []
    for name in sorted(settings):
        if name == "spark.master" or name in known or name.startswith(_FREE):
            continue
        near = close_names(name, known, least=0.8)
        found.append(f"Spark has no setting {name}" + (f": did you mean {near[0]}?" if near else ", and ignores it"))
    return found


def job_session(spark: SparkSession, partitions: int) -> SparkSession:
    """Return a session of the same application with the settings that a job needs; the user's own session
    is unchanged.
    """
    session = spark.newSession()
    for key, value in _JOB.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return session


def shard_keys(shards: int) -> list[int]:
    """Return one int per shard such that Spark's hash puts each into a partition of its own."""
    keys: dict[int, int] = {}
    candidate = 0
    while len(keys) < shards:
        keys.setdefault(_murmur3(candidate) % shards, candidate)
        candidate += 1
    return [keys[k] for k in range(shards)]


def _murmur3(value: int, seed: int = 42) -> int:
    """Return Spark's hash of an int: 32-bit Murmur3 of its four bytes, as a signed number."""
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


def first_line(error: object) -> str:
    """Return the message of an error in one line; for a Java error, Java's message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1].lstrip(": ")
    return lines[0]
