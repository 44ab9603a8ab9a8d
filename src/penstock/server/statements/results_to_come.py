"""The results of a query that has not begun: its subscribers wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa

from penstock.results.result_source import EndOfResults, ResultPart, ResultSource

#: Seconds between two looks at whether the query has begun.
_LOOK = 0.1


class ResultsToCome:
    """See the contract `ResultSource`.

    Args:
        begun: returns the results once the query has begun, None before; raises PenstockError where it never will.
        schema: of the results.
        until_now: it ends with what there is at present, which is nothing.
    """

    def __init__(self, begun: Callable[[], ResultSource | None], schema: pa.Schema, until_now: bool) -> None:
        self.schema = schema
        self._begun = begun
        self._until_now = until_now
        self._source: ResultSource | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @property
    def cursor(self) -> str | None:
        """Return None: its result has no cursor yet."""
        return None

    def next(self, seconds: float) -> ResultPart | None:
        if self._until_now:
            raise EndOfResults
        end = time.monotonic() + seconds
        while not self._closed.is_set():
            source = self._open()
            left = max(0.0, end - time.monotonic())
            if source is not None:
                return source.next(left)
            if not left:
                return None
            self._closed.wait(min(left, _LOOK))
        return None

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None] | None:
        """Return None before the query has begun."""
        return None if self._source is None else self._source.on_change(listener)

    def _open(self) -> ResultSource | None:
        if self._source is None:
            found = self._begun()
            with self._lock:
                # Who closes it meanwhile sees the results, or is seen here.
                self._source = found
                if found is not None and self._closed.is_set():
                    found.close()
        return self._source

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            if self._source is not None:
                self._source.close()
