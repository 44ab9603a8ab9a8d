"""The packets that leave the last stage of a batch, sorted by what they carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.physical.execution.portions import earliest
from penstock.physical.operators import Rejection
from penstock.runtime.monitoring.reports import IngestReport, ShardReport
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.worker.answer_writer import PendingAnswer, answers_in
from penstock.runtime.spark.worker.packets import (
    AnswerOf,
    FewOfMany,
    Heartbeats,
    Signal,
    read_failed,
    read_heartbeats,
    read_kind,
    read_reached,
    read_rejected,
    read_timings,
)


@dataclass
class BatchOutput:
    """The output of a batch.

    Args:
        answers: by query the answer chunks of each shard.
        rejected: updates that relations could not apply.
        heartbeats: None where no packet has them.
        round: None where Spark reads the input.
        failed: the queries whose steps failed.
        reached: by query that goes on in later rounds, the instant up to which all shards have emitted.
    """

    answers: dict[str, list[tuple[int, list[PendingAnswer]]]] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    heartbeats: Heartbeats | None = None
    round: int | None = None
    failed: dict[str, QueryFailure] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)

    @property
    def behind(self) -> dict[str, int]:
        """Return `reached` of the queries that go on."""
        return {query: instant for query, instant in self.reached.items() if query not in self.failed}

    @property
    def ended(self) -> bool:
        """Return whether all sources have ended, and all answers are emitted."""
        return self.heartbeats is not None and self.heartbeats.ended and not self.behind

    @property
    def query_heartbeats(self) -> dict[str, int]:
        """Return by query up to which instant its answer is final and emitted; nothing where no packet has it."""
        return {} if self.heartbeats is None else {**self.heartbeats.queries, **self.behind}


def read_output(table: pa.Table, report: Callable[[IngestReport | ShardReport], None]) -> BatchOutput:
    """Return what the packets in `table` carry. report: receives the measurements of tasks."""
    output = BatchOutput()
    shards, kinds = table.column("shard").to_pylist(), table.column("kind").to_pylist()
    for shard, text, blob in zip(shards, kinds, table.column("blob"), strict=True):
        match read_kind(text):
            case Signal.HEARTBEATS:
                output.heartbeats = read_heartbeats(blob.as_py())
            case Signal.REACHED:
                output.reached = earliest(output.reached, read_reached(blob.as_buffer()))
            case Signal.REJECTED:
                output.rejected += read_rejected(blob.as_py())
            case Signal.TIMINGS:
                report(read_timings(blob.as_py()))
            case Signal.FAILED:
                output.failed = read_failed(blob.as_py()) | output.failed
            case Signal.ROUND:
                output.round = _one_round(output.round, int(blob.as_py()))
            case AnswerOf() | FewOfMany() as kind:
                for query, chunks in answers_in(kind, blob.as_buffer()):
                    output.answers.setdefault(query, []).append((shard, chunks))
    return output


def _one_round(before: int | None, number: int) -> int:
    """Return the round of a packet. Raises PenstockError P0605 where an earlier packet of the batch has another one."""
    if before is not None and number != before:
        raise PenstockError(
            "P0605",
            f"a batch of Spark's has read the rounds {before} and {number}",
            hint="restore the checkpoint from a copy",
        )
    return number
