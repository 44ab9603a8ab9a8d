"""Logins that are bound to the certificate of the server: SCRAM-SHA-256-PLUS [RFC 5802, RFC 5929 4]."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import ssl
from pathlib import Path

import psycopg
import pytest

from penstock.pgwire.protocol.errors import Fatal
from penstock.pgwire.protocol.scram import BOUND, MECHANISM, ScramExchange, Verifier
from penstock.pgwire.protocol.tls import DoorTls, end_point
from penstock.server.listening import Certificate
from penstock.server.service import Service
from penstock.server.tokens import scram_verifier
from tests.server.pgwire.running import RawClient, RunningPg, made_certificate, running_pg, startup

RSA = ("-newkey", "rsa:2048")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@needs_openssl
@pytest.mark.parametrize(
    "options",
    [(), ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp384r1", "-sha384"), (*RSA, "-sha512"), (*RSA, "-sha1"),
     (*RSA, "-sha384", "-sigopt", "rsa_padding_mode:pss"), (*RSA, "-sha224", "-sigopt", "rsa_padding_mode:pss")],
    ids=lambda options: " ".join(options) or "as usual",
)  # fmt: skip
def test_a_client_that_requires_it_logs_in(options: tuple[str, ...], service: Service, tmp_path: Path) -> None:
    """libpq computes the binding of the certificate by itself."""
    with running_pg(tmp_path, service, Certificate(*made_certificate(tmp_path, *options))) as running:
        dsn = running.dsn(sslmode="require", channel_binding="require")
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with psycopg.connect(running.dsn(sslmode="require", channel_binding="disable")) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError, match="was refused"):
            psycopg.connect(running.dsn(sslmode="require", channel_binding="require", password="wrong"))


@needs_openssl
def test_it_is_not_offered_where_it_is_not_defined(service: Service, tmp_path: Path) -> None:
    with running_pg(tmp_path, service, Certificate(*made_certificate(tmp_path, "-newkey", "ed25519"))) as running:
        with psycopg.connect(running.dsn(sslmode="require")) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError, match="channel binding"):
            psycopg.connect(running.dsn(sslmode="require", channel_binding="require"))


def test_without_tls_it_is_not_offered(pg: RunningPg) -> None:
    with RawClient(pg.port, begin=False) as client:
        client.socket.sendall(startup(user="admin"))
        assert client.until("R") == [("R", b"\0\0\0\x0a" + MECHANISM.encode() + b"\0\0")]
        client.send("p", BOUND.encode() + b"\0\xff\xff\xff\xff")
        assert b"the only way to log in is SCRAM-SHA-256\0" in client.until("E")[-1][1]


@needs_openssl
def test_the_end_point_is_the_hash_of_the_first_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca").mkdir()
    other, _ = made_certificate(tmp_path / "ca", "-newkey", "ed25519")
    chain, key = made_certificate(tmp_path)
    der = ssl.PEM_cert_to_DER_cert(chain.read_text())
    chain.write_text("a text before it\n" + chain.read_text() + other.read_text())
    assert DoorTls.of(Certificate(chain, key)).end_point == hashlib.sha256(der).digest()
    # What is cut off, or no certificate at all, has none, and raises nothing.
    for cut in range(len(der)):
        assert end_point(der[:cut]) is None
    assert end_point(b"\x30\x80") is None and end_point(b"\x30\x84\xff\xff\xff\xff\x01") is None


# -- messages of clients that are not well-kept, or not alone ---------------------------------------------------


class ScramClient:
    """A client's side of an exchange. flag: what it says of binding; bound_to: to what it binds its proof."""

    def __init__(self, token: str, flag: str, bound_to: bytes = b"") -> None:
        self.token, self.header, self.bound_to = token, f"{flag},,", bound_to
        self.bare = "n=,r=abcdefgh"

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def last(self, answer: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        salted = hashlib.pbkdf2_hmac("sha256", self.token.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        binding = base64.b64encode(self.header.encode() + self.bound_to).decode()
        without_proof = f"c={binding},r={fields['r']}"
        message = f"{self.bare},{answer.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        return f"{without_proof},p={proof}".encode()


HASH = bytes(range(32))
ENDPOINT = "p=tls-server-end-point"


@pytest.mark.parametrize(
    ("flag", "bound_to", "offered", "chosen", "expected"),
    [("n", b"", None, False, "in"), ("y", b"", None, False, "in"), ("n", b"", HASH, False, "in"),
     (ENDPOINT, HASH, HASH, True, "in"), (ENDPOINT, HASH[::-1], HASH, True, "28000"),
     (ENDPOINT, b"", HASH, True, "28000"), (ENDPOINT, HASH + b"x", HASH, True, "28000"),
     ("y", b"", HASH, False, "28000"), ("n", b"", HASH, True, "08P01"), ("y", b"", HASH, True, "08P01"),
     (ENDPOINT, HASH, HASH, False, "08P01"), ("p=tls-unique", HASH, HASH, True, "08P01"),
     ("p=", HASH, HASH, True, "08P01"), ("n", HASH, HASH, False, "08P01")],
)  # fmt: skip
def test_what_a_client_says_of_binding_is_what_it_does(
    flag: str, bound_to: bytes, offered: bytes | None, chosen: bool, expected: str
) -> None:
    client = ScramClient("secret", flag, bound_to)
    exchange = ScramExchange(Verifier.parse(scram_verifier("secret", b"0123456789abcdef")), offered, chosen)
    try:
        outcome = "in" if exchange.last(client.last(exchange.first(client.first()))) is not None else "out"
    except Fatal as error:
        outcome = error.state
    assert outcome == expected
