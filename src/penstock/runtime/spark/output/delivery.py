"""Deliver the answers of a batch to the sinks of the queries.

Contract: a sink receives its answer in chunks in the order of time, which are produced as it consumes them; rows of one
instant come in the order of shards, whatever order tasks finished in. Sinks that write files write in parallel, since
compression and syncing release the interpreter lock; the others write one after the other, in the order of the queries.
The error raised is that of the first query with one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.contract import Sink
from penstock.physical.execution.answers import answer_tables, content_bytes
from penstock.runtime.spark.checkpoint.folder import Job
from penstock.runtime.spark.output.answer_writer import PendingAnswer

#: By query the answer chunks of each shard.
Answers = Mapping[str, Sequence[tuple[int, Sequence[PendingAnswer]]]]


@dataclass
class DeliveredAnswer:
    """Rows and bytes of an answer that its sink has received."""

    rows: int = 0
    bytes: int = 0


def deliver_answers(
    job: Job, sinks: Mapping[str, Sink], names: Iterable[str], answers: Answers, batch: int
) -> dict[str, DeliveredAnswer]:
    """Write the answers of the queries `names`; return the size of each. Raises PenstockError P0502."""

    def write(name: str) -> DeliveredAnswer:
        by_shard = sorted(answers.get(name, ()), key=lambda entry: job.keys.index(entry[0]))
        chunks = [chunk for _, shard_chunks in by_shard for chunk in shard_chunks]
        delivered = DeliveredAnswer()
        sinks[name].write_pieces(batch, _counted(answer_tables(job.plan.queries[name], chunks), delivered))
        return delivered

    queries = list(names)
    parallel = [name for name in queries if sinks[name].beside]
    if len(parallel) < 2:
        return {name: write(name) for name in queries}
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="penstock-sink") as pool:
        pending_writes = {name: pool.submit(write, name) for name in parallel}
        return {name: pending_writes[name].result() if name in pending_writes else write(name) for name in queries}


def _counted(tables: Iterator[pa.Table], size: DeliveredAnswer) -> Iterator[pa.Table]:
    for table in tables:
        size.rows += table.num_rows
        size.bytes += content_bytes(table)
        yield table
