"""Topics for tests, and what is read from them without Spark."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
from kafka_broker import Broker
from kafka_broker import Unavailable as Unavailable

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Rejected
from penstock.connectors.sources import open_source
from penstock.language.scripts import Catalog, bind_script
from penstock.settings import Settings

_NUMBERS = itertools.count()


def topic(broker: Broker, partitions: int = 1, **config: str) -> str:
    """A new topic."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"t{next(_NUMBERS)}"
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": "0"})
    made = client.create_topics([NewTopic(name, partitions, 1, config={"retention.ms": "-1", **config})])
    made[name].result(30)
    return name


def send(broker: Broker, name: str, records: Iterable[dict[str, Any]], **config: Any) -> None:
    """records: what `Producer.produce` takes (value, key, partition, timestamp, headers)."""
    from confluent_kafka import Producer

    fixed = {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": "0"}
    producer = Producer({**fixed, "queue.buffering.max.messages": 1_000_000, **config})
    for record in records:
        producer.produce(name, **{"partition": 0, **record})
    assert producer.flush(60) == 0


def received(broker: Broker, name: str) -> list[Any]:
    """All committed messages of a topic, by partition and offset."""
    from confluent_kafka import Consumer, TopicPartition

    config = {"bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.partition.eof": True, "log_level": "0"}
    consumer = Consumer(config)
    count = len(consumer.list_topics(name, timeout=30).topics[name].partitions)
    consumer.assign([TopicPartition(name, p, 0) for p in range(count)])
    found: list[Any] = []
    ended = 0
    while ended < count:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended += 1
    consumer.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def declared(script: str) -> Source:
    """The one stream or relation that a script declares."""
    (source,) = bind_script(script, Catalog(), Settings(), None).catalog.sources.values()
    return source


def rounds(source: Source) -> Iterator[tuple[list[dict[str, Any]], list[Rejected]]]:
    """What rounds read of a log until nothing waits: the rows of each, and what was rejected."""
    connector: Any = open_source(source)
    columns = tuple(range(len(source.columns)))
    state, positions = None, None
    while True:
        stretch = connector.plan(state, positions)
        if stretch.split is None:
            return
        rows: list[dict[str, Any]] = []
        rejected: list[Rejected] = []
        for parsed in connector.read(stretch.split, columns):
            rows += pa.Table.from_batches([parsed.batch]).to_pylist()
            rejected += parsed.rejected
            positions = parsed.positions
        state = stretch.state
        yield rows, rejected
