"""Writes of a batch that need not wait for each other.

Each of them ends with a sync, which waits for the disk; the file system does several syncs at once in about the time of
one. So they are begun as soon as what they write is known, and finished before the batch counts as delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

#: Writes that wait for the disk at the same time.
_AT_ONCE = 2


class WritesBeside:
    """The writes of one batch that run beside it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_AT_ONCE, "penstock-writes")
        self._begun: list[Future[None]] = []

    def begin(self, write: Callable[[], None]) -> None:
        self._begun.append(self._threads.submit(write))

    def finish(self) -> None:
        """Wait for everything that was begun. Raises the error of the first that failed."""
        begun, self._begun = self._begun, []
        errors = [error for write in begun if (error := write.exception()) is not None]
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Wait for what was begun, whether or not it fails; nothing can be begun afterwards."""
        self._threads.shutdown()
