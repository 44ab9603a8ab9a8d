"""Tokens: their file, its secrecy, expiry, revocation and the limit of failed logins."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
import threading
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.server.attempts import OF_ADDRESS, FailedLogins, WaitingClients
from penstock.server.roles import AccessRole, Caller
from penstock.server.tokens import TokenFile, digest, first_token, looks_like_token, scram_verifier


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "config" / "tokens.json")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_token_is_accepted_and_stored_nowhere(tokens: TokenFile) -> None:
    token = tokens.add("ada", AccessRole.CONTROL)
    assert tokens.check(token) == Caller("ada", AccessRole.CONTROL)
    text = tokens.path.read_text(encoding="utf-8")
    assert token not in text and token.removeprefix("pnst_") not in text
    assert mode(tokens.path) == 0o600 and mode(tokens.path.parent) == 0o700
    entry = json.loads(text)["tokens"][0]
    random_bytes = base64.urlsafe_b64decode(token.removeprefix("pnst_") + "=")
    assert len(random_bytes) == 32
    assert entry["sha256"] == hashlib.sha256(random_bytes).hexdigest()
    assert looks_like_token(f"see {token}")


@pytest.mark.parametrize("wrong", ["", "pnst_", "pnst_" + "A" * 43, "pnst_" + "A" * 44, "Ä" * 48, "x" * 10_000])
def test_what_is_no_token_is_refused(tokens: TokenFile, wrong: str) -> None:
    tokens.add("ada", AccessRole.READ)
    assert tokens.check(wrong) is None


def test_no_file_has_no_tokens(tokens: TokenFile) -> None:
    assert tokens.entries() == ()
    assert tokens.check("pnst_" + "A" * 43) is None


def test_a_revoked_token_is_refused_at_once_by_another_reader(tokens: TokenFile) -> None:
    token = tokens.add("ada", AccessRole.READ)
    server = TokenFile(tokens.path)
    assert server.check(token) is not None
    tokens.revoke("ada")
    assert server.check(token) is None
    with pytest.raises(PenstockError, match="P0807"):
        tokens.revoke("ada")


def test_an_expired_token_is_refused(tokens: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    end = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    token = tokens.add("ada", AccessRole.READ, end)
    assert tokens.check(token) is not None
    monkeypatch.setattr("penstock.server.tokens._now", lambda: end + dt.timedelta(seconds=1))
    assert tokens.check(token) is None
    with pytest.raises(PenstockError, match="expired"):
        tokens.add("bob", AccessRole.READ, end)


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "-x", "a\nb"])
def test_names_are_plain(tokens: TokenFile, name: str) -> None:
    with pytest.raises(PenstockError, match="P0807"):
        tokens.add(name, AccessRole.READ)


def test_a_name_is_used_once(tokens: TokenFile) -> None:
    tokens.add("ada", AccessRole.READ)
    with pytest.raises(PenstockError, match="already"):
        tokens.add("ada", AccessRole.ADMIN)


def test_a_file_that_others_can_read_is_refused(tokens: TokenFile) -> None:
    token = tokens.add("ada", AccessRole.READ)
    tokens.path.chmod(0o640)
    with pytest.raises(PenstockError, match="P0807") as caught:
        TokenFile(tokens.path).check(token)
    assert "chmod 600" in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": "x", "tokens": []}', '{"format": "penstock.tokens/1", "tokens": [{"name": "a"}]}',
     '{"format": "penstock.tokens/1", "tokens": [{"name": "a", "role": "king", "created": "", "expires": "", '
     '"sha256": "", "scram": ""}]}', "\x00"],
)  # fmt: skip
def test_a_damaged_file_is_an_error(tokens: TokenFile, content: str) -> None:
    tokens.path.parent.mkdir(parents=True)
    tokens.path.touch(0o600)
    tokens.path.write_text(content, encoding="utf-8")
    with pytest.raises(PenstockError, match="P0807"):
        tokens.entries()


def test_the_first_token_lies_in_a_private_file(tokens: TokenFile) -> None:
    place = first_token(tokens)
    assert place is not None and mode(place) == 0o600
    assert tokens.check(place.read_text(encoding="utf-8").strip()) == Caller("first", AccessRole.ADMIN)
    assert first_token(tokens) is None


def test_concurrent_changes_lose_nothing(tokens: TokenFile) -> None:
    made: list[str] = []

    def add(number: int) -> None:
        while True:
            try:
                made.append(TokenFile(tokens.path).add(f"t{number}", AccessRole.READ))
            except PenstockError as error:
                assert "being changed" in str(error)
            else:
                return

    threads = [threading.Thread(target=add, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {tokens.check(token).name for token in made} == {f"t{n}" for n in range(6)}  # type: ignore[union-attr]


def test_the_verifier_is_that_of_the_example_in_rfc_7677() -> None:
    """Check the exchange of RFC 7677 3: the verifier alone must be enough to check the client's proof."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = scram_verifier("pencil", salt)
    head, keys = verifier.removeprefix("SCRAM-SHA-256$4096:").split("$")
    stored, server_key = (base64.b64decode(key) for key in keys.split(":"))
    assert base64.b64decode(head) == salt
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(a ^ b for a, b in zip(proof, hmac.digest(stored, message, "sha256"), strict=True))
    assert hashlib.sha256(client_key).digest() == stored
    signature = base64.b64encode(hmac.digest(server_key, message, "sha256"))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_digest_of_no_token_is_none() -> None:
    assert digest("secret") is None


