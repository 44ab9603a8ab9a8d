"""Processes that compute one-time queries, beside the process of the run.

A query is computed in another process, so that it takes no time of the thread that delivers batches, can be
ended, and has a limit of memory that holds whatever it does. What the run keeps in files is read there; other rows and
the answer pass through files, which are mapped, not copied. A process stays for the next query; one whose query took
too long or was cancelled is ended.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.errors import PenstockError
from penstock.physical.plan.strategies import Strategy
from penstock.results.cancellation import Cancellation
from penstock.results.live_state import LiveState
from penstock.results.select import LiveReader, too_long
from penstock.results.source_rows import RowsInFile, RowsInMemory, SourceRows
from penstock.results.worker_process import WorkerProcess
from penstock.runtime.local.one_time import OneTimeAnswer
from penstock.runtime.memory_limit import too_large
from penstock.runtime.spark.worker.pickling import pickled
from penstock.temporary import removed_after

#: Seconds of a query without a limit.
_LONGEST = 1e6


@dataclass(frozen=True)
class SelectRequest:
    """What a process computes.

    Args:
        work: pickled, the query and by source name its rows (`SourceRows`).
        memory: bytes beyond those that the process takes already.
        output: the file of the answer's rows.
    """

    work: bytes
    strategy: Strategy
    memory: int
    output: str


class LargerSelects(Protocol):
    """Computes queries that do not fit into one process."""

    def is_large(self, inputs: Mapping[str, SourceRows]) -> bool:
        """Return whether the rows alone take more than one process may."""

    def __call__(
        self, query: OneTimeQuery, inputs: Mapping[str, SourceRows], cancellation: Cancellation, seconds: float
    ) -> OneTimeAnswer | None:
        """Return the answer of a query that may take so many seconds; None for one that cannot be divided."""


def process_command() -> Sequence[str]:
    """Return the words that start a process of one-time queries."""
    return [sys.executable, "-m", "penstock.results.select_process"]


class SelectWorkers:
    """A few processes, started when they are needed, that threads share.

    Args:
        most: number of queries that are computed at the same time; others wait.
        memory: bytes that a query may take (`snapshot_memory`).
        timeout: seconds that a query may take, waiting included (`statement_timeout`); 0 for no limit.
        larger: computes those that need more memory; None where they are refused.
    """

    def __init__(
        self, most: int = 2, memory: int = 256 * 2**20, timeout: float = 60.0, larger: LargerSelects | None = None
    ) -> None:
        self._free = most
        self.larger = larger
        self.memory, self.timeout = memory, timeout or _LONGEST
        self._idle: list[WorkerProcess] = []
        #: Signals that a query has ended, or is to end.
        self._changed = threading.Condition()
        self._closed = False

    def reader(self, state: LiveState) -> LiveReader:
        """Return what answers one-time queries over a state. Rows that take more memory than a query may are refused
        where nothing computes larger ones."""
        memory = self.memory if self.larger is None else None
        return LiveReader(lambda: state, self, memory, timeout=self.timeout)

    def warm(self) -> None:
        """Start a process, so that the first query does not wait for it."""
        with self._changed:
            if not self._idle:
                self._idle.append(WorkerProcess(process_command()))

    def __call__(
        self, query: OneTimeQuery, inputs: Mapping[str, SourceRows], cancellation: Cancellation
    ) -> OneTimeAnswer:
        """Return the answer of a query over `inputs`. Raises PenstockError P0724, P0725, P0726, and those of the
        query."""
        deadline = time.monotonic() + self.timeout
        with self._place(deadline, cancellation):
            if self.larger is None:
                return self._in_process(query, inputs, cancellation, deadline)
            refused = None
            if not self.larger.is_large(inputs):
                try:
                    return self._in_process(query, inputs, cancellation, deadline)
                except PenstockError as error:
                    if error.code != "P0724":
                        raise
                    refused = error
            answer = self.larger(query, inputs, cancellation, max(0.0, deadline - time.monotonic()))
            if answer is None and refused is not None:
                raise refused
            return answer or self._in_process(query, inputs, cancellation, deadline)

    def _in_process(
        self, query: OneTimeQuery, inputs: Mapping[str, SourceRows], cancellation: Cancellation, deadline: float
    ) -> OneTimeAnswer:
        try:
            with removed_after() as folder, self._process(cancellation) as process:
                files = {name: in_file(rows, folder / f"{n}.arrow") for n, (name, rows) in enumerate(inputs.items())}
                output = folder / "answer.arrow"
                request = SelectRequest(pickled((query, files)), Strategy.PATTERN, self.memory, str(output))
                answer: OneTimeAnswer | PenstockError = process.call(request, max(0.0, deadline - time.monotonic()))
                if isinstance(answer, PenstockError):
                    raise answer
                return replace(answer, query=query, table=RowsInFile(str(output)).table())
        except OSError as error:
            raise no_room(error) from error

    @contextmanager
    def _place(self, deadline: float, cancellation: Cancellation) -> Iterator[None]:
        """Wait until fewer queries than allowed are computed, and count one more while the context lasts."""
        with cancellation.ending(self._wake), self._changed:
            while not self._free:
                cancellation.check()
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise too_long(self.timeout)
            cancellation.check()
            self._free -= 1
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def _process(self, cancellation: Cancellation) -> Iterator[WorkerProcess]:
        """Lend a process, which is ended where it fails, and when its query is cancelled."""
        with self._changed:
            process = self._idle.pop() if self._idle else None
        if process is not None and not process.alive:
            process.end()
            process = None
        process = process or WorkerProcess(process_command())
        try:
            with cancellation.ending(process.kill):
                yield process
        except PenstockError:
            self._give_back(process, cancellation)
            raise
        except TimeoutError:
            process.end()
            raise too_long(self.timeout) from None
        except EOFError:
            ended = process.was_ended()
            process.end()
            cancellation.check()
            raise (_ended() if ended else too_large(self.memory)) from None
        except BaseException:
            process.end()
            raise
        else:
            self._give_back(process, cancellation)

    def _give_back(self, process: WorkerProcess, cancellation: Cancellation) -> None:
        with self._changed:
            # One that is cancelled as it ends is being killed.
            if not self._closed and not cancellation.is_set():
                self._idle.append(process)
                return
        process.end()

    def close(self) -> None:
        """End the processes without a query; the others end with theirs."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()


def no_room(error: OSError) -> PenstockError:
    """Return the error for a query whose rows cannot be passed from one process to the other."""
    reason = error.strerror or type(error).__name__
    hint = "it has changed nothing; make room in the folder of temporary files, and send it again"
    return PenstockError("P0601", f"the rows of the query cannot be stored: {reason}", hint=hint, cause=error)


def _ended() -> PenstockError:
    hint = "it has changed nothing; send it again, and look whether the machine is short of memory"
    return PenstockError("P0601", "the process that computes the query was ended from outside", hint=hint)


def in_file(rows: SourceRows, path: Path) -> SourceRows:
    """Return rows as another process reads them: those in memory are written to `path`."""
    if not isinstance(rows, RowsInMemory):
        return rows
    write_rows(rows.rows, path)
    return RowsInFile(str(path))


def write_rows(table: pa.Table, path: Path) -> None:
    """Write a file of rows for another process."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
