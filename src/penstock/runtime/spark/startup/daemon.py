"""Spark's Python daemon with Penstock's operators loaded: workers are forked from it and need not load them again.

Spark runs `python -m penstock.runtime.spark.startup.daemon pyspark.worker` in sessions that Penstock starts
(`session.py`), when the first task is due. Loading the operators takes seconds, so the driver starts the same module
earlier (`jvm.py`) with the extra arguments `--ahead SOCKET`: that process loads them at once and waits. The process
that Spark starts connects to it by the socket, passes on its standard streams, its environment and its arguments, and
remains only because Spark watches it. Without a waiting process, it becomes the daemon itself.

Contract: imports only what needs the standard library alone until it becomes the daemon.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.temporary import WORKERS, discard, temporary_folder

MODULE = "penstock.runtime.spark.startup.daemon"
#: The environment variable with the socket of a daemon that was started ahead.
AHEAD = "PENSTOCK_DAEMON"
_STREAMS = (0, 1, 2)
_LENGTH = 8
#: The connection by whose end Spark's process notices that the daemon has ended.
_DRIVER_CONNECTIONS: list[socket.socket] = []


def warm() -> None:
    """Load what workers run, and answer a query, so that the compiled loops it needs are in memory too."""
    import pyarrow as pa

    import penstock.runtime.spark.checkpoint.state_files
    import penstock.runtime.spark.worker.ingest
    import penstock.runtime.spark.worker.stage
    import penstock.runtime.spark.worker.tasks  # noqa: F401 - loaded before workers are forked
    from penstock.algebra import Aggregate, Source, StreamScan, Window, WindowKind
    from penstock.algebra.nodes.query import Query, SinkSpec
    from penstock.connectors.sources import open_source
    from penstock.expressions.aggregates import count_rows
    from penstock.expressions.aggregates.contract import AggregateInput
    from penstock.expressions.aggregates.sum_and_average import SUM
    from penstock.expressions.nodes import Column
    from penstock.runtime.local.runtime import run_local
    from penstock.types import Field, Schema, TimeDomain, Unit

    number = pa.int64()
    columns = Schema(tuple(Field(name, number) for name in ("ts", "k", "x")))
    source = Source("warm", True, columns, "MEMORY", (), 0, TimeDomain(Unit.SECOND, False))
    open_source(source)  # loads the readers of files
    scan = StreamScan(source, (0, 1, 2))
    window = Window(scan, WindowKind.RANGE, 2, 1)
    calls = (count_rows(), SUM.build(AggregateInput((Column(number, 2, "x"),))))
    groups = Aggregate(window, (1,), calls, ("n", "total"))
    rows = pa.table({name: pa.array([1, 2, 3], number) for name in columns.names})
    run_local([Query("warm", groups, SinkSpec("MEMORY"))], {"warm": rows}, shards=2, batch_rows=1)


def _manage() -> None:
    """Run as the daemon, with everything loaded."""
    from pyspark.daemon import manager

    from penstock.runtime.allocation import give_back
    from penstock.runtime.memory_limit import limit_worker

    give_back()
    limit_worker()
    # Loaded objects are permanent: workers need not traverse them after every task, nor copy their pages.
    gc.collect()
    gc.freeze()
    folder = temporary_folder("workers-", sweeps=False)
    os.environ[WORKERS] = str(folder)
    try:
        manager()
    finally:
        discard(folder)


def run_in_daemon(place: str) -> bool:
    """Pass this process's arguments and streams to the daemon that listens at `place`, and wait until it has ended.
    Return False where there is none.
    """
    invocation = {"argv": sys.argv, "path": sys.path, "folder": str(Path.cwd()), "environ": dict(os.environ)}
    text = json.dumps(invocation).encode()
    with socket.socket(socket.AF_UNIX) as daemon:
        try:
            daemon.connect(place)
            socket.send_fds(daemon, [len(text).to_bytes(_LENGTH, "big")], list(_STREAMS))
            daemon.sendall(text)
            if not daemon.recv(1):
                return False
        except OSError:
            return False
        # Only the driver reacts to Ctrl-C.
        os.setpgid(0, 0)
        # Only the daemon may keep Spark's end of the pipes open, or it would not notice their closing.
        null_device = os.open(os.devnull, os.O_RDWR)
        for stream in _STREAMS:
            os.dup2(null_device, stream)
        with suppress(OSError):
            daemon.recv(1)
    return True


def wait_ahead(place: str) -> bool:
    """Load everything, then take over from the process that Spark starts. Return False when the driver ended before."""
    # Only the driver reacts to Ctrl-C.
    os.setpgid(0, 0)
    with socket.socket(socket.AF_UNIX) as listener:
        # The socket gets its name when it accepts connections.
        listener.bind(f"{place}.new")
        listener.listen(1)
        Path(f"{place}.new").rename(place)
        warm()
        ready, _, _ = select.select([0, listener.fileno()], [], [])
        Path(place).unlink(missing_ok=True)
        with suppress(OSError):
            Path(place).parent.rmdir()  # made for the socket, where nothing else is left in it
        if listener.fileno() not in ready:
            return False
        connection, _ = listener.accept()
    length, streams, _, _ = socket.recv_fds(connection, _LENGTH, len(_STREAMS))
    invocation = _read(connection, int.from_bytes(length, "big"))
    for stream, received_descriptor in zip(_STREAMS, streams, strict=True):
        os.dup2(received_descriptor, stream)
        os.close(received_descriptor)
    os.environ.clear()
    os.environ.update(invocation["environ"])
    os.chdir(invocation["folder"])
    sys.argv[:] = invocation["argv"]
    sys.path[:] = invocation["path"]
    # The process that connected waits for this end to close; workers must not keep it open.
    os.register_at_fork(after_in_child=connection.close)
    connection.sendall(b"+")
    _DRIVER_CONNECTIONS.append(connection)
    return True


def _read(connection: socket.socket, length: int) -> dict[str, Any]:
    with connection.makefile("rb") as file:
        invocation: dict[str, Any] = json.loads(file.read(length))
    return invocation


def main() -> None:
    if sys.argv[2:3] == ["--ahead"]:
        if wait_ahead(sys.argv[3]):
            _manage()
        return
    place = os.environ.pop(AHEAD, None)
    if place is None or not run_in_daemon(place):
        warm()
        _manage()


if __name__ == "__main__":
    main()