def test_ten_failed_logins_a_minute_and_address() -> None:
    now = [0.0]
    failures = FailedLogins(lambda: now[0])
    for _ in range(10):
        assert failures.wait("192.0.2.1") == 0
        failures.failed("192.0.2.1")
    assert failures.wait("192.0.2.1") == 60
    assert failures.wait("::ffff:192.0.2.1") == 60
    assert failures.wait("192.0.2.2") == 0
    now[0] = 60.0
    assert failures.wait("192.0.2.1") == 0


def test_addresses_of_one_ipv6_network_count_together() -> None:
    failures = FailedLogins(lambda: 0.0)
    for number in range(10):
        failures.failed(f"2001:db8::{number}")
    assert failures.wait("2001:db8::ffff") > 0
    assert failures.wait("2001:db8:0:1::1") == 0


def test_the_table_of_addresses_is_bounded() -> None:
    failures = FailedLogins(lambda: 0.0)
    for number in range(10_050):
        failures.failed(f"host{number}")
    assert len(failures._failures) == 10_000


class Waiting:
    """A connection before its login."""

    def __init__(self, clients: WaitingClients, address: str, is_full: bool = False) -> None:
        self.waits = True
        clients.add(address, lambda: self.waits, self.close, is_full)

    def close(self) -> None:
        assert self.waits
        self.waits = False


def test_who_waits_for_a_login_gives_way_to_new_ones_of_its_address() -> None:
    now = [0.0]
    clients = WaitingClients(lambda: now[0])
    own = [Waiting(clients, "192.0.2.1") for _ in range(OF_ADDRESS)]
    others = [Waiting(clients, "198.51.100.7") for _ in range(3)]
    late = Waiting(clients, "192.0.2.1")
    assert all(one.waits for one in [*own, *others, late]), "an honest client has a second"
    now[0] = 1.0
    Waiting(clients, "192.0.2.1")
    assert [one.waits for one in own] == [False] + [True] * (OF_ADDRESS - 1)
    own[1].waits = False  # it has logged in, or left
    own[2].waits = False
    own[3].waits = False
    Waiting(clients, "192.0.2.1")
    assert all(one.waits for one in own[4:]) and all(one.waits for one in others)


def test_where_a_door_is_full_the_most_crowded_address_gives_way() -> None:
    now = [0.0]
    clients = WaitingClients(lambda: now[0])
    few = [Waiting(clients, "198.51.100.7") for _ in range(2)]
    # Machines have a network of IPv6 each.
    many = [Waiting(clients, f"2001:db8::{n:x}") for n in range(3)]
    now[0] = 5.0
    Waiting(clients, "203.0.113.9")
    assert all(one.waits for one in [*few, *many])
    newest = Waiting(clients, "203.0.113.9", is_full=True)
    assert [one.waits for one in many] == [False, True, True] and all(one.waits for one in [*few, newest])
