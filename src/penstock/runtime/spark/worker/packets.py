"""Packets between the stages of a job: rows (shard, kind, blob), the blob being Arrow or JSON.

A kind is `ChannelRows`, an `AnswerOf`, `FewOfMany` or a `Signal`; `encode_kind` and `read_kind` alone know how it is
written in the `kind` column. Only the driver receives the signals other than progress, decisions
and instants that have been reached.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.physical.decisions import Decisions
from penstock.physical.elements import Elements, concat_arrays, decode, encoded
from penstock.physical.execution.progress import Progress, SourceProgress
from penstock.physical.kernels.run_length import run_length_decoded, run_length_encoded
from penstock.physical.operators import Rejection
from penstock.physical.plan.plan import Channel, Exchange
from penstock.runtime.monitoring.reports import IngestReport, ShardReport, report_from_json
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.storage.documents import Document

SCHEMA = pa.schema([pa.field("shard", pa.int32()), pa.field("kind", pa.string()), pa.field("blob", pa.binary())])
SPARK_SCHEMA = "shard int, kind string, blob binary"

#: Approximate maximum bytes of a blob of elements; Arrow's offsets end at 2 GiB.
_LARGEST = 64 * 2**20
#: Packets of up to this many bytes in total travel as one record batch.
_TOGETHER = 2**20


@dataclass(frozen=True)
class ChannelRows:
    """The kind of packets that carry elements of a step to the later stages that read them.

    Args:
        sender: the ingest task or shard that sends them.
        number: counts the packets of the sender in this channel. Spark's shuffle does not keep their order.
    """

    channel: Channel
    sender: int
    number: int


@dataclass(frozen=True)
class AnswerOf:
    """The kind of packets that carry final rows of a query."""

    query: str


@dataclass(frozen=True)
class FewOfMany:
    """The kind of packets that carry few final rows of each of many queries, whose columns have the same types."""


class Signal(Enum):
    """The kinds of packets that carry no elements."""

    #: The progress of sources.
    PROGRESS = "progress"
    #: What was decided before the round.
    DECIDED = "decided"
    #: The number of the round of input.
    ROUND = "round"
    #: By query that goes on in later rounds, the instant up to which a shard has emitted.
    REACHED = "reached"
    #: The heartbeats of queries and sources.
    HEARTBEATS = "heartbeats"
    #: Updates that a relation could not apply.
    REJECTED = "rejected"
    #: The queries whose steps failed, with their errors.
    FAILED = "failed"
    #: Measurements of a task, on which no result depends.
    TIMINGS = "timings"


PacketKind = ChannelRows | AnswerOf | FewOfMany | Signal
_ROWS, _ANSWER, _FEW_OF_MANY = "rows", "answer", "answers"
#: The key, in the metadata of a packet of many queries, of the number of rows of each query, in their order.
_WHOSE = b"whose"
_ANYWHERE, _EVERYWHERE = "any", "all"


def encode_kind(kind: PacketKind) -> str:
    """Return the text of a kind in the `kind` column."""
    match kind:
        case ChannelRows(channel, sender, number):
            return f"{_ROWS}:{channel.step}:{_exchange_text(channel.exchange)}:{sender}:{number}"
        case AnswerOf(query):
            return f"{_ANSWER}:{query}"
        case FewOfMany():
            return _FEW_OF_MANY
        case Signal():
            return kind.value


def read_kind(text: str) -> PacketKind:
    """Return the kind of a text in the `kind` column."""
    head, _, content = text.partition(":")
    if head == _ANSWER:
        return AnswerOf(content)
    if head == _FEW_OF_MANY:
        return FewOfMany()
    if head != _ROWS:
        return Signal(text)
    step, exchange, sender, number = content.split(":")
    return ChannelRows(Channel(int(step), _read_exchange(exchange)), int(sender), int(number))


def _exchange_text(exchange: Exchange) -> str:
    """Return `any` for rows without a key, else the columns of the key, and `all` behind them for copies."""
    key = _ANYWHERE if exchange.key is None else ",".join(map(str, exchange.key))
    return f"{key}/{_EVERYWHERE}" if exchange.everywhere else key


def _read_exchange(text: str) -> Exchange:
    key, _, copies = text.partition("/")
    columns = None if key == _ANYWHERE else tuple(int(column) for column in key.split(",") if column)
    return Exchange(columns, copies == _EVERYWHERE)


@dataclass(frozen=True)
class Packet:
    """One packet. blob: bytes, or a view of Arrow's memory."""

    shard: int
    kind: PacketKind
    blob: bytes | pa.Buffer


@dataclass(frozen=True)
class Heartbeats:
    """The progress of a job after a round.

    Args:
        queries: by query, its heartbeat in ticks.
        sources: by source, its heartbeat in ticks.
        ended: whether all sources have ended.
    """

    queries: dict[str, int]
    sources: dict[str, int]
    ended: bool


def channel_packets(shard: int, channel: Channel, batches: Sequence[Elements], sender: int) -> Iterator[Packet]:
    """Yield elements of a channel for `shard`. sender: the ingest task or shard that sends them."""
    blobs = _element_blobs(batches)
    return (Packet(shard, ChannelRows(channel, sender, number), blob) for number, blob in enumerate(blobs))


def answer_packets(shard: int, query: str, batches: Sequence[Elements]) -> Iterator[Packet]:
    # The ends of an answer's elements are not used.
    yield from (Packet(shard, AnswerOf(query), blob) for blob in _element_blobs(batches, ends=False))


