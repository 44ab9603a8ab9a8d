"""Lock a checkpoint, so that one run at a time uses it.

The lock is the kernel's lock on a file of the checkpoint, so it ends with the process, whatever ends that. Within a
process, a run that has ended releases it even if it was not closed. Where the file system has no locks, nothing is
protected. Only `penstock state` reads a checkpoint without the lock.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.folder import unwritable
from penstock.storage import Held, Locked, storage

_NAME = ".in-use"


def _never() -> bool:
    return False


@dataclass
class CheckpointLock:
    """The lock of a run. lock: None once it has been released; over: whether the run has ended by itself."""

    lock: Locked | None
    over: Callable[[], bool] = _never

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()
            self.lock = None


#: The locks held by this process, by checkpoint.
_HELD: dict[Path, CheckpointLock] = {}


def claim(checkpoint: Path) -> CheckpointLock:
    """Lock `checkpoint`, a folder that need not exist.

    Raises:
        PenstockError: P0609 while another run has locked it, P0601 where it cannot be written.
    """
    resolved = checkpoint.resolve()
    former = _HELD.get(resolved)
    if former is not None and former.over():
        former.release()
    path = resolved / _NAME
    try:
        lock = storage().lock(path, f"{os.getpid()} on {socket.gethostname()}")
    except Held as in_use:
        raise PenstockError(
            "P0609",
            f"the checkpoint {checkpoint} is in use" + (f": by process {in_use.holder}" if in_use.holder else ""),
            hint="stop that run first, or give another --checkpoint",
        ) from None
    except OSError as error:
        raise unwritable(path, error) from error
    _HELD[resolved] = CheckpointLock(lock)
    return _HELD[resolved]
