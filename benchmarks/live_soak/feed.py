"""The rows that are posted: all columns are functions of a row's number, so that any part of them can be made again."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa

from penstock.client import connect

#: Ticks between two rows, and rows between two changes of the relation `levels`.
STEP, BETWEEN = 10, 20
KEYS, VALUES, LEVELS = 7, 1000, 5
_EVERY_SECONDS = 0.2

DECLARED = """
CREATE STREAM s (n BIGINT, k BIGINT, v BIGINT, at BIGINT)
  FROM HTTP () TIMESTAMP BY at UNIT MILLISECOND RETAIN 120 SECONDS;
CREATE RELATION levels (k BIGINT, level BIGINT, at BIGINT, PRIMARY KEY (k))
  FROM HTTP () TIMESTAMP BY at UNIT MILLISECOND;
"""


def _mixed(number: np.ndarray, seed: int) -> np.ndarray:
    """Return numbers that look drawn, the same for the same arguments."""
    mixed = (number.astype(np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(33)).astype(np.int64)


def stream(seed: int, first: int, count: int) -> pa.Table:
    """Return rows of the stream, from the number `first` on."""
    number = np.arange(first, first + max(count, 0))
    drawn = _mixed(number, seed)
    return pa.table({"n": number, "k": drawn % KEYS, "v": drawn // KEYS % VALUES, "at": number * STEP})


def levels(seed: int, first: int, count: int) -> pa.Table:
    """Return changes of the relation: each gives one key a level, between two rows of the stream."""
    number = np.arange(first, first + max(count, 0))
    drawn = _mixed(number, seed + 1)
    at = number * BETWEEN * STEP + STEP // 2
    return pa.table({"k": drawn % KEYS, "level": drawn // KEYS % LEVELS, "at": at})


class Feed(threading.Thread):
    """Posts the rows at a steady rate. Each post has a key, now and then it is sent twice.

    Args:
        rate: rows of the stream per second.

    Attributes:
        posted: rows of the stream that the server has accepted.
        sent: rows that may have reached it.
        failure: what ended the feed before its time.
    """

    def __init__(self, url: str, token: str, seed: int, rate: int) -> None:
        super().__init__(daemon=True, name="feed")
        self._client = connect(url, token, patience=300)
        self._seed, self._rate = seed, rate
        self._over = threading.Event()
        self.posted = self.sent = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        began = time.monotonic()
        try:
            while not self._over.wait(_EVERY_SECONDS):
                # After a restart the rows that have become due come in posts of a bounded size.
                due = min(int((time.monotonic() - began) * self._rate), self.posted + 4 * self._rate)
                self._post(max(due, self.posted + 1))
        except BaseException as failure:
            self.failure = failure
        finally:
            self._client.close()

    def _post(self, until: int) -> None:
        first, count = self.posted, until - self.posted
        self.sent = until
        rows = stream(self._seed, first, count)
        for _ in range(2 if first % 10 == 0 else 1):
            self._client.insert("s", rows, key=f"s {first}")
        changes = -(-first // BETWEEN), -(-until // BETWEEN)
        if changes[1] > changes[0]:
            table = levels(self._seed, changes[0], changes[1] - changes[0])
            self._client.insert("levels", table, key=f"levels {changes[0]}")
        self.posted = until

    def end(self) -> None:
        """End after the post in hand."""
        self._over.set()
        self.join()
