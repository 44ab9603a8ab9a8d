"""The JVM of a session of our own, and Spark's Python daemon, started before anything else is imported that needs them.

What `penstock run` waits for at its start is mostly this JVM, and it needs nothing of ours: so it is started first, and
scripts are read while it comes up. Spark's `launch_gateway` starts the same process, by the same script, but only once
pyspark is loaded, and waits for it.

Contract: needs the standard library and what needs no more. A JVM that was started ahead is taken by the session whose
settings are the same; one that nobody takes is killed as this process ends, so that it leaves no archive of the few
classes it has seen.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.runtime.java import require_java
from penstock.runtime.spark.archive import archive_options, cache_folder, spark_home
from penstock.runtime.spark.daemon import AHEAD, MODULE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What a session of our own is started with. Tasks are tried four times, also in one process: a worker that is killed
#: must not fail the run.
OWN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "2g",
    "spark.python.daemon.module": MODULE,
    # What Spark keeps of the jobs that are done, for pages that nobody is shown: by default of the last thousand.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "400",
    "spark.sql.ui.retainedExecutions": "20",
}
_ANSWER = "connection"
_DAEMON = "daemon"


@dataclass(frozen=True)
class Jvm:
    """A JVM that is coming up. settings: Spark's, that it was started with; folder: where it tells how to reach it."""

    settings: Mapping[str, str]
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path

    def reached(self) -> tuple[int, str]:
        """The port and the secret of its gateway, once it has one. Raises PenstockError P0601."""
        answer = self.folder / _ANSWER
        while not answer.exists():
            if self.process.poll() is not None:
                raise PenstockError(
                    "P0601", f"Spark does not start: its JVM ended with exit code {self.process.returncode}",
                    hint=f"what it said is in {self.log}",
                )  # fmt: skip
            time.sleep(0.01)
        told = answer.read_bytes()
        answer.unlink()
        (port,) = struct.unpack(">i", told[:4])
        return port, told[8:].decode()


#: The one that was started ahead and that no session uses yet.
_AHEAD: list[Jvm] = []
#: What was started ahead and nobody has asked for yet.
_UNWANTED: list[Jvm] = []
#: The session that was started ahead, by what it was asked for with.
_COMING: dict[tuple[str | None, frozenset[tuple[str, str]]], Future[SparkSession]] = {}
#: Daemons started ahead: kept, as who drops one is warned of a process that runs on.
_DAEMONS: list[subprocess.Popen[bytes]] = []


def start_ahead(settings: Mapping[str, str]) -> None:
    """Start the JVM that `start_spark` will want with these settings, if there can be one; whoever wants it will be
    told why not."""
    with suppress(PenstockError, OSError):
        if not _AHEAD and (jvm := start_jvm({**OWN, **settings}, None)) is not None:
            _AHEAD.append(jvm)
            _UNWANTED.append(jvm)


def start_session_ahead(master: str | None, settings: Mapping[str, str]) -> None:
    """Have the session come up too, while this thread does something else: `start_spark` waits for it where it is asked
    for the same."""
    start_ahead(settings)
    coming: Future[SparkSession] = Future()
    _COMING[master, frozenset(settings.items())] = coming

    def start() -> None:
        try:
            from penstock.runtime.spark.session import start_now

            coming.set_result(start_now(master, None, settings))
        except BaseException as error:
            coming.set_exception(error)

    threading.Thread(target=start, name="penstock-spark", daemon=True).start()


def asked_for(master: str | None, settings: Mapping[str, str]) -> Future[SparkSession] | None:
    """The session that was started ahead as it is wanted now. From here on what was started ahead ends as any other."""
    _UNWANTED.clear()
    return _COMING.pop((master, frozenset(settings.items())), None)


def taken(settings: Mapping[str, str], log: Path | None) -> Jvm | None:
    """The JVM that was started ahead with these settings, or one that is started now. None where only Spark itself
    knows how to start or to find one. Raises PenstockError P0603."""
    if _AHEAD:
        jvm = _AHEAD.pop()
        if jvm.settings == settings and log is None:
            return jvm
        _forget(jvm)
    return start_jvm(settings, log)


@atexit.register
def _forget_unwanted() -> None:
    while _UNWANTED:
        _forget(_UNWANTED.pop())


def _forget(jvm: Jvm) -> None:
    jvm.process.kill()
    jvm.process.wait()
    shutil.rmtree(jvm.folder, ignore_errors=True)


def start_jvm(settings: Mapping[str, str], log: Path | None) -> Jvm | None:
    """As Spark's `launch_gateway` starts one, without waiting for it. log: a file that takes what it prints."""
    java_home = require_java()
    os.environ["JAVA_HOME"] = str(java_home)
    # The data source's workers read the variable, the state operator's the setting: both before the JVM starts.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    submit = spark_home() / "bin" / "spark-submit"
    if os.name != "posix" or "PYSPARK_GATEWAY_PORT" in os.environ or not submit.exists():
        return None
    command = [str(submit)]
    for key, value in jvm_settings(settings, java_home).items():
        command += ["--conf", f"{key}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    folder = Path(tempfile.mkdtemp(prefix="penstock-jvm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    told = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / _ANSWER)}
    told[AHEAD] = str(folder / _DAEMON)
    place = log or Path(tempfile.gettempdir()) / f"penstock-spark-{os.getpid()}.log"
    with place.open("ab") as output:
        # It ends when the pipe to it is closed, which is when this process ends. Ctrl-C is for this process alone.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env={**os.environ, **told},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )  # fmt: skip
    return Jvm(dict(settings), process, folder, place)


def jvm_settings(settings: Mapping[str, str], java_home: Path) -> dict[str, str]:
    """What the JVM itself must be told when it starts."""
    # It moves bytes and starts often; its second compiler costs seconds at every start and gains nothing here.
    options = ["-XX:TieredStopAtLevel=1", *archive_options(java_home, cache_folder())]
    key = "spark.driver.extraJavaOptions"
    return {**settings, key: " ".join([*options, settings.get(key, "")]).strip()}


def start_daemon(jvm: Jvm, master: str) -> None:
    """Start Spark's Python daemon now: Spark would when the first task runs, and loading the operators takes longer
    than all that Spark does up to then. Where the workers are elsewhere, or are other ones, it is left to Spark."""
    settings = jvm.settings
    ours = settings["spark.python.daemon.module"] == MODULE
    if not (
        ours and master.startswith("local") and settings.get("spark.pyspark.python", sys.executable) == sys.executable
    ):
        return
    # As Spark would start it: these are looked at when Python starts and when libraries are loaded.
    environ = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": settings.get("spark.task.cpus", "1")}
    prefix = "spark.executorEnv."
    environ |= {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    with jvm.log.open("ab") as output, suppress(OSError):
        _DAEMONS.append(
            subprocess.Popen(
                [sys.executable, "-m", MODULE, "--ahead", str(jvm.folder / _DAEMON)],
                stdin=subprocess.PIPE, stdout=output, stderr=output, env=environ,
            )
        )  # fmt: skip
