"""Checksums of what a run writes for itself, so that a change in any byte shows. They find accidents, not attackers."""

from __future__ import annotations

import zlib
from pathlib import Path

from penstock.errors import PenstockError

_AT_ONCE = 2**24


def sealed(text: str) -> bytes:
    """A text with its checksum in a last line."""
    data = text.encode()
    return data + b"\n%08x\n" % zlib.crc32(data)


def unsealed(data: bytes) -> str:
    """The inverse of `sealed`. Raises ValueError."""
    text, _, seal = data.rstrip(b"\n").rpartition(b"\n")
    if len(seal) != 8 or b"%08x" % zlib.crc32(text) != seal:
        raise ValueError("it is not what was written")
    return text.decode()


def checksum(path: Path) -> int:
    """Of a file, or of all files of a folder and their names."""
    found = 0
    for part in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        found = zlib.crc32(str(part.relative_to(path)).encode(), found)
        with part.open("rb") as file:
            while data := file.read(_AT_ONCE):
                found = zlib.crc32(data, found)
    return found


def damaged(path: Path, error: BaseException) -> PenstockError:
    """A file of the checkpoint does not hold what was written."""
    return PenstockError(
        "P0605", f"{path} in the checkpoint is damaged: {error}", cause=error,
        hint="restore the checkpoint from a copy, or start afresh with a new --checkpoint",
    )  # fmt: skip
