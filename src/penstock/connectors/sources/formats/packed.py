"""Compressed files, read only after the whole of them was found to be sound.

A stream of compressed bytes is checked at its end alone, and what a damaged one gives before may be anything. So a
file is decompressed once to its end before any of it is used. What fits into `HELD_BYTES` is kept from that; a larger
file is decompressed a second time as it is read. Neither needs room on a disk.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from penstock.connectors.sources.formats.base import BrokenOff, one_line

#: The compression that a name ends with, whatever its case.
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".xz": "xz", ".lz4": "lz4"}
#: Up to so many decompressed bytes are kept while a file is verified.
HELD_BYTES = 16 * 2**20
_PIECE = 2**20

#: What decompressing damaged bytes raises.
DAMAGED = (OSError, EOFError, lzma.LZMAError, pa.ArrowException)


class ByteStream(Protocol):
    """What text is read from."""

    def read(self, count: int, /) -> bytes: ...

    def close(self) -> None: ...


def compression_of(path: str) -> str | None:
    """The compression that the name of a file says; None for none."""
    folded = path.lower()
    return next((kind for suffix, kind in COMPRESSIONS.items() if folded.endswith(suffix)), None)


def without_suffix(path: str) -> str:
    """`path` in lower case, without the suffix of its compression."""
    folded = path.lower()
    suffix = next((suffix for suffix in COMPRESSIONS if folded.endswith(suffix)), "")
    return folded.removesuffix(suffix)


def open_bytes(path: str, verify: bool = True) -> ByteStream:
    """The decompressed bytes of a file. verify: read it to its end first. Raises OSError for a file that cannot be
    opened, BrokenOff for one that is damaged."""
    kind = compression_of(path)
    if kind is None:
        plain: ByteStream = pa.OSFile(path)
        return plain
    if not verify:
        return _decompressed(path, kind)
    held = _verified(path, kind)
    return _decompressed(path, kind) if held is None else io.BytesIO(held)


def _verified(path: str, kind: str) -> bytes | None:
    """The content of a sound file, None where it is too large to keep. Raises BrokenOff."""
    kept: list[bytes] | None = []
    size = 0
    try:
        for piece in _pieces(_decompressed(path, kind)):
            size += len(piece)
            kept = None if kept is None or size > HELD_BYTES else [*kept, piece]
    except DAMAGED as error:
        raise BrokenOff(damaged(error)) from None
    return None if kept is None else b"".join(kept)


def damaged(error: BaseException) -> str:
    """The reason why a compressed file is rejected whole."""
    return f"the compressed file is damaged, nothing of it is read: {one_line(error)}"


def _pieces(stream: ByteStream) -> Iterator[bytes]:
    try:
        while piece := stream.read(_PIECE):
            yield piece
    finally:
        stream.close()


def _decompressed(path: str, kind: str) -> ByteStream:
    # Who reads it closes it.
    opened: ByteStream = lzma.open(path) if kind == "xz" else pa.input_stream(path, compression=kind)  # noqa: SIM115
    return opened
