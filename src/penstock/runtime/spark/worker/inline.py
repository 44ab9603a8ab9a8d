"""Run a round of a job in this process: Spark's tasks one after the other.

For rounds before Spark starts (`hydration/backfill.py`), and for tests of the files that a round leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.physical.elements import Elements
from penstock.physical.execution.portions import earliest
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.operators import Rejection
from penstock.runtime.monitoring.reports import IngestReport, ShardReport
from penstock.runtime.spark.checkpoint.folder import Folder, Job
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.checkpoint.state_files import open_state
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.worker.ingest import run_read_tasks
from penstock.runtime.spark.worker.packets import (
    AnswerOf,
    FewOfMany,
    Heartbeats,
    Packet,
    Signal,
    by_shard,
    read_failed,
    read_heartbeats,
    read_packet_of_many,
    read_reached,
    read_rejected,
    read_timings,
)
from penstock.runtime.spark.worker.spill_files import unpacked
from penstock.runtime.spark.worker.stage import ShardRound


@dataclass
class Outcome:
    """The results of a round. answers: by query, in the order of shards; heartbeats: as a run reports them, None
    without any; failed: the queries whose steps failed; reports: what tasks measured; reached: by query that goes on in
    later rounds, the instant up to which all shards have emitted."""

    answers: dict[str, list[Elements]] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    heartbeats: Heartbeats | None = None
    failed: dict[str, QueryFailure] = field(default_factory=dict)
    reports: list[IngestReport | ShardReport] = field(default_factory=list)
    reached: dict[str, int] = field(default_factory=dict)


def run_round(
    folder: Folder,
    job: Job,
    tables: dict[str, Elements],
    task_files: Iterable[Sequence[ReadTask]],
    batch: int,
    progress: Mapping[str, SourceProgress] | None = None,
    more: Iterable[Packet] = (),
) -> Outcome:
    """Run one round as batch `batch`; its state is written to files.

    Args:
        task_files: the read tasks that are carried out together.
        progress: what has been seen of sources beside the tasks.
        more: packets of tasks of another kind.
    """
    packets = list(by_shard(job.shards, progress)) if progress else []
    packets += more
    packets += [packet for tasks in task_files for packet in run_read_tasks(folder, job, tables, tasks)]
    root = str(folder.root)
    for stage in range(1, job.plan.stages + 1):
        inbox: dict[int, list[Packet]] = {}
        for packet in packets:
            inbox.setdefault(packet.shard, []).append(packet)
        packets = []
        for shard, shard_packets in sorted(inbox.items()):
            state, backfilled = open_state(root, job, stage, shard, batch)
            packets += ShardRound(root, job, tables, stage, state, backfilled).run(shard, shard_packets)
    outcome = Outcome()
    for packet in packets:
        match packet.kind:
            case Signal.HEARTBEATS:
                outcome.heartbeats = read_heartbeats(packet.blob)
            case Signal.REACHED:
                outcome.reached = earliest(outcome.reached, read_reached(packet.blob))
            case Signal.REJECTED:
                outcome.rejected += read_rejected(bytes(packet.blob))
            case Signal.TIMINGS:
                outcome.reports.append(read_timings(bytes(packet.blob)))
            case Signal.FAILED:
                outcome.failed = read_failed(packet.blob) | outcome.failed
            case FewOfMany():
                for query, elements in read_packet_of_many(packet.blob):
                    outcome.answers.setdefault(query, []).append(elements)
            case AnswerOf(query):
                outcome.answers.setdefault(query, []).extend(unpacked(packet.blob))
    return outcome
