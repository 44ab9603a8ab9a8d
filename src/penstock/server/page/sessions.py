"""Sessions of the page: a signed cookie that stands for a token, so that no script in a browser holds the token.

A cookie is `name.expires.signature`: the name of the token, the end in seconds since 1970, and an HMAC-SHA-256 of both
under the digest that the token file keeps. Nothing is stored, so a session survives a restart of the server, and ends
when its token is revoked or expires. Browsers send cookies of a host to all of its ports, so the name of the cookie has
the port: two servers on one machine have a session each.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from http.cookies import CookieError, SimpleCookie

from penstock.server.roles import Caller
from penstock.server.tokens import TokenEntry, TokenFile

#: Seconds that a session lasts.
LASTS = 30 * 24 * 3600


def cookie_name(host: str) -> str:
    """Return the name of the cookie of a server. host: the header `Host`."""
    port = host.rpartition(":")[2]
    return f"penstock_{port}" if port.isdecimal() else "penstock"


def begin_session(tokens: TokenFile, owner: Caller) -> str | None:
    """Return the value of the cookie of a new session; None where the token of the owner is there no more. Raises
    PenstockError P0807."""
    expires = int(time.time()) + LASTS
    return next((_cookie(entry, expires) for entry in tokens.entries() if entry.name == owner.name), None)


def session_caller(tokens: TokenFile, cookies: str, host: str) -> Caller | None:
    """Return whose session a request belongs to; None where it has none that is valid. cookies: the header `Cookie`.
    Raises PenstockError P0807."""
    try:
        morsel = SimpleCookie(cookies).get(cookie_name(host))
    except CookieError:
        return None
    value = "" if morsel is None else morsel.value
    # The name of a token may have dots.
    name, _, expires = value.rpartition(".")[0].rpartition(".")
    if not (expires.isascii() and expires.isdecimal() and len(expires) < 16 and int(expires) > time.time()):
        return None
    found = next((entry for entry in tokens.entries() if entry.name == name), None)
    if found is None or not hmac.compare_digest(_cookie(found, int(expires)).encode(), value.encode()):
        return None
    return tokens.valid(found)


def _cookie(entry: TokenEntry, expires: int) -> str:
    content = f"{entry.name}.{expires}"
    key = bytes.fromhex(entry.sha256)
    return f"{content}.{hmac.digest(key, f'penstock page {content}'.encode(), hashlib.sha256).hex()}"
