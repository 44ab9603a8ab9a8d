"""Text files block by block, in bounded memory, each block cut where a record ends.

Contract: `blocks` yields whole records only, with the number of the line each block begins at, so that any record can
be told by its line. A UTF-8 byte order mark is dropped. A file that breaks off (a truncated .gz, a read error) gives
the whole records before the break, then raises BrokenOff.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.sources.formats.base import BrokenOff, one_line

BLOCK_BYTES = 4 * 2**20
#: A record longer than this is taken as broken (usually a quote that nobody closed).
RECORD_BYTES = 16 * 2**20
#: Compressed files are read in small pieces: when one breaks off, only the piece that fails is lost.
_PIECE = 64 * 2**10
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Some whole records; `line`: the 1-based line that the first byte stands on."""

    data: bytes
    line: int


#: How many bytes of the data are whole records, when more data follows; 0 when there is no end of a record yet.
Cut = Callable[[bytes], int]


def blocks(path: str, cut: Cut) -> Iterator[Block]:
    """The blocks of a file. Raises OSError when it cannot be opened, BrokenOff when it cannot be read to its end."""
    line, rest = 1, b""
    broken: Exception | None = None
    with pa.input_stream(path, compression="detect") as stream:
        first = True
        while broken is None:
            data, broken = _fill(stream)
            if first:
                data, first = data.removeprefix(_BOM), False
            if not data and broken is None:
                break
            data = rest + data
            end = cut(data)
            if not end and len(data) > RECORD_BYTES:
                end = data.rfind(b"\n") + 1 or len(data)
            rest = data[end:]
            if end:
                yield Block(data[:end], line)
                line += count_lines(data[:end])
    if broken is not None:
        raise BrokenOff(f"the rest of the file cannot be read: {one_line(broken)}", line)
    if rest:
        yield Block(rest, line)


def count_lines(data: bytes) -> int:
    """Line ends in `data`: \\n, \\r\\n or a \\r alone."""
    count = data.count(b"\n")
    if b"\r" in data:
        count += data.count(b"\r") - data.count(b"\r\n")
    return count


def end_of_lines(data: bytes) -> int:
    """How many bytes are whole lines, when more data follows."""
    end = data.rfind(b"\n") + 1
    if not end and b"\r" in data:
        # A \r at the very end may be the first half of \r\n.
        end = data.rfind(b"\r", 0, -1) + 1
    return end


def _fill(stream: pa.NativeFile) -> tuple[bytes, Exception | None]:
    if not isinstance(stream, pa.CompressedInputStream):
        try:
            return stream.read(BLOCK_BYTES), None
        except OSError as error:
            return b"", error
    buffer = io.BytesIO()
    while buffer.tell() < BLOCK_BYTES:
        try:
            piece = stream.read(_PIECE)
        except (OSError, EOFError) as error:
            return buffer.getvalue(), error
        if not piece:
            break
        buffer.write(piece)
    return buffer.getvalue(), None
