"""A Kafka broker for tests: Apache Kafka's own KRaft server, one node on loopback, in a folder of its own.

Its jars come from Maven Central by the Ivy that PySpark brings along, once per machine into the user's cache, and are
compared with the digests in `kafka_broker.sha256`. The broker can be stopped and started again on the same port and
data, and is ended by its process id.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from tests.servers import maven

VERSION = "4.1.0"
_LOCK = Path(__file__).with_name("kafka_broker.sha256")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=100
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""


class Unavailable(Exception):
    """Why there can be no broker here."""


def java() -> str:
    try:
        return maven.java()
    except maven.NoJars as error:
        raise Unavailable(str(error)) from None


def jars() -> Path:
    """The folder of the server's jars, fetched if need be."""
    try:
        return maven.jars("org.apache.kafka", "kafka_2.13", VERSION, _LOCK)
    except maven.NoJars as error:
        raise Unavailable(str(error)) from None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Broker:
    """One broker. A context: it is gone with its data behind it."""

    def __init__(self) -> None:
        self._jars = jars()
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        properties = _PROPERTIES.format(port=self.port, controller=_free_port(), folder=self.folder)
        (self.folder / "server.properties").write_text(properties)
        (self.folder / "log4j2.yaml").write_text("Configuration:\n  Loggers:\n    Root:\n      level: 'OFF'\n")
        identity = uuid.uuid4().hex[:22]
        done = subprocess.run(
            self._command("kafka.tools.StorageTool", "format", "-t", identity, "-c"),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its process, None while it is stopped."""
        return None if self._process is None else self._process.pid

    def start(self, seconds: float = 120) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "server.out").open("ab") as out:
            command = self._command("kafka.Kafka")
            self._process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        until = time.monotonic() + seconds
        while True:
            try:
                if client.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                pass
            out_text = (self.folder / "server.out").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, out_text
            assert time.monotonic() < until, out_text

    def stop(self, hard: bool = False) -> None:
        """Stop it; the data stay. hard: as a crash does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30)
        self._process = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(hard=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self, main: str, *arguments: str) -> list[str]:
        small = ["-Xmx384m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        logs = f"-Dlog4j2.configurationFile={self.folder}/log4j2.yaml"
        start = [java(), *small, logs, "-cp", f"{self._jars}/*", main, *arguments]
        return [*start, str(self.folder / "server.properties")]
