"""A server in a process of its own that can be killed, with all doors, whose engine is that on Spark without Spark:
rounds run beside its requests. `python inline_server.py` imports all, and forks a server for each line that it reads:
a folder, the ports of HTTP and of PostgreSQL's protocol, and a seed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from inline_engine import SteppedRun, leave_spark
from inline_run import cold

from penstock.cli.serve import ServeOptions, _live, _workers
from penstock.engines import spark
from penstock.engines.spark import SparkEngine
from penstock.pgwire.door import PgDoor
from penstock.pgwire.listening import PgServer
from penstock.results import select_workers
from penstock.results.select_workers import SelectWorkers
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.runtime.monitoring.progress import RunProgress
from penstock.runtime.spark.retention import retention
from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.server.listening import opened
from penstock.server.policy import ServerPolicy
from penstock.server.service import Service
from penstock.settings import Settings
from tests.commands import select_process


class ServedRun(SteppedRun):
    """A run with what a server tells of it."""

    error = None
    dead_letters = ""

    @property
    def batches(self) -> int:
        return self.inline.accounts.batches

    def sums(self) -> RunProgress:
        with self.between_rounds():
            return self.inline.accounts.sums(self.job.plan, self.job.all_sources)

    def metrics(self) -> RunMetrics:
        with self.between_rounds():
            return self.recorder.metrics(self.inline.accounts.totals({}, {}, 0))


def opened_service(checkpoint: Path, patch: pytest.MonkeyPatch) -> tuple[Service, SparkEngine, Settings, SelectWorkers]:
    """Return a service whose rounds are called for, with its engine, its settings and the processes of its SELECTs."""
    patch.setattr(spark, "launch", ServedRun)
    cold()
    settings = Settings().with_value("shards", "2")
    options = ServeOptions(checkpoint, "", settings, pairs=("shards=2",), auth=False)
    workers = _workers(settings)
    engine = SparkEngine(checkpoint, lambda: pytest.fail("Spark is not needed"), workers)
    service = _live(options, ServerPolicy(closed=(checkpoint,)), engine)
    return service, engine, settings, workers


def serve(folder: Path, http: int, pg: int, seed: int) -> None:
    """Serve without tokens; answer rounds until the process ends."""
    draw, patch = random.Random(seed), pytest.MonkeyPatch()
    leave_spark(patch)
    patch.setattr(retention, "_EVERY", 1)
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(exist_ok=True)
    service, engine, settings, workers = opened_service(checkpoint, patch)
    workers.warm()
    address = Address("127.0.0.1", http)
    door = HttpDoor(service, None, HostNames.of(address), DoorLimits.of(settings))
    listener = opened(Address("127.0.0.1", pg))
    HttpServer(door, address)
    PgServer(PgDoor.beside(door), Address("127.0.0.1", pg), listener)
    sys.stdout.write(f"ready {os.getpid()}\n")
    sys.stdout.flush()
    while (reason := service.stop_reason()) is None:
        run: Any = engine.run
        if run is not None:
            run.round()
        time.sleep(draw.choice((0.0, 0.01, 0.03, 0.1)))
    sys.stdout.write(f"{reason.render()}\n")


def main() -> None:
    """Fork a server for each line; this process does not wait for their end."""
    select_workers.process_command = select_process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        folder, *numbers = line.split("\t")
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                serve(Path(folder), *map(int, numbers))
            finally:
                sys.stdout.flush()
                os._exit(1)


if __name__ == "__main__":
    main()
