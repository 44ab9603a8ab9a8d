"""The messages of PostgreSQL's protocol 3.0: how they are read, and how they are written.

A message is a letter, a length of four bytes that counts itself, and a body. The first message of a connection has no
letter.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.pgwire.protocol.errors import BAD_TEXT, PROTOCOL, Fatal, WireError

PROTOCOL_3 = 3 << 16
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80_877_103, 80_877_104, 80_877_102
#: Bytes of a first message, and of those before a client has logged in.
_FIRST, _LOGIN = 10_000, 10_000
_CHUNK = 65_536


@dataclass(frozen=True)
class Message:
    """A message of a client. left_out: bytes of a body beyond the limit, which was read and thrown away."""

    kind: str
    body: bytes
    left_out: int = 0


async def read_first(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the code and the rest of a first message. Raises Fatal for one that is none, EOFError at the end."""
    length, code = struct.unpack("!II", await _exactly(reader, 8))
    if not 8 <= length <= _FIRST:
        raise Fatal(PROTOCOL, "the first message has an impossible length")
    return code, await _exactly(reader, length - 8)


async def read_login(reader: asyncio.StreamReader) -> bytes:
    """Return the body of a message with a password, or a part of one. Raises Fatal."""
    kind, length = struct.unpack("!cI", await _exactly(reader, 5))
    if kind != b"p" or not 4 <= length <= _LOGIN:
        raise Fatal(PROTOCOL, "a message with a password was expected")
    return await _exactly(reader, length - 4)


async def read_message(reader: asyncio.StreamReader, most_of: Callable[[str], int]) -> Message:
    """Return the next message; of one with too large a body only its kind. most_of: returns the bytes that a body of a
    kind may have, when its head has come. Raises Fatal, EOFError."""
    head, length = struct.unpack("!cI", await _exactly(reader, 5))
    kind = head.decode("latin-1")
    if length < 4 or length >= 1 << 31:
        raise Fatal(PROTOCOL, "a message has an impossible length")
    size = length - 4
    if size <= most_of(kind):
        return Message(kind, await _exactly(reader, size))
    left = size
    while left:
        left -= len(await _exactly(reader, min(left, _CHUNK)))
    return Message(kind, b"", size)


async def _exactly(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError:
        raise EOFError from None


class Fields:
    """Reads the body of a message from its front. Raises WireError 08P01 for one that ends too early."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def text(self) -> str:
        """Return a text that ends with a zero byte."""
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise WireError(PROTOCOL, "a text in a message has no end")
        found, self._at = self._body[self._at : end], end + 1
        try:
            return found.decode("utf-8")
        except UnicodeDecodeError as error:
            raise WireError(BAD_TEXT, f"a text is not UTF-8, at its byte {error.start + 1}") from None

    def raw(self, count: int) -> bytes:
        found = self._body[self._at : self._at + count]
        if count < 0 or len(found) != count:
            raise WireError(PROTOCOL, "a message ends in the middle")
        self._at += count
        return found

    def int16(self) -> int:
        return int.from_bytes(self.raw(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.raw(4), "big", signed=True)

    def count(self) -> int:
        """Return the number of items that follow."""
        found = self.int16() & 0xFFFF
        if 2 * found > len(self._body) - self._at:
            raise WireError(PROTOCOL, "a message ends in the middle")
        return found

    def value(self) -> bytes | None:
        """Return a value with its length, None for NULL."""
        length = self.int32()
        return None if length == -1 else self.raw(length)

    def named_object(self) -> tuple[bytes, str]:
        """Return whether a whole message names a prepared statement, S, or a portal, P, and the name. Raises WireError
        08P01."""
        kind, name = self.raw(1), self.text()
        self.end()
        if kind not in (b"S", b"P"):
            raise WireError(
                PROTOCOL, f"a message is about a statement, S, or a portal, P, not {kind.decode('latin-1')!r}"
            )
        return kind, name

    def end(self) -> None:
        """Raises WireError where something is left."""
        if self._at != len(self._body):
            raise WireError(PROTOCOL, "a message has more than it should")


# -- written ---------------------------------------------------------------------------------------------------


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def _text(text: str) -> bytes:
    return text.replace("\0", " ").encode("utf-8", "replace") + b"\0"


def authentication(number: int, rest: bytes = b"") -> bytes:
    return message("R", struct.pack("!I", number) + rest)


def parameter_status(name: str, value: str) -> bytes:
    return message("S", _text(name) + _text(value))


def backend_key(process: int, secret: int) -> bytes:
    return message("K", struct.pack("!II", process, secret))


def negotiate(unknown: Sequence[str]) -> bytes:
    """Return that version 3.0 is spoken, and none of the options of a later one."""
    return message("v", struct.pack("!II", 0, len(unknown)) + b"".join(map(_text, unknown)))


def ready(state: str) -> bytes:
    """Return that the next statement may come. state: `I`, `T` or `E`."""
    return message("Z", state.encode())


def complete(tag: str) -> bytes:
    return message("C", _text(tag))


def problem(kind: str, fields: Mapping[str, str]) -> bytes:
    """Return an error (`E`) or a notice (`N`)."""
    return message(kind, b"".join(name.encode() + _text(value) for name, value in fields.items()) + b"\0")


def parameter_description(oids: Sequence[int]) -> bytes:
    return message("t", struct.pack("!H", len(oids)) + b"".join(struct.pack("!I", oid) for oid in oids))


def row_description(columns: Iterable[tuple[str, int, int, int, int]]) -> bytes:
    """Return names, oids, sizes and modifiers of types, and formats of columns."""
    parts = [
        _text(name) + struct.pack("!IhIhih", 0, 0, oid, size, modifier, form)
        for name, oid, size, modifier, form in columns
    ]
    return message("T", struct.pack("!H", len(parts)) + b"".join(parts))


def data_row(values: Iterable[bytes | None]) -> bytes:
    parts = [b"\xff\xff\xff\xff" if one is None else struct.pack("!I", len(one)) + one for one in values]
    return message("D", struct.pack("!H", len(parts)) + b"".join(parts))


def copy_out(columns: int, binary: bool) -> bytes:
    form = int(binary)
    return message("H", struct.pack(f"!bH{columns}H", form, columns, *[form] * columns))


def copy_in(columns: int) -> bytes:
    """Return that the lines of COPY may come, as text."""
    return message("G", struct.pack(f"!bH{columns}H", 0, columns, *[0] * columns))


PARSE_COMPLETE, BIND_COMPLETE, CLOSE_COMPLETE = message("1"), message("2"), message("3")
NO_DATA, SUSPENDED, EMPTY, COPY_DONE = message("n"), message("s"), message("I"), message("c")
