"""Standard output of a command."""

from __future__ import annotations

import io
import sys


def buffer_output() -> None:
    """Put a buffer before standard output where Python has none (`PYTHONUNBUFFERED`, `python -u`).

    An unbuffered write may write only a part without an error: a reader that closes the pipe in the middle would be
    taken for one that has read all of it.
    """
    out = sys.stdout
    raw = getattr(out, "buffer", None)
    if isinstance(out, io.TextIOWrapper) and isinstance(raw, io.RawIOBase):
        encoding, errors = out.encoding, out.errors
        out.detach()
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=True)
