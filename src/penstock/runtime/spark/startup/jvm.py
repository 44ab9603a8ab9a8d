"""The JVM of a session that Penstock starts, and Spark's Python daemon, started before the imports that need them.

Most of the start of `penstock run` is waiting for this JVM, which needs nothing of Penstock: so it is started first,
and scripts are read meanwhile. Spark's `launch_gateway` starts the same process, by the same script, but only once
pyspark is loaded, and waits for it.

Contract: imports the standard library and modules that need no more. A JVM that was started ahead is used by the
session with the same settings; an unused one is killed as this process ends, so that it writes no archive of the few
classes it has loaded.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import resource
import shlex
import shutil
import signal
import socketserver
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.runtime.java import require_java
from penstock.runtime.spark.startup.class_data_archive import (
    archive_options,
    cache_folder,
    claim,
    spark_home,
    writing_options,
)
from penstock.runtime.spark.startup.daemon import AHEAD, MODULE
from penstock.temporary import leave, temporary_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of a session that Penstock starts. Tasks are tried four times, also in one process: a killed worker must not
#: fail the run.
OWN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "2g",
    # One-time queries run beside the rounds, in a pool of their own (`one_time/`).
    "spark.scheduler.mode": "FAIR",
    "spark.python.daemon.module": MODULE,
    # What Spark remembers of finished jobs, for web pages that are disabled; its default is the last thousand.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "400",
    "spark.sql.ui.retainedExecutions": "20",
}
#: Further settings where all of Spark runs on this machine. No port is open beyond the machine, and connections need
#: the secret that Spark draws in the JVM itself. Python workers are reached by Unix sockets, not by ports: fewer are
#: open, and no batch waits for delayed acknowledgements.
OWN_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
    "spark.python.unix.domain.socket.enabled": "true",
}
#: Masters on this machine as Spark reads them: cores, and how often a task may fail.
_LOCAL_CORES = re.compile(r"local(\[(\*|[1-9][0-9]*)(\s*,\s*[1-9][0-9]*)?\])?")
_LOCAL = re.compile(r"local(\[.*)?")
_SOCKETS_ENABLED, _SOCKETS = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
#: Maximum length of a socket's path in bytes, and the length of Spark's names of sockets.
_LONGEST_SOCKET, _SOCKET_NAME = 103, 43
_ANSWER = "connection"
_DAEMON = "daemon"
#: The environment variable of a process whose JVM writes the archive of classes, `penstock warm`.
WRITES_ARCHIVE = "PENSTOCK_WRITES_ARCHIVE"
#: JVM options that leave out the verification of classes: half of what an archive saves. The archive's are verified.
_UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
#: Number of files that a process may open at once from which on Spark starts and runs; a small run has 400 open.
_FILES = 1024
_UTF_8 = re.compile(r"utf-?8", re.IGNORECASE)


@dataclass(frozen=True)
class Jvm:
    """A starting JVM. settings: Spark's settings at its start; folder: where it writes how to reach it."""

    settings: Mapping[str, str]
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path

    def reached(self) -> tuple[int, str]:
        """Wait for its gateway; return its port and secret. Raises PenstockError P0601."""
        answer = self.folder / _ANSWER
        while not answer.exists():
            if self.process.poll() is not None:
                _TEMPORARY.discard(self.folder)
                leave(self.folder)
                raise not_started(
                    f"its JVM ended with exit code {self.process.returncode}", hint=f"its output is in {self.log}"
                )
            time.sleep(0.01)
        content = answer.read_bytes()
        answer.unlink()
        (port,) = struct.unpack(">i", content[:4])
        return port, content[8:].decode()


