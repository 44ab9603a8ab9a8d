"""Deliver the answers of a batch to the sinks of the queries.

Contract: a sink receives its answer in chunks in the order of time, which are produced as it consumes them; rows of one
instant come in the order of shards, whatever order tasks finished in. Sinks that write files write in parallel, since
compression and syncing release the interpreter lock; the others write one after the other, in the order of the queries.
The error raised is that of the first query with one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from penstock.connectors.contract import Sink
from penstock.physical.execution.answers import answer_tables, content_bytes
from penstock.runtime.spark.checkpoint.folder import Job
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.output.recorded_sink import RecordedSink
from penstock.runtime.spark.output.undelivered import UndeliveredAnswers, sink_error
from penstock.runtime.spark.output.written_batch import DeliveredAnswer
from penstock.runtime.spark.worker.answer_writer import PendingAnswer

#: Seconds before the second attempt; they double with each further one.
_FIRST_WAIT = 0.1
#: By query the answer chunks of each shard.
Answers = Mapping[str, Sequence[tuple[int, Sequence[PendingAnswer]]]]


class SinkIsolation:
    """Has a sink that fails end its query alone.

    Args:
        undelivered: receives the answer that the sink did not take.
        retry: seconds for which a batch is tried again.
        own: the same of queries for which it is another number.
    """

    def __init__(self, undelivered: UndeliveredAnswers, retry: float, own: Mapping[str, float] | None = None) -> None:
        self._undelivered = undelivered
        self._retry = retry
        self._own = own or {}
        #: The queries whose sinks failed.
        self.failed: dict[str, QueryFailure] = {}

    def write(
        self, query: str, batch: int, attempt: Callable[[], DeliveredAnswer], answer: Callable[[], pa.Table]
    ) -> DeliveredAnswer:
        """Return the result of `attempt`, tried again while there is time; where none succeeds, keep the `answer`."""
        deadline = time.monotonic() + self._own.get(query, self._retry)
        wait = _FIRST_WAIT
        while True:
            try:
                return attempt()
            except Exception as error:
                if time.monotonic() + wait > deadline:
                    self._undelivered.keep(query, batch, answer())
                    self.failed[query] = QueryFailure.of(sink_error(query, error), batch)
                    return DeliveredAnswer()
            time.sleep(wait)
            wait *= 2


def by_weight(queries: Iterable[str], weights: Mapping[str, float]) -> list[str]:
    """Return queries in the order in which their sinks are written: heavier ones first, otherwise as they come."""
    return sorted(queries, key=lambda query: -weights.get(query, 1.0))


def deliver_answers(
    job: Job,
    sinks: Mapping[str, Sink],
    names: Iterable[str],
    answers: Answers,
    batch: int,
    isolation: SinkIsolation | None = None,
) -> dict[str, DeliveredAnswer]:
    """Write the answers of the queries `names`; return the size of each.

    Args:
        isolation: keeps the answer of a sink that fails, and what failed; None lets the error be raised.

    Raises:
        PenstockError: P0502.
    """

    def tables(name: str) -> Iterator[pa.Table]:
        by_shard = sorted(answers.get(name, ()), key=lambda entry: job.keys.index(entry[0]))
        return answer_tables(job.plan.queries[name], [chunk for _, chunks in by_shard for chunk in chunks])

    def attempt(name: str) -> DeliveredAnswer:
        delivered = DeliveredAnswer()
        if not answers.get(name) and not sinks[name].writes_empty:
            return delivered
        sinks[name].write_pieces(batch, _counted(tables(name), delivered))
        delivered.at = time.monotonic()
        return delivered

    def write(name: str) -> DeliveredAnswer:
        if isolation is None:
            return attempt(name)
        delivered = isolation.write(name, batch, lambda: attempt(name), lambda: pa.concat_tables(tables(name)))
        sink = sinks[name]
        if name in isolation.failed and isinstance(sink, RecordedSink):
            # Its sink receives the answer before anything else when the query resumes.
            sink.record(batch, pa.concat_tables(tables(name)))
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
