"""What the topic's sink makes of a producer that is fenced in the middle of a call, which the client tells by raising a
SystemError: it takes the transactional id back, or ends with an error that has a code."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.sinks import kafka, open_sink
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.types import TIMESTAMP

kafka_client = pytest.importorskip("confluent_kafka")

SCRIPT = """
CREATE STREAM s (k INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;
CREATE QUERY q INTO KAFKA (bootstrap '127.0.0.1:1', topic 't', format 'json', patience '{}') AS SELECT k FROM s;
"""
ROWS = pa.table({"ts": pa.array([0], TIMESTAMP), "k": pa.array([1], pa.int32())})
CALLS = ("init_transactions", "begin_transaction", "produce", "flush", "send_offsets_to_transaction",
         "commit_transaction")  # fmt: skip


def fence(depth: int) -> BaseException:
    """Return what a call raises: a KafkaException behind `depth` errors of Python; for 0, such an error alone."""
    error = kafka_client.KafkaError(kafka_client.KafkaError._FENCED, "fenced by a newer producer")
    raised: BaseException | None = kafka_client.KafkaException(error) if depth else None
    for _ in range(max(depth, 1)):
        outer = SystemError("<method 'flush'> returned a result with an exception set")
        outer.__cause__ = outer.__context__ = raised
        raised = outer
    assert raised is not None
    return raised


class FakeBroker:
    """Remembers what producers commit. failing: the call that raises, so many `times`."""

    def __init__(self, failing: str, depth: int, times: int) -> None:
        self.failing, self.depth, self.times = failing, depth, times
        self.producers = 0
        self.committed: list[bytes] = []
        self.next_batch = -1001

    def make(self, kind: str, _config: object, _owner: str) -> Any:
        if kind == "Producer":
            self.producers += 1
            return FakeProducer(self)
        told = SimpleNamespace(offset=self.next_batch, error=None)
        return SimpleNamespace(committed=lambda *_: [told], consumer_group_metadata=object, close=lambda: None)

    def called(self, name: str) -> None:
        if name == self.failing and self.times:
            self.times -= 1
            raise fence(self.depth)


class FakeProducer:
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._queue: list[tuple[bytes, Callable[..., None]]] = []
        self._sent: list[bytes] = []
        self._offset = 0

    def __len__(self) -> int:
        return len(self._queue)

    def init_transactions(self, _seconds: float) -> None:
        self._broker.called("init_transactions")

    def begin_transaction(self) -> None:
        self._broker.called("begin_transaction")

    def produce(
        self, _topic: str, value: bytes, _key: object, headers: object, on_delivery: Callable[..., None]
    ) -> None:
        self._broker.called("produce")
        self._queue.append((value, on_delivery))

    def flush(self, _seconds: float) -> int:
        self._broker.called("flush")
        for value, on_delivery in self._queue:
            on_delivery(None, None)
            self._sent.append(value)
        self._queue = []
        return 0

    def send_offsets_to_transaction(self, offsets: Any, _group: object, _seconds: float) -> None:
        self._broker.called("send_offsets_to_transaction")
        self._offset = offsets[0].offset

    def commit_transaction(self, _seconds: float) -> None:
        self._broker.called("commit_transaction")
        self._broker.committed += self._sent
        self._broker.next_batch = self._offset

    def purge(self) -> None:
        self._queue = []


def sink(broker: FakeBroker, patience: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(kafka, "make", broker.make)
    monkeypatch.setattr(kafka, "_ROOM_SECONDS", 0.0)
    monkeypatch.setattr(kafka, "Topic", lambda *_: SimpleNamespace(partitions=lambda: [0]))
    (query,) = bind_script(SCRIPT.format(patience)).queries
    return open_sink(query)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("failing", CALLS)
def test_a_producer_that_is_fenced_takes_its_id_back(failing: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker(failing, depth, times=2)
    out = sink(broker, 60, monkeypatch)
    out.open(False, False)
    out.write(0, ROWS)
    out.write(0, ROWS)
    assert len(broker.committed) == 1 and broker.next_batch == 1
    assert broker.producers > 1 and not broker.times


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("failing", CALLS)
def test_one_that_is_fenced_again_and_again_ends_with_a_code(
    failing: str, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeBroker(failing, depth, times=10**9)
    out = sink(broker, 0, monkeypatch)
    with pytest.raises(PenstockError) as failed:
        out.open(False, False)
        out.write(0, ROWS)
    assert failed.value.code == "P0502" and failed.value.hint
    assert ("fenced by a newer producer" if depth else "exception set") in failed.value.message
    assert not broker.committed
