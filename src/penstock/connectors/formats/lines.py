"""Text files piece by piece, in bounded memory.

Contract: a `TextFile` shows the bytes that are not yet consumed, beginning at a record, with the number of the line
they begin at. Where its reader finds no end of a record it reads as much again as it holds, so that searching for the
end costs at most twice the bytes. A UTF-8 byte order mark is dropped. A compressed file is verified before any of it is
shown (`packed.py`); a plain one that cannot be read to its end raises BrokenOff after its whole records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from penstock.connectors.formats.base import BrokenOff, Unfit, one_line
from penstock.connectors.formats.packed import DAMAGED, ByteStream, compression_of, damaged, open_bytes

BLOCK_BYTES = 4 * 2**20
#: Bytes of a file that are searched for its first records.
SAMPLE_BYTES = 2**20
BOM = b"\xef\xbb\xbf"
#: First bytes of text that is not UTF-8; the longer marks come first.
_FOREIGN = {
    b"\xff\xfe\x00\x00": "UTF-32LE",
    b"\x00\x00\xfe\xff": "UTF-32BE",
    b"\xff\xfe": "UTF-16LE",
    b"\xfe\xff": "UTF-16BE",
}
#: Without a mark, an encoding shows by NULs in every second byte of this many.
_LOOK_BYTES = 64


@dataclass(frozen=True)
class Block:
    """Some whole records; `line`: the 1-based line of the first byte."""

    data: bytes
    line: int


@dataclass
class TextFile:
    """The bytes of a file that are not yet consumed.

    `rewrite`: what is made of each piece that is read, where the text is not read as it is; the last one is empty;
    `ended`: no more bytes follow them; `line`: the line they begin at; `packed`: they are from a compressed file.
    """

    stream: ByteStream
    data: bytes = b""
    line: int = 1
    ended: bool = False
    packed: bool = False
    broken: Exception | None = field(default=None, repr=False)
    rewrite: Callable[[bytes], bytes] | None = field(default=None, repr=False)

    def begin(self) -> None:
        """Read the first bytes. Raises Unfit for what is no text, or in another encoding than UTF-8."""
        self.more()
        while len(self.data) < _LOOK_BYTES and not self.ended:
            self.more()
        for mark, (what, hint) in _NO_TEXT.items():
            if self.data.startswith(mark):
                raise Unfit(f"the file {what}", hint)
        name = _foreign_encoding(self.data[:_LOOK_BYTES])
        if name is not None:
            raise Unfit(f"the file is {name}, and text is read as UTF-8", f"convert it: iconv -f {name} -t UTF-8")
        self.data = self.data.removeprefix(BOM)

    def more(self) -> None:
        """Read a block, and at least as many bytes as are held."""
        remaining = max(BLOCK_BYTES, len(self.data))
        pieces = [self.data]
        while remaining > 0 and not self.ended:
            try:
                piece = self.stream.read(min(remaining, BLOCK_BYTES))
            except DAMAGED as error:
                piece, self.broken = b"", error
            self.ended = not piece
            pieces.append(piece if self.rewrite is None else self.rewrite(piece))
            remaining -= len(piece)
        self.data = b"".join(pieces)

    def take(self, count: int) -> Block:
        """Consume and return the first `count` bytes, which are whole lines."""
        block = Block(self.data[:count], self.line)
        self.leave(block.data)
        return block

    def leave(self, data: bytes) -> None:
        """Consume `data`, whole lines that come next."""
        self.line += count_lines(data)
        self.data = self.data[len(data) :]

    def take_line(self) -> None:
        """Skip the line at the beginning, however long it is."""
        while (end := _end_of_first_line(self.data, self.ended)) == 0:
            # Only its last byte counts: it may be the first half of \\r\\n.
            self.data = self.data[-1:] if self.data.endswith(b"\r") else b""
            if self.ended:
                self.line += 1
                return
            self.more()
        self.take(end)

    def finish(self) -> None:
        """Check the end of the file. Raises BrokenOff when the file could not be read to its end."""
        if self.broken is not None:
            if self.packed:
                raise BrokenOff(damaged(self.broken))
            raise BrokenOff(f"the remainder of the file cannot be read: {one_line(self.broken)}", self.line)


@contextmanager
def text_file(path: str, verify: bool = True, rewrite: Callable[[bytes], bytes] | None = None) -> Iterator[TextFile]:
    """Open the text of a file, its first bytes read. rewrite: as of `TextFile`. Raises OSError, BrokenOff or Unfit."""
    stream = open_bytes(path, verify)
    try:
        text = TextFile(stream, packed=compression_of(path) is not None, rewrite=rewrite)
        text.begin()
        yield text
    finally:
        stream.close()


def count_lines(data: bytes) -> int:
    """Count the line ends in `data`: \\n, \\r\\n or a \\r alone."""
    count = data.count(b"\n")
    if b"\r" in data:
        count += data.count(b"\r") - data.count(b"\r\n")
    return count


def longest_line(data: bytes) -> int:
    """Return the length of the longest line of `data`, whose lines end in \\n; a \\r before it may be counted."""
    view = np.frombuffer(data, dtype=np.uint8)
    return int(np.diff(np.flatnonzero(view == ord("\n")), prepend=-1, append=len(data)).max())


def end_of_lines(data: bytes) -> int:
    """Return the number of bytes in whole lines, when more data follows."""
    end = data.rfind(b"\n") + 1
    if not end and b"\r" in data:
        # A \r at the very end may be the first half of \r\n.
        end = data.rfind(b"\r", 0, -1) + 1
    return end


def _end_of_first_line(data: bytes, ended: bool) -> int:
    """Return the number of bytes of the first line with its end; 0 when its end is missing."""
    after_newline = data.find(b"\n") + 1
    after_return = data.find(b"\r", 0, after_newline or len(data)) + 1
    if not after_return:
        return after_newline
    if after_return == len(data):
        return after_return if ended else 0
    return after_return + (data[after_return : after_return + 1] == b"\n")


#: The first bytes of files that are no text -> what they are, what to do.
_NO_TEXT = {
    b"\x1f\x8b": ("is compressed by gzip, which its name does not say", "the name has to end with .gz"),
    b"PK\x03\x04": ("is a zip archive, as a workbook is", "save it as csv"),
    b"PAR1": ("is parquet", "write format 'parquet'"),
}


def _foreign_encoding(head: bytes) -> str | None:
    """Return the encoding that the first bytes of a file show, if it has more than one byte per character."""
    encoding = next((name for mark, name in _FOREIGN.items() if head.startswith(mark)), None)
    if encoding or len(head) < 4:
        return encoding
    even_bytes, odd_bytes = head[0::2], head[1::2]
    if not any(odd_bytes) and all(even_bytes):
        return "UTF-16LE"
    return "UTF-16BE" if not any(even_bytes) and all(odd_bytes) else None
