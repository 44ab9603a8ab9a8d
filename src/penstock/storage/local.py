"""The local file system, by the few system calls that can fail or be lost."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.storage.contract import Bytes, Held, NewFile, Storage

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_FILE, _OWNER_FOLDER = 0o600, 0o700
_ANY_FILE, _ANY_FOLDER = 0o666, 0o777
#: How the names of temporary files begin and end: `.<name>.<random>.tmp`.
TEMPORARY = (".", ".tmp")
#: The errors of a file system without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
#: Maximum bytes that the system writes in one call.
_AT_ONCE = 2**30


class SystemCalls:
    """The system calls that change files, replaceable by tests that count, refuse or lose them."""

    def open(self, path: Path, flags: int, mode: int) -> int:
        return os.open(path, flags, mode)

    def write(self, handle: int, data: memoryview) -> int:
        return os.write(handle, data)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def mkdir(self, path: Path, mode: int) -> None:
        path.mkdir(mode)

    def rmdir(self, path: Path) -> None:
        path.rmdir()


class LocalFile(NewFile):
    def __init__(self, calls: SystemCalls, handle: int) -> None:
        super().__init__()
        self._calls = calls
        self._handle = handle
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        left = memoryview(data).cast("B")
        length = left.nbytes
        while left.nbytes:
            left = left[self._calls.write(self._handle, left[:_AT_ONCE]) :]
        self._length += length
        return length

    def tell(self) -> int:
        return self._length

    def sync(self) -> None:
        self._calls.fsync(self._handle)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._handle)


class LocalStorage(Storage):
    def __init__(self, calls: SystemCalls | None = None) -> None:
        self._calls = calls or SystemCalls()

    # -- writing -----------------------------------------------------------------------------------------------

    def write(
        self,
        path: Path,
        content: Bytes | Callable[[NewFile], object],
        *,
        private: bool = True,
        durable: bool = True,
        stamp: int | None = None,
        new: bool = False,
    ) -> None:
        temporary = path.with_name(f"{TEMPORARY[0]}{path.name}.{secrets.token_hex(6)}{TEMPORARY[1]}")
        if not path.parent.is_dir():
            self.make_folder(path.parent, private=private, durable=durable)
        try:
            with self.create(temporary, private=private) as file:
                content(file) if callable(content) else file.write(content)
                if durable:
                    file.sync()
            if stamp is not None:
                os.utime(temporary, (stamp, stamp), follow_symlinks=False)
            if new:
                self._name_new(temporary, path)
            else:
                self._calls.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                self._calls.unlink(temporary)
            raise
        if durable:
            self.sync(path.parent)

    def _name_new(self, temporary: Path, path: Path) -> None:
        """Give a file its name, in place of its temporary one. Raises FileExistsError where another file has it."""
        try:
            self._calls.link(temporary, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # There, of several processes that give the name at once the last one does.
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            self._calls.rename(temporary, path)
        else:
            self._calls.unlink(temporary)

    def create(self, path: Path, *, private: bool = True) -> NewFile:
        if not path.parent.is_dir():
            self.make_folder(path.parent, private=private, durable=False)
        handle = self._calls.open(path, _NEW, _OWNER_FILE if private else _ANY_FILE)
        if private:
            os.fchmod(handle, _OWNER_FILE)
        return LocalFile(self._calls, handle)

    def make_folder(self, path: Path, *, private: bool = True, durable: bool = True) -> None:
        missing = [path]
        while not missing[-1].parent.is_dir():
            missing.append(missing[-1].parent)
        for folder in reversed(missing):
            try:
                self._calls.mkdir(folder, _OWNER_FOLDER if private else _ANY_FOLDER)
                if private:
                    folder.chmod(_OWNER_FOLDER)
            except FileExistsError:
                # Another task may create the same folder concurrently.
                if not folder.is_dir():
                    raise
        if durable:
            self.sync(*(folder.parent for folder in reversed(missing)))

    def rename(self, source: Path, target: Path) -> None:
        self._calls.rename(source, target)

    def sync(self, *folders: Path) -> None:
        for folder in dict.fromkeys(folders):
            handle = self._calls.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0)
            try:
                self._calls.fsync(handle)
            except OSError as error:
                # Some file systems cannot sync folders.
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
            finally:
                os.close(handle)

    def sync_file(self, path: Path) -> None:
        handle = self._calls.open(path, os.O_RDONLY | os.O_CLOEXEC, 0)
        try:
            self._calls.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._calls.unlink(path)

    def remove_tree(self, path: Path) -> None:
        with suppress(OSError):
            with os.scandir(path) as entries:
                listed = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
            for inner, is_folder in listed:
                if is_folder:
                    self.remove_tree(inner)
                else:
                    self.remove(inner)
            self._calls.rmdir(path)

    def lock(self, path: Path, holder: str) -> LocalLock:
        if not path.parent.is_dir():
            self.make_folder(path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            handle = self._calls.open(path, flags, _OWNER_FILE)
            try:
                if _locked(handle) and _is_still(path, handle):
                    os.ftruncate(handle, 0)
                    self._calls.write(handle, memoryview(holder.encode()))
                    return LocalLock(self, path, handle)
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    # -- reading -----------------------------------------------------------------------------------------------

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def map(self, path: Path) -> pa.Buffer:
        if not self.size(path):
            return pa.py_buffer(b"")
        with pa.memory_map(str(path)) as mapped:
            return mapped.read_buffer()

    def list(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - thousands of paths take longer than the list
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return path.stat().st_size


@dataclass
class LocalLock:
    """A held lock. handle: the locked file, None after release."""

    storage: LocalStorage
    path: Path
    handle: int | None

    def is_held(self) -> bool:
        return self.handle is not None and _is_still(self.path, self.handle)

    def release(self) -> None:
        if self.handle is not None:
            # The name is removed while the lock is held: a process that opened the file earlier then notices that the
            # name no longer refers to it. It may be the lock of another process, if the folder was replaced.
            with suppress(OSError):
                if _is_still(self.path, self.handle):
                    self.storage.remove(self.path)
            os.close(self.handle)
            self.handle = None


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Held(os.pread(handle, 300, 0).decode(errors="replace")) from None
    except OSError:
        # A file system without locks.
        return True
    return True


def _is_still(path: Path, handle: int) -> bool:
    """Return whether the locked file is still the one of that name."""
    try:
        named, opened = path.stat(), os.fstat(handle)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(named.st_mode) and (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
