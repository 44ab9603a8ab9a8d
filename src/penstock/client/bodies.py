"""The body of an answer as a file that Arrow reads, of which no more is held than one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa


def arrow_file(pieces: Iterator[bytes]) -> pa.PythonFile:
    """Return the pieces of a body as a file."""
    return pa.PythonFile(_Pieces(pieces), mode="r")


class _Pieces:
    """The body of an answer as a file: returns as many bytes as are requested, fewer at its end alone."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._waiting = bytearray()
        self.closed = False
        self.seekable: Callable[[], bool] = lambda: False

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._waiting) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._waiting += piece
        size = len(self._waiting) if size < 0 else size
        taken = bytes(self._waiting[:size])
        del self._waiting[:size]
        return taken

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def flush(self) -> None: ...
