"""What the topic's sink takes for the number of the next batch, where the broker does not tell it at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.sinks import kafka, open_sink
from penstock.language.scripts import bind_script

kafka_client = pytest.importorskip("confluent_kafka")

SCRIPT = """
CREATE STREAM s (k INT, at BIGINT) FROM MEMORY () TIMESTAMP BY at;
CREATE QUERY q INTO KAFKA (bootstrap '127.0.0.1:1', topic 't', format 'json') AS SELECT k FROM s;
"""


def test_a_number_that_cannot_be_told_now_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else batches that are in the topic would be written a second time after a restart."""
    unstable = kafka_client.KafkaError(kafka_client.KafkaError.UNSTABLE_OFFSET_COMMIT)
    told = [SimpleNamespace(offset=-1001, error=unstable), SimpleNamespace(offset=7, error=None)]

    def make(kind: str, _config: object, _owner: str) -> Any:
        if kind == "Producer":
            return SimpleNamespace(init_transactions=lambda _seconds: None, purge=lambda: None)
        return SimpleNamespace(
            committed=lambda _partitions, _seconds: [told.pop(0)], consumer_group_metadata=object, close=lambda: None
        )

    monkeypatch.setattr(kafka, "make", make)
    monkeypatch.setattr(kafka, "_ROOM_SECONDS", 0.0)
    monkeypatch.setattr(kafka, "Topic", lambda *_: SimpleNamespace(partitions=lambda: [0]))
    (query,) = bind_script(SCRIPT).queries
    sink: Any = open_sink(query)
    sink.open(True, False)
    assert sink._next_batch == 7 and not told
