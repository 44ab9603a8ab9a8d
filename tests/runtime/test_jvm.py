"""A JVM that is started ahead: taken by who wants the same, killed where nobody does."""

from __future__ import annotations

import os
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
