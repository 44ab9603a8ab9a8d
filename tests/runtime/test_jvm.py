"""A JVM that is started ahead: taken by who wants the same, killed where nobody does."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.runtime.spark.startup import jvm
from penstock.runtime.spark.startup.early_session import start_session_ahead

#: In place of Spark's script: tells a port and a secret as the gateway does, and lives until its input ends.
_SUBMIT = """#!/bin/sh
printf '%s\\n' "$@" "SPARK_LOCAL_IP=$SPARK_LOCAL_IP" > "$(dirname "$0")/told"
printf '\\000\\000\\060\\071\\000\\000\\000\\006secret' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    script = tmp_path / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(_SUBMIT)
    script.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("PENSTOCK_CACHE", "")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    # Both are told to this process when a JVM is started.
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(jvm, "_AHEAD", [])
    monkeypatch.setattr(jvm, "_UNUSED", [])
    monkeypatch.setattr(jvm, "_DAEMONS", [])
    monkeypatch.setattr("logging.disable", lambda: None)
    yield script
    jvm._kill_unused()


def test_the_same_settings_take_the_one_started_ahead(submit: Path, tmp_path: Path) -> None:
    jvm.start_ahead({"spark.driver.memory": "3g"})
    (ahead,) = jvm._AHEAD
    found = jvm.taken(jvm.session_settings(None, {"spark.driver.memory": "3g"}), None)
    assert found is ahead
    assert not jvm._AHEAD
    assert found.reached() == (12345, "secret")
    assert "spark.driver.memory=3g" in (submit.parent / "told").read_text().splitlines()
    found.process.communicate()
    assert found.process.returncode == 0


def test_other_settings_get_one_of_their_own(submit: Path, tmp_path: Path) -> None:
    jvm.start_ahead({})
    (ahead,) = jvm._AHEAD
    found = jvm.taken(jvm.session_settings(None, {"spark.driver.memory": "3g"}), None)
    assert found is not None
    assert found is not ahead
    assert ahead.process.wait() < 0
    found.process.communicate()


def test_one_that_ends_is_told_with_its_log(submit: Path, tmp_path: Path) -> None:
    submit.write_text("#!/bin/sh\nexit 7\n")
    found = jvm.taken(jvm.session_settings(None, {}), tmp_path / "log")
    assert found is not None
    with pytest.raises(PenstockError) as caught:
        found.reached()
    assert caught.value.code == "P0601"
    assert "exit code 7" in caught.value.message
    assert str(tmp_path / "log") in (caught.value.hint or "")


def test_without_sparks_script_it_is_left_to_spark(submit: Path) -> None:
    submit.unlink()
    jvm.start_ahead({})
    assert not jvm._AHEAD
    assert jvm.taken(jvm.session_settings(None, {}), None) is None


def test_ctrl_c_while_both_threads_import_ends_at_once(submit: Path) -> None:
    light = """
import os, signal, sys, time
import penstock.runtime.spark.startup.jvm as jvm
from penstock.runtime.spark.startup.early_session import start_session_ahead
sys.modules["penstock.runtime.spark.startup.session"] = jvm  # nothing of Spark's is loaded
jvm.start_now = lambda *_: time.sleep(60)
start_session_ahead(None, {})
print(jvm._AHEAD[0].process.pid, flush=True)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", light], env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")
    assert not Path(f"/proc/{ended.stdout.strip()}").exists()


def test_the_session_started_ahead_is_waited_for(submit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.runtime.spark.startup import session

    made: list[tuple[object, ...]] = []
    monkeypatch.setattr(session, "start_now", lambda *given: made.append(given) or "session")
    before = signal.getsignal(signal.SIGINT)
    start_session_ahead("local[1]", {"spark.a": "b"})
    assert session.start_spark("local[1]", None, {"spark.a": "c"}) == "session"
    assert session.start_spark("local[1]", None, {"spark.a": "b"}) == "session"
    assert session.start_spark("local[1]", None, {"spark.a": "b"}) == "session"
    assert [settings for _, _, settings in made].count({"spark.a": "b"}) == 2
    assert signal.getsignal(signal.SIGINT) is before


def _told(submit: Path) -> list[str]:
    return (submit.parent / "told").read_text().splitlines()


@pytest.mark.parametrize("master", [None, "local", "local[2,4]"])
def test_spark_on_this_machine_listens_there_alone(submit: Path, master: str | None) -> None:
    found = jvm.taken(jvm.session_settings(master, {}), None)
    assert found is not None
    found.reached()
    told = _told(submit)
    for setting in ("driver.host=127.0.0.1", "driver.bindAddress=127.0.0.1", "authenticate=true"):
        assert f"spark.{setting}" in told
    assert "SPARK_LOCAL_IP=127.0.0.1" in told
    (place,) = (Path(line.partition("=")[2]) for line in told if line.startswith("spark.python.unix.domain.socket.dir"))
    assert place.parent == found.folder
    assert place.stat().st_mode & 0o777 == 0o700
    found.process.communicate()


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_nothing_is_chosen_for_a_cluster(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "conf")
    assert jvm.session_settings(master, {}) == jvm.OWN
    assert jvm.session_settings(None, {"spark.master": master}) == {**jvm.OWN, "spark.master": master}


def test_what_the_user_sets_wins(submit: Path) -> None:
    settings = {"spark.driver.bindAddress": "0.0.0.0", "spark.python.unix.domain.socket.enabled": "false"}
    found = jvm.taken(jvm.session_settings(None, settings), None)
    assert found is not None
    found.reached()
    told = _told(submit)
    assert "spark.driver.bindAddress=0.0.0.0" in told
    assert "SPARK_LOCAL_IP=" in told
    assert not any(line.startswith("spark.python.unix.domain.socket.dir") for line in told)
    found.process.communicate()


def test_a_folder_whose_path_is_too_long_for_sockets_holds_none(
    submit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    found = jvm.taken(jvm.session_settings(None, {}), None)
    assert found is not None
    found.reached()
    assert not any("socket.dir" in line for line in _told(submit))
    found.process.communicate()


def test_servers_that_miss_a_jvm_that_was_killed_print_nothing(submit: Path) -> None:
    code = """
