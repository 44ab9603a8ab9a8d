"""A run and a server, each in a process of its own, that carry out the same statements one after the other.

What is measured of both is their own account of batches (`RunMetrics`), and the processor time of the driver, its JVM
and its workers. A run is started by `Session.start`, as `penstock run` does, again and again in one process: a new one
each time would compile its JVM's code anew.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import data
from benchmarks.live import checkpoint_of, serving
from benchmarks.processes import Process, tree
from penstock.client import connect
from penstock.client.server import ServerClient
from penstock.runtime.spark.checkpoint.folder import Folder

#: Seconds in which a side that goes on, or has delivered a batch, comes to rest.
REST = 0.1

_SAMPLE = re.compile(r'^(\w+)(?:\{(?:\w+="([^"]*)")?\})? (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Account:
    """What a side has done.

    Args:
        number, seconds: of its batches.
        rows: records read.
        cpu: processor time of all its processes, in seconds; workers: that of its workers alone.
    """

    number: int
    seconds: float
    rows: int
    cpu: float
    workers: float

    def since(self, before: Account) -> Account:
        return Account(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    @property
    def of_a_batch(self) -> Account:
        """The mean of its batches."""
        return replace(
            self, seconds=self.seconds / self.number, cpu=self.cpu / self.number, workers=self.workers / self.number
        )


@dataclass(frozen=True)
class Side:
    """A run or a server that carries out statements.

    Args:
        begin: carries out statements; those of a call before have ended.
        account: of all that it has done since the last `begin`.
        end: ends what they began.
        pid: of its driver.
        checkpoint: the folder of what it carries out.
        answer: yields what a server keeps of the answer of a query; None for a run.
    """

    begin: Callable[[str], None]
    account: Callable[[], Account]
    end: Callable[[], None]
    pid: int
    checkpoint: Callable[[], Path]
    answer: Callable[[str], Iterator[pa.RecordBatch]] | None = None

    def delivered(self) -> int:
        """Return its last batch, -1 for none, by its files: that costs it nothing."""
        return Folder(self.checkpoint() / "penstock").delivered().batch

    def stop(self) -> None:
        """Have none of its processes run until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for process in tree(self.pid):
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


@contextmanager
def run_side(root: Path, *settings: str) -> Iterator[Side]:
    """A run in a process of its own. root: a folder for its checkpoints."""
    command = [sys.executable, "-m", "benchmarks.sides", str(root)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    sets = "".join(f"SET {name} = '{value}';\n" for name, _, value in (one.partition("=") for one in settings))
    before: list[Account] = []

    def answer(request: str) -> Any:
        assert process.stdin is not None and process.stdout is not None, "they are pipes"
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def account() -> Account:
        return Account(*answer(""), *processor_seconds(process.pid))

    def begin(statements: str) -> None:
        began = processor_seconds(process.pid)
        answer(sets + statements)
        before.append(Account(0, 0.0, 0, *began))

    try:
        yield Side(
            begin,
            lambda: account().since(before[-1]),
            lambda: answer("stop"),
            process.pid,
            lambda: _checkpoint(root, len(before) - 1),
        )
    finally:
        assert process.stdin is not None, "it is a pipe"
        process.stdin.close()
        process.wait(120)


@contextmanager
def server_side(root: Path, *settings: str) -> Iterator[Side]:
    """A server in a process of its own. root: a folder that it may read and write."""
    with serving(*settings, allowed=(root, data.FOLDER)) as (address, token, pid), connect(address, token) as client:
        before: list[Account] = []

        def begin(statements: str) -> None:
            before.append(_account(client, pid))
            client.execute(statements)

        def account() -> Account:
            found = _account(client, pid)
            # The rows are those of the sources that there are now.
            return replace(found.since(before[-1]), rows=found.rows)

        def end() -> None:
            queries = [f"DROP QUERY {query.name};" for query in client.queries()]
            client.execute("".join([*queries, *(f"DROP STREAM {one.name};" for one in client.catalog().sources)]))

        def answer(query: str) -> Iterator[pa.RecordBatch]:
            return iter(client.subscribe(query, beginning=True, until_now=True))

        yield Side(begin, account, end, pid, lambda: checkpoint_of(pid), answer)


def _checkpoint(root: Path, number: int) -> Path:
    """Return the checkpoint of a run, by how many were before it."""
    return root / f"run-{number}"


def _account(client: ServerClient, pid: int) -> Account:
    samples = [(name, float(value)) for name, _, value in _SAMPLE.findall(client.metrics())]
    total = {name: sum(value for other, value in samples if other == name) for name, _ in samples}
    return Account(
        int(total.get("penstock_batches_total", 0)),
        total.get("penstock_batch_seconds_total", 0.0),
        int(total.get("penstock_source_rows_total", 0)),
        *processor_seconds(pid),
    )


def processor_seconds(pid: int) -> tuple[float, float]:
    """Return the processor time of a process and all below it, and of the workers among these."""
    used = [("pyspark.worker" in process.command, _used(process)) for process in tree(pid)]
    return sum(seconds for _, seconds in used), sum(seconds for is_worker, seconds in used if is_worker)


def measured_batch(side: Side, appear: Callable[[], object], rows: int, read: int) -> Account:
    """Have a side answer one file; return what that took.

    Args:
        appear: has the file appear.
        rows: of it.
        read: rows of it and of all files before it.
    """
    time.sleep(REST)
    before, delivered = side.account(), side.delivered()
    # What the account costs a server is before and after what is measured.
    cpu, workers = processor_seconds(side.pid)
    appear()
    until(lambda: side.delivered() > delivered, every=0.02)
    time.sleep(REST)
    cpu_after, workers_after = processor_seconds(side.pid)
    until(lambda: side.account().rows >= read, every=0.2)
    # Sometimes one without rows comes behind it, at all sides alike.
    return Account(1, side.account().since(before).seconds, rows, cpu_after - cpu, workers_after - workers)


def _used(process: Process) -> float:
    """Return the processor time of a process by its own clock: the ticks of `/proc` are of 10 ms, and a batch has few
    of them in each of several processes."""
    try:
        # The number of that clock, as the C library's `clock_getcpuclockid` gives it.
        return time.clock_gettime(~process.pid << 3 | 2)
    except OSError:
        return process.ticks / os.sysconf("SC_CLK_TCK")


def until(true: Callable[[], bool], seconds: float = 600, every: float = 0.2) -> None:
    """Wait until something is true, which is asked every so many seconds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(every)


def _carry_out(root: Path) -> None:
    """Carry out the requests of `run_side`: statements, `stop`, or an empty one for the account."""
    from penstock.session import Session

    runs: list[Any] = []
    for line in sys.stdin:
        request, reply = json.loads(line), []
        if request == "stop":
            runs[-1].stop()
        elif request:
            session = Session()
            session.execute(request)
            runs.append(session.start(checkpoint=str(_checkpoint(root, len(runs)))))
        else:
            metrics = runs[-1].metrics()
            reply = [metrics.batches, metrics.seconds, sum(source.rows for source in metrics.sources.values())]
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    _carry_out(Path(sys.argv[1]))
