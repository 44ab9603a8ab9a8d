"""A storage of a process that may die."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.storage.local import LocalLock, LocalStorage, SystemCalls


class MortalStorage(LocalStorage):
    """A storage whose process may die: the kernel then releases its locks."""

    def __init__(self, calls: SystemCalls) -> None:
        super().__init__(calls)
        self._locks: list[LocalLock] = []

    def lock(self, path: Path, holder: str) -> LocalLock:
        self._locks.append(super().lock(path, holder))
        return self._locks[-1]

    def die(self) -> None:
        for lock in self._locks:
            if lock.handle is not None:
                os.close(lock.handle)
                lock.handle = None
