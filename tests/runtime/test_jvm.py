"""A JVM that is started ahead: taken by who wants the same, killed where nobody does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.runtime.spark import jvm

#: In place of Spark's script: tells a port and a secret as the gateway does, and lives until its input ends.
_SUBMIT = """#!/bin/sh
printf '%s\\n' "$@" > "$(dirname "$0")/told"
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
    # Both are told to this process when a JVM is started.
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(jvm, "_AHEAD", [])
    monkeypatch.setattr(jvm, "_UNWANTED", [])
    monkeypatch.setattr(jvm, "_DAEMONS", [])
    monkeypatch.setattr("logging.disable", lambda: None)
    yield script
    jvm._forget_unwanted()


def test_the_same_settings_take_the_one_started_ahead(submit: Path, tmp_path: Path) -> None:
    jvm.start_ahead({"spark.driver.memory": "3g"})
    (ahead,) = jvm._AHEAD
    found = jvm.taken({**jvm.OWN, "spark.driver.memory": "3g"}, None)
    assert found is ahead
    assert not jvm._AHEAD
    assert found.reached() == (12345, "secret")
    assert "spark.driver.memory=3g" in (submit.parent / "told").read_text().splitlines()
    found.process.communicate()
    assert found.process.returncode == 0


def test_other_settings_get_one_of_their_own(submit: Path, tmp_path: Path) -> None:
    jvm.start_ahead({})
    (ahead,) = jvm._AHEAD
    found = jvm.taken({**jvm.OWN, "spark.driver.memory": "3g"}, None)
    assert found is not None
    assert found is not ahead
    assert ahead.process.wait() < 0
    found.process.communicate()


def test_one_that_ends_is_told_with_its_log(submit: Path, tmp_path: Path) -> None:
    submit.write_text("#!/bin/sh\nexit 7\n")
    found = jvm.taken(jvm.OWN, tmp_path / "log")
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
    assert jvm.taken(jvm.OWN, None) is None


def test_ctrl_c_while_both_threads_import_ends_at_once(submit: Path) -> None:
    light = """
import os, signal, sys, time
import penstock.runtime.spark.jvm as jvm
sys.modules["penstock.runtime.spark.session"] = jvm  # nothing of Spark's is loaded
jvm.start_now = lambda *_: time.sleep(60)
jvm.start_session_ahead(None, {})
print(jvm._AHEAD[0].process.pid, flush=True)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", light], env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")
    assert not Path(f"/proc/{ended.stdout.strip()}").exists()


def test_the_session_started_ahead_is_waited_for(submit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.runtime.spark import session

    made: list[tuple[object, ...]] = []
    monkeypatch.setattr(session, "start_now", lambda *given: made.append(given) or "session")
    before = signal.getsignal(signal.SIGINT)
    jvm.start_session_ahead("local[1]", {"spark.a": "b"})
    assert session.start_spark("local[1]", None, {"spark.a": "c"}) == "session"
    assert session.start_spark("local[1]", None, {"spark.a": "b"}) == "session"
    assert session.start_spark("local[1]", None, {"spark.a": "b"}) == "session"
    assert [settings for _, _, settings in made].count({"spark.a": "b"}) == 2
    assert signal.getsignal(signal.SIGINT) is before
