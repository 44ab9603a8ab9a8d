"""Temporary folders of a process, and removal of those that killed processes left.

A process locks a file in each of its folders, so a folder whose lock is free belongs to a process that has ended. The
next start removes it, except the dead letters of a run, which are the user's. Folders without such a file are left
alone: a checkpoint of the user's may have any name.

Contract: imports the standard library alone, since the JVM is started before anything else is loaded.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # no POSIX: nothing is locked, so nothing is swept
    fcntl = None  # type: ignore[assignment]  # not on Windows

#: The environment variable with the folder in which the workers of one of Spark's daemons find each other.
WORKERS = "PENSTOCK_WORKERS"
_PREFIX = "penstock-"
_LOCK = ".temporary"
#: By folder, the open file whose lock marks it as used.
_HELD: dict[Path, int] = {}
#: Whether this process has removed the folders of ended ones.
_SWEPT = threading.Event()


def temporary_folder(kind: str = "", sweeps: bool = True) -> Path:
    """Create a private folder, locked until this process ends or `release`. sweeps: whether a thread removes the
    folders of ended processes; not in one that is going to fork.
    """
    if sweeps and not _SWEPT.is_set():
        _SWEPT.set()
        threading.Thread(target=sweep_temporary, name="penstock-sweep", daemon=True).start()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX + kind))
    if fcntl is not None:
        # The file gets its name once it is locked: otherwise a sweep could remove the folder as one of an ended
        # process.
        unnamed = folder / f"{_LOCK}-new"
        handle = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _HELD[folder] = handle
        unnamed.rename(folder / _LOCK)
    return folder


@contextmanager
def removed_after(kind: str = "") -> Iterator[Path]:
    """Create a temporary folder, and remove it at the end of the block."""
    folder = temporary_folder(kind)
    try:
        yield folder
    finally:
        discard(folder)


def discard(folder: Path) -> None:
    """Remove a folder of this process with all that it holds."""
    shutil.rmtree(folder, ignore_errors=True)
    release(folder)


def release(folder: Path) -> None:
    """Release the lock of a folder that is no longer used."""
    handle = _HELD.pop(folder, None)
    if handle is not None:
        os.close(handle)


def leave(folder: Path) -> None:
    """Keep a folder after this process ends: a message has named it to the user."""
    release(folder)
    (folder / _LOCK).unlink(missing_ok=True)


def sweep_temporary() -> None:
    """Remove the folders of processes that have ended. What cannot be removed stays."""
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with suppress(OSError):
                _sweep(folder)


def _sweep(folder: Path) -> None:
    if fcntl is None or folder in _HELD or folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        letters = folder / "penstock" / "dead-letters"
        if letters.exists():
            letters.rename(folder.with_name(folder.name + "-dead-letters"))
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
