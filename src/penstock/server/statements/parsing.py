"""Parses what comes through the doors. A large script is parsed in a process of its own and comes back as plain data,
so that it takes no time of the threads that answer others.
"""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from penstock.deep_trees import on_deep_stack
from penstock.errors import PenstockError
from penstock.language.scripts.parse import parse_script
from penstock.language.statements import Statement
from penstock.language.statements.script import Script
from penstock.language.text import SourceText
from penstock.results.worker_process import WorkerProcess

#: Characters of a script that is parsed here: that takes some tens of milliseconds at most.
SMALL = 20_000
#: Seconds of a script without a limit.
_LONGEST = 1e6


def process_command() -> Sequence[str]:
    """Return the words that start the process."""
    return [sys.executable, "-m", "penstock.server.statements.parse_process"]


class ScriptParser:
    """Parses scripts; threads may share it. The process is started when it is needed, and parses one after the other.

    Args:
        seconds: that a script may take, waiting included; 0 for no limit.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._turn = threading.Lock()
        self._process: WorkerProcess | None = None
        self._closed = False

    def __call__(self, text: str, parameters: bool = False) -> Script:
        """Return a script. parameters: as of `parse_script`. Raises ScriptErrors with every syntax error in it,
        PenstockError P0804 for one that takes too long, P0601 where the process was ended."""
        # A command of a transaction stands behind blanks, in the place of those before it.
        if len(text.lstrip()) <= SMALL:
            return parse_script(text, parameters=parameters)
        deadline = time.monotonic() + (self._seconds or _LONGEST)
        if not self._turn.acquire(timeout=deadline - time.monotonic()):
            raise self._too_long()
        try:
            answer = self._parsed(pickle.dumps((text, parameters)), deadline)
        finally:
            self._turn.release()
        return Script(SourceText.of(text, parameters=parameters), on_deep_stack(lambda: tuple(_loaded(answer))))

    def _parsed(self, request: bytes, deadline: float) -> bytes:
        process, self._process = self._process, None
        if process is not None and not process.alive:
            process.end()
            process = None
        process = process or WorkerProcess(process_command())
        try:
            answer = process.answer(request, max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            process.end()
            raise self._too_long() from None
        except BaseException as error:
            process.end()
            if isinstance(error, EOFError):
                raise _ended() from None
            raise
        if self._closed:
            process.end()
        else:
            self._process = process
        return answer

    def _too_long(self) -> PenstockError:
        message = f"the script takes longer than {self._seconds:g} seconds to read, the server's statement_timeout"
        return PenstockError("P0804", message, hint="send it in parts, and rows as a post or by COPY")

    def close(self) -> None:
        """End the process, after the script that it parses."""
        self._closed = True
        with self._turn:
            process, self._process = self._process, None
        if process is not None:
            process.end()


def _loaded(answer: bytes) -> Iterator[Statement]:
    """Yield the statements of an answer. Raises the error that it is in their place."""
    found: list[bytes] | PenstockError = pickle.loads(answer)
    if isinstance(found, PenstockError):
        raise found
    # What is loaded is all kept: to look through it for garbage as it grows takes three times as long as to load it.
    collects = gc.isenabled()
    gc.disable()
    try:
        for part in found:
            yield from pickle.loads(part)
            # Other threads run in between.
            time.sleep(0)
    finally:
        if collects:
            gc.enable()


def _ended() -> PenstockError:
    hint = "nothing of it was executed; send it again, or in parts, and look whether the machine is short of memory"
    return PenstockError("P0601", "the process that reads scripts was ended from outside", hint=hint)