#: The JVM that was started ahead and that no session uses yet.
_AHEAD: list[Jvm] = []
#: JVMs started ahead and not requested yet.
_UNUSED: list[Jvm] = []
#: The session that was started ahead, by the arguments of its request; and a function that restores the Ctrl-C handler.
_AWAITED_SESSIONS: dict[
    tuple[str | None, frozenset[tuple[str, str]]], tuple[Future[SparkSession], Callable[[], object]]
] = {}
#: Folders of JVMs, with their logs, that this process removes when it ends.
_TEMPORARY: set[Path] = set()
#: Log files of the JVMs of this process.
_LOGS: list[Path] = []
#: The JVMs that this process started, the last one last.
_STARTED: list[subprocess.Popen[bytes]] = []
#: Seconds to wait for the exit code of a JVM whose connections are gone.
_END_SECONDS = 2.0
#: Daemons started ahead: kept, since Python warns of a process object that is dropped while its process runs.
_DAEMONS: list[subprocess.Popen[bytes]] = []


def local_master() -> str:
    """Return the master for all cores of this machine, with four tries a task."""
    return "local[*,4]"


def session_settings(master: str | None, settings: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings of a session that Penstock starts: the user's settings override Penstock's. Raises
    PenstockError P0601 for a master that Spark cannot have."""
    master_setting = settings.get("spark.master", master or local_master())
    check_master(master_setting, settings)
    return {**OWN, **(OWN_LOCAL if _LOCAL.fullmatch(master_setting) else {}), **settings}


def check_master(master: str, settings: Mapping[str, str]) -> None:
    """Raises PenstockError P0601 for a master that Spark would try to reach without end, or refuse in words of its
    own."""
    if master.startswith("local") and not (_LOCAL_CORES.fullmatch(master) or master.startswith("local-cluster[")):
        hint = "local[4] runs four tasks at once, local[*] as many as this machine has cores"
        raise not_started(f"{master} is no master", hint=hint)
    is_known = any(os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))
    if master == "yarn" and not is_known and not any(name.startswith("spark.hadoop.yarn.") for name in settings):
        hint = "set the variable HADOOP_CONF_DIR to the folder of yarn-site.xml"
        raise not_started("the master yarn needs the address of a cluster", hint=hint)
    if ":" not in master and not master.startswith("local") and master != "yarn":
        raise not_started(f"{master} is no master", hint="local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT")


def start_ahead(settings: Mapping[str, str], master: str | None = None) -> None:
    """Start the JVM that `start_spark` will need with these settings, if possible; otherwise `start_spark` raises the
    error.
    """
    with suppress(PenstockError, OSError):
        if not _AHEAD and (jvm := start_jvm(session_settings(master, settings), None)) is not None:
            _AHEAD.append(jvm)
            _UNUSED.append(jvm)


def await_session(master: str | None, settings: Mapping[str, str]) -> Future[SparkSession]:
    """Start the JVM, and return the future that the start of the session on it fulfils: `start_spark` waits for it
    where it is called with the same arguments. Until then Ctrl-C ends the process at once: raised in the middle of an
    import, it can leave the import lock taken, and the other thread would wait for it for ever."""
    start_ahead(settings, master)
    future: Future[SparkSession] = Future()
    handler = signal.signal(signal.SIGINT, _end)
    _AWAITED_SESSIONS[master, frozenset(settings.items())] = (future, lambda: signal.signal(signal.SIGINT, handler))
    return future


def asked_for(master: str | None, settings: Mapping[str, str]) -> SparkSession | None:
    """Return the session that was started ahead, once it is up, if it has these arguments, else None. From now on what
    was started ahead ends like any other. Raises the error of its start.
    """
    _UNUSED.clear()
    future, restore_handler = _AWAITED_SESSIONS.pop((master, frozenset(settings.items())), (None, None))
    if future is None or restore_handler is None:
        return None
    try:
        return future.result()
    finally:
        restore_handler()


def _end(number: int, _frame: FrameType | None) -> None:
    _kill_unused()
    os._exit(128 + number)


def taken(settings: Mapping[str, str], log: Path | None) -> Jvm | None:
    """Return the JVM that was started ahead with these settings, or one that is started now. None where only Spark
    itself can start or find one. Raises PenstockError P0603.
    """
    if _AHEAD:
        jvm = _AHEAD.pop()
        if jvm.settings == settings and log is None:
            return jvm
        _kill(jvm)
    return start_jvm(settings, log)


@atexit.register
def _kill_unused() -> None:
    if _UNUSED:
        # Threads connected to the JVM would report its end: the one that waits for its answer in the log, the server of
        # its accumulators with a traceback.
        logging.disable()
        socketserver.BaseServer.handle_error = _ignore_error  # type: ignore[assignment,method-assign]  # also of servers that are made already
        for daemon in _DAEMONS:
            daemon.kill()
    while _UNUSED:
        _kill(_UNUSED.pop())


def _ignore_error(_server: socketserver.BaseServer, _request: object, _client: object) -> None:
    """Replaces the printing of a traceback by nothing."""


def _kill(jvm: Jvm) -> None:
    jvm.process.kill()
    jvm.process.wait()
    shutil.rmtree(jvm.folder, ignore_errors=True)


def start_jvm(settings: Mapping[str, str], log: Path | None) -> Jvm | None:
    """Start a JVM as Spark's `launch_gateway` does, without waiting for it. log: a file for its output."""
    java_home = require_java()
    os.environ["JAVA_HOME"] = str(java_home)
    # The data source's workers read the variable, the state operator's the setting: both before the JVM starts.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    submit = spark_home() / "bin" / "spark-submit"
    if os.name != "posix" or "PYSPARK_GATEWAY_PORT" in os.environ or not submit.exists():
        return None
    folder = temporary_folder("jvm-")
    _TEMPORARY.add(folder)
    command = [str(submit)]
    for key, value in {**jvm_settings(settings, java_home), **_sockets(settings, folder)}.items():
        command += ["--conf", f"{key}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    environ = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / _ANSWER)}
    environ |= utf_8_locale(os.environ)
    environ[AHEAD] = str(folder / _DAEMON)
    if settings.get("spark.driver.bindAddress") == OWN_LOCAL["spark.driver.bindAddress"]:
        # Spark's own pages, if enabled, know no other setting for the address on which they listen.
        environ["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", OWN_LOCAL["spark.driver.bindAddress"])
    # The log may contain rows: it is private, and removed when this process ends.
    place = log or folder / "spark.log"
    with os.fdopen(os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as output:
        # The JVM ends when its pipe is closed, which happens when this process ends. Only this process reacts to
        # Ctrl-C.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **environ},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
    _LOGS.append(place)
    _STARTED.append(process)
    return Jvm(dict(settings), process, folder, place)


def utf_8_locale(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which a JVM reads the names of files as UTF-8, as this process does.

    Python does so under the locales C and POSIX, which cron, systemd and small images set. A JVM reads them as ASCII
    there, and every path beyond ASCII ends it.
    """
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    if sys.getfilesystemencoding() != "utf-8" or _UTF_8.search(locale):
        return {}
    return {"LC_ALL": "C.UTF-8"}


def few_files() -> str | None:
    """Return how many files a process may open at once, as a sentence, where Spark needs more; else None."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # a JVM raises its own limit to this one
    if limit == resource.RLIM_INFINITY or limit >= _FILES:
        return None
    return f"a process may open at most {limit} files at once here, too few for Spark"


MORE_FILES = (
    f"raise the hard limit to {4 * _FILES} or more: `ulimit -n` of the shell as root, LimitNOFILE of a unit of "
    "systemd, --ulimit nofile of a container"
)


def not_started(reason: str, cause: BaseException | None = None, hint: str | None = None) -> PenstockError:
    """Return the error P0601 of a Spark that does not start: for `reason`, or since it may open too few files, of which
    Java reports only what it could not load."""
    if few := few_files():
        return PenstockError("P0601", f"Spark does not start: {few} ({reason})", hint=MORE_FILES, cause=cause)
    return PenstockError("P0601", f"Spark does not start: {reason}", hint=hint, cause=cause)


def spark_log() -> bytes:
    """Return the log so far of the JVM that this process started last; empty if it started none."""
    with suppress(OSError, IndexError):
        return _LOGS[-1].read_bytes()
    return b""


def end_started(seconds: float) -> None:
    """End the JVM that this process started last as the end of this process would, and wait for it so long."""
    with suppress(IndexError, OSError, subprocess.TimeoutExpired):
        process = _STARTED[-1]
        if process.stdin is not None:
            process.stdin.close()
        process.wait(seconds)


def how_it_ended() -> str:
    """Return the fate of the JVM that this process started last, as the end of a sentence."""
    with suppress(IndexError, subprocess.TimeoutExpired):
        code = _STARTED[-1].wait(_END_SECONDS)
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"
    return "cannot be reached any more"


def is_unused() -> bool:
    """Return whether a JVM that was started ahead has not been used yet."""
    return bool(_UNUSED)


def _low_priority() -> None:
    """Have this process, a session of its own, leave most of the processors to others.

    Where Linux groups processes by session, each group gets the same share of the processors, and niceness counts
    within a group alone: the group has a niceness of its own. At 5 its weight is a third of others', so that it ends on
    a machine that is never idle too.
    """
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("5", encoding="ascii")


@atexit.register
def _write_archive() -> None:
    """Start `penstock warm` in the background, at a low priority, where this process had to start a JVM without an
    archive of classes: the next one starts in half of the time. A process that is killed starts nothing."""
    if not _STARTED or _UNUSED or WRITES_ARCHIVE in os.environ:
        return
    with suppress(PenstockError, OSError):
        if claim(require_java(), cache_folder()):
            subprocess.Popen(
                [sys.executable, "-m", "penstock", "warm", "--only-java"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=tempfile.gettempdir(),
                start_new_session=True,
                preexec_fn=_low_priority,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )


@atexit.register
def _remove_temporary() -> None:
    for folder in _TEMPORARY:
        shutil.rmtree(folder, ignore_errors=True)


def jvm_settings(settings: Mapping[str, str], java_home: Path) -> dict[str, str]:
    """Return the settings that the JVM itself needs at its start."""
    # This JVM moves bytes and starts often; the second compiler costs seconds at every start and gains nothing here.
    if WRITES_ARCHIVE in os.environ:
        archive = writing_options(java_home, cache_folder())
    else:
        archive = archive_options(java_home, cache_folder()) or [*_UNVERIFIED]
    options = ["-XX:TieredStopAtLevel=1", *archive]
    key = "spark.driver.extraJavaOptions"
    return {**settings, key: " ".join([*options, settings.get(key, "")]).strip()}


def _sockets(settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the setting for the folder of the Python workers' sockets: a private one, unless its path is too long."""
    if settings.get(_SOCKETS_ENABLED) != "true" or _SOCKETS in settings:
        return {}
    # The daemon removes the folder when it takes over, unless it is not empty.
    sockets = folder / "w"
    sockets.mkdir(mode=0o700)
    return {_SOCKETS: str(sockets)} if len(os.fsencode(sockets)) + _SOCKET_NAME <= _LONGEST_SOCKET else {}


def start_daemon(jvm: Jvm, master: str) -> None:
    """Start Spark's Python daemon now: Spark would at the first task, and loading the operators takes longer than all
    that Spark does until then. Where workers run elsewhere, or run another Python, this is left to Spark.
    """
    settings = jvm.settings
    is_own_daemon = settings["spark.python.daemon.module"] == MODULE
    if not (
        is_own_daemon
        and master.startswith("local")
        and settings.get("spark.pyspark.python", sys.executable) == sys.executable
    ):
        return
    # As Spark would start it: Python and libraries read these when they are loaded.
    environ = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": settings.get("spark.task.cpus", "1")}
    environ |= utf_8_locale(os.environ)
    prefix = "spark.executorEnv."
    environ |= {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    with jvm.log.open("ab") as output, suppress(OSError):
        _DAEMONS.append(
            subprocess.Popen(
                [sys.executable, "-m", MODULE, "pyspark.worker", "--ahead", str(jvm.folder / _DAEMON)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environ,
            )
        )
