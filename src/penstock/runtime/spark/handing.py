"""Hands the answers of a batch to the sinks of the queries.

Contract: a sink gets its answers in pieces, in the order of time, that are made as it takes them; rows of one instant
come in the order of shards, whatever order tasks finished in. Sinks that write files do so side by side, as compressing
and waiting for the disk leave the interpreter free; the others write one after the other, in the order of the queries.
The error told is that of the first query that had one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.contract import Sink
from penstock.physical.answers import answer_tables, content_bytes
from penstock.runtime.spark.folder import Job
from penstock.runtime.spark.telling import Told

#: By query the pieces of each shard.
Answers = Mapping[str, Sequence[tuple[int, Sequence[Told]]]]


@dataclass
class Handed:
    """How many rows and bytes of an answer have come to its sink."""

    rows: int = 0
    bytes: int = 0


def hand_over(
    job: Job, sinks: Mapping[str, Sink], names: Iterable[str], answers: Answers, batch: int
) -> dict[str, Handed]:
    """Write the answers of the queries `names`; returns how much each was. Raises PenstockError P0502."""

    def write(name: str) -> Handed:
        by_shard = sorted(answers.get(name, ()), key=lambda found: job.keys.index(found[0]))
        pieces = [piece for _, told in by_shard for piece in told]
        handed = Handed()
        sinks[name].write_pieces(batch, _counted(answer_tables(job.plan.queries[name], pieces), handed))
        return handed

    wanted = list(names)
    beside = [name for name in wanted if sinks[name].beside]
    if len(beside) < 2:
        return {name: write(name) for name in wanted}
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="penstock-sink") as pool:
        writing = {name: pool.submit(write, name) for name in beside}
        return {name: writing[name].result() if name in writing else write(name) for name in wanted}


def _counted(tables: Iterator[pa.Table], handed: Handed) -> Iterator[pa.Table]:
    for table in tables:
        handed.rows += table.num_rows
        handed.bytes += content_bytes(table)
        yield table
