"""A process that answers one request at a time: pickled values, over its standard input and output."""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

from penstock.loading import modules

_LENGTH = struct.Struct("<Q")
#: Seconds after its last word in which a process has ended.
_REAPED = 2.0


class WorkerProcess:
    """One process. command: the words that start it."""

    def __init__(self, command: Sequence[str]) -> None:
        # User code is found where this process finds it.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in modules.own_path() if path)}
        # Ctrl-C at a terminal is for this process alone, which ends the other one.
        self._popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, process_group=0
        )

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def call(self, request: object, timeout: float) -> Any:
        """Return what the process answers within so many seconds. Raises TimeoutError and EOFError, after which it is
        of no use."""
        return pickle.loads(self.answer(pickle.dumps(request), timeout))

    def answer(self, request: bytes, timeout: float) -> bytes:
        """Return the answer to a request, both pickled, as `call` does."""
        deadline = time.monotonic() + timeout
        self.send(request)
        if not self.is_ready(deadline - time.monotonic()):
            raise TimeoutError
        return self.receive()

    def send(self, request: bytes) -> None:
        """Write a message. Raises EOFError where the process has ended."""
        assert self._popen.stdin is not None
        try:
            write_message(self._popen.stdin, request)
        except OSError:
            raise EOFError from None

    def is_ready(self, timeout: float) -> bool:
        """Return whether an answer, or the end of the process, comes within so many seconds."""
        assert self._popen.stdout is not None
        return bool(select.select([self._popen.stdout], [], [], max(0.0, timeout))[0])

    def receive(self) -> bytes:
        """Return the next answer. Raises EOFError."""
        assert self._popen.stdout is not None
        return read_message(self._popen.stdout)

    def kill(self) -> None:
        """End what the process computes, from any thread: a call of it raises EOFError."""
        self._popen.kill()

    def was_ended(self) -> bool:
        """Return whether it was ended from outside, as the system does where memory is short."""
        with suppress(subprocess.TimeoutExpired):
            return self._popen.wait(_REAPED) in (-signal.SIGKILL, -signal.SIGTERM)
        return False

    def end(self) -> None:
        """End the process."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                # What it did not read any more is written by closing, and cannot be.
                with suppress(OSError):
                    pipe.close()


def write_message(pipe: IO[bytes], content: bytes) -> None:
    """Write a message with its length. Raises OSError."""
    pipe.write(_LENGTH.pack(len(content)) + content)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> bytes:
    """Return the next message. Raises EOFError where the pipe has ended."""
    head = pipe.read(_LENGTH.size)
    content = pipe.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
    if len(head) < _LENGTH.size or len(content) < _LENGTH.unpack(head)[0]:
        raise EOFError
    return content
