"""Ranges of offsets: reading the same range always gives the same records.

Contract: only committed records, in the order (partition, offset); a range may have fewer records than offsets, because
compaction and transactions leave gaps. Records that the broker no longer has raise PenstockError P0413, or are skipped
where the declaration allows it. The client returns records one by one; that is the one loop over rows here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.kafka.client import (
    PATIENCE,
    library,
    make,
    refused,
    resolved,
    unreachable,
)
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicPartition

Int64s = npt.NDArray[np.int64]
#: Partition -> [from, to, ...].
Ranges = Mapping[str, list[int]]
#: Names and values.
Headers = list[tuple[str, bytes | None]]

_AT_ONCE = 10_000
_LOOK_SECONDS = 0.2


class Record(Protocol):
    """A message of the client: a record of an assigned partition, or an error."""

    def error(self) -> KafkaError | None: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...


class RecordConsumer(Protocol):
    """What is used of the client's consumer."""

    def assign(self, partitions: list[TopicPartition], /) -> None: ...
    def unassign(self) -> None: ...
    def incremental_assign(self, partitions: list[TopicPartition], /) -> None: ...
    def incremental_unassign(self, partitions: list[TopicPartition], /) -> None: ...
    def consume(self, most: int, timeout: float, /) -> Sequence[Record]: ...
    def get_watermark_offsets(self, partition: TopicPartition, /, *, timeout: float) -> tuple[int, int]: ...


#: Consumers of this process, by their settings: connecting takes longer than reading a small round.
_OPEN: dict[tuple[tuple[str, str], ...], RecordConsumer] = {}


@dataclass(frozen=True)
class TopicRecords:
    """Columns with one entry per record: `partition`, `offset`, `timestamp` (milliseconds since 1970, -1 for none);
    `values`, `keys`: bytes; `headers`: the pairs of each record, if they were requested.
    """

    partition: Int64s
    offset: Int64s
    timestamp: Int64s
    values: pa.Array
    keys: pa.Array
    headers: list[Headers | None] | None = None

    def __len__(self) -> int:
        return len(self.offset)


@dataclass
class Gathered:
    """The records received so far, in the order of reception."""

    with_headers: bool
    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    timestamp: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[Headers | None] = field(default_factory=list)

    def add(self, messages: Sequence[Record]) -> None:
        self.partition += [m.partition() for m in messages]
        self.offset += [m.offset() for m in messages]
        self.timestamp += [m.timestamp()[1] if m.timestamp()[0] else -1 for m in messages]
        self.values += [m.value() for m in messages]
        self.keys += [m.key() for m in messages]
        if self.with_headers:
            self.headers += [m.headers() for m in messages]

    def records(self, ranges: Ranges) -> TopicRecords:
        """Return the records inside their ranges, in order."""
        partition, offset = np.array(self.partition, np.int64), np.array(self.offset, np.int64)
        ends = np.zeros(max([int(p) for p in ranges], default=0) + 1, np.int64)
        for p, bounds in ranges.items():
            ends[int(p)] = bounds[1]
        order = np.lexsort((offset, partition))
        order = order[offset[order] < ends[partition[order]]]
        indices = pa.array(order)
        headers = [self.headers[i] for i in order.tolist()] if self.with_headers else None
        values, keys = (pa.array(v, pa.large_binary()).take(indices) for v in (self.values, self.keys))
        return TopicRecords(
            partition[order], offset[order], np.array(self.timestamp, np.int64)[order], values, keys, headers
        )


