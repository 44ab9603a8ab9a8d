"""One run at a time may use a checkpoint.

A claim is the kernel's lock on a file of the checkpoint, so it goes with the process, whatever ends that. Within a
process a run that is over lets go of it, also when nobody has closed it. Where the file system knows no locks, nothing
is guarded. Only `penstock state` looks into a checkpoint without a claim.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.runtime.spark.folder import unwritable

_NAME = ".in-use"


def _never() -> bool:
    return False


@dataclass
class Claim:
    """What a run holds. over: whether the run has ended by itself; None for handle: it has been released."""

    place: Path
    handle: int | None
    over: Callable[[], bool] = _never

    def release(self) -> None:
        if self.handle is not None:
            # The name goes while the lock is held: whoever opened the file before finds that it is no longer this one.
            (self.place / _NAME).unlink(missing_ok=True)
            os.close(self.handle)
            self.handle = None


#: The claims of this process, by checkpoint.
_HELD: dict[Path, Claim] = {}


def claim(checkpoint: Path) -> Claim:
    """Take `checkpoint`, a folder that need not be there. Raises PenstockError P0609 while another run has it, P0601
    where it cannot be written."""
    place = checkpoint.resolve()
    former = _HELD.get(place)
    if former is not None and former.over():
        former.release()
    path = place / _NAME
    try:
        place.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            if _locked(handle, checkpoint) and _is_still(path, handle):
                break
            os.close(handle)
    except OSError as error:
        raise unwritable(path, error) from error
    os.truncate(handle, 0)
    os.write(handle, f"{os.getpid()} on {socket.gethostname()}".encode())
    _HELD[place] = Claim(place, handle)
    return _HELD[place]


def _locked(handle: int, checkpoint: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 300, 0).decode(errors="replace")
        os.close(handle)
        raise PenstockError(
            "P0609", f"the checkpoint {checkpoint} is in use" + (f": by process {holder}" if holder else ""),
            hint="stop that run first, or give another --checkpoint",
        ) from None  # fmt: skip
    except OSError:
        # A file system without locks.
        return True
    return True


def _is_still(path: Path, handle: int) -> bool:
    """Whether the file that was locked is the one of that name."""
    try:
        there, mine = path.stat(), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