def packet_of_many(shard: int, answers: Mapping[str, Sequence[Elements]]) -> Packet:
    """Return one packet with rows of several queries. All elements have the same types of columns, and either all of
    them have signs or none."""
    parts = [part for pieces in answers.values() for part in pieces]
    columns = [concat_arrays([part.columns[i] for part in parts]) for i in range(len(parts[0].columns))]
    arrays: list[pa.Array] = [*columns, pa.array(np.concatenate([part.ts for part in parts]))]
    names = [*(f"c{i}" for i in range(len(columns))), "ts"]
    if parts[0].sign is not None:
        arrays.append(pa.array(np.concatenate([part.signs for part in parts])))
        names.append("sign")
    whose = [[query, sum(map(len, pieces))] for query, pieces in answers.items()]
    schema = pa.schema([pa.field(n, a.type) for n, a in zip(names, arrays, strict=True)], {_WHOSE: json.dumps(whose)})
    return Packet(shard, FewOfMany(), encoded([pa.RecordBatch.from_arrays(arrays, schema=schema)]))


def read_packet_of_many(blob: bytes | pa.Buffer) -> Iterator[tuple[str, Elements]]:
    """Yield the queries of such a packet and the rows of each, which share the memory of the blob."""
    (batch,) = decode(blob)
    elements = Elements.from_batch(batch)
    start = 0
    for query, rows in json.loads(batch.schema.metadata[_WHOSE]):
        yield query, elements.slice(start, start + rows)
        start += rows


def _element_blobs(batches: Sequence[Elements], ends: bool = True) -> Iterator[bytes | pa.Buffer]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for elements in batches:
        batch = elements.to_batch(ends)
        if ends:
            batch = run_length_encoded(batch)
        # A stream has one schema; signs may be absent from batch to batch.
        if waiting and (size > _LARGEST or batch.schema != waiting[0].schema):
            yield encoded(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield encoded(waiting)


def progress_packet(shard: int, progress: Progress) -> Packet:
    seen = {name: p.as_list() for name, p in progress.items()}
    return Packet(shard, Signal.PROGRESS, json.dumps(seen).encode())


def decided_packets(shards: int, decided: Document) -> Iterator[Packet]:
    """Yield what was decided before the round (`Decisions.as_json`), for every shard."""
    blob = json.dumps(decided).encode()
    return (Packet(shard, Signal.DECIDED, blob) for shard in range(shards))


def read_decided(blob: bytes | pa.Buffer) -> Decisions:
    return Decisions.from_json(json.loads(bytes(blob)))


def round_packet(round_: str) -> Packet:
    return Packet(0, Signal.ROUND, round_.encode())


def rejected_packet(shard: int, rejected: Sequence[Rejection]) -> Packet:
    return Packet(shard, Signal.REJECTED, json.dumps([asdict(r) for r in rejected]).encode())


def failed_packet(shard: int, failures: Mapping[str, PenstockError]) -> Packet:
    content = {query: asdict(QueryFailure.of(error)) for query, error in failures.items()}
    return Packet(shard, Signal.FAILED, json.dumps(content).encode())


def read_failed(blob: bytes | pa.Buffer) -> dict[str, QueryFailure]:
    return {query: QueryFailure(**fields) for query, fields in json.loads(bytes(blob)).items()}


def timings_packet(shard: int, report: IngestReport | ShardReport) -> Packet:
    """Return the packet with a task's report."""
    return Packet(shard, Signal.TIMINGS, json.dumps(report.as_json()).encode())


def read_timings(blob: bytes | pa.Buffer) -> IngestReport | ShardReport:
    return report_from_json(json.loads(bytes(blob)))


def heartbeats_packet(shard: int, heartbeats: Heartbeats) -> Packet:
    # `asdict` copies the entries of a thousand queries one by one.
    return Packet(shard, Signal.HEARTBEATS, json.dumps(vars(heartbeats)).encode())


def read_heartbeats(blob: bytes | pa.Buffer) -> Heartbeats:
    return Heartbeats(**json.loads(bytes(blob)))


def reached_packet(shard: int, reached: Mapping[str, int]) -> Packet:
    return Packet(shard, Signal.REACHED, json.dumps(dict(reached)).encode())


def read_reached(blob: bytes | pa.Buffer) -> dict[str, int]:
    return {query: int(instant) for query, instant in json.loads(bytes(blob)).items()}


def read_rejected(blob: bytes) -> list[Rejection]:
    return [Rejection(**fields) for fields in json.loads(blob)]


def read_progress(blob: bytes | pa.Buffer) -> dict[str, SourceProgress]:
    return {name: SourceProgress.from_list(values) for name, values in json.loads(bytes(blob)).items()}


def read_elements(blob: bytes | pa.Buffer) -> list[Elements]:
    return as_elements(decode(blob))


def as_elements(batches: Iterable[pa.RecordBatch]) -> list[Elements]:
    """Decode the elements sent as `batches`."""
    return [Elements.from_batch(run_length_decoded(batch)) for batch in batches]


def of_one_shard(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield the packets by shard, in the order of shards: the number in their column, and the packets as they came."""
    by_shard: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        column = batch.column("shard")
        shards = column.unique().to_pylist()
        for shard in shards:
            rows = batch if len(shards) == 1 else batch.filter(pc.equal(column, shard))
            by_shard.setdefault(shard, []).append(rows)
    yield from sorted(by_shard.items())


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
    arrays = [
        pa.array([keys[p.shard] for p in packets], pa.int32()),
        pa.array([encode_kind(p.kind) for p in packets]),
        blob,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _one_blob(blob: bytes | pa.Buffer) -> pa.Array:
    """Return a binary array of one value, sharing its memory."""
    offsets = pa.array([0, len(blob)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(blob)])


def by_shard(shards: int, progress: Mapping[str, SourceProgress]) -> Iterator[Packet]:
    """Yield the same progress for every shard."""
    return (progress_packet(shard, progress) for shard in range(shards))
