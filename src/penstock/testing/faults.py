"""Storage that fails: a system call that returns an error, or a loss of power that discards unsynced data.

    with replaced_storage(LocalStorage(FailingCalls("fsync", 3))):
        ...

`FailingCalls` makes the n-th call of a kind fail. `PowerCut` stops everything at the n-th call, and `lose` then
discards what the disk need not hold: bytes of files that were not synced, and names in folders that were not. How much
of that a real disk loses is a matter of chance, so there is more than one way to lose it.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.storage.local import SystemCalls

#: The kinds of calls that can fail.
KINDS = ("open", "write", "fsync", "rename", "unlink", "mkdir", "link")
#: What a loss of power discards: unsynced bytes; names too; or of the names only the latest.
LOSSES = ("bytes", "names", "last names")


class FailingCalls(SystemCalls):
    """Calls of which one fails. `kind`, `number`: the call, counted from 1; with number 0 none fails and calls are only
    counted.
    """

    def __init__(self, kind: str = "", number: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self.failed = False
        self._kind, self._number = kind, number
        self._lock = threading.Lock()

    def _count(self, kind: str, path: object) -> None:
        with self._lock:
            self.counts[kind] += 1
            fails = kind == self._kind and self.counts[kind] == self._number
            self.failed |= fails
        if fails:
            number = errno.ENOSPC if kind in ("write", "open", "mkdir") else errno.EIO
            raise OSError(number, os.strerror(number), str(path))

    def open(self, path: Path, flags: int, mode: int) -> int:
        self._count("open", path)
        return super().open(path, flags, mode)

    def write(self, handle: int, data: memoryview) -> int:
        self._count("write", handle)
        return super().write(handle, data)

    def fsync(self, handle: int) -> None:
        # Tests that use this do not depend on what the disk holds, and syncing takes long.
        self._count("fsync", handle)

    def rename(self, source: Path, target: Path) -> None:
        self._count("rename", target)
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._count("link", target)
        super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._count("unlink", path)
        super().unlink(path)

    def rmdir(self, path: Path) -> None:
        self._count("unlink", path)
        super().rmdir(path)

    def mkdir(self, path: Path, mode: int) -> None:
        self._count("mkdir", path)
        super().mkdir(path, mode)


class PowerLost(BaseException):
    """The power is off: no further call succeeds."""


@dataclass
class _Change:
    """A change of the names in `folder`, and how to revert it. `removed`: the folder that it removed, if any."""

    folder: Path
    undo: Callable[[], None]
    removed: Path | None = None


class PowerCut(SystemCalls):
    """Calls that stop at one of them, with a record of what the disk holds.

    `number`: the first call that is not executed, counted from 1; 0 for none. `spare`: a folder on the same disk, for
    files that may have to be restored.
    """

    def __init__(self, spare: Path, number: int = 0) -> None:
        self.count = 0
        self._number = number
        self._spare = spare
        self._kept = 0
        self._paths: dict[int, Path] = {}
        self._dirty: dict[int, Path] = {}
        self._pending: list[_Change] = []
        self._lock = threading.RLock()

    def _tick(self) -> None:
        self.count += 1
        if self._number and self.count >= self._number:
            raise PowerLost

    def open(self, path: Path, flags: int, mode: int) -> int:
        with self._lock:
            self._tick()
            fresh = bool(flags & os.O_CREAT) and not os.path.lexists(path)
            handle = super().open(path, flags, mode)
            self._paths[handle] = path
            if fresh:
                self._pending.append(_Change(path.parent, lambda: path.unlink(missing_ok=True)))
            return handle

    def write(self, handle: int, data: memoryview) -> int:
        with self._lock:
            self._tick()
            self._dirty[os.fstat(handle).st_ino] = self._paths[handle]
            return super().write(handle, data)

    def fsync(self, handle: int) -> None:
        with self._lock:
            self._tick()
            self._dirty.pop(os.fstat(handle).st_ino, None)
            folder = self._paths[handle]
            self._pending = list(_still_pending(self._pending, folder))

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            self._tick()
            former = self._keep(target)
            super().rename(source, target)
            self._pending.append(_Change(target.parent, lambda: _rename_back(source, target, former)))

    def link(self, source: Path, target: Path) -> None:
        with self._lock:
            self._tick()
            super().link(source, target)
            self._pending.append(_Change(target.parent, lambda: target.unlink(missing_ok=True)))

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._tick()
            former = self._keep(path)
            super().unlink(path)
            self._pending.append(_Change(path.parent, lambda: _bring_back(former, path)))

    def mkdir(self, path: Path, mode: int) -> None:
        with self._lock:
            self._tick()
            super().mkdir(path, mode)
            self._pending.append(_Change(path.parent, lambda: shutil.rmtree(path, ignore_errors=True)))

    def rmdir(self, path: Path) -> None:
        with self._lock:
            self._tick()
            super().rmdir(path)
            self._pending.append(_Change(path.parent, lambda: _make_again(path), path))

    def _keep(self, path: Path) -> Path | None:
        """Link another name to the file at `path`, which is about to lose its own."""
        if not path.is_file():
            return None
        self._kept += 1
        spare = self._spare / str(self._kept)
        os.link(path, spare)
        return spare

    def lose(self, how: str, draw: random.Random, below: Iterable[Path]) -> None:
        """Discard what was not synced of the files below these folders. `how` is one of LOSSES."""
        for path in (p for folder in below for p in folder.rglob("*") if p.is_file()):
            status = path.stat()
            if status.st_ino in self._dirty:
                os.truncate(path, draw.randrange(status.st_size + 1))
        lost = self._pending
        if how == "bytes":
            lost = []
        elif how == "last names":
            lost = lost[draw.randrange(len(lost) + 1) :]
        for change in reversed(lost):
            change.undo()


def _still_pending(changes: list[_Change], synced: Path) -> Iterator[_Change]:
    """Yield the changes that may be lost once the folder `synced` is on the disk. What was done in a folder whose
    removal is on the disk cannot come back, nor appear in a new folder of that name.
    """
    for number, change in enumerate(changes):
        gone = (later.removed for later in changes[number:] if later.folder == synced and later.removed is not None)
        if change.folder != synced and not any(change.folder.is_relative_to(folder) for folder in gone):
            yield change


def _rename_back(source: Path, target: Path, former: Path | None) -> None:
    if target.exists():
        if source.parent.is_dir():
            target.rename(source)
        else:
            target.unlink()
    _bring_back(former, target)


def _make_again(path: Path) -> None:
    if path.parent.is_dir():
        path.mkdir(exist_ok=True)


def _bring_back(former: Path | None, path: Path) -> None:
    if former is not None and former.exists() and path.parent.is_dir():
        former.rename(path)
