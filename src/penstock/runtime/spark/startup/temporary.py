"""Temporary folders of a process, and those that processes which were killed have left behind.

A process locks a file in each of its folders, so a folder whose lock is free belongs to nobody any more. It is removed
at the next start, but for the dead letters of a run, which are the user's. Folders without such a file are left alone:
a checkpoint that somebody keeps may have any name.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # no POSIX: nothing is locked, so nothing is swept
    fcntl = None  # type: ignore[assignment]

_PREFIX = "penstock-"
_LOCK = ".temporary"
#: By folder, the open file whose lock says that it is used.
_HELD: dict[Path, int] = {}
#: Whether this process has looked for what others left.
_SWEPT = threading.Event()


def temporary_folder(kind: str = "") -> Path:
    """A new folder that is nobody else's to read. `let_go` is for who removes it before the process ends."""
    if not _SWEPT.is_set():
        _SWEPT.set()
        threading.Thread(target=sweep_temporary, name="penstock-sweep", daemon=True).start()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX + kind))
    if fcntl is not None:
        # The file gets its name once it is locked: a sweep in between would take the folder for one of the dead.
        unnamed = folder / f"{_LOCK}-new"
        handle = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _HELD[folder] = handle
        unnamed.rename(folder / _LOCK)
    return folder


def let_go(folder: Path) -> None:
    """The folder is used no longer."""
    handle = _HELD.pop(folder, None)
    if handle is not None:
        os.close(handle)


def leave(folder: Path) -> None:
    """The folder stays when this process ends, and nobody sweeps it: somebody was told to look into it."""
    let_go(folder)
    (folder / _LOCK).unlink(missing_ok=True)


def sweep_temporary() -> None:
    """Remove the folders of processes that are gone. What cannot be removed stays."""
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
