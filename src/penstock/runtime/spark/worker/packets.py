"""Packets between the stages of a job: rows (shard, kind, blob), the blob being Arrow or JSON.

`port:<step>:<port>:<sender>:<number>` carries elements to an input of a step: sender is the ingest task or the shard
that sends them and number counts its packets, so that the receiver can put them in order, which Spark's shuffle does
not keep. `answer:<query>` carries the final rows of a query, `progress` the progress of the sources. Only the driver
receives `heartbeats`, the progress of every query, `round`, the round of input, `rejected`, the updates that a relation
could not apply, and `timings`, the measurements of a task, on which no result depends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.physical.elements import Elements, decode, encoded
from penstock.physical.execution.executor import Port
from penstock.physical.execution.progress import Progress, SourceProgress
from penstock.physical.kernels.run_length import run_length_decoded, run_length_encoded
from penstock.physical.operators import Rejection

SCHEMA = pa.schema([pa.field("shard", pa.int32()), pa.field("kind", pa.string()), pa.field("blob", pa.binary())])
SPARK_SCHEMA = "shard int, kind string, blob binary"

REJECTED = "rejected"
TIMINGS = "timings"

#: Approximate maximum bytes of a blob of elements; Arrow's offsets end at 2 GiB.
_LARGEST = 64 * 2**20
#: Packets of up to this many bytes in total travel as one record batch.
_TOGETHER = 2**20


@dataclass(frozen=True)
class Packet:
    """One packet. blob: bytes, or a view of Arrow's memory."""

    shard: int
    kind: str
    blob: bytes | pa.Buffer


def port_packets(shard: int, port: Port, batches: Sequence[Elements], sender: int) -> Iterator[Packet]:
    """Yield elements for an input of a step in `shard`. sender: the ingest task or shard that sends them."""
    packets = _element_packets(shard, f"port:{port[0]}:{port[1]}:{sender}", batches)
    return (replace(packet, kind=f"{packet.kind}:{number}") for number, packet in enumerate(packets))


def answer_packets(shard: int, query: str, batches: Sequence[Elements]) -> Iterator[Packet]:
    # The ends of an answer's elements are not used.
    yield from _element_packets(shard, f"answer:{query}", batches, ends=False)


def _element_packets(shard: int, kind: str, batches: Sequence[Elements], ends: bool = True) -> Iterator[Packet]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for elements in batches:
        batch = elements.to_batch(ends)
        if ends:
            batch = run_length_encoded(batch)
        # A stream has one schema; signs may be absent from batch to batch.
        if waiting and (size > _LARGEST or batch.schema != waiting[0].schema):
            yield Packet(shard, kind, encoded(waiting))
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield Packet(shard, kind, encoded(waiting))


def progress_packet(shard: int, progress: Progress) -> Packet:
    seen = {name: p.as_list() for name, p in progress.items()}
    return Packet(shard, "progress", json.dumps(seen).encode())


def round_packet(round_: str) -> Packet:
    return Packet(0, "round", round_.encode())


def rejected_packet(shard: int, rejected: Sequence[Rejection]) -> Packet:
    return Packet(shard, REJECTED, json.dumps([asdict(r) for r in rejected]).encode())


def timings_packet(shard: int, report: Mapping[str, Any]) -> Packet:
    """Return the packet with a task's report (`runtime/watching/recorder.py`)."""
    return Packet(shard, TIMINGS, json.dumps(report).encode())


def read_rejected(blob: bytes) -> list[Rejection]:
    return [Rejection(**fields) for fields in json.loads(blob)]


def read_progress(blob: bytes | pa.Buffer) -> dict[str, SourceProgress]:
    return {name: SourceProgress(*values) for name, values in json.loads(bytes(blob)).items()}


def read_elements(blob: bytes | pa.Buffer) -> list[Elements]:
    return as_elements(decode(blob))


def as_elements(batches: Iterable[pa.RecordBatch]) -> list[Elements]:
    """Decode the elements sent as `batches`."""
    return [Elements.from_batch(run_length_decoded(batch)) for batch in batches]


def read_port(kind: str) -> Port:
    _, step, port, _, _ = kind.split(":")
    return int(step), int(port)


def read_place(kind: str) -> tuple[int, int]:
    """Return (sender, number) of a packet for a port: the order in which the packets of one port are processed."""
    _, _, _, sender, number = kind.split(":")
    return int(sender), int(number)


def as_batches(packets: Iterable[Packet], keys: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield packets as record batches of `SCHEMA`: small ones together, a large one alone, so that no batch exceeds
    Arrow's offsets. keys: the value for each shard in the `shard` column.
    """
    waiting: list[Packet] = []
    size = 0
    for packet in packets:
        if waiting and size + len(packet.blob) > _TOGETHER:
            yield _batch(waiting, keys)
            waiting, size = [], 0
        waiting.append(packet)
        size += len(packet.blob)
    if waiting:
        yield _batch(waiting, keys)


def _batch(packets: Sequence[Packet], keys: Sequence[int]) -> pa.RecordBatch:
    blobs = [packet.blob for packet in packets]
    blob = _one_blob(blobs[0]) if len(blobs) == 1 else pa.array(map(bytes, blobs), pa.binary())
    arrays = [pa.array([keys[p.shard] for p in packets], pa.int32()), pa.array([p.kind for p in packets]), blob]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _one_blob(blob: bytes | pa.Buffer) -> pa.Array:
    """Return a binary array of one value, sharing its memory."""
    offsets = pa.array([0, len(blob)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(blob)])


def by_shard(shards: int, progress: Mapping[str, SourceProgress]) -> Iterator[Packet]:
    """Yield the same progress for every shard."""
    return (progress_packet(shard, progress) for shard in range(shards))
