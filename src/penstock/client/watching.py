"""The rows of a subscription for who looks at them now and then: they are read in a thread of their own."""

from __future__ import annotations

import queue
import threading

import pyarrow as pa

from penstock.client.subscription import RowSubscription

#: Batches that wait for who looks at them; the subscription waits then, and its rows wait at the server.
_MOST_WAITING = 100


class WatchedSubscription:
    """The rows of a subscription. See the contract `ComingRows`; an error of the subscription is raised by `next`."""

    def __init__(self, subscription: RowSubscription) -> None:
        self._subscription = subscription
        self._waiting: queue.Queue[pa.RecordBatch | Exception | None] = queue.Queue(_MOST_WAITING)
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="penstock-watch", daemon=True)
        self._thread.start()

    def next(self, seconds: float) -> pa.Table | None:
        """Return the rows that have come, which are waited for for at most so many seconds; None when no more come."""
        found: list[pa.RecordBatch] = []
        try:
            one = self._waiting.get(timeout=seconds)
            while True:
                if not isinstance(one, pa.RecordBatch):
                    # What has come before it is returned first.
                    self._waiting.put(one)
                    if found:
                        break
                    if one is None:
                        return None
                    raise one
                found.append(one)
                one = self._waiting.get_nowait()
        except queue.Empty:
            pass
        return pa.Table.from_batches(found) if found else pa.table({})

    def close(self) -> None:
        """End the subscription."""
        self._closed = True
        self._subscription.close()
        while self._thread.is_alive():
            try:
                self._waiting.get(timeout=0.05)
            except queue.Empty:
                continue

    def _read(self) -> None:
        end: Exception | None = None
        try:
            for batch in self._subscription:
                if self._closed:
                    return
                self._waiting.put(batch)
        except Exception as error:
            end = error
        if not self._closed:
            self._waiting.put(end)
