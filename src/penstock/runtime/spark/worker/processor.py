"""A keyed stage as a stateful processor of Spark, with state in Spark's own store.

Used where the checkpoint is the user's own (a result returned as a streaming DataFrame), and for runs with `SET
state_store = 'spark'`. Spark also loads this module in the driver, only to list the state variables, so it imports the
operators only where it runs them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle, ValueState

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.stateful_processor import TimerValues

    from penstock.runtime.state.shard_manifest import ShardManifest


class KeyedStage(StatefulProcessor):
    """The processor of stage `stage` of the job in `root`. State: one manifest and any number of chunks per shard."""

    def __init__(self, root: str, digest: str, stage: int) -> None:
        self._root = root
        self._digest = digest
        self._stage = stage

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState("manifest", "json string")
        self._chunks = handle.getMapState("chunks", "id string", "blob binary")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int, ...],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        from penstock.runtime.spark.worker.job_files import load_job
        from penstock.runtime.spark.worker.packets import Packet, encode_kind, read_kind
        from penstock.runtime.spark.worker.stage import ShardRound

        job, tables = load_job(self._root, self._digest)
        shard = job.keys.index(int(key[0]))
        packets = (Packet(shard, read_kind(row["kind"]), bytes(row["blob"])) for row in rows)
        round_ = ShardRound(self._root, job, tables, self._stage, _StoreState(self._manifest, self._chunks))
        for packet in round_.run(shard, packets):
            yield Row(shard=job.keys[packet.shard], kind=encode_kind(packet.kind), blob=bytes(packet.blob))


class _StoreState:
    """`stage.ShardState` over Spark's state variables."""

    def __init__(self, manifest: ValueState, chunks: MapState) -> None:
        self._manifest = manifest
        self._chunks = chunks

    @property
    def token(self) -> str | None:
        manifest = self.manifest()
        return None if manifest is None else manifest.token

    def manifest(self) -> ShardManifest | None:
        from penstock.runtime.state.shard_manifest import ShardManifest

        value = self._manifest.get()
        return ShardManifest.from_json(json.loads(value[0])) if value else None

    def chunk(self, name: str) -> pa.RecordBatch:
        from penstock.physical.elements import decode

        (batch,) = decode(bytes(self._chunks.getValue((name,))[0]))
        return batch

    def save(self, manifest: ShardManifest, new_chunks: Mapping[str, pa.RecordBatch], dropped_chunks: set[str]) -> None:
        from penstock.physical.elements import encode

        for name, batch in new_chunks.items():
            self._chunks.updateValue((name,), (encode([batch]),))
        for name in dropped_chunks:
            self._chunks.removeKey((name,))
        self._manifest.update((json.dumps(manifest.as_json()),))
