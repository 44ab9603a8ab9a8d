"""`--connect URL`: which server, with which token, and what is wrong where it cannot be used."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import typer

from penstock.cli.shared.options import ServerPlace
from penstock.client import ServerClient, connect
from penstock.client.lost import is_late
from penstock.errors import PenstockError, counted

#: The variable that may hold a token.
TOKEN_VARIABLE = "PENSTOCK_TOKEN"
#: The variable that may name a file of certificates to trust.
AUTHORITIES_VARIABLE = "PENSTOCK_TLS_CA"
#: Names of this machine: only to it the token of the first start is sent unasked.
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
#: Seconds for which a server that is not reached is tried again, which may be starting.
_PATIENCE = 5.0
#: Seconds in which it has to answer the first time, as every server does; a statement may take any time.
_FIRST_ANSWER_SECONDS = 10.0
#: Characters of a file that is looked at for a token.
_LONGEST = 4_096


@contextmanager
def connected_to(place: ServerPlace) -> Iterator[ServerClient]:
    """Return a client of a server that has answered. Raises PenstockError P0808, P0801, P0807, P0809."""
    token, source = _token(place)
    authorities = _authorities(place)
    with connect(place.url, token, patience=_PATIENCE, certificates=authorities, timeout=None) as client:
        if token is not None and urlsplit(place.url).scheme == "http" and _host(place.url) not in _HERE:
            typer.echo("WARNING: the token and all rows are sent unencrypted (http:)", err=True)
        try:
            client.catalog(timeout=_FIRST_ANSWER_SECONDS)
        except PenstockError as error:
            raise _explained(error, source, place.url) from None
        yield client


def _authorities(place: ServerPlace) -> str | None:
    """Return the file of certificates to trust, None for those of the system. Raises PenstockError P0808."""
    given = os.environ.get(AUTHORITIES_VARIABLE, "").strip()
    file = place.authorities or (Path(given) if given else None)
    if file is None:
        return None
    if not file.is_file():
        hint = "--tls-ca FILE" if place.authorities else f"the variable {AUTHORITIES_VARIABLE} names it"
        raise PenstockError("P0808", f"there is no file {file} of certificates", hint=hint)
    return str(file)


def _explained(error: PenstockError, source: str, url: str) -> PenstockError:
    """Return an error of the first request, with what to do about it here."""
    if error.code == "P0801" and not source:
        hint = f"--token-file FILE, or the variable {TOKEN_VARIABLE}; `penstock token add NAME` makes a token"
        return PenstockError("P0801", "the server requires a token, and none is given", hint=hint)
    if error.code == "P0801":
        hint = "`penstock token list` shows the valid ones, `penstock token add NAME` makes another"
        return PenstockError("P0801", f"{error.message} ({source})", hint=hint)
    if is_late(error):
        waited = counted(round(_FIRST_ANSWER_SECONDS), "second")
        message = f"{url} cannot be reached: no answer has come in {waited}"
        return PenstockError("P0808", message, hint="is there a Penstock server, and has it something to compute with?")
    return error


def _token(place: ServerPlace) -> tuple[str | None, str]:
    """Return the token, and where it comes from. Raises PenstockError P0807."""
    if place.token_file is not None:
        return _read(place.token_file), f"that of {place.token_file}"
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    if given:
        return given, f"that of the variable {TOKEN_VARIABLE}"
    first = _first_token()
    if _host(place.url) in _HERE and first.is_file() and os.access(first, os.R_OK):
        return _read(first), f"that of {first}"
    return None, ""


def _first_token() -> Path:
    """Return where `penstock serve` puts the token of its first start."""
    from penstock.server.tokens import default_token_file

    return default_token_file().with_name("first-token")


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST).strip()
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise PenstockError("P0807", f"the token file {path} cannot be read: {error.strerror}", cause=error) from None
    except UnicodeDecodeError:
        text, mode = "", 0
    if text.startswith("{"):
        hint = "`penstock token add NAME > FILE` makes a token for a client"
        raise PenstockError("P0807", f"{path} is the file of a server, which holds no token", hint=hint)
    if not text or len(text.split()) != 1:
        raise PenstockError("P0807", f"{path} holds no token", hint="it holds one token and nothing else")
    if mode & 0o077:
        typer.echo(f"WARNING: other users of this machine can read {path} (chmod 600 {path})", err=True)
    return text


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
