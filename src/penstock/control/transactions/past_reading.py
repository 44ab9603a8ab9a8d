"""The reading of the past of a transaction's queries, beside the version that runs, by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.control.engine import Preparation
from penstock.errors import PenstockError, as_known, log_internal


class PastReading:
    """A reading under way.

    Args:
        preparation: reads, of the engine.
        on_end: called by the thread that has read.

    Attributes:
        error: for which it ended.
    """

    def __init__(self, preparation: Preparation, on_end: Callable[[], None]) -> None:
        self.preparation = preparation
        self.error: BaseException | None = None
        self._on_end = on_end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="penstock-past", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self.preparation.read()
        except BaseException as error:
            self.error = error
        finally:
            self._over.set()
            self._on_end()

    @property
    def is_over(self) -> bool:
        """Return whether the queries may begin, or the reading has failed."""
        return self._over.is_set()

    @property
    def share(self) -> float | None:
        """Return which part of the past has been read, the least of its queries; None where that is not known yet."""
        return min(self.preparation.shares().values(), default=None)

    def check(self) -> None:
        """Raise the error for which the reading ended."""
        if isinstance(self.error, PenstockError) or (self.error is not None and not isinstance(self.error, Exception)):
            raise self.error
        if self.error is not None:
            raise as_known(self.error, "the past cannot be read")

    def end(self) -> None:
        """End the reading and remove what has been read. What cannot be removed stays; it is never read."""
        try:
            self.preparation.end()
            self._thread.join()
            self.preparation.discard()
        except Exception as error:
            log_internal(error, "what was read of a past is left behind")
