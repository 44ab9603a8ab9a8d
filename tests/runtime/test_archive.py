"""The class-data archive: mapped when it is whole, written by one process when there is none, never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.runtime.java import require_java
from penstock.runtime.spark.startup import jvm
from penstock.runtime.spark.startup.class_data_archive import archive_options, cache_folder, claim, writing_options


def options(folder: Path, now: float = 0.0) -> str:
    return " ".join(archive_options(require_java(), folder, now))


def written(folder: Path) -> Path:
    """Where the options tell the JVM to write."""
    (told,) = [o for o in writing_options(require_java(), folder) if o.startswith("-XX:ArchiveClassesAtExit=")]
    return Path(told.partition("=")[2])


def test_one_that_was_written_is_mapped_from_then_on(tmp_path: Path) -> None:
    assert options(tmp_path) == ""
    fresh = written(tmp_path)
    fresh.write_bytes(b"\x01\x02\x03\x04 the rest")
    assert f"-XX:SharedArchiveFile={fresh.with_suffix('.jsa')}" in options(tmp_path)
    assert not fresh.exists()
    assert not claim(require_java(), tmp_path)


def test_one_process_writes(tmp_path: Path) -> None:
    """One that was killed meanwhile keeps no other from it for long."""
    assert claim(require_java(), tmp_path) and not claim(require_java(), tmp_path)
    fresh = written(tmp_path)
    fresh.write_bytes(bytes(100))
    os.utime(fresh, (1000, 1000))
    assert options(tmp_path, now=1100) == "" and fresh.exists()
    assert options(tmp_path, now=3000) == "" and not fresh.exists()
    assert claim(require_java(), tmp_path)


def test_no_cache_no_archive(tmp_path: Path) -> None:
    assert cache_folder({"PENSTOCK_CACHE": ""}) is None
    assert cache_folder({"PENSTOCK_CACHE": str(tmp_path)}) == tmp_path
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "penstock"
    (tmp_path / "file").write_text("")
    for folder in (None, tmp_path / "file", tmp_path / "with space"):
        assert archive_options(require_java(), folder) == writing_options(require_java(), folder) == []
        assert not claim(require_java(), folder)


@pytest.mark.parametrize(("is_started", "is_there", "starts"), [(True, False, 1), (False, False, 0), (True, True, 0)])
def test_a_process_that_ran_without_one_has_it_written_behind_it(
    is_started: bool, is_there: bool, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setattr(jvm, "_STARTED", [object()] if is_started else [])
    monkeypatch.setattr(jvm, "_UNUSED", [])
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command))
    if is_there:
        written(tmp_path).write_bytes(b"whole")
    jvm._write_archive()
    jvm._write_archive()
    assert [command[1:] for command in commands] == [["-m", "penstock", "warm", "--only-java"]] * starts


def test_classes_are_verified_where_an_archive_is_written_or_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.delenv(jvm.WRITES_ARCHIVE, raising=False)

    def leaves_out() -> bool:
        options = jvm.jvm_settings({}, require_java())["spark.driver.extraJavaOptions"]
        subprocess.run([require_java() / "bin" / "java", *options.split(), "-version"], check=True, capture_output=True)
        return "-XX:-BytecodeVerificationRemote" in options.split()

    assert leaves_out()
    written(tmp_path).write_bytes(b"whole")
    assert not leaves_out()
    monkeypatch.setenv(jvm.WRITES_ARCHIVE, "1")
    assert not leaves_out()


def test_what_writes_it_leaves_most_of_the_processors_to_others() -> None:
    """Also where processes are grouped by session, in which each group has a niceness of its own."""
    program = "import os; print(os.nice(0))"
    group = Path("/proc/self/autogroup")
    found = subprocess.run(
        [sys.executable, "-c", f"{program}; print(open('{group}').read())" if group.exists() else program],
        capture_output=True, text=True, check=True, start_new_session=True, preexec_fn=jvm._low_priority,
    )  # fmt: skip
    niceness, *rest = found.stdout.split("\n")
    assert niceness == "19"
    assert not group.exists() or rest[0].endswith("nice 5")
