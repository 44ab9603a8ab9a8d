"""The processes in which statements over the catalogs are carried out, each with a database of its own.

One is started for the first such statement, and further ones where several come at a time. A statement that takes too
long or is cancelled is interrupted; a process that does not end it then is ended itself.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace

from penstock.errors import PenstockError
from penstock.pgwire.catalog.database.requests import DatabaseAnswer, DatabaseRequest
from penstock.pgwire.catalog.declarations.declared import CatalogImage
from penstock.pgwire.protocol.errors import TOO_LARGE, WireError
from penstock.results.cancellation import Cancellation, cancelled
from penstock.results.worker_process import WorkerProcess

#: Processes at most, and those that are kept while nothing is to be done.
_MOST, _KEPT = 4, 2
#: Seconds between two looks at the clock, and those that an interrupted statement has for its end.
_LOOK, _GRACE = 0.2, 2.0
_LONGEST = 1e9


class _Process:
    """A process, and what was declared when it was asked last."""

    def __init__(self) -> None:
        self.worker = WorkerProcess([sys.executable, "-m", "penstock.pgwire.catalog.database.process"])
        self.image: CatalogImage | None = None
        self._writing = threading.Lock()

    def interrupt(self) -> None:
        """End the statement that it carries out, from any thread."""
        with self._writing, suppress(EOFError):
            self.worker.send(b"")

    def answer(self, request: DatabaseRequest, seconds: float, left: Cancellation) -> DatabaseAnswer:
        """Return the answer of a statement. Raises EOFError where the process has ended; PenstockError P0725, P0726."""
        with self._writing:
            self.worker.send(pickle.dumps(request))
        deadline = time.monotonic() + (seconds or _LONGEST)
        ending = 0.0
        with left.ending(self.interrupt):
            while not self.worker.is_ready(_LOOK):
                now = time.monotonic()
                if ending and now > ending:
                    raise EOFError
                if not ending and (now > deadline or left.is_set()):
                    self.interrupt()
                    ending = now + _GRACE
        found: DatabaseAnswer = pickle.loads(self.worker.receive())
        return found


class CatalogProcesses:
    """See the module. Threads may share it. seconds: that a statement may take; 0 for no limit."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._turns = threading.BoundedSemaphore(_MOST)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._closed = False

    def answer(self, request: DatabaseRequest, left: Cancellation) -> DatabaseAnswer:
        """Return the answer of a statement.

        Args:
            request: with what is declared now.
            left: ends it.

        Raises:
            PenstockError: P0725, P0726, P0804, and that of the statement.
        """
        deadline = time.monotonic() + (self._seconds or _LONGEST)
        while not self._turns.acquire(timeout=_LOOK):
            if left.is_set():
                raise cancelled()
            if time.monotonic() > deadline:
                raise self._too_long()
        try:
            with self._lock:
                process = self._idle.pop() if self._idle else None
            if process is None or not process.worker.alive:
                process = _Process()
            answer = self._of(process, request, left)
        finally:
            self._turns.release()
        if answer.error is not None:
            raise answer.error
        return answer

    def _of(self, process: _Process, request: DatabaseRequest, left: Cancellation) -> DatabaseAnswer:
        given, began = request, time.monotonic()
        if request.image is not None and process.image is request.image:
            given = replace(request, image=None)
        process.image = request.image or process.image
        try:
            answer = process.answer(given, self._seconds, left)
        except EOFError:
            process.worker.end()
            answer = DatabaseAnswer(
                error=WireError(TOO_LARGE, "the statement takes more than a statement may", code="P0804")
            )
        except BaseException:
            process.worker.end()
            raise
        else:
            with self._lock:
                is_kept = len(self._idle) < _KEPT and not self._closed
                if is_kept:
                    self._idle.append(process)
            if not is_kept:
                process.worker.end()
        if answer.error is not None and left.is_set():
            raise cancelled()
        if answer.error is not None and self._seconds and time.monotonic() - began > self._seconds:
            raise self._too_long()
        return answer

    def _too_long(self) -> PenstockError:
        hint = "raise statement_timeout where the server is started"
        return PenstockError("P0725", f"the statement took longer than {self._seconds:g} seconds", hint=hint)

    def close(self) -> None:
        """End the processes; those that are at work end with their statements."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for one in idle:
            one.worker.end()
