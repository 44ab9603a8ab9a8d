"""Reading the past of a change's new queries for longer, while other changes of the run come.

Another change interrupts the reading, which goes on behind it: what is read lies under a number of its own, and so do
the births of the queries, whichever epoch they begin with. One reading at a time is under way in a run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from penstock.runtime.spark.changes.prefetch import Prefetch, Share

#: Seconds between two looks at whether the reading before has been used.
_LOOK_EVERY = 0.05


class InterruptedReading:
    """A reading of the past beside a run.

    Args:
        begin: returns what reads the past for the version that would begin now; None where there is no past.
        share: of the time that it may take while a round is running.
        busy: whether a round is running.
        turn: held by the one reading of a run that is under way or waits to be used.
    """

    def __init__(
        self, begin: Callable[[], Prefetch | None], share: float, busy: Callable[[], bool], turn: threading.Lock
    ) -> None:
        self._begin = begin
        self._share = share
        self._busy = busy
        self._turn = turn
        self._has_turn = False
        self._changed = threading.Condition()
        self._is_reading = self._is_suspended = self._has_ended = False
        self._ahead: Prefetch | None = None

    def read(self) -> None:
        """Read until the change can be made. Raises PenstockError as the change."""
        while not self._turn.acquire(timeout=_LOOK_EVERY):
            if self._has_ended:
                return
        self._has_turn = True
        with suppress(_Ended):
            try:
                self._go_on()
                self._ahead = self._begin()
                if self._ahead is not None:
                    self._ahead.read(_InterruptibleShare(self._share, self._busy, self._go_on, self._is_interrupted))
            finally:
                with self._changed:
                    self._is_reading = False
                    self._changed.notify_all()

    def _is_interrupted(self) -> bool:
        return self._is_suspended or self._has_ended

    def _go_on(self) -> None:
        """Wait for the end of an interruption. Raises _Ended where the past is not needed any more."""
        with self._changed:
            self._is_reading = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._has_ended or not self._is_suspended)
            if self._has_ended:
                raise _Ended
            self._is_reading = True

    def shares(self) -> Mapping[str, float]:
        """Return, by query, which part of the past has been read."""
        ahead = self._ahead
        reading = None if ahead is None else ahead.catching_up
        return {} if reading is None else dict.fromkeys(reading.starts, reading.share)

    def suspend(self) -> None:
        """Stop for another change; what has been read stays."""
        with self._changed:
            self._is_suspended = True
            self._changed.wait_for(lambda: not self._is_reading)

    def resume(self) -> None:
        """Go on after another change."""
        with self._changed:
            self._is_suspended = False
            self._changed.notify_all()

    def take(self) -> Prefetch | None:
        """Return what has been read, once; None where there was no past."""
        ahead, self._ahead = self._ahead, None
        return ahead

    def end(self) -> None:
        """Have `read` return soon."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def release(self) -> None:
        """Remove what has been read and not been taken, and let another reading begin."""
        with self._changed:
            try:
                self._drop()
            finally:
                if self._has_turn:
                    self._has_turn = False
                    self._turn.release()

    def _drop(self) -> None:
        ahead = self.take()
        if ahead is not None:
            ahead.discard()


class _Ended(Exception):
    """The past is not needed any more."""


class _InterruptibleShare(Share):
    def __init__(
        self, share: float, busy: Callable[[], bool], go_on: Callable[[], None], interrupted: Callable[[], bool]
    ) -> None:
        super().__init__(share, lambda: busy() and not interrupted())
        self._go_on = go_on

    def __call__(self, seconds: float) -> None:
        super().__call__(seconds)
        self._go_on()
