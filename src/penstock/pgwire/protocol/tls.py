"""TLS at the door, and what binds a login to it [RFC 5929 4].

A client that logs in by SCRAM-SHA-256-PLUS proves its token together with the hash of the certificate it was shown.
A party between client and server with a certificate of its own cannot pass that proof on.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.server.listening import Certificate

#: The hash functions of signatures, by the encoded identifiers of their algorithms. MD5 and SHA-1 are replaced by
#: SHA-256 [RFC 5929 4.1].
_SIGNATURES = {
    bytes.fromhex("2a864886f70d010104"): "sha256",  # MD5 with RSA
    bytes.fromhex("2a864886f70d010105"): "sha256",  # SHA-1 with RSA
    bytes.fromhex("2a864886f70d01010e"): "sha224",
    bytes.fromhex("2a864886f70d01010b"): "sha256",
    bytes.fromhex("2a864886f70d01010c"): "sha384",
    bytes.fromhex("2a864886f70d01010d"): "sha512",
    bytes.fromhex("2a8648ce3d0401"): "sha256",  # SHA-1 with ECDSA
    bytes.fromhex("2a8648ce3d040301"): "sha224",
    bytes.fromhex("2a8648ce3d040302"): "sha256",
    bytes.fromhex("2a8648ce3d040303"): "sha384",
    bytes.fromhex("2a8648ce3d040304"): "sha512",
}
_PSS = bytes.fromhex("2a864886f70d01010a")
#: Those that a signature by RSASSA-PSS names.
_HASHES = {
    bytes.fromhex("2b0e03021a"): "sha256",  # SHA-1
    bytes.fromhex("608648016503040201"): "sha256",
    bytes.fromhex("608648016503040202"): "sha384",
    bytes.fromhex("608648016503040203"): "sha512",
    bytes.fromhex("608648016503040204"): "sha224",
}
_IDENTIFIER, _FIRST_PARAMETER = 0x06, 0xA0


@dataclass(frozen=True)
class DoorTls:
    """context: for the handshake; end_point: what a login may be bound to, None where the certificate is signed in a
    way for which that is not defined (Ed25519)."""

    context: ssl.SSLContext
    end_point: bytes | None

    @staticmethod
    def of(certificate: Certificate) -> DoorTls:
        """Return the TLS of a door with a certificate that has been checked."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate.chain, certificate.key)
        return DoorTls(context, end_point(_first_certificate(certificate.chain.read_text("latin-1"))))


def end_point(certificate: bytes) -> bytes | None:
    """Return the binding `tls-server-end-point` of a certificate in DER; None where it is not defined."""
    try:
        name = _hash_function(certificate)
    except (IndexError, ValueError):
        return None
    return None if name is None else hashlib.new(name, certificate).digest()


def _first_certificate(text: str) -> bytes:
    """Return the first certificate of a PEM file, which is that of the server."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    start = text.index(begin)
    return ssl.PEM_cert_to_DER_cert(text[start : text.index(end, start) + len(end)])


def _hash_function(certificate: bytes) -> str | None:
    """Return the hash function of the signature of a certificate [RFC 5280 4.1]."""
    ((_, content),) = _values(certificate)
    _, (_, algorithm), _ = _values(content)
    (tag, identifier), *parameters = _values(algorithm)
    if tag != _IDENTIFIER:
        return None
    if identifier != _PSS:
        return _SIGNATURES.get(identifier)
    for tag, value in _values(parameters[0][1]) if parameters else ():
        if tag == _FIRST_PARAMETER:
            ((_, named),) = _values(value)
            return _HASHES.get(next(_values(named))[1])
    # The default is SHA-1 [RFC 4055 3.1], which SHA-256 replaces.
    return "sha256"


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the content of each value in DER. Raises ValueError, IndexError."""
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size >= 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data):
            raise ValueError("a value ends behind what it is in")
        yield tag, data[at : at + size]
        at += size
