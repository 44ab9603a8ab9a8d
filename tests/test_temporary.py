"""Temporary folders of processes that were killed: swept, but for what is somebody's."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock import temporary

#: Makes two folders, one with a dead letter, says where they are and waits to be killed.
HOLDS = """
import sys, time
from penstock.temporary import temporary_folder
folders = [temporary_folder("jvm-"), temporary_folder()]
(folders[1] / "penstock" / "dead-letters").mkdir(parents=True)
(folders[1] / "penstock" / "dead-letters" / "s.jsonl").write_text("{}")
print(*folders, flush=True)
time.sleep(100)
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_what_a_killed_process_left_is_swept_but_for_dead_letters(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", HOLDS], env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folders = [Path(name) for name in process.stdout.readline().split()]
        temporary.sweep_temporary()
        assert [folder.exists() for folder in folders] == [True, True]
        process.send_signal(signal.SIGKILL)
    temporary.sweep_temporary()
    (kept,) = tmp_path.iterdir()
    assert kept.name == f"{folders[1].name}-dead-letters"
    assert (kept / "s.jsonl").read_text() == "{}"
    temporary.sweep_temporary()
    assert kept.exists()


def test_a_folder_in_the_making_is_not_swept_by_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = fcntl.flock

    def swept_before_it_is_locked(handle: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", locked)
        temporary.sweep_temporary()
        locked(handle, how)

    monkeypatch.setattr(temporary, "_SWEPT", swept := threading.Event())
    swept.set()
    monkeypatch.setattr(temporary, "_HELD", {})  # what another process would know of it
    monkeypatch.setattr(fcntl, "flock", swept_before_it_is_locked)
    folder = temporary.temporary_folder("jvm-")
    assert folder.exists()
    assert fcntl.flock is locked
    temporary.release(folder)


def test_what_is_somebodys_is_left_alone(tmp_path: Path) -> None:
    held = temporary.temporary_folder()
    told = temporary.temporary_folder("jvm-")
    temporary.leave(told)
    checkpoint = tmp_path / "penstock-mine"
    checkpoint.mkdir()
    (checkpoint / ".in-use").touch()
    (tmp_path / "penstock-link").symlink_to(checkpoint)
    before = sorted(tmp_path.iterdir())
    temporary.sweep_temporary()
    assert sorted(tmp_path.iterdir()) == before
    assert held.stat().st_mode & 0o777 == 0o700
    temporary.release(held)
    temporary.sweep_temporary()
    assert not held.exists()
