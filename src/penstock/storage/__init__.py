"""Where the files of a run are written, named, read and removed: one small interface (`contract.py`).

Checkpoint, state, rounds, spool, dead letters and the results of FILES all go through `storage()`. It is the local file
system (`local.py`); tests replace it by one whose calls fail or lose data (`penstock.testing.faults`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.storage.contract import Held, Locked, NewFile, Storage
from penstock.storage.local import LocalStorage

__all__ = ["Held", "Locked", "NewFile", "Storage", "replaced_storage", "storage"]

_CURRENT: list[Storage] = [LocalStorage()]


def storage() -> Storage:
    """Return the storage that this process uses."""
    return _CURRENT[-1]


@contextmanager
def replaced_storage(other: Storage) -> Iterator[None]:
    """Use `other` instead of the present storage, in all threads of this process."""
    _CURRENT.append(other)
    try:
        yield
    finally:
        _CURRENT.remove(other)
