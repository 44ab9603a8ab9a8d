"""Sends the records of the soak at a steady rate until it is told to stop: python -m benchmarks.soak.producer ...

A record is kept until the broker has acknowledged it, however long that takes, and is there once (an idempotent
producer). While the oldest one that is not acknowledged waits, no record goes out whose moment is more than AHEAD of
it, so partitions stay close to one another. What a broker that was away has left behind is caught up at three times the
rate. At SIGTERM everything is sent to its end, the last records too; how far it is stands in the file `status`.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections import deque
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.soak import records

_CATCH_UP = 3
_TICK_SECONDS = 0.02
_STATUS_SECONDS = 0.5


class Sender:
    def __init__(self, bootstrap: str, topic: str, rate: int, seed: int) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._rate = rate
        self._records = records.sent(seed, rate)
        self._waiting: deque[list[bool]] = deque()
        self.count = 0
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.timeout.ms": 0,
            "reconnect.backoff.max.ms": 1_000,
            "partitioner": "consistent",
            "log_level": 0,
            "error_cb": lambda _error: None,
        }
        self._producer = Producer(config)

    @property
    def acknowledged(self) -> int:
        """How many of the first records are."""
        while self._waiting and self._waiting[0][0]:
            self._waiting.popleft()
        return self.count - len(self._waiting)

    def send(self, until: int) -> None:
        """Records up to number `until`, as far as those before them are acknowledged."""
        until = min(until, self.acknowledged + records.AHEAD * self._rate // 1_000)
        while self.count < until:
            number, partition, value = next(self._records)
            assert number == self.count
            self._produce(partition, value)
            self.count += 1
        self._producer.poll(0)

    def finish(self) -> None:
        """All that has been counted is acknowledged, then the last records are."""
        while self.acknowledged < self.count:
            self._producer.poll(0.1)
        for partition, value in records.last(self._rate, self.count):
            self._produce(partition, value)
        while any(not told[0] for told in self._waiting):
            self._producer.poll(0.1)

    def _produce(self, partition: int, value: bytes) -> None:
        told = [False]
        self._waiting.append(told)

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                raise SystemExit(f"a record was refused: {error}")
            told[0] = True

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "topic"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("rate", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--status", type=Path, required=True)
    given = parser.parse_args()
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sender = Sender(given.bootstrap, given.topic, given.rate, given.seed)
    began = before = time.monotonic()
    told = 0.0
    while not stopped:
        now = time.monotonic()
        step = 1 + (now - before) * given.rate * _CATCH_UP
        before = now
        sender.send(int(min((now - began) * given.rate, sender.count + step)))
        if now - told > _STATUS_SECONDS:
            _tell(given.status, sender, False)
            told = now
        time.sleep(_TICK_SECONDS)
    sender.finish()
    _tell(given.status, sender, True)


def _tell(place: Path, sender: Sender, done: bool) -> None:
    new = place.with_suffix(".new")
    new.write_text(json.dumps({"count": sender.count, "acknowledged": sender.acknowledged, "done": done}))
    new.replace(place)


if __name__ == "__main__":
    main()
