"""A keyed stage in one shard on Spark: state in, packets in, the executor's round, state and packets out.

State lies in Spark's state store as immutable chunks and one manifest per shard; a batch writes the chunks that are new
and removes those that are gone. A worker process keeps the executor of a shard it has just run; it may go on with it
when the store's manifest still carries the token it wrote, and otherwise restores from the store.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, ValueState

from penstock.physical.elements import Elements, decode, encode
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
)

#: Executors of shards this process ran last: (job folder, stage, shard) -> (token, executor, chunk ids stored).
_MOST_WARM = 64
_WARM: dict[tuple[str, int, int], tuple[str, StageExecutor, set[str]]] = {}


class ShardRound:
    """A round of one shard of stage `stage` of the job in `root`, over the state that Spark gives."""

    def __init__(self, root: str, stage: int, manifest: ValueState, chunks: MapState) -> None:
        self._root = root
        self._stage = stage
        self._manifest = manifest
        self._chunks = chunks

    def run(self, key: int, rows: Iterable[Row]) -> Iterator[Row]:
        """One round of the shard that `key` stands for."""
        job, tables = load_job(self._root, job_version(self._root))
        shard = job.keys.index(key)
        given: dict[Port, list[tuple[tuple[int, int], bytes]]] = {}
        progress: dict[str, SourceProgress] = {}
        passing: list[Packet] = []
        for row in rows:
            blob = bytes(row["blob"])
            if row["kind"] == "progress":
                for name, seen in read_progress(blob).items():
                    progress[name] = progress.get(name, SourceProgress()).merge(seen)
                continue
            if row["kind"].startswith("port:"):
                port = read_port(row["kind"])
                if job.plan.steps[port[0]].stage == self._stage:
                    given.setdefault(port, []).append((read_place(row["kind"]), blob))
                    continue
            passing.append(Packet(shard, row["kind"], blob))
        # In the order of senders, whatever order the shuffle brought them in: row windows count by it.
        inputs = {
            port: [e for _, blob in sorted(packets, key=lambda packet: packet[0]) for e in read_elements(blob)]
            for port, packets in given.items()
        }
        executor, stored = self._executor(job, tables, shard)
        result = executor.run(inputs, progress)
        self._save(shard, executor, stored)
        for packet in self._packets(job, executor, shard, result, passing):
            yield Row(shard=job.keys[packet.shard], kind=packet.kind, blob=packet.blob)

    def _packets(
        self, job: Job, executor: StageExecutor, shard: int, result: Result, passing: list[Packet]
    ) -> Iterator[Packet]:
        yield from passing
        for query, answers in result.answers.items():
            yield from answer_packets(shard, query, answers)
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
            told = {"heartbeats": executor.heartbeats(), "ended": ended}
            yield Packet(shard, "heartbeats", json.dumps(told).encode())

    # -- state -------------------------------------------------------------------------------------------------

    def _executor(self, job: Job, tables: dict[str, Elements], shard: int) -> tuple[StageExecutor, set[str]]:
        found = self._manifest.get()
        manifest = json.loads(found[0]) if found else None
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
                synopsis.restore(manifest["synopses"][name], {i: self._chunk(f"{name}.{i}") for i in ids})
                stored |= {f"{name}.{i}" for i in ids}
        return executor, stored

    def _chunk(self, name: str) -> Any:
        (batch,) = decode(bytes(self._chunks.getValue((name,))[0]))
        return batch

    def _save(self, shard: int, executor: StageExecutor, stored: set[str]) -> None:
        token = uuid.uuid4().hex
        manifest: dict[str, Any] = {"token": token, "marks": executor.marks(), "synopses": {}, "chunks": {}}
        live: set[str] = set()
        for name, synopsis in executor.synopses().items():
            manifest["synopses"][name], chunks = synopsis.snapshot()
            manifest["chunks"][name] = list(chunks)
            for i, batch in chunks.items():
                chunk = f"{name}.{i}"
                live.add(chunk)
                if chunk not in stored:
                    self._chunks.updateValue((chunk,), (encode([batch]),))
        for chunk in stored - live:
            self._chunks.removeKey((chunk,))
        self._manifest.update((json.dumps(manifest),))
        while len(_WARM) >= _MOST_WARM:
            del _WARM[next(iter(_WARM))]
        _WARM[self._root, self._stage, shard] = (token, executor, live)
