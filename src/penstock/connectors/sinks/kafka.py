"""KAFKA: results as records of a topic, exactly once for consumers of committed records.

Contract: a batch is one transaction, which also commits, as the offset of a consumer group without consumers, the
number of the next batch. After a restart the run, identified by its checkpoint, finds there what is committed and skips
it; a transaction that a crash left open is aborted first. This holds as long as the broker keeps offsets of idle groups
(`offsets.retention.minutes`); after that, the current batch may be written a second time. No record of a topic is ever
removed: a new run appends its result. A row whose record is larger than the client sends or the topic takes is refused
alone; in the format arrow, where a record holds many rows, it ends the run.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.connectors.contract import Rejected, Sink
from penstock.connectors.kafka.client import (
    PATIENCE,
    PATIENCE_OPTION,
    TOPIC,
    as_kafka_error,
    client_errors,
    library,
    make,
    resolved,
    settings,
)
from penstock.connectors.kafka.encode import OPTIONS, encoder
from penstock.connectors.kafka.offsets import Topic, Unanswered
from penstock.connectors.options import Options
from penstock.connectors.sinks.tables import stored_schema
from penstock.errors import PenstockError
from penstock.expressions.values.shown import shown_row

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

#: Seconds between two checks whether the queue of the client has room again.
_ROOM_SECONDS = 0.5
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"
_LIMITS = "raise kafka.message.max.bytes and the topic's max.message.bytes, or make rows smaller"
#: Errors that a retry cannot cure.
_HOPELESS = (
    _TOO_LARGE,
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "_AUTHENTICATION",
    "SASL_AUTHENTICATION_FAILED",
    "_UNSUPPORTED_FEATURE",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "INVALID_RECORD",
)


class KafkaSink(Sink):
    OPTIONS = OPTIONS
    REFUSED_HINT: ClassVar[str] = f"{_LIMITS}; sources declared ON ERROR DEAD LETTER let a run go on"

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        options = Options(f"INTO KAFKA of {query.name}", query.sink.options)
        options.only(self.OPTIONS)
        self._options = options
        self._owner = f"query {query.name}"
        self._topic = options.needed(TOPIC)
        self._settings = settings(options)
        self._patience = options.value(PATIENCE_OPTION)
        self._types = {field.name: field.type for field in stored_schema(query)}
        self._encoder = encoder(query, self._types, options)
        self._producer: Producer | None = None
        self._group: object = None
        self._next_batch = 0
        self._refusals: list[KafkaError] = []
        #: Reasons of the rows of the present batch that are refused, by position.
        self._refused: dict[int, str] = {}
        #: Whether every record is sent alone. The broker refuses whole requests; so it names the records that are too
        #: large, and none fails because of the others in its request.
        self._sends_alone = False

    @property
    def place(self) -> str:
        return f"topic {self._topic} at {self._settings['bootstrap.servers']}"

    def open(self, resume: bool, overwrite: bool) -> None:
        self.run = self.run or uuid.uuid4().hex
        topic = Topic(self._owner, self._topic, self._settings)
        try:
            topic.partitions()
        except Unanswered as unanswered:
            raise topic.unanswered(unanswered) from None
        deadline = time.monotonic() + self._patience
        while not self._connected(deadline):
            pass

    def write(self, batch: int, table: pa.Table) -> None:
        if not table.num_rows:
            return
        deadline = time.monotonic() + self._patience
        self._refused = {}
        while batch >= self._next_batch:
            try:
                self._transaction(batch, table)
                return
            except library().KafkaException as error:
                if self._send_alone_if_too_large():
                    deadline = time.monotonic() + self._patience
                else:
                    self._pause_or_raise(error, deadline)
                while not self._connected(deadline):
                    pass

    def close(self) -> None:
        if self._producer is not None:
            # Its queue belongs to a transaction that it will not finish.
            self._producer.purge()
        self._producer = None

    @property
    def _connected_producer(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def _transaction(self, batch: int, table: pa.Table) -> None:
        self._refusals.clear()
        with client_errors():
            self._connected_producer.begin_transaction()
        columns = [pa.field(name, type_) for name, type_ in self._types.items()]
        for row, message in enumerate(self._encoder.messages(table.cast(pa.schema(columns)))):
            if row not in self._refused:
                self._send(row, *message)
        self._flush()
        if self._refused and not self._refusals:
            reasons = sorted(self._refused.items())
            self.refuse(
                batch, [Rejected(self.place, None, shown_row(table, p)[:1000], reason) for p, reason in reasons]
            )
        next_offset = [library().TopicPartition(self._topic, 0, batch + 1)]
        self._call("send_offsets_to_transaction", next_offset, self._group, PATIENCE)
        self._call("commit_transaction", PATIENCE)
        self._next_batch = batch + 1

    def _call(self, name: str, *arguments: object) -> None:
        """Call the producer.

        A call that was active when the broker died may wait for ever, whatever its own limit. It is abandoned with its
        producer, which the next producer fences.

        Raises:
            KafkaException: the call failed or did not return in time.
        """
        outcome: queue.Queue[BaseException | None] = queue.Queue()
        call = getattr(self._producer, name)

        def run() -> None:
            try:
                call(*arguments)
                outcome.put(None)
            except BaseException as error:
                outcome.put(error)

        threading.Thread(target=run, name="penstock-kafka", daemon=True).start()
        try:
            error = outcome.get(timeout=PATIENCE + 2)
        except queue.Empty:
            raise _timed_out() from None
        if error is not None:
            with client_errors():
                raise error

    def _flush(self) -> None:
        """Wait until the broker has acknowledged all records.

        Raises:
            KafkaException: it accepts none any more.
        """
        queued, last_progress = len(self._connected_producer), time.monotonic()
        while queued:
            with client_errors():
                remaining = self._connected_producer.flush(_ROOM_SECONDS)
            if remaining < queued:
                queued, last_progress = remaining, time.monotonic()
            elif time.monotonic() - last_progress > PATIENCE:
                raise _timed_out()

    def _send(self, row: int, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
        """Queue the record of a row, or refuse it when the client does not send records of its size."""
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(header or b"") for name, header in headers)
        on_delivery = partial(self._delivered_alone, row, size) if self._sends_alone else self._delivered
        try:
            self._produce(key, value, headers, on_delivery)
        except library().KafkaException as error:
            if as_kafka_error(error).name() != _TOO_LARGE or self._encoder.format == "arrow":
                raise
            self._refused[row] = f"record '{size} bytes' is larger than kafka.message.max.bytes"

    def _produce(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        on_delivery: Callable[[KafkaError | None, Message], None],
    ) -> None:
        while True:
            try:
                with client_errors():
                    producer = self._connected_producer
                    producer.produce(self._topic, value, key, headers=[*headers], on_delivery=on_delivery)
                return
            except BufferError:
                with client_errors():
                    self._connected_producer.poll(_ROOM_SECONDS)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._refusals.append(error)

    def _delivered_alone(self, row: int, size: int, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.name() == _TOO_LARGE:
            self._refused[row] = f"record '{size} bytes' is larger than the topic's max.message.bytes"
        self._delivered(error, message)

    def _send_alone_if_too_large(self) -> bool:
        """Return whether the broker refused records for their size, so that a further attempt makes progress: with
        each record sent alone, or without those that were refused alone.
        """
        if self._encoder.format == "arrow" or not any(error.name() == _TOO_LARGE for error in self._refusals):
            return False
        self._sends_alone = True
        return True

    def _connected(self, deadline: float) -> bool:
        """Create a producer that owns the transactional id, and read what is committed. Return whether that
        succeeded.
        """
        self.close()
        name = f"penstock-{self.run}-{self.query.name}"
        client_settings = resolved(self._settings, self._owner)
        defaults = {"partitioner": "murmur2_random", "linger.ms": "5"}
        enforced = {"transactional.id": name, **({"batch.num.messages": "1"} if self._sends_alone else {})}
        shared_prefixes = ("bootstrap.servers", "log_level", "client", "security", "sasl", "ssl", "socket", "broker")
        try:
            self._producer = make("Producer", {**defaults, **client_settings, **enforced}, self._owner)
            self._call("init_transactions", PATIENCE)
            config = {k: v for k, v in client_settings.items() if k.startswith(shared_prefixes)}
            marker = make("Consumer", {**config, "group.id": name, "enable.auto.commit": False}, self._owner)
            (committed,) = marker.committed([library().TopicPartition(self._topic, 0)], PATIENCE)
            self._group = marker.consumer_group_metadata()
            marker.close()
            if committed.error is not None:
                # The answer has an error for the partition: the committed offset is unknown, which differs from none.
                raise library().KafkaException(committed.error)
        except library().KafkaException as error:
            self._pause_or_raise(error, deadline)
            return False
        self._next_batch = max(self._next_batch, committed.offset)
        return True

    def _pause_or_raise(self, error: BaseException, deadline: float) -> None:
        """Return when a retry is worthwhile.

        Raises:
            PenstockError: P0502, it is not.
        """
        causes = [e for e in self._refusals if e.name() not in ("_PURGE_QUEUE", "_PURGE_INFLIGHT", "_FENCED", "_FATAL")]
        kafka_error = causes[0] if causes else as_kafka_error(error)
        if kafka_error.name() in _HOPELESS or time.monotonic() > deadline:
            hint = "check the broker; nothing of this batch is visible, and a run with --checkpoint can be resumed"
            if kafka_error.name() == _TOO_LARGE:
                hint = _LIMITS
            message = f"query {self.query.name}: {self.place} cannot be written: {kafka_error.str()}"
            raise PenstockError("P0502", message, hint=hint)
        time.sleep(_ROOM_SECONDS)


def _timed_out() -> BaseException:
    error: BaseException = library().KafkaException(library().KafkaError(library().KafkaError._TIMED_OUT))
    return error
