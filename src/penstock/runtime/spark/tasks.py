"""What Spark's Python workers run: the ingest of a round's pieces, and a keyed stage in its shards.

Workers load this module by name, so it imports what computes only where it computes. root, digest: the job's folder
and the job in it.
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
#: A worker has loaded what it needs after so many tasks.
_LOADING = 8
#: So many tasks from one search through all objects to the next.
_SEARCH_EVERY = 1000


def settle() -> None:
    """Leave what this worker's tasks have loaded out of the search for garbage. Spark makes one after every task, in
    the worker's time, and over compiled loops and plans it takes longer than a task with few rows. Every so often a
    search goes through all objects nevertheless, so what a job has let go of is found."""
    number = next(_NUMBERS)
    if number % _SEARCH_EVERY == 0:
        gc.unfreeze()
    elif number <= _LOADING or number % _SEARCH_EVERY == 1:
        gc.freeze()


def settled(task: Task) -> Task:
    """The task, and `settle` behind it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task(batches)
        settle()

    return run


def batch_number() -> int:
    """The number of the micro-batch that this task works for."""
    context = TaskContext.get()
    return int((context.getLocalProperty(_BATCH) if context else None) or 0)


def task_number() -> int:
    """Which of the tasks of its batch this is."""
    context = TaskContext.get()
    return int(context.partitionId()) if context else 0


def ingest_pieces(root: str, digest: str) -> Task:
    """Reads pieces (`rounds.py`), one a row of the column `content`, and gives packets."""

    def ingest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.folder import Folder, load_job
        from penstock.runtime.spark.ingest import run_piece
        from penstock.runtime.spark.packets import as_batches
        from penstock.runtime.spark.parcels import Parcels
        from penstock.runtime.spark.rounds import read_piece

        job, tables = load_job(root, digest)
        with Parcels(root, job.base + batch_number()) as parcels:
            for batch in batches:
                for content in batch.column("content"):
                    packets = run_piece(Folder(root), job, tables, read_piece(content.as_py()))
                    yield from as_batches(parcels.lightened(packets), job.keys)

    return settled(ingest)


def ingest_frame(root: str, digest: str, name: str) -> Task:
    """Takes the rows of the DataFrame source `name` and gives packets."""

    def ingest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.folder import Folder, load_job
        from penstock.runtime.spark.ingest import run_batches
        from penstock.runtime.spark.packets import as_batches

        job, tables = load_job(root, digest)
        source = job.plan.sources[name]
        yield from as_batches(run_batches(Folder(root), job, tables, source, batch_number(), batches), job.keys)

    return settled(ingest)


def keyed_stage(root: str, digest: str, stage: int) -> Task:
    """A keyed stage with its state in files (`state_files.py`). Takes and gives packets; a task gets one shard's."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.spark.folder import load_job
        from penstock.runtime.spark.packets import Packet, as_batches
        from penstock.runtime.spark.parcels import Parcels
        from penstock.runtime.spark.stage import ShardRound
        from penstock.runtime.spark.state_files import open_state

        job, tables = load_job(root, digest)
        packets: dict[int, list[Packet]] = {}
        for batch in batches:
            shards, kinds = batch.column("shard").to_pylist(), batch.column("kind").to_pylist()
            for shard, kind, blob in zip(shards, kinds, batch.column("blob"), strict=True):
                number = job.keys.index(shard)
                packets.setdefault(number, []).append(Packet(number, kind, blob.as_buffer()))
        number = job.base + batch_number()
        with Parcels(root, number) as parcels:
            for shard, mine in sorted(packets.items()):
                state, past = open_state(root, job, stage, shard, number)
                made = ShardRound(root, job, tables, stage, state, past, parcels).run(shard, mine)
                yield from as_batches(parcels.lightened(made), job.keys)

    return settled(run)


def wake(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Gives what it takes: a task for the sake of the worker that runs it."""
    yield from batches
