"""A keyed stage in one shard on Spark: state in, packets in, the executor's round, state and packets out.

State lies in Spark's state store as immutable chunks and one manifest per shard; a batch writes the chunks that are new
and removes those that are gone. A worker process keeps the executor of a shard it has just run; it may go on with it
when the store's manifest still carries the token it wrote, and otherwise restores from the store.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from penstock.physical.elements import Elements
from penstock.physical.executor import Port, Result, StageExecutor, cut
from penstock.physical.progress import SourceProgress
from penstock.runtime.spark.folder import Job, job_version, load_job
from penstock.runtime.spark.packets import (
    Packet,
    answer_packets,
    port_packets,
    progress_packet,
    read_elements,
    read_place,
    read_port,
    read_progress,
    rejected_packet,
    timings_packet,
)
from penstock.runtime.stopwatch import Stopwatch

#: Executors of shards this process ran last: (job folder, stage, shard) -> (token, executor, chunk ids stored).
_MOST_WARM = 64
_WARM: dict[tuple[str, int, int], tuple[str, StageExecutor, set[str]]] = {}


class ShardState(Protocol):
    """Where a shard's state lies between batches."""

    def manifest(self) -> dict[str, Any] | None:
        """What `save` was given in the batch before."""

    def chunk(self, name: str) -> pa.RecordBatch:
        """A live chunk."""

    def save(self, manifest: Mapping[str, Any], new: Mapping[str, pa.RecordBatch], gone: set[str]) -> None:
        """Leave `manifest`, and the chunks there were without `gone` and with `new`."""


class ShardRound:
    """A round of one shard of stage `stage` of the job in `root`."""

    def __init__(self, root: str, stage: int, state: ShardState) -> None:
        self._root = root
        self._stage = stage
        self._state = state
        self._watch = Stopwatch()

    def run(self, shard: int, packets: Iterable[Packet]) -> Iterator[Packet]:
        """One round of the shard: the packets that came for it in, those that leave it out."""
        job, tables = load_job(self._root, job_version(self._root))
        given: dict[Port, list[Packet]] = {}
        progress: dict[str, SourceProgress] = {}
        passing: list[Packet] = []
        for packet in packets:
            if packet.kind == "progress":
                for name, seen in read_progress(packet.blob).items():
                    progress[name] = progress.get(name, SourceProgress()).merge(seen)
                continue
            if packet.kind.startswith("port:"):
                port = read_port(packet.kind)
                if job.plan.steps[port[0]].stage == self._stage:
                    given.setdefault(port, []).append(packet)
                    continue
            passing.append(packet)
        # In the order of senders, whatever order the shuffle brought them in: row windows count by it.
        with self._watch.phase("exchange"):
            inputs = {
                port: [e for p in sorted(found, key=lambda p: read_place(p.kind)) for e in read_elements(p.blob)]
                for port, found in given.items()
            }
        with self._watch.phase("state"):
            executor, stored = self._executor(job, tables, shard)
        with self._watch.phase("operators"):
            result = executor.run(inputs, progress)
        with self._watch.phase("state"):
            self._save(shard, executor, stored)
            sizes = executor.state_sizes()
        yield from self._watch.through("exchange", self._packets(job, executor, shard, result, passing))
        told: dict[str, Any] = {"stage": self._stage, "shard": shard, "phases": self._watch.seconds}
        yield timings_packet(shard, told | {"seconds": executor.spent} | ({} if sizes is None else {"state": sizes}))

    def _packets(
        self, job: Job, executor: StageExecutor, shard: int, result: Result, passing: list[Packet]
    ) -> Iterator[Packet]:
        yield from passing
        for query, answers in result.answers.items():
            yield from answer_packets(shard, query, answers)
        if result.rejected:
            yield rejected_packet(shard, result.rejected)
        outbox: dict[tuple[int, Port], list[Elements]] = {}
        for port, batches in result.onward.items():
            for elements in batches:
                for target, part in cut(elements, result.edges[port], job.shards, shard):
                    outbox.setdefault((target, port), []).append(part)
        for (target, port), parts in outbox.items():
            yield from port_packets(target, port, parts, shard)
        if self._stage < job.plan.stages:
            yield progress_packet(shard, executor.progress)
        elif shard == 0:
            ended = all(p.ended for p in executor.progress.values()) and set(executor.progress) >= set(job.plan.sources)
            told = {"heartbeats": executor.heartbeats(), "sources": executor.source_heartbeats(), "ended": ended}
            yield Packet(shard, "heartbeats", json.dumps(told).encode())

    # -- state -------------------------------------------------------------------------------------------------

    def _executor(self, job: Job, tables: dict[str, Elements], shard: int) -> tuple[StageExecutor, set[str]]:
        manifest = self._state.manifest()
        # Taken out: an attempt that fails half way must not be gone on with.
        warm = _WARM.pop((self._root, self._stage, shard), None)
        if warm is not None and manifest is not None and warm[0] == manifest["token"]:
            return warm[1], warm[2]
        executor = StageExecutor(job.plan, self._stage, shard, job.shards, tables, job.drain)
        stored: set[str] = set()
        if manifest is not None:
            executor.restore_marks(manifest["marks"])
            for name, synopsis in executor.synopses().items():
                ids = manifest["chunks"][name]
                synopsis.restore(manifest["synopses"][name], {i: self._state.chunk(f"{name}.{i}") for i in ids})
                stored |= {f"{name}.{i}" for i in ids}
        return executor, stored

    def _save(self, shard: int, executor: StageExecutor, stored: set[str]) -> None:
        token = uuid.uuid4().hex
        manifest: dict[str, Any] = {"token": token, "marks": executor.marks(), "synopses": {}, "chunks": {}}
        live: set[str] = set()
        new: dict[str, pa.RecordBatch] = {}
        for name, synopsis in executor.synopses().items():
            manifest["synopses"][name], chunks = synopsis.snapshot()
            manifest["chunks"][name] = list(chunks)
            for i, batch in chunks.items():
                chunk = f"{name}.{i}"
                live.add(chunk)
                if chunk not in stored:
                    new[chunk] = batch
        self._state.save(manifest, new, stored - live)
        while len(_WARM) >= _MOST_WARM:
            del _WARM[next(iter(_WARM))]
        _WARM[self._root, self._stage, shard] = (token, executor, live)
