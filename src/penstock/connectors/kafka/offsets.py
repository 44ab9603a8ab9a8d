"""The first and last offsets of a topic's partitions, and the records that the next round reads of each.

Contract: offsets are those that a consumer of committed records sees. A round reads from each partition in proportion
to its backlog, so that partitions reach their ends together. Everything is plain JSON, partitions as text keys.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.client import (
    PATIENCE,
    as_kafka_error,
    library,
    make,
    refused,
    resolved,
    unreachable,
)
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

#: Partition -> offset.
Offsets = dict[str, int]


class Unanswered(Exception):
    """The broker does not answer now."""


class Topic:
    """The offsets of one topic, requested from its brokers."""

    def __init__(self, owner: str, name: str, written: Mapping[str, str]) -> None:
        self._owner = owner
        self.name = name
        self._bootstrap = written["bootstrap.servers"]
        shared = ("bootstrap.servers", "log_level", "client", "security", "sasl", "ssl", "socket", "broker")
        config = {k: v for k, v in resolved(written, owner).items() if k.startswith(shared)}
        self._admin = make("AdminClient", config, owner)

    def partitions(self, patience: float = PATIENCE) -> list[int]:
        """Return the topic's partitions.

        Raises:
            PenstockError: P0412, the topic does not exist.
            Unanswered: the broker does not answer.
        """
        try:
            description = self._admin.list_topics(self.name, timeout=patience).topics[self.name]
        except library().KafkaException as error:
            raise self._failed(as_kafka_error(error)) from None
        if description.error is not None:
            raise self._failed(description.error)
        return sorted(description.partitions)

    def beginnings(self, partitions: list[int]) -> Offsets:
        return self._list_offsets(partitions, lambda spec: spec.earliest())

    def ends(self, partitions: list[int]) -> Offsets:
        return self._list_offsets(partitions, lambda spec: spec.latest())

    def since(self, partitions: list[int], milliseconds: int) -> Offsets:
        """Return the offset of the first record of each partition at or after a time; the end where there is none."""
        offsets = self._list_offsets(partitions, lambda spec: spec.for_timestamp(milliseconds))
        ends = self.ends(partitions)
        return {p: offset if offset >= 0 else ends[p] for p, offset in offsets.items()}

    def _list_offsets(self, partitions: list[int], spec: Callable[[Any], object]) -> Offsets:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not in its type hints

        if not partitions:
            return {}
        requests = {TopicPartition(self.name, p): spec(OffsetSpec) for p in partitions}
        try:
            answers = self._admin.list_offsets(
                requests, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=PATIENCE
            )
            return {str(at.partition): int(future.result().offset) for at, future in answers.items()}
        except library().KafkaException as error:
            raise self._failed(as_kafka_error(error)) from None

    def _failed(self, error: KafkaError) -> Exception:
        if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
            return PenstockError(
                "P0412", f"{self._owner}: there is no topic {self.name} at {self._bootstrap}", hint="create it first"
            )
        return unreachable(self._owner, self._bootstrap, error) if refused(error) else Unanswered(error.str())

    def unanswered(self, why: Unanswered) -> PenstockError:
        return unreachable(self._owner, self._bootstrap, why)


def first_offsets(topic: Topic, starting: str, partitions: list[int]) -> Offsets:
    """Return the offset of `starting` in each partition.

    Raises:
        ValueError: it is not one of the accepted forms.
    """
    if starting == "latest":
        return topic.ends(partitions)
    beginnings = topic.beginnings(partitions)
    if starting == "earliest":
        return beginnings
    if starting.startswith("{"):
        return {**beginnings, **given_offsets(starting)}
    return topic.since(partitions, milliseconds(starting))


def given_offsets(text: str) -> Offsets:
    """Parse `{"0": 17, ...}`.

    Raises:
        ValueError: with the expected form.
    """
    try:
        offsets = json.loads(text)
    except ValueError:
        offsets = None
    fits = isinstance(offsets, dict) and all(
        p.isdecimal() and isinstance(o, int) and not isinstance(o, bool) and o >= 0 for p, o in offsets.items()
    )
    if not fits or not isinstance(offsets, dict):
        raise ValueError('an object of partitions and offsets such as {"0": 17}')
    return {str(int(p)): o for p, o in offsets.items()}


def milliseconds(text: str) -> int:
    """Parse an ISO-8601 time, UTC where it names no zone, to milliseconds since 1970.

    Raises:
        ValueError: it is not a time.
    """
    moment = dt.datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp() * 1000)


def shares(at: Offsets, until: Offsets, most: int, held: frozenset[str] = frozenset()) -> dict[str, list[int]]:
    """Return partition -> [from, to, 1 if it has more records after that].

    Args:
        most: about how many records to read, in proportion to the backlogs, at least one of each
            partition that has some.
        held: partitions of which one record is enough, because they are ahead.
    """
    backlogs = {p: until[p] - at[p] for p in sorted(at, key=int) if until.get(p, 0) > at[p]}
    shared_backlogs = {p: backlog for p, backlog in backlogs.items() if p not in held}
    total = sum(shared_backlogs.values())
    ranges: dict[str, list[int]] = {}
    for p, backlog in backlogs.items():
        count = 1 if p in held else backlog if total <= most else max(1, backlog * most // total)
        ranges[p] = [at[p], at[p] + count, int(count < backlog)]
    return ranges
