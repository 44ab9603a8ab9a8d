"""The tasks of Spark's Python workers: the ingest of a round's read tasks, and a keyed stage in its shards.

Workers load this module by name, so it imports the operators only where it runs them. root, digest: the job's folder
and the digest of the job in it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

from pyspark import TaskContext

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.runtime.spark.worker.shard_owners import RoundOfShard

_BATCH = "streaming.sql.batchId"
Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


#: Numbers the tasks of this worker process.
_NUMBERS = count(1)
#: Number of tasks after which a worker has loaded what it needs.
_LOADING = 8
#: Number of tasks between two full garbage collections.
_SEARCH_EVERY = 1000
#: Number of blocks of memory that have been added since the last exclusion, from which on what they hold is excluded
#: too: 50,000 objects that are searched, which have four blocks each.
_MANY = 200_000
#: The blocks at the last exclusion.
_excluded = 0


def settle() -> None:
    """Exclude the objects that this worker's tasks have loaded from garbage collection.

    Spark collects after every task, in the worker's time, and over compiled loops and plans that takes longer than a
    task with few rows. So it does over the operators of a thousand queries, which a worker may get at any time. Once in
    `_SEARCH_EVERY` tasks a collection includes all objects nevertheless, so that what a job has released is found.

    Blocks are counted, and no object is touched: another thread may run a round of a shard that this worker owns, and
    Python ends the making of a tuple with a SystemError where something else refers to it meanwhile.
    """
    global _excluded
    number = next(_NUMBERS)
    if number % _SEARCH_EVERY == 0:
        gc.unfreeze()
        return
    if number > _LOADING and number % _SEARCH_EVERY != 1:
        if sys.getallocatedblocks() - _excluded <= _MANY:
            return
        gc.collect()  # what no one can reach would stay for as long
    gc.freeze()
    _excluded = sys.getallocatedblocks()


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
    """Return a task that carries out read tasks (`task_files.py`), those of a file in each row of the columns `path`
    and `content`, and yields packets.
    """

    def ingest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.checkpoint.folder import Folder
        from penstock.runtime.spark.input.task_files import load_read_tasks
        from penstock.runtime.spark.worker.ingest import run_read_tasks
        from penstock.runtime.spark.worker.job_files import load_job
        from penstock.runtime.spark.worker.packets import as_batches
        from penstock.runtime.spark.worker.spill_files import SpillFiles

        job, tables = load_job(root, digest)
        with SpillFiles(root, batch_number()) as spill_files:
            folder = Folder(root)
            for batch in batches:
                for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
                    read_tasks = load_read_tasks(folder, path.as_py(), content.as_py())
                    packets = run_read_tasks(folder, job, tables, read_tasks)
                    yield from as_batches(spill_files.lightened(packets), job.keys)

    return settled(ingest)


def ingest_frame(root: str, digest: str, name: str) -> Task:
    """Return a task that takes the rows of the DataFrame source `name` and yields packets."""

    def ingest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.checkpoint.folder import Folder
        from penstock.runtime.spark.worker.ingest import run_batches
        from penstock.runtime.spark.worker.job_files import load_job
        from penstock.runtime.spark.worker.packets import as_batches

        job, tables = load_job(root, digest)
        source = job.plan.sources[name]
        yield from as_batches(run_batches(Folder(root), job, tables, source, batch_number(), batches), job.keys)

    return settled(ingest)


def keyed_stage(root: str, digest: str, stage: int) -> Task:
    """Return a keyed stage with its state in files (`state_files.py`). It takes and yields packets; a Spark task gets
    those of one shard. The round runs in the worker process that has the state of the shard (`shard_owners.py`).
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.worker.packets import of_one_shard
        from penstock.runtime.spark.worker.shard_owners import RoundOfShard, shard_owners

        for shard, received in of_one_shard(batches):
            round_ = RoundOfShard(root, digest, stage, batch_number(), shard)
            owners = shard_owners(run_round_of_shard, drop_shard)
            run_here = run_round_of_shard if owners is None else owners.run
            yield from run_here(round_, received)

    return settled(run)


def run_round_of_shard(round_: RoundOfShard, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a round of a shard in this process: take the packets sent to it, yield those that it sends."""
    from penstock.runtime.spark.checkpoint.state_files import open_state
    from penstock.runtime.spark.worker.job_files import load_job
    from penstock.runtime.spark.worker.packets import Packet, as_batches, read_kind
    from penstock.runtime.spark.worker.spill_files import SpillFiles
    from penstock.runtime.spark.worker.stage import ShardRound

    root, stage = round_.root, round_.stage
    job, tables = load_job(root, round_.digest)
    shard = job.keys.index(round_.shard)
    packets = (
        Packet(shard, read_kind(kind), blob.as_buffer())
        for batch in batches
        for kind, blob in zip(batch.column("kind").to_pylist(), batch.column("blob"), strict=True)
    )
    with SpillFiles(root, round_.number) as spill_files:
        state, backfilled = open_state(root, job, stage, shard, round_.number)
        output = ShardRound(root, job, tables, stage, state, backfilled, spill_files).run(shard, packets)
        yield from as_batches(spill_files.lightened(output), job.keys)


def drop_shard(round_: RoundOfShard) -> None:
    """Drop the executor of a shard from the memory of this process."""
    from penstock.runtime.spark.worker.job_files import load_job
    from penstock.runtime.spark.worker.stage import forget_shard

    job, _ = load_job(round_.root, round_.digest)
    forget_shard(round_.root, round_.stage, job.keys.index(round_.shard))


def wake(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the input: a task that only starts the worker that runs it."""
    yield from batches
