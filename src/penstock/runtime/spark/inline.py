"""A round of a job in this process: what Spark's tasks do with the packets of a round, one after the other.

For what is done before Spark has anything to do (`backfill.py`), and for tests of what a round leaves behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.physical.elements import Elements
from penstock.physical.operators import Rejection
from penstock.runtime.spark.feed import Piece
from penstock.runtime.spark.folder import Folder, Job
from penstock.runtime.spark.ingest import run_piece
from penstock.runtime.spark.packets import REJECTED, Packet, read_rejected
from penstock.runtime.spark.parcels import unpacked
from penstock.runtime.spark.stage import ShardRound
from penstock.runtime.spark.state_files import open_state


@dataclass
class Outcome:
    """answers: by query, in the order of shards; told: the heartbeats, as a run tells them."""

    answers: dict[str, list[Elements]] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)


def run_round(folder: Folder, job: Job, tables: dict[str, Elements], pieces: Iterable[Piece], batch: int) -> Outcome:
    """Run one round as batch `batch`; its state is left in files."""
    packets = [packet for piece in pieces for packet in run_piece(folder, job, tables, piece)]
    root = str(folder.root)
    for stage in range(1, job.plan.stages + 1):
        inbox: dict[int, list[Packet]] = {}
        for packet in packets:
            inbox.setdefault(packet.shard, []).append(packet)
        packets = []
        for shard, mine in sorted(inbox.items()):
            state, past = open_state(root, job, stage, shard, batch)
            packets += ShardRound(root, job, tables, stage, state, past).run(shard, mine)
    found = Outcome()
    for packet in packets:
        if packet.kind == "heartbeats":
            found.told = json.loads(bytes(packet.blob))
        elif packet.kind == REJECTED:
            found.rejected += read_rejected(bytes(packet.blob))
        elif packet.kind.startswith("answer:"):
            found.answers.setdefault(packet.kind.removeprefix("answer:"), []).extend(unpacked(packet.blob))
    return found
