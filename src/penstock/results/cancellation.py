"""End a statement from outside: its caller has left, or a user has cancelled it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError


class Cancellation:
    """Ends a statement. Any thread may set it, once and for good."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._actions: list[Callable[[], None]] = []

    def set(self) -> None:
        """End the statement."""
        with self._lock:
            self._event.set()
            actions, self._actions = self._actions, []
        for action in actions:
            action()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; return whether it is."""
        return self._event.wait(timeout)

    def when_set(self, action: Callable[[], None]) -> None:
        """Call `action` once when this is set, in the thread that sets it; at once where it is set already. It must not
        raise."""
        with self._lock:
            if not self._event.is_set():
                self._actions.append(action)
                return
        action()

    @contextmanager
    def ending(self, action: Callable[[], None]) -> Iterator[None]:
        """As `when_set`, until the block ends."""
        self.when_set(action)
        try:
            yield
        finally:
            with self._lock:
                if action in self._actions:
                    self._actions.remove(action)

    def check(self) -> None:
        """Raise PenstockError P0726 where it is set."""
        if self.is_set():
            raise cancelled()


def cancelled() -> PenstockError:
    """Return the error of a statement that was cancelled."""
    return PenstockError("P0726", "the statement was cancelled", hint="it has changed nothing; send it again")
