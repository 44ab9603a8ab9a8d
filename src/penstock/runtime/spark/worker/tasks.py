"""The tasks of Spark's Python workers: the ingest of a round's read tasks, and a keyed stage in its shards.

Workers load this module by name, so it imports the operators only where it runs them. root, digest: the job's folder
and the digest of the job in it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from pyspark import TaskContext

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = "streaming.sql.batchId"
Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


#: Numbers the tasks of this worker process.
_NUMBERS = count(1)
#: Number of tasks after which a worker has loaded what it needs.
_LOADING = 8
#: Number of tasks between two full garbage collections.
_SEARCH_EVERY = 1000


def settle() -> None:
    """Exclude the objects that this worker's tasks have loaded from garbage collection.

    Spark collects after every task, in the worker's time, and over compiled loops and plans that takes longer than a
    task with few rows. Once in `_SEARCH_EVERY` tasks a collection includes all objects nevertheless, so that what a job
    has released is found.
    """
    number = next(_NUMBERS)
    if number % _SEARCH_EVERY == 0:
        gc.unfreeze()
    elif number <= _LOADING or number % _SEARCH_EVERY == 1:
        gc.freeze()


def settled(task: Task) -> Task:
    """Return the task with `settle` after it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task(batches)
        settle()

    return run


def batch_number() -> int:
    """Return the number of the micro-batch of this task."""
    context = TaskContext.get()
    return int((context.getLocalProperty(_BATCH) if context else None) or 0)


def task_number() -> int:
    """Return the number of this task in its batch."""
    context = TaskContext.get()
    return int(context.partitionId()) if context else 0


def ingest_read_tasks(root: str, digest: str) -> Task:
    """Return a task that reads read tasks (`round_log.py`), one a row of the columns `path` and `content`, and yields
    packets.
    """

    def ingest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.checkpoint.folder import Folder
        from penstock.runtime.spark.input.round_log import load_read_task
        from penstock.runtime.spark.job_files import load_job
        from penstock.runtime.spark.worker.ingest import run_read_task
        from penstock.runtime.spark.worker.packets import as_batches
        from penstock.runtime.spark.worker.spill_files import SpillFiles

        job, tables = load_job(root, digest)
        with SpillFiles(root, job.log_base + batch_number()) as spill_files:
            folder = Folder(root)
            for batch in batches:
                for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
                    read_task = load_read_task(folder, path.as_py(), content.as_py())
                    packets = run_read_task(folder, job, tables, read_task)
                    yield from as_batches(spill_files.lightened(packets), job.keys)

    return settled(ingest)


def ingest_frame(root: str, digest: str, name: str) -> Task:
    """Return a task that takes the rows of the DataFrame source `name` and yields packets."""

    def ingest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.checkpoint.folder import Folder
        from penstock.runtime.spark.job_files import load_job
        from penstock.runtime.spark.worker.ingest import run_batches
        from penstock.runtime.spark.worker.packets import as_batches

        job, tables = load_job(root, digest)
        source = job.plan.sources[name]
        yield from as_batches(run_batches(Folder(root), job, tables, source, batch_number(), batches), job.keys)

    return settled(ingest)


def keyed_stage(root: str, digest: str, stage: int) -> Task:
    """Return a keyed stage with its state in files (`state_files.py`). It takes and yields packets; a Spark task gets
    those of one shard.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.checkpoint.state_files import open_state
        from penstock.runtime.spark.job_files import load_job
        from penstock.runtime.spark.worker.packets import Packet, as_batches, read_kind
        from penstock.runtime.spark.worker.spill_files import SpillFiles
        from penstock.runtime.spark.worker.stage import ShardRound

        job, tables = load_job(root, digest)
        packets: dict[int, list[Packet]] = {}
        for batch in batches:
            shards, kinds = batch.column("shard").to_pylist(), batch.column("kind").to_pylist()
            for shard, kind, blob in zip(shards, kinds, batch.column("blob"), strict=True):
                number = job.keys.index(shard)
                packets.setdefault(number, []).append(Packet(number, read_kind(kind), blob.as_buffer()))
        number = job.log_base + batch_number()
        with SpillFiles(root, number) as spill_files:
            for shard, shard_packets in sorted(packets.items()):
                state, backfilled = open_state(root, job, stage, shard, number)
                output = ShardRound(root, job, tables, stage, state, backfilled, spill_files).run(shard, shard_packets)
                yield from as_batches(spill_files.lightened(output), job.keys)

    return settled(run)


def wake(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the input: a task that only starts the worker that runs it."""
    yield from batches
