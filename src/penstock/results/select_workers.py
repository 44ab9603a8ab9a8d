"""Processes that compute one-time queries, beside the process of the run.

A query is computed in another process, so that it takes no time of the thread that delivers batches, can be
ended, and has a limit of memory that holds whatever it does. The rows that it reads and its answer pass through files;
they are mapped, not copied. A process stays for the next query; one whose query took too long is ended.
"""

from __future__ import annotations

import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import pyarrow as pa

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.errors import PenstockError
from penstock.physical.planning.strategies import Strategy
from penstock.runtime.local.one_time import OneTimeAnswer
from penstock.runtime.spark.pickling import pickled
from penstock.temporary import removed_after

LENGTH = struct.Struct("<Q")
#: Seconds of a query without a limit.
_LONGEST = 1e6


@dataclass(frozen=True)
class SelectRequest:
    """What a process computes. query: pickled; inputs: by source name, the file of its rows; memory: bytes beyond those
    that the process takes already; output: the file of the answer's rows."""

    query: bytes
    inputs: Mapping[str, str]
    strategy: Strategy
    memory: int
    output: str


class _Process:
    """One process, that computes one query at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "penstock.results.select_process"]
        self._popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def call(self, request: SelectRequest, timeout: float) -> OneTimeAnswer | PenstockError:
        """Return what the process answers. Raises TimeoutError and EOFError, after which it is of no use."""
        assert self._popen.stdin is not None and self._popen.stdout is not None
        deadline = time.monotonic() + timeout
        try:
            write_message(self._popen.stdin, pickle.dumps(request))
        except OSError:
            raise EOFError from None
        ready, _, _ = select.select([self._popen.stdout], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        answer: OneTimeAnswer | PenstockError = pickle.loads(read_message(self._popen.stdout))
        return answer

    def end(self) -> None:
        """End the process."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()


class SelectWorkers:
    """A few processes, started when they are needed, that threads share.

    Args:
        most: number of queries that are computed at the same time; others wait.
        memory: bytes that a query may take (`snapshot_memory`).
        timeout: seconds that a query may take, waiting included (`statement_timeout`); 0 for no limit.
    """

    def __init__(self, most: int = 2, memory: int = 256 * 2**20, timeout: float = 60.0) -> None:
        self._free = threading.Semaphore(most)
        self._memory, self._timeout = memory, timeout or _LONGEST
        self._idle: list[_Process] = []
        self._lock = threading.Lock()
        self._closed = False

    def warm(self) -> None:
        """Start a process, so that the first query need not wait for that."""
        with self._lock:
            if not self._idle:
                self._idle.append(_Process())

    def __call__(self, query: OneTimeQuery, inputs: Mapping[str, pa.Table]) -> OneTimeAnswer:
        """Return the answer of a query over `inputs`. Raises PenstockError P0724, P0725, and those of the query."""
        deadline = time.monotonic() + self._timeout
        if not self._free.acquire(timeout=self._timeout):
            raise self._too_long()
        try:
            with removed_after() as folder, self._process() as process:
                files = {name: _written(table, folder / f"{n}.arrow") for n, (name, table) in enumerate(inputs.items())}
                output = folder / "answer.arrow"
                request = SelectRequest(pickled(query), files, Strategy.PATTERN, self._memory, str(output))
                answer = process.call(request, max(0.0, deadline - time.monotonic()))
                if isinstance(answer, PenstockError):
                    raise answer
                return replace(answer, query=query, table=read_rows(output))
        finally:
            self._free.release()

    @contextmanager
    def _process(self) -> Iterator[_Process]:
        """Lend a process, which is ended where it fails."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is not None and not process.alive:
            process.end()
            process = None
        process = process or _Process()
        try:
            yield process
        except PenstockError:
            self._give_back(process)
            raise
        except TimeoutError:
            process.end()
            raise self._too_long() from None
        except EOFError:
            process.end()
            raise too_large(self._memory) from None
        except BaseException:
            process.end()
            raise
        else:
            self._give_back(process)

    def _give_back(self, process: _Process) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(process)
                return
        process.end()

    def _too_long(self) -> PenstockError:
        return PenstockError(
            "P0725", f"the query takes longer than {self._timeout:g} seconds",
            hint="read a shorter window, or raise statement_timeout",
        )  # fmt: skip

    def close(self) -> None:
        """End the processes without a query; the others end with theirs."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()


def too_large(memory: int) -> PenstockError:
    """Return the error for a query that needs more than `memory` bytes."""
    return PenstockError(
        "P0724", f"the query needs more than {memory:,} bytes of memory",
        hint="read a shorter window, fewer sources, or raise snapshot_memory",
    )  # fmt: skip


def _written(table: pa.Table, path: Path) -> str:
    write_rows(table, path)
    return str(path)


def write_rows(table: pa.Table, path: Path) -> None:
    """Write a file of rows for another process."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_rows(path: Path) -> pa.Table:
    """Return the rows of a file, which is mapped: it may be removed."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def write_message(pipe: IO[bytes], content: bytes) -> None:
    """Write a message with its length. Raises OSError."""
    pipe.write(LENGTH.pack(len(content)) + content)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> bytes:
    """Return the next message. Raises EOFError where the pipe has ended."""
    head = pipe.read(LENGTH.size)
    content = pipe.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
    if len(head) < LENGTH.size or len(content) < LENGTH.unpack(head)[0]:
        raise EOFError
    return content