import socket, socketserver, threading
import penstock.runtime.spark.startup.jvm as jvm
class Misses(socketserver.BaseRequestHandler):
    def handle(self):
        raise EOFError
for ending in (False, True):
    if ending:
        jvm.start_ahead({})
        jvm._kill_unused()
    with socketserver.TCPServer(("127.0.0.1", 0), Misses) as server, socket.create_connection(server.server_address):
        server.handle_request()
    print("killed" if ending else "before", flush=True)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert found.stdout == "before\nkilled\n"
    assert found.stderr.count("EOFError") == 1


def _call_that_fails(error: str) -> str:
    """Return a program whose process has a log, and in which a function fails that Spark calls."""
    return f"""
import io, logging, types
logging.basicConfig()
from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JError, Py4JNetworkError
from penstock.errors import PenstockError
from penstock.runtime.spark.startup import session
server = types.SimpleNamespace(handle_error=None)
session._silence_reports_of_its_end(types.SimpleNamespace(sparkContext=types.SimpleNamespace(_accumulatorServer=server)))
def call():
    raise {error}
connection = types.SimpleNamespace(
    pool={{"batch": types.SimpleNamespace(call=call)}}, _get_params=lambda input: [],
    python_parameters=types.SimpleNamespace(propagate_java_exceptions=False),
)
assert "Traceback" in ClientServerConnection._call_proxy(connection, "batch", io.BytesIO(b"call\\n"))
"""


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        ("Py4JError('An error occurred while calling o222.getResult')", False),
        ("Py4JNetworkError('Answer from Java side is empty')", False),
        ("PenstockError('P0502', 'the disk is full')", False),
        ("ValueError('a mistake in the code')", True),
    ],
)
def test_a_batch_that_fails_prints_no_traceback_beside_the_error_of_the_run(error: str, printed: bool) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = _call_that_fails(error)
    found = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert ("Traceback" in found.stderr) == printed, found.stderr


def test_errors_that_a_program_logs_itself_are_printed() -> None:
    from penstock.runtime.spark.startup import session

    own = logging.LogRecord("", logging.ERROR, __file__, 1, "text", None, (OSError, ConnectionResetError(), None))
    assert session._is_news(own)


@pytest.mark.parametrize("joined", [True, False])
def test_a_script_that_ends_first_stops_its_runs_and_joins_its_threads(joined: bool) -> None:
    """Without that, a thread that comes back from Arrow aborts the process: exit code 134."""
    code = f"""
import os, threading, time
import pyarrow as pa
from penstock.runtime.spark.startup import session
schema = pa.schema([("a", pa.int64())])
class Run:
    over = False
    def stop(self):
        self.over = True
        if not {joined}:
            thread.join()
        os.write(1, b"stopped\\n")
run = Run()
def batches():
    while not run.over:
        time.sleep(0.0005)
        yield rows
    os.write(1, b"read\\n")
rows = pa.record_batch([pa.array([1])], schema)
thread = threading.Thread(target=lambda: pa.RecordBatchReader.from_batches(schema, batches()).read_all(), daemon=True)
thread.start()
if {joined}:
    session._THREADS.append(thread)
session.stop_at_end(run)
time.sleep(0.1)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    assert sorted(found.stdout.split()) == ["read", "stopped"]


@pytest.mark.parametrize(
    ("locale", "made"),
    [
        ({}, {"LC_ALL": "C.UTF-8"}),
        ({"LANG": "en_US.UTF-8"}, {}),
        ({"LANG": "en_US.utf8", "LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}),
        ({"LC_CTYPE": "C.UTF-8"}, {}),
        ({"LC_ALL": "", "LANG": "POSIX"}, {"LC_ALL": "C.UTF-8"}),
    ],
)
def test_a_jvm_reads_names_of_files_as_utf_8(
    locale: dict[str, str], made: dict[str, str], submit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under LC_ALL=C a folder beyond ASCII ended it in NoClassDefFoundError."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    assert jvm.utf_8_locale(os.environ) == made
    submit.write_text(_SUBMIT.replace('"SPARK_LOCAL_IP=$SPARK_LOCAL_IP"', '"LC_ALL=$LC_ALL"'))
    found = jvm.taken(jvm.session_settings(None, {}), None)
    assert found is not None
    found.reached()
    assert f"LC_ALL={made.get('LC_ALL', locale.get('LC_ALL', ''))}" in _told(submit)
    found.process.communicate()


def test_too_few_open_files_are_the_reason(submit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java tells of them only the class or the file that it could not read."""
    submit.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    found = jvm.taken(jvm.session_settings(None, {}), tmp_path / "log")
    assert found is not None
    with pytest.raises(PenstockError, match="at most 256 files at once") as caught:
        found.reached()
    assert caught.value.code == "P0601" and "LimitNOFILE" in (caught.value.hint or "")


def test_files_that_run_out_later_are_named_too() -> None:
    from penstock.runtime.spark.output.failures import translate

    failure = translate(ValueError("java.nio.file.FileSystemException: x: Too many open files"))
    assert failure.code == "P0601" and "too many files are open" in failure.message
