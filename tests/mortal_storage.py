"""A storage of a process that may die."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import penstock.storage
from penstock.storage import Storage, replaced_storage
from penstock.storage.local import LocalLock, LocalStorage, SystemCalls
from penstock.testing.faults import PowerLost


class _ByThread(list[Storage]):
    """The present storage. Threads of a process that has died keep theirs: what they do later reaches no disk."""

    def __init__(self, storages: list[Storage]) -> None:
        super().__init__(storages)
        self.of_dead: WeakKeyDictionary[threading.Thread, Storage] = WeakKeyDictionary()

    def __getitem__(self, place: Any) -> Any:
        return self.of_dead.get(threading.current_thread()) or super().__getitem__(place)


_STORAGES = _ByThread(penstock.storage._CURRENT)
penstock.storage._CURRENT = _STORAGES


class MortalStorage(LocalStorage):
    """A storage whose process may die: the kernel then releases its locks. Its threads are those that begin while it
    lives."""

    def __init__(self, calls: SystemCalls) -> None:
        super().__init__(calls)
        self._locks: list[LocalLock] = []
        self._others = {*threading.enumerate()}

    def lock(self, path: Path, holder: str) -> LocalLock:
        self._locks.append(super().lock(path, holder))
        return self._locks[-1]

    @contextmanager
    def living(self) -> Iterator[None]:
        """Use it, until its process dies of a loss of power."""
        with replaced_storage(self):
            try:
                yield
            except PowerLost:
                self.die()

    def die(self) -> None:
        for thread in {*threading.enumerate()} - self._others:
            _STORAGES.of_dead[thread] = self
        for lock in self._locks:
            if lock.handle is not None:
                os.close(lock.handle)
                lock.handle = None
