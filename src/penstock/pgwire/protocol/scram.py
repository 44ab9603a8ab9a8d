"""SCRAM-SHA-256 at a server: a client proves that it knows a token of which the server keeps a verifier [RFC 5802].

The password is a token. Its verifier stands in the token file, under the name of the token, which is the name of the
user. For a name that is unknown the exchange goes on as for a known one, with a salt that is always the same for this
name, and fails at its end. Through TLS it may be bound to the certificate of the server (SCRAM-SHA-256-PLUS).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from penstock.pgwire.protocol.errors import DOWNGRADED, PROTOCOL, Fatal
from penstock.server.tokens import scram_verifier

MECHANISM, BOUND = "SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"
_BINDING = "p=tls-server-end-point"
_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d+):([^$]+)\$([^:]+):(.+)")
_FIRST = re.compile(r"([ny]|p=[A-Za-z0-9.-]+)(?:,(a=[^,]*)?,)(n=[^,]*,r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)", re.DOTALL)
_LAST = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)),p=([A-Za-z0-9+/=]+)")
#: Makes the salts of names that are unknown.
_SECRET = secrets.token_bytes(32)


@dataclass(frozen=True)
class Verifier:
    """What is kept of a password [RFC 5802 3]."""

    iterations: int
    salt: str
    stored: bytes
    server: bytes

    @staticmethod
    def parse(text: str) -> Verifier:
        """Return the verifier that a text of the token file stands for. Raises ValueError."""
        match = _VERIFIER.fullmatch(text)
        if match is None:
            raise ValueError("no verifier")
        return Verifier(int(match[1]), match[2], base64.b64decode(match[3]), base64.b64decode(match[4]))

    @staticmethod
    def of_nobody(name: str) -> Verifier:
        """Return a verifier that no password fits, the same each time for a name."""
        salt = hmac.digest(_SECRET, name.encode(), "sha256")[:16]
        return Verifier.parse(scram_verifier(secrets.token_hex(16), salt))


class ScramExchange:
    """One exchange. Each method takes a message of the client and returns the answer; raises Fatal.

    Args:
        verifier: of the token.
        end_point: what a login can be bound to, None where the server offers no binding.
        bound: the client has chosen the mechanism with binding.
    """

    def __init__(self, verifier: Verifier, end_point: bytes | None = None, bound: bool = False) -> None:
        self._verifier, self._end_point, self._bound = verifier, end_point, bound
        self._header = self._first = self._answer = self._nonce = ""

    def first(self, data: bytes) -> bytes:
        match = _FIRST.fullmatch(_decoded(data))
        if match is None:
            raise Fatal(PROTOCOL, f"the first message of the client is not one of {MECHANISM}")
        self._check_binding(match[1])
        self._header = f"{match[1]},{match[2] or ''},"
        self._first = match[3]
        self._nonce = match[4] + base64.b64encode(secrets.token_bytes(18)).decode()
        self._answer = f"r={self._nonce},s={self._verifier.salt},i={self._verifier.iterations}"
        return self._answer.encode()

    def _check_binding(self, flag: str) -> None:
        """Raise Fatal where a client's channel binding does not fit what it has chosen and was offered."""
        if self._bound != flag.startswith("p"):
            chosen = BOUND if self._bound else MECHANISM
            raise Fatal(PROTOCOL, f"the client has chosen {chosen} and sends the message of another way to log in")
        if self._bound and flag != _BINDING:
            raise Fatal(PROTOCOL, "the only channel binding is tls-server-end-point")
        if flag == "y" and self._end_point is not None:
            # What was offered has not reached the client [RFC 5802 6].
            message = "the client could bind its login to TLS, and has not received that the server can"
            raise Fatal(DOWNGRADED, message, "something between client and server may have changed messages")

    def last(self, data: bytes) -> bytes | None:
        """Return the server's proof; None where the password is wrong."""
        match = _LAST.fullmatch(_decoded(data))
        if match is None:
            raise Fatal(PROTOCOL, "the last message of the client is not one of SCRAM-SHA-256")
        without_proof, binding, nonce, proof = match.groups()
        bound_to = self._end_point if self._bound and self._end_point is not None else b""
        if self._bound and _header_of(binding) == self._header.encode() and binding != _coded(self._header, bound_to):
            shown = "the client was shown another certificate than that of the server"
            raise Fatal(DOWNGRADED, shown, "something between client and server may read along")
        if binding != _coded(self._header, bound_to) or not hmac.compare_digest(nonce, self._nonce):
            raise Fatal(PROTOCOL, "the last message of the client does not belong to its first")
        message = f"{self._first},{self._answer},{without_proof}".encode()
        signature = hmac.digest(self._verifier.stored, message, "sha256")
        try:
            given = base64.b64decode(proof, validate=True)
        except binascii.Error:
            raise Fatal(PROTOCOL, "a proof is no base64") from None
        if len(given) != len(signature):
            return None
        key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server, message, "sha256"))


def _coded(header: str, bound_to: bytes) -> str:
    return base64.b64encode(header.encode() + bound_to).decode()


def _header_of(binding: str) -> bytes:
    """Return the header in the binding of a client; empty where it is none."""
    try:
        given = base64.b64decode(binding, validate=True)
    except binascii.Error:
        return b""
    end = given.find(b",", given.find(b",") + 1)
    return given[: end + 1]


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Fatal(PROTOCOL, "a message of the login is not UTF-8") from None
