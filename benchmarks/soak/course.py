"""A soak from beginning to end: broker, producer and run are started, killed and started again, and what came of it.

A kill comes at its moment, but not before the run has read on since the one before it, so that each is survived by
itself. Where a run ends that nobody has killed, the soak has failed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import tree
from benchmarks.soak import answers, records, script, watch

ROOT = Path(__file__).resolve().parents[2]

KINDS = ("driver", "worker", "broker")
#: No driver is killed in the last part of the time, so that one lives for long enough to show whether it grows.
_DRIVERS_UNTIL = 0.55
_LOOK_SECONDS = 0.1
_SAMPLE_SECONDS = 2.0
#: A run that reads nothing for so long, with nothing in its way, is stuck.
_STUCK_SECONDS = 240.0


class Failed(Exception):
    """The soak cannot go on: why."""


@dataclass(frozen=True)
class Kill:
    """at: seconds from the beginning at the earliest; pause: before what was killed is started again."""

    at: float
    kind: str
    pause: float = 0.0


@dataclass
class Survived:
    """seconds: from when everything was there again (a worker: from the kill) until records were read on."""

    kill: Kill
    at: float
    seconds: float


@dataclass(frozen=True)
class Settings:
    seconds: float
    rate: int
    seed: int
    kills: tuple[Kill, ...]
    trigger: str = "1 second"


@dataclass
class Report:
    """wrong: in words, empty for a soak that was survived; drained: seconds from the last record sent until all was
    read; tail: the end of the run's log, where that may help."""

    seconds: float = 0.0
    records: int = 0
    shares: dict[int, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    survived: list[Survived] = field(default_factory=list)
    starts: int = 0
    samples: list[watch.Sample] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    processor: dict[str, float] = field(default_factory=dict)
    drained: float = 0.0
    wrong: list[str] = field(default_factory=list)
    tail: str = ""


def schedule(seconds: float, every: float, seed: int) -> tuple[Kill, ...]:
    """Kills of all kinds in turn, shuffled, about every so many seconds."""
    draw = random.Random(seed)
    found: list[Kill] = []
    deck: list[str] = []
    at = draw.uniform(0.5, 1.5) * every
    while at < seconds - every / 2:
        if not deck:
            deck = draw.sample(KINDS, len(KINDS))
        kind = deck.pop()
        if kind == "driver" and at > seconds * _DRIVERS_UNTIL:
            kind = "worker"
        pause = {"driver": draw.uniform(0, 5), "worker": 0.0, "broker": min(every / 2, draw.uniform(2, 60))}[kind]
        found.append(Kill(at, kind, pause))
        at += pause + draw.uniform(0.5, 1.5) * every
    return tuple(found)


class Course:
    """One soak in `folder` with a broker that is there (`tests/servers/kafka_broker.py`). A context: nothing that it
    started runs on behind it."""

    def __init__(self, settings: Settings, folder: Path, broker: Any) -> None:
        self._settings = settings
        self._folder = folder
        self._out, self._checkpoint = folder / "out", folder / "checkpoint"
        self._status, self._log = folder / "producer.json", folder / "run.log"
        self._told = watch.Told(folder / "metrics.jsonl")
        self._clocks = {"run": watch.Processors(), "producer and broker": watch.Processors()}
        self._draw = random.Random(settings.seed + 1)
        self._broker = broker
        self._topics = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("soak", "totals")]
        self._run: subprocess.Popen[bytes] | None = None
        self._producer: subprocess.Popen[bytes] | None = None
        self._began = self._sampled = 0.0
        self.report = Report()

    def __enter__(self) -> Course:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._run, self._producer):
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def go(self) -> Report:
        try:
            self._start()
            for kill in self._kills():
                self._survive(kill)
            self._end()
            self._judge()
        except Failed as why:
            self.report.wrong.append(str(why))
        if self.report.wrong and self._log.exists():
            self.report.tail = self._log.read_text(errors="replace")[-3000:]
        self.report.seconds = self._now
        self.report.batches = self._told.batches
        self.report.processor = {who: clock.seconds for who, clock in self._clocks.items()}
        return self.report

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    # -- starting and stopping ---------------------------------------------------------------------------------

    def _start(self) -> None:
        bootstrap, (source, sink) = self._broker.bootstrap, self._topics
        _topics(bootstrap, {source: records.PARTITIONS, sink: 2})
        text = script.text(bootstrap, source, sink, self._out, self._settings.trigger)
        (self._folder / "script.cql").write_text(text)
        self._began = time.monotonic()
        command = ["-m", "benchmarks.soak.producer", "--bootstrap", bootstrap, "--topic", source]
        command += ["--rate", str(self._settings.rate), "--seed", str(self._settings.seed)]
        self._producer = self._child([*command, "--status", str(self._status)], self._folder / "producer.log")
        self._start_run()

    def _start_run(self) -> None:
        command = ["-m", "penstock", "run", str(self._folder / "script.cql"), "--checkpoint", str(self._checkpoint)]
        self._run = self._child([*command, "--metrics", str(self._folder / "metrics.jsonl")], self._log)
        self.report.starts += 1

    def _child(self, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )

    def _end(self) -> None:
        """The producer comes to its end, the run reads all there is, and is stopped as people stop it."""
        assert self._producer is not None and self._run is not None
        self._producer.send_signal(signal.SIGTERM)
        while self._producer.poll() is None:
            self._look()
        if self._producer.returncode:
            raise Failed(f"the producer failed: {(self._folder / 'producer.log').read_text(errors='replace')[-500:]}")
        self.report.records = int(json.loads(self._status.read_text())["count"])
        sent, began = self.report.records + records.PARTITIONS, time.monotonic()
        self._until_read(lambda: self._told.rows >= sent)
        self.report.drained = time.monotonic() - began
        self._run.send_signal(signal.SIGTERM)
        try:
            self._run.wait(60)
        except subprocess.TimeoutExpired:
            raise Failed("the run does not end at SIGTERM") from None
        if self._run.returncode != 128 + signal.SIGTERM:
            raise Failed(f"the run was told to stop and ended with {self._run.returncode}")

    # -- killing -----------------------------------------------------------------------------------------------

    def _kills(self) -> Iterator[Kill]:
        """The kills, each when its time has come and the run goes on; then the rest of the time passes."""
        for kill in self._settings.kills:
            rows = self._told.rows
            self._until_read(lambda rows=rows: self._told.rows > rows)  # type: ignore[misc]
            while self._now < kill.at:
                self._look()
            yield kill
        while self._now < self._settings.seconds:
            self._look()

    def _survive(self, kill: Kill) -> None:
        assert self._run is not None
        at = self._now
        if kill.kind == "driver":
            os.killpg(self._run.pid, signal.SIGKILL)
            self._run.wait()
            self._pass(kill.pause, running=False)
            self._told.look()
            self._start_run()
        elif kill.kind == "worker":
            self._kill_worker()
        else:
            self._broker.stop(hard=True)
            self._pass(kill.pause)
            self._broker.start()
        rows, began = self._told.rows, time.monotonic()
        self._until_read(lambda: self._told.rows > rows)
        self.report.survived.append(Survived(kill, at, time.monotonic() - began))

    def _kill_worker(self) -> None:
        assert self._run is not None
        while not (found := watch.workers(self._run.pid)):
            self._look()
        try:
            os.kill(self._draw.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return  # it has ended by itself between the two

    # -- watching ----------------------------------------------------------------------------------------------

    def _until_read(self, done: Any) -> None:
        rows, since = -1, time.monotonic()
        while not done():
            self._look()
            if self._told.rows != rows:
                rows, since = self._told.rows, time.monotonic()
            if time.monotonic() - since > _STUCK_SECONDS:
                raise Failed(f"the run has read nothing for {_STUCK_SECONDS:.0f} seconds; it is at {rows} records")

    def _pass(self, seconds: float, running: bool = True) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look(running)

    def _look(self, running: bool = True) -> None:
        time.sleep(_LOOK_SECONDS)
        self._told.look()
        assert self._run is not None and self._producer is not None
        if running and self._run.poll() is not None:
            raise Failed(f"the run ended by itself, with {self._run.returncode}")
        if time.monotonic() - self._sampled > _SAMPLE_SECONDS:
            self._sampled = time.monotonic()
            processes = tree(self._run.pid)
            self._clocks["run"].see(processes)
            self._clocks["producer and broker"].see([*tree(self._producer.pid), *self._broker_processes()])
            if self._told.last and running:
                last = self._told.last
                memory = {**watch.memory(processes, self._run.pid), "heap": watch.heap(self._folder)}
                self.report.samples.append(
                    watch.Sample(
                        self._now,
                        self.report.starts,
                        memory,
                        last["state_bytes"],
                        last["state_rows"],
                        watch.files_below(self._checkpoint),
                    )
                )

    def _broker_processes(self) -> list[Any]:
        return tree(self._broker.pid) if self._broker.pid is not None else []

    # -- judging -----------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        report = self.report
        sent = records.first(self._settings.seed, self._settings.rate, report.records)
        records.verify(sent, self._settings.rate)
        report.shares = answers.shares(sent)
        told = answers.found(self._out, answers.committed(self._broker.bootstrap, self._topics[1]))
        report.rows = {name: table.num_rows for name, table in told.items()}
        report.wrong += answers.accounted(sent, told["passed"], self._checkpoint / "penstock" / "dead-letters")
        report.wrong += answers.differences(answers.expected(sent), told)
        report.wrong += self._counted()
        report.wrong += watch.growth(report.samples)

    def _counted(self) -> Iterator[str]:
        """What the run says that it counted, against what was sent and came out."""
        source, shares = self._told.last["sources"]["s"], self.report.shares
        right = {
            "rows": self.report.records + records.PARTITIONS,
            "late": shares.get(records.LATE, 0),
            "malformed": shares.get(records.MALFORMED, 0),
        }
        for what, count in right.items():
            if source[what] != count:
                yield f"the run counted {source[what]} {what} of s, and there were {count}"
        for name, count in self.report.rows.items():
            if self._told.last["queries"][name]["rows"] != count:
                yield f"the run counted {self._told.last['queries'][name]['rows']} rows of {name}, there are {count}"


def _topics(bootstrap: str, partitions: dict[str, int]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": "0"})
    new = [NewTopic(name, count, 1, config={"retention.ms": "-1"}) for name, count in partitions.items()]
    for made in client.create_topics(new).values():
        made.result(30)
