"""The engine of a server on Spark, without Spark: rounds run in this process, and when a test says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_run import InlineRun, cold

from penstock.connectors.results.result_folder import ResultFolder
from penstock.control.live.control import Control
from penstock.control.outcomes import CommandState
from penstock.engines import spark
from penstock.engines.spark import SparkEngine
from penstock.errors import PenstockError
from penstock.runtime.monitoring.recorder import Recorder
from penstock.runtime.spark.checkpoint.epochs import Epoch
from penstock.runtime.spark.checkpoint.folder import Job
from penstock.runtime.spark.hydration.kept_relations import KeptRelations
from penstock.runtime.spark.input import look_schedule
from penstock.runtime.spark.input.round_log import RoundLog
from penstock.runtime.spark.job import FailureListener, Hydration
from penstock.runtime.spark.version import JobChange, VersionInfo, version_of
from penstock.runtime.spark.work import Work

_UNFINISHED = (CommandState.PENDING, CommandState.HYDRATING)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are planned and run by the test alone."""
    leave_spark(monkeypatch)


def leave_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rounds planned and run by the caller alone."""
    monkeypatch.setattr(look_schedule.Looks, "wait", property(lambda looks: looks._last_look == float("inf")))
    monkeypatch.setattr(look_schedule.Gathering, "holds", lambda *arguments: False)
    monkeypatch.setattr(RoundLog, "_poll", lambda log: None)
    monkeypatch.setattr(spark, "launch", SteppedRun)


class SteppedRun:
    """What a control asks of a `SparkRun`, with rounds that run one by one."""

    is_live = True
    #: Between its rounds it waits for the next one, and never ends by itself.
    active, error = True, None

    def __init__(self, work: Work, checkpoint: str, overwrite: bool, on_failed: FailureListener) -> None:
        self.inline = InlineRun.of(work, Path(checkpoint))
        self.checkpoint = Path(checkpoint)
        self.hydration = Hydration()
        self._on_failed = on_failed
        # Steps of changes of queries are taken by a thread of the control.
        self._step = threading.RLock()
        self._count, self._waiting = threading.Lock(), 0

    @property
    def job(self) -> Job:
        return self.inline.job

    @property
    def epoch(self) -> Epoch:
        return self.inline.epoch

    @property
    def sinks(self) -> Any:
        return self.inline.sinks

    @property
    def work(self) -> Work:
        return self.inline.work

    @property
    def rounds(self) -> RoundLog:
        return self.inline.rounds

    @property
    def recorder(self) -> Recorder:
        return self.inline.recorder

    @property
    def relations(self) -> KeptRelations:
        return self.inline.relations

    @property
    def busy(self) -> bool:
        return self.rounds.outstanding

    def version(self) -> VersionInfo:
        accounts = self.inline.accounts
        return version_of(self.inline.epoch, *accounts.heartbeats, accounts.rows)

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        """Wait for the end of the round in hand. A lock alone would let the thread of the rounds go first for as long
        as rows arrive faster than they are answered."""
        with self._count:
            self._waiting += 1
        with self._step:
            with self._count:
                self._waiting -= 1
            yield

    def change(self, begin: Callable[[], JobChange | None]) -> None:
        with self.between_rounds():
            self.inline.adopt(begin)

    def round(self, crash: str | None = None) -> None:
        """Read what has been posted, and answer; crash: where the last round dies."""
        while True:
            with self._step:
                self._round(crash)
                if not self.inline.pending():
                    return
            while self._waiting:
                time.sleep(0.001)

    def _round(self, crash: str | None) -> None:
        run = self.inline
        run.rounds._advance()
        known = set(run.failed)
        while run.pending() and not self._waiting:
            run.step(crash)
            run.rounds._advance()
        for name in sorted(run.failed.keys() - known):
            self._on_failed(name, run.failed[name].error)

    def stop(self) -> None:
        self.inline.rounds.stop()
        for sink in self.inline.sinks.values():
            sink.close()


class InlineServer:
    """A control over the engine on Spark, without Spark."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self._options = options
        self.open()

    def open(self) -> None:
        cold()
        self.engine = SparkEngine(self.folder, lambda: pytest.fail("Spark is not needed"))
        self.control = Control(self.folder, self.engine, {"shards": "2"}, **self._options)

    def close(self) -> None:
        self.control.close()
        self.engine.close()

    def restart(self) -> None:
        self.close()
        self.open()

    @property
    def run(self) -> SteppedRun:
        run: Any = self.engine.run
        assert isinstance(run, SteppedRun)
        return run

    def post(self, statement: str, **options: Any) -> list[str]:
        """Execute a script, with the past that its queries read; return the states of its commands. Raises the error of
        one that failed."""
        numbers = [one.outcome.number for one in self.control.submit(statement, **options) if one.outcome is not None]
        while True:
            known = {one.number: one for _, _, one in self.control.commands()}
            outcomes = [known[number] for number in numbers]
            if self.control.failure is not None or not any(one.state in _UNFINISHED for one in outcomes):
                break
            time.sleep(0.001)
        if self.control.failure is not None:
            raise self.control.failure
        for one in outcomes:
            if one.code:
                raise PenstockError(one.code, one.message or "")
        return [one.state.value for one in outcomes]

    def insert(self, stream: str, rows: Collection[tuple[int, int]], key: str | None = None) -> None:
        """Post rows (ts, v), and answer."""
        ticks, values = zip(*rows, strict=True)
        table = pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(values, pa.int32())})
        self.control.insert(stream, table, key)
        self.run.round()

    def settle(self) -> None:
        """Wait until the control has taken the steps of changes of queries that are due."""
        before, known = -1, 0
        while before != known:
            self.control.submit("")
            self.control._look()
            self.control.submit("")
            while any(one.state in _UNFINISHED for _, _, one in self.control.commands()):
                time.sleep(0.001)
            before, known = known, len(self.control.commands())

    def emitted(self, name: str) -> list[tuple[Any, ...]]:
        """Return what a query has emitted INTO RESULTS, in the order of batches."""
        place = self.control.query(name)[1].place
        results = self.run.version().results[f"q{place}"]
        folder = ResultFolder(self.folder / "results")
        files = [folder.file(batch) for batch in folder.batches()]
        tables = [file.rows(results) for file in files if file is not None and results in file.sections]
        return [tuple(row.values()) for table in tables for row in table.to_pylist()]

    def heartbeat(self, name: str) -> int | None:
        return self.control.version().heartbeats.get(self.control.query(name)[1].place)
