"""Compressed files, read only after the whole file has been verified.

A compressed stream has its checksum only at its end, and the bytes before it in a damaged one may be anything. So a
file is decompressed once to its end before any of it is used. What fits into `HELD_BYTES` is kept from that; a larger
file is decompressed a second time while it is read. Neither needs disk space.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from penstock.connectors.formats.base import BrokenOff, one_line

#: The compression by the suffix of a name, ignoring case.
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".xz": "xz", ".lz4": "lz4"}
#: Largest number of decompressed bytes kept while a file is verified.
HELD_BYTES = 16 * 2**20
_PIECE = 2**20

#: Exceptions of decompressing damaged bytes.
DAMAGED = (OSError, EOFError, lzma.LZMAError, pa.ArrowException)


class ByteStream(Protocol):
    """A readable stream of bytes."""

    def read(self, count: int, /) -> bytes: ...

    def close(self) -> None: ...


def compression_of(path: str) -> str | None:
    """Return the compression that the name of a file implies; None for none."""
    lower = path.lower()
    return next((kind for suffix, kind in COMPRESSIONS.items() if lower.endswith(suffix)), None)


def without_suffix(path: str) -> str:
    """Return `path` in lower case, without the suffix of its compression."""
    lower = path.lower()
    suffix = next((suffix for suffix in COMPRESSIONS if lower.endswith(suffix)), "")
    return lower.removesuffix(suffix)


def open_bytes(path: str, verify: bool = True) -> ByteStream:
    """Open the decompressed bytes of a file.

    Args:
        path: the file.
        verify: read it to its end first.

    Raises:
        OSError: it cannot be opened.
        BrokenOff: it is damaged.
    """
    kind = compression_of(path)
    if kind is None:
        file: ByteStream = pa.OSFile(path)
        return file
    if not verify:
        return _decompressed(path, kind)
    content = _verified(path, kind)
    return _decompressed(path, kind) if content is None else io.BytesIO(content)


def _verified(path: str, kind: str) -> bytes | None:
    """Return the content of a sound file, None where it is too large to keep. Raises BrokenOff."""
    pieces: list[bytes] | None = []
    size = 0
    try:
        for piece in _pieces(_decompressed(path, kind)):
            size += len(piece)
            pieces = None if pieces is None or size > HELD_BYTES else [*pieces, piece]
    except DAMAGED as error:
        raise BrokenOff(damaged(error)) from None
    return None if pieces is None else b"".join(pieces)


def damaged(error: BaseException) -> str:
    """Return the reason for rejecting a whole compressed file."""
    return f"the compressed file is damaged, nothing of it is read: {one_line(error)}"


def _pieces(stream: ByteStream) -> Iterator[bytes]:
    try:
        while piece := stream.read(_PIECE):
            yield piece
    finally:
        stream.close()


def _decompressed(path: str, kind: str) -> ByteStream:
    # The caller closes it.
    stream: ByteStream = lzma.open(path) if kind == "xz" else pa.input_stream(path, compression=kind)  # noqa: SIM115
    return stream
