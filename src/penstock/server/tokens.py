"""Tokens: how they are made, kept in a file, and checked.

The file holds no token, only the SHA-256 of its 32 random bytes for HTTP and a SCRAM-SHA-256 verifier [RFC 5802] for
protocols with passwords. It is written whole, readable by its owner alone, and read again whenever it has changed, so
that a running server notices a revoked token. A token is valid until the end in its file, by the clock of this
machine.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, nearest
from penstock.server.roles import AccessRole, Caller
from penstock.storage import Held, storage

#: How every token begins, so that scanners of repositories find one that was published.
PREFIX = "pnst_"
_BYTES = 32
_TOKEN = re.compile(rf"{PREFIX}([A-Za-z0-9_-]{{43}})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_FORMAT = "penstock.tokens/1"
_ITERATIONS = 4096
_UNKNOWN = hashlib.sha256(b"no token").hexdigest()


@dataclass(frozen=True)
class TokenEntry:
    """What the file keeps of a token. created, expires: ISO-8601 in UTC; expires is empty for one that never does."""

    name: str
    role: str
    created: str
    expires: str
    sha256: str
    scram: str

    @property
    def caller(self) -> Caller:
        return Caller(self.name, AccessRole[self.role.upper()])

    def expired(self, now: dt.datetime) -> bool:
        return bool(self.expires) and now >= dt.datetime.fromisoformat(self.expires)

    @property
    def expired_now(self) -> bool:
        return self.expired(_now())


def new_token() -> str:
    """Return a token of 32 random bytes."""
    return PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(_BYTES)).decode().rstrip("=")


def looks_like_token(text: str) -> bool:
    """Return whether a text contains something that has the form of a token."""
    return _TOKEN.search(text) is not None


def digest(token: str) -> str | None:
    """Return the SHA-256 of the random bytes of a token, in hexadecimal; None for what is no token."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    try:
        return hashlib.sha256(base64.urlsafe_b64decode(match[1] + "=")).hexdigest()
    except (binascii.Error, ValueError):
        return None


