"""What reads its past at present in a run: the queries that begin with its next change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.runtime.spark.changes.ahead import Ahead


class Hydration:
    """The queries of one run that read their past. One change at a time is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead: Ahead | None = None

    @contextmanager
    def change(self) -> Iterator[None]:
        """Wait for other changes, and hold them back while the context lasts."""
        with self._lock:
            try:
                yield
            finally:
                self._ahead = None

    def begin(self, ahead: Ahead) -> None:
        """Set what is read before the change that is under way."""
        self._ahead = ahead

    def shares(self) -> dict[str, float]:
        """Return, by query, the share of its past that has been read."""
        reading = self._ahead.catching_up if self._ahead is not None else None
        return {} if reading is None else dict.fromkeys(reading.starts, reading.share)
