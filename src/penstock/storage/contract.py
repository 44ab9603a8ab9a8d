"""The contract between a run and the storage of its files.

A file written with `write` appears under its name with all its bytes or not at all. What was written with `durable`
survives a loss of power once the call has returned: its bytes and its name. Temporary files have random names, are
created exclusively and never through a link. `private` files and folders are readable and writable by their owner
alone, whatever the umask; the others follow the umask. Errors are OSError; callers turn them into messages for the
user.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa

Bytes: TypeAlias = bytes | bytearray | memoryview


class NewFile(io.RawIOBase, ABC):
    """A new file, written sequentially from its beginning; Arrow's writers accept it as a sink."""

    @abstractmethod
    def sync(self) -> None:
        """Wait until the bytes written so far survive a loss of power. `Storage.sync` does the same for the name."""


class Held(OSError):
    """The file is locked by another process. holder: the text that process wrote into it."""

    def __init__(self, holder: str) -> None:
        super().__init__("the file is locked")
        self.holder = holder


class Locked(Protocol):
    """A lock that this process holds; the end of the process releases it."""

    def is_held(self) -> bool:
        """Return whether the file is still there under its name, so that no other process can lock it."""

    def release(self) -> None:
        """Remove the file and release the lock."""


class Storage(ABC):
    """Files by path."""

    # -- writing -----------------------------------------------------------------------------------------------

    @abstractmethod
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
        """Write a whole file, replacing one of that name. Missing folders are created.

        Args:
            content: its bytes, or a function that writes them.
            stamp: its modification time, in seconds since 1970.
            new: a file of that name is not replaced; of several processes that write one at once, one does.

        Raises:
            FileExistsError: with `new`, there is a file of that name.
        """

    @abstractmethod
    def create(self, path: Path, *, private: bool = True) -> NewFile:
        """Create a file under its own name, which must not exist yet. Missing folders are created, not durably."""

    @abstractmethod
    def make_folder(self, path: Path, *, private: bool = True, durable: bool = True) -> None:
        """Create a folder and its missing parents. Only new folders are made private."""

    @abstractmethod
    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing one of the new name, or a folder to a name that does not exist. Durable once the
        folders of both names are synced.
        """

    @abstractmethod
    def sync(self, *folders: Path) -> None:
        """Make the names in these folders durable: files that were created, renamed or removed."""

    @abstractmethod
    def sync_file(self, path: Path) -> None:
        """Make the bytes of a file durable that another writer wrote."""

    @abstractmethod
    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""

    @abstractmethod
    def remove_tree(self, path: Path) -> None:
        """Remove a folder with its contents, as far as possible, if it exists."""

    @abstractmethod
    def lock(self, path: Path, holder: str) -> Locked:
        """Lock a file, creating it if necessary, and write the text `holder` into it. On a file system without locks,
        no other process is kept out.

        Raises:
            Held: another process has locked the file.
        """

    # -- reading -----------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, path: Path) -> bytes:
        """Return all bytes of a file."""

    @abstractmethod
    def map(self, path: Path) -> pa.Buffer:
        """Map all bytes of a file; they are read on access."""

    @abstractmethod
    def list(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted; none where it does not exist."""

    @abstractmethod
    def exists(self, path: Path) -> bool:
        """Return whether there is a file or folder."""

    @abstractmethod
    def size(self, path: Path) -> int:
        """Return the length of a file in bytes."""