def scram_verifier(password: str, salt: bytes, iterations: int = _ITERATIONS) -> str:
    """Return `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, as PostgreSQL writes it [RFC 5802 3]."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored = hashlib.sha256(client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    texts = [base64.b64encode(part).decode() for part in (salt, stored, server_key)]
    return f"SCRAM-SHA-256${iterations}:{texts[0]}${texts[1]}:{texts[2]}"


class TokenFile:
    """The tokens of a server, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._entries: tuple[TokenEntry, ...] = ()

    # -- for administrators ------------------------------------------------------------------------------------

    def add(self, name: str, role: AccessRole, expires: dt.datetime | None = None) -> str:
        """Make a token and return its text, which is stored nowhere. Raises PenstockError P0807 for a name that is in
        use or is no name."""
        if not _NAME.fullmatch(name):
            hint = "letters, digits and any of . _ @ -, at most 64, beginning with a letter or a digit"
            raise PenstockError("P0807", f"{name!r} cannot be the name of a token", hint=hint)
        if expires is not None and expires <= _now():
            raise PenstockError("P0807", f"the token {name} would have expired already")
        token = new_token()
        sha256 = digest(token)
        if sha256 is None:
            raise AssertionError("a new token has the form of a token")
        entry = TokenEntry(
            name,
            role.word,
            _now().isoformat(timespec="seconds"),
            "" if expires is None else expires.astimezone(dt.UTC).isoformat(timespec="seconds"),
            sha256,
            scram_verifier(token, secrets.token_bytes(16)),
        )
        with self._changing() as entries:
            if any(one.name == name for one in entries):
                hint = f"penstock token revoke {name} first, or choose another name"
                raise PenstockError("P0807", f"there is a token {name} already", hint=hint)
            self._write([*entries, entry])
        return token

    def revoke(self, name: str) -> None:
        """Remove a token. Raises PenstockError P0807 for a name that the file does not have."""
        with self._changing() as entries:
            left = [one for one in entries if one.name != name]
            if len(left) == len(entries):
                hint = nearest(name, [one.name for one in entries])
                raise PenstockError("P0807", f"there is no token {name}", hint=hint)
            self._write(left)

    def entries(self) -> tuple[TokenEntry, ...]:
        """Return all tokens, in the order in which they were made; none where there is no file. Raises PenstockError
        P0807."""
        with self._guard:
            self._refresh()
            return self._entries

    @contextmanager
    def _changing(self) -> Iterator[tuple[TokenEntry, ...]]:
        """Lock the file against other processes that change it."""
        try:
            held = storage().lock(self.path.with_name(self.path.name + ".lock"), f"process {os.getpid()}")
        except Held as error:
            raise PenstockError("P0807", f"{self.path} is being changed by {error.holder}") from None
        except OSError as error:
            raise self._unusable("cannot be written", error) from None
        try:
            yield self.entries()
        finally:
            held.release()

    def _write(self, entries: Sequence[TokenEntry]) -> None:
        content = {"format": _FORMAT, "tokens": [asdict(entry) for entry in entries]}
        try:
            storage().write(self.path, json.dumps(content, indent=2).encode() + b"\n")
        except OSError as error:
            raise self._unusable("cannot be written", error) from None

    # -- for doors ---------------------------------------------------------------------------------------------

    def check(self, token: str) -> Caller | None:
        """Return the owner of a token; None for one that is unknown or has expired. The time that it takes does not
        depend on how much of a token is right. Raises PenstockError P0807."""
        presented = digest(token) or _UNKNOWN
        found = None
        for entry in self.entries():
            if hmac.compare_digest(entry.sha256, presented):
                found = entry
        return None if found is None or found.expired_now else found.caller

    def valid(self, entry: TokenEntry) -> Caller | None:
        """Return the owner of a token whose entry was read before; None where it has expired or been revoked since.
        Raises PenstockError P0807."""
        return entry.caller if entry in self.entries() and not entry.expired_now else None

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._seen, self._entries = None, ()
            return
        except OSError as error:
            raise self._unusable("cannot be read", error) from None
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen == self._seen:
            return
        if stat.S_IMODE(status.st_mode) & 0o077:
            hint = f"chmod 600 {self.path}"
            raise PenstockError("P0807", f"other users of this machine can read {self.path}", hint=hint)
        self._entries = self._parsed()
        self._seen = seen

    def _parsed(self) -> tuple[TokenEntry, ...]:
        try:
            content: Any = json.loads(storage().read(self.path))
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']!r}")
            entries = tuple(TokenEntry(**{str(k): str(v) for k, v in one.items()}) for one in content["tokens"])
            for entry in entries:
                _ = entry.caller, entry.expired(_now())
        except OSError as error:
            raise self._unusable("cannot be read", error) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            hint = "`penstock token add` makes a new one where there is none"
            raise PenstockError("P0807", f"{self.path} is no token file: {error}", hint=hint) from None
        return entries

    def _unusable(self, what: str, error: OSError) -> PenstockError:
        return PenstockError("P0807", f"{self.path} {what}: {error.strerror}", cause=error)


def first_token(file: TokenFile) -> Path | None:
    """Make a token of the role admin where there is none at all, and return the private file that holds its text; None
    where there are tokens. Raises PenstockError P0807."""
    if file.entries():
        return None
    place = file.path.with_name("first-token")
    token = file.add("first", AccessRole.ADMIN)
    try:
        storage().write(place, token.encode() + b"\n")
    except OSError as error:
        file.revoke("first")
        raise PenstockError("P0807", f"{place} cannot be written: {error.strerror}", cause=error) from None
    return place


def default_token_file() -> Path:
    """Return the token file of this user, `$XDG_CONFIG_HOME/penstock/tokens.json`."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "penstock" / "tokens.json"


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