@dataclass(frozen=True)
class TopicReader:
    """Read ranges of one topic.

    `lost`: `fail`, or `earliest` to continue with what still exists; `patience`: seconds for which a broker may be
    unavailable.
    """

    owner: str
    topic: str
    written: Mapping[str, str]
    patience: float
    lost: str = "fail"

    def read(self, ranges: Ranges, headers: bool) -> TopicRecords:
        """Read the records of `ranges`.

        Raises:
            PenstockError: P0411 and P0413.
        """
        gathered = Gathered(headers)
        stops = {int(p): bounds[1] for p, bounds in ranges.items() if bounds[0] < bounds[1]}
        consumer = self._consumer()
        try:
            consumer.assign([self._topic_partition(p, ranges[str(p)][0]) for p in stops])
            self._fill(consumer, {p: ranges[str(p)][0] for p in stops}, stops, gathered)
        except library().KafkaException as error:
            raise unreachable(self.owner, self.written["bootstrap.servers"], error) from None
        finally:
            consumer.unassign()
        return gathered.records(ranges)

    def _fill(
        self, consumer: RecordConsumer, first: Mapping[int, int], stops: dict[int, int], gathered: Gathered
    ) -> None:
        last_answer = time.monotonic()
        next_offsets = dict(first)
        reason: object = "it is silent"
        while stops:
            # The call returns when it has that many: requesting more than there are would wait in vain.
            remaining = sum(stops[p] - next_offsets[p] for p in stops)
            messages = consumer.consume(max(1, min(_AT_ONCE, remaining)), _LOOK_SECONDS)
            records = [m for m in messages if m.error() is None]
            if records:
                last_answer = time.monotonic()
                gathered.add(records)
                # The last one of a partition gives the position reached.
                next_offsets |= {m.partition(): m.offset() + 1 for m in records}
                self._finish(consumer, stops, next_offsets)
            for message in messages:
                error = message.error()
                if error is not None:
                    reason = self._handle_error(consumer, stops, message, error) or reason
            if time.monotonic() - last_answer > self.patience:
                raise unreachable(self.owner, self.written["bootstrap.servers"], reason)

    def _finish(self, consumer: RecordConsumer, stops: dict[int, int], next_offsets: Mapping[int, int]) -> None:
        finished = [p for p, offset in next_offsets.items() if p in stops and offset >= stops[p]]
        if finished:
            consumer.incremental_unassign([self._topic_partition(p) for p in finished])
        for p in finished:
            del stops[p]

    def _handle_error(
        self, consumer: RecordConsumer, stops: dict[int, int], message: Record, error: KafkaError
    ) -> object:
        """Handle a message that is an error; return the error to report if retrying is useless."""
        partition = message.partition()
        if error.name() == "_PARTITION_EOF":
            self._finish(consumer, stops, {partition: message.offset()})
            return None
        if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            self._skip_gap(consumer, stops, partition)
            return None
        if refused(error):
            raise unreachable(self.owner, self.written["bootstrap.servers"], error)
        return error

    def _skip_gap(self, consumer: RecordConsumer, stops: dict[int, int], partition: int) -> None:
        if partition not in stops:
            return
        if self.lost != "earliest":
            raise lost_records(self.owner, self.topic, str(partition))
        low, _ = consumer.get_watermark_offsets(self._topic_partition(partition), timeout=PATIENCE)
        consumer.incremental_unassign([self._topic_partition(partition)])
        if low >= stops[partition]:
            del stops[partition]
        else:
            consumer.incremental_assign([self._topic_partition(partition, low)])

    def _topic_partition(self, partition: int, offset: int = 0) -> TopicPartition:
        topic_partition: TopicPartition = library().TopicPartition(self.topic, partition, offset)
        return topic_partition

    def _consumer(self) -> RecordConsumer:
        key = tuple(sorted(self.written.items()))
        if key not in _OPEN:
            enforced = {
                "group.id": "penstock",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
            config = {
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": "50",
                **resolved(self.written, self.owner),
                **enforced,
            }
            _OPEN[key] = make("Consumer", config, self.owner)
        return _OPEN[key]


def lost_records(owner: str, topic: str, partition: str) -> PenstockError:
    """Return the error for a gap between what was read and what the broker still has."""
    return PenstockError(
        "P0413",
        f"{owner}: Kafka no longer has the next records of partition {partition} of topic {topic}",
        hint="its retention was shorter than the run's pause, the topic was created again, or starting is beyond "
        "its end: on_data_loss 'earliest' continues with the records that remain",
    )
