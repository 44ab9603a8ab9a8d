"""The job of Spark that computes one one-time query, beside the rounds of the run.

Each stage is a shuffle by shard. Tasks run in a pool of their own (`POOL`), whose weight beside that of the rounds is
`snapshot_weight`, where Spark shares its cores among pools (`spark.scheduler.mode`). A query that is cancelled, or
takes too long, ends its tasks.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.runtime.memory_limit import limited, too_large
from penstock.runtime.spark.one_time.select_plan import InputTask, SelectPlan
from penstock.runtime.spark.output.failures import translate
from penstock.runtime.spark.startup.session import job_session, shard_keys
from penstock.runtime.spark.worker.packets import SPARK_SCHEMA, Packet, as_batches, of_one_shard, read_kind
from penstock.runtime.spark.worker.pickling import pickled
from penstock.runtime.spark.worker.spill_files import SpillFiles
from penstock.storage import storage

#: The pool of one-time queries among those of Spark's scheduler.
POOL = "penstock-select"
_PLAN = "select.pickle"
#: The properties of Spark's that a thread gives to the jobs that it starts.
_PROPERTIES = ("spark.scheduler.pool", "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
#: Guards the making of the pool.
_POOL_LOCK = threading.Lock()


class SelectJob:
    """One query on Spark.

    Args:
        folder: of its own, which the workers share; removed by the caller.
        name: of the group of its jobs.
        weight: of the pool.
    """

    def __init__(self, spark: SparkSession, folder: Path, name: str, weight: int) -> None:
        self._spark, self._folder, self._name, self._weight = spark, folder, name, weight

    def answer(self, plan: SelectPlan, tasks: Sequence[InputTask]) -> pa.Table:
        """Return the rows of the answer. Raises PenstockError of the query, and P0601 where Spark fails, or `cancel`
        has ended it."""
        root = str(self._folder)
        storage().write(self._folder / _PLAN, pickled(plan), durable=False)
        keys = shard_keys(plan.shards)
        context = self._spark.sparkContext
        with_pool(context, self._weight)
        before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
        try:
            context.setJobGroup(self._name, "a one-time query", interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", POOL)
            return plan.answer(_packets(self._packets(plan, tasks, root, keys)))
        except PenstockError:
            raise
        except Exception as failure:
            error = translate(failure)
            # Raised where rows pass between Spark and a task, which has its limit meanwhile.
            raise (too_large(plan.memory) if "MemoryError" in error.message else error) from failure
        finally:
            for name, value in before.items():
                context.setLocalProperty(name, value)

    def _packets(self, plan: SelectPlan, tasks: Sequence[InputTask], root: str, keys: list[int]) -> pa.Table:
        session = job_session(self._spark, plan.shards)
        # The first one lets each shard run.
        rows = pa.table({"task": pa.array([b"", *map(pickled, tasks)], pa.binary())})
        frame = session.createDataFrame(rows).repartition(rows.num_rows)
        frame = frame.mapInArrow(read_inputs(root, keys), SPARK_SCHEMA)
        for stage in range(1, plan.stages + 1):
            frame = frame.repartition(plan.shards, "shard").mapInArrow(stage_of(root, keys, stage), SPARK_SCHEMA)
        table: pa.Table = frame.toArrow()
        return table

    def cancel(self) -> None:
        """End its tasks, also those that have not begun, from any thread."""
        self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._name)


def with_pool(context: Any, weight: int) -> None:
    """Make the pool of one-time queries, unless it is there: its weight stays that of the first one."""
    with _POOL_LOCK:
        root = context._jsc.sc().taskScheduler().rootPool()
        if root.getSchedulableByName(POOL) is None:
            scheduler = context._jvm.org.apache.spark.scheduler
            root.addSchedulable(scheduler.Pool(POOL, scheduler.SchedulingMode.FAIR(), 0, weight))


def read_inputs(root: str, keys: Sequence[int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the task that reads inputs, one a row."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = _plan(root)
        with limited(plan.memory), SpillFiles(root, 0) as spill_files:
            for batch in batches:
                for data in batch.column(0).to_pylist():
                    packets = plan.read(pickle.loads(data)) if data else plan.starting()
                    yield from as_batches(spill_files.lightened(packets), keys)

    return read


def stage_of(
    root: str, keys: Sequence[int], stage: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the task of a stage, which runs the shards of its partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = _plan(root)
        for key, received in of_one_shard(batches):
            shard = keys.index(key)
            with limited(plan.memory), SpillFiles(root, stage) as spill_files:
                sent = plan.run_stage(stage, shard, (one for batch in received for one in _packets(batch, shard)))
                yield from as_batches(spill_files.lightened(sent), keys)

    return run


def _packets(rows: pa.Table | pa.RecordBatch, shard: int = 0) -> Iterator[Packet]:
    """Yield the packets in some rows. shard: that of all of them, where it matters."""
    for kind, blob in zip(rows.column("kind").to_pylist(), rows.column("blob"), strict=True):
        yield Packet(shard, read_kind(kind), blob.as_buffer())


@lru_cache(maxsize=4)
def _plan(root: str) -> SelectPlan:
    plan: SelectPlan = pickle.loads(storage().read(Path(root) / _PLAN))
    return plan


class Deadline:
    """Ends a job that takes too long. seconds: from now on."""

    def __init__(self, job: SelectJob, seconds: float) -> None:
        self._at = time.monotonic() + seconds
        self._timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), job.cancel)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() >= self._at
