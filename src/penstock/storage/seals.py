"""Checksums of the files that a run writes for itself. They detect a change in any byte, and a file in the place of
another.

A sealed file ends in a line with a checksum and the file's place: the run's name and the path in the checkpoint, which
contains kind, batch, stage, shard, source or round. Seals detect accidents, not attackers.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from penstock.errors import PenstockError
from penstock.storage import storage

_AT_ONCE = 2**24


def sealed(text: str, place: str = "") -> bytes:
    """Return the bytes of a text with a last line that holds its checksum and its place."""
    data, where = text.encode(), place.encode("utf-8", "surrogateescape")
    return data + b"\n%08x %s\n" % (_seal(data, where), where)


def unsealed(data: bytes, place: str = "") -> str:
    """Return the text of a sealed file, the inverse of `sealed`. Raises ValueError if it was changed or belongs to
    another place.
    """
    text, _, last = data.removesuffix(b"\n").rpartition(b"\n")
    seal, _, where = last.partition(b" ")
    if len(seal) != 8 or b"%08x" % _seal(text, where) != seal:
        raise ValueError("its content does not match its checksum")
    if where != place.encode("utf-8", "surrogateescape"):
        raise ValueError(f"it holds what was written as {where.decode(errors='replace')}")
    return text.decode()


def _seal(data: bytes, where: bytes) -> int:
    return zlib.crc32(where, zlib.crc32(data))


def checksum(path: Path) -> int:
    """Return the checksum of a file, or of all files of a folder and their names."""
    crc = 0
    for part in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        crc = zlib.crc32(str(part.relative_to(path)).encode("utf-8", "surrogateescape"), crc)
        data = memoryview(storage().map(part))
        for start in range(0, len(data), _AT_ONCE):
            crc = zlib.crc32(data[start : start + _AT_ONCE], crc)
    return crc


def damaged(path: Path, error: BaseException) -> PenstockError:
    """Return the error for a file of the checkpoint that does not hold what was written."""
    return PenstockError(
        "P0605",
        f"{path} in the checkpoint is damaged: {error}",
        cause=error,
        hint="restore the checkpoint from a copy, or start afresh with a new --checkpoint",
    )


def other_format(path: Path, number: object, known: int) -> PenstockError:
    """Return the error for a file of the checkpoint in another format than the one that is read.

    Args:
        number: the format of the file.
        known: the one that is read.
    """
    return PenstockError(
        "P0605",
        f"{path} in the checkpoint has format {number}, this version reads format {known}",
        hint="continue with the version that wrote it, or start afresh with a new --checkpoint",
    )
